/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of the embedding, and sums of vectors.
 */
#include "parts.h"

#include <string.h>

void
vectors_add(int64_t count, const real *a, const real *b, real *sum)
{
    for (int64_t i = 0; i < count; i++)
        sum[i] = a[i] + b[i];
}

void
rows_take(int64_t rows, int64_t dim, const unsigned char *tokens,
    const real *table, real *x)
{
    for (int64_t i = 0; i < rows; i++)
        memcpy(
            x + i * dim, table + tokens[i] * dim, (size_t)dim * sizeof(real));
}

void
rows_give(int64_t rows, int64_t dim, const unsigned char *tokens,
    const real *dx, real *dtable)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t c = 0; c < dim; c++)
            dtable[tokens[i] * dim + c] += dx[i * dim + c];
}
