/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by vectors. A register block holds some rows by VECTORS vectors of
 * sums; the units of A are broadcast one by one. Every element's sum over k is
 * one chain in ascending k, whatever the block.
 */
#ifndef ULI_ATTENTION_GEMM_VECTORS_H
#define ULI_ATTENTION_GEMM_VECTORS_H

#define DEPTH_STEP 1 /* units */

INLINE void
gemm_begin(void)
{
}

INLINE void
gemm_end(void)
{
}

/* `rows` by `vectors` sums, which stay in registers. */
INLINE void
gemm_block(const int rows, const int vectors, const enum gemm_init init,
    int64_t depth, const float *a, int64_t a_row, int64_t a_col, const float *b,
    float *c, int64_t c_ld, const float *factor)
{
    vf sum[ROWS_MOST][VECTORS];
    for (int m = 0; m < rows; m++)
        for (int n = 0; n < vectors; n++) {
            sum[m][n] = v_set(0.0f);
            if (init != GEMM_ZERO)
                sum[m][n] = v_load(c + m * c_ld + n * LANES);
            if (init == GEMM_SCALE)
                sum[m][n] *= v_set(factor[m]);
        }
        /* depths are multiples of 4 */
#pragma GCC unroll 4
    for (int64_t k = 0; k < depth; k++) {
        vf row[VECTORS];
        for (int n = 0; n < vectors; n++)
            row[n] = v_load(b + k * PANEL + n * LANES);
        for (int m = 0; m < rows; m++) {
            vf each = v_set(a[m * a_row + k * a_col]);
            for (int n = 0; n < vectors; n++)
                sum[m][n] = SIMD_DOT(sum[m][n], each, row[n]);
        }
    }
    for (int m = 0; m < rows; m++)
        for (int n = 0; n < vectors; n++)
            v_store(c + m * c_ld + n * LANES, sum[m][n]);
}

/* Computes all rows of some vectors of columns, in blocks of ROWS_MOST rows,
 * and of ROWS rows for the rest. */
INLINE void
gemm_columns(const int vectors, const enum gemm_init init, int64_t rows,
    int64_t depth, const float *a, int64_t a_row, int64_t a_col, const float *b,
    float *c, int64_t c_ld, const float *factor)
{
    int64_t m = 0;
    for (; rows - m >= ROWS_MOST && (ROWS_MOST == ROWS || rows - m != 2 * ROWS);
         m += ROWS_MOST)
        gemm_block(ROWS_MOST, vectors, init, depth, a + m * a_row, a_row, a_col,
            b, c + m * c_ld, c_ld, factor + m);
    for (; m < rows; m += ROWS)
        gemm_block(ROWS, vectors, init, depth, a + m * a_row, a_row, a_col, b,
            c + m * c_ld, c_ld, factor + m);
}

/* Columns are the outer loop: a panel of B stays in the L1 cache while all rows
 * of A are used. columns: a multiple of LANES; b_panel: floats from a panel to
 * the next. */
INLINE void
gemm_stripes(const enum gemm_init init, int64_t rows, int64_t columns,
    int64_t depth, const float *a, int64_t a_row, int64_t a_col, const float *b,
    int64_t b_panel, float *c, int64_t c_ld, const float *factor)
{
    int64_t n = 0;
    for (; n + PANEL <= columns; n += PANEL, b += b_panel)
        gemm_columns(VECTORS, init, rows, depth, a, a_row, a_col, b, c + n,
            c_ld, factor);
    for (; n < columns; n += LANES, b += LANES)
        gemm_columns(
            1, init, rows, depth, a, a_row, a_col, b, c + n, c_ld, factor);
}

#endif
