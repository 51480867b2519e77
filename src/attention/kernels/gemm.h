/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix products of tiles: C[m][n] = init + sum over k of A(m,k) B[k][n]
 * in units, with C in fp32 and A of any strides. Two ways to compute them give
 * the same interface, gemm_stripes: vectors of an instruction set
 * (gemm_vectors.h), or tiles where a file defines TILE_DOT (gemm_tiles.h).
 * The order of a sum over k depends on k alone, counted from A's first column.
 *   ROWS     rows of a register block; every m is a multiple of it
 *   VECTORS  vectors of a register block; n may be any number of vectors
 */
#ifndef ULI_ATTENTION_GEMM_H
#define ULI_ATTENTION_GEMM_H

#include "attention/kernels/simd.h"

#define PANEL (VECTORS * LANES)

enum gemm_init {
    GEMM_ZERO,  /* init = 0 */
    GEMM_ADD,   /* init = C */
    GEMM_SCALE, /* init = C[m][n] * factor[m] */
};

#ifdef TILE_DOT
#include "attention/kernels/gemm_tiles.h"
#else
#include "attention/kernels/gemm_vectors.h"
#endif

/* C[rows of a query tile][keys] from panels of transposed keys, each
 * [units][PANEL], one after another. */
INLINE void
gemm_panels(int64_t rows, int64_t keys, int64_t units, const float *a,
    int64_t a_ld, const float *panels, float *c, int64_t c_ld)
{
    for (int64_t n = 0; n < keys; n += PANEL)
        gemm_stripes(GEMM_ZERO, rows, PANEL, units, a, a_ld, 1,
            panels + n * units, PANEL, c + n, c_ld, c);
}

#endif
