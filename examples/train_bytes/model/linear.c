/* SPDX-License-Identifier: Apache-2.0
 *
 * The three matrix products of a linear map, by BLAS. BLAS is not called on a
 * rank without tokens, where matrices have no rows.
 */
#include "parts.h"

#include <cblas.h>

#ifdef TRAIN_F64
#define REAL_GEMM cblas_dgemm
#else
#define REAL_GEMM cblas_sgemm
#endif

void
linear_output(int64_t rows, int64_t in, int64_t out, const real *x,
    const real *w, real *y)
{
    if (rows > 0)
        REAL_GEMM(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)rows,
            (int)out, (int)in, 1, x, (int)in, w, (int)out, 0, y, (int)out);
}

void
linear_input(int64_t rows, int64_t in, int64_t out, const real *dy,
    const real *w, real keep, real *dx)
{
    if (rows > 0)
        REAL_GEMM(CblasRowMajor, CblasNoTrans, CblasTrans, (int)rows, (int)in,
            (int)out, 1, dy, (int)out, w, (int)out, keep, dx, (int)in);
}

void
linear_weight(int64_t rows, int64_t in, int64_t out, const real *x,
    const real *dy, real *dw)
{
    if (rows > 0)
        REAL_GEMM(CblasRowMajor, CblasTrans, CblasNoTrans, (int)in, (int)out,
            (int)rows, 1, x, (int)in, dy, (int)out, 1, dw, (int)out);
}
