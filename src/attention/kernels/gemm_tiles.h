/* SPDX-License-Identifier: Apache-2.0
 *
 * Products by tiles of 16 rows of 16 units: C of fp32, A and B of pairs along
 * k, where a row of B holds one pair per column. Units are such pairs already,
 * so B is loaded without a change, and so is A where its columns are
 * neighbours. Otherwise (p and ds, whose products sum over their rows) 32 rows
 * of A are transposed first. The sum over k takes steps of DEPTH_STEP units in
 * ascending order. Within a step the instruction sums low and high halves
 * separately, each in ascending order, then adds both sums to C. Steps count
 * from a multiple of 32 elements of the document, so the steps that a row takes
 * part in, and the row's bits, depend on the row alone.
 *   TILE_BEGIN()            this thread may use tiles from here on
 *   TILE_END()              this thread uses no tiles from here on
 *   TILE_ZERO(t)            t = 0
 *   TILE_LOAD(t, from, ld)  16 rows, ld units apart, into tile t
 *   TILE_STORE(t, to, ld)   tile t into 16 rows, ld units apart
 *   TILE_DOT(c, a, b)       c += a b
 * Tile numbers are literals: 0 to 3 are C, 4 and 5 are A, 6 and 7 are B.
 */
#ifndef ULI_ATTENTION_GEMM_TILES_H
#define ULI_ATTENTION_GEMM_TILES_H

#include <stdbool.h>

#define DEPTH_STEP 16
#define DEEPEST    64 /* units of a transposed A: the keys of a tile */

/* A compiler does not see which memory a tile is loaded from. */
#define TILE_STORED() __asm__ volatile("" : : : "memory")

INLINE void
gemm_begin(void)
{
    TILE_BEGIN();
}

INLINE void
gemm_end(void)
{
    TILE_END();
}

/* One step of a transposition: in rows i and i + S of a matrix, the blocks of S
 * columns beside the diagonal change places. S = 8, 4, 2, 1 transpose the whole
 * matrix. */
#define SWAP_LOW(S, l)  ((l) & (S) ? 16 + (l) - (S) : (l))
#define SWAP_HIGH(S, l) ((l) & (S) ? 16 + (l) : (l) + (S))
#define SWAP_ALL(f, S)                                                         \
    f(S, 0), f(S, 1), f(S, 2), f(S, 3), f(S, 4), f(S, 5), f(S, 6), f(S, 7),    \
        f(S, 8), f(S, 9), f(S, 10), f(S, 11), f(S, 12), f(S, 13), f(S, 14),    \
        f(S, 15)
#define SWAP_ROWS(rows, S)                                                     \
    for (int i = 0; i < 16; i++)                                               \
        if (!(i & (S))) {                                                      \
            vf low = rows[i], high = rows[i + (S)];                            \
            rows[i] =                                                          \
                __builtin_shufflevector(low, high, SWAP_ALL(SWAP_LOW, S));     \
            rows[i + (S)] =                                                    \
                __builtin_shufflevector(low, high, SWAP_ALL(SWAP_HIGH, S));    \
        }

/* to[m][k] <- from[k][m], 16 by 16 units. */
INLINE void
transpose_block(float *to, int64_t to_ld, const float *from, int64_t ld)
{
    vf rows[16];
    for (int k = 0; k < 16; k++)
        rows[k] = v_load(from + k * ld);
    SWAP_ROWS(rows, 8)
    SWAP_ROWS(rows, 4)
    SWAP_ROWS(rows, 2)
    SWAP_ROWS(rows, 1)
    for (int m = 0; m < 16; m++)
        v_store(to + m * to_ld, rows[m]);
}

/* Multiplies every row of C by the row's factor, which is 1 where the row's
 * maximum is unchanged. */
INLINE void
scale_rows(float *c, int64_t ld, int64_t columns, const float *factor)
{
    for (int m = 0; m < ROWS; m++)
        for (int64_t n = 0; factor[m] != 1 && n < columns; n += LANES)
            v_store(c + m * ld + n, v_load(c + m * ld + n) * v_set(factor[m]));
}

/* Computes ROWS rows and `vectors` tiles of C. */
INLINE void
gemm_block(const int vectors, const bool zero, int64_t depth, const float *a,
    int64_t a_ld, const float *b, float *c, int64_t c_ld)
{
    float *below = c + 16 * c_ld;
    if (zero) {
        TILE_ZERO(0);
        TILE_ZERO(1);
        TILE_ZERO(2);
        TILE_ZERO(3);
    } else {
        TILE_LOAD(0, c, c_ld);
        TILE_LOAD(2, below, c_ld);
        if (vectors > 1) {
            TILE_LOAD(1, c + 16, c_ld);
            TILE_LOAD(3, below + 16, c_ld);
        }
    }
    for (int64_t k = 0; k < depth; k += DEPTH_STEP) {
        TILE_LOAD(4, a + k, a_ld);
        TILE_LOAD(6, b + k * PANEL, PANEL);
        TILE_DOT(0, 4, 6);
        TILE_LOAD(5, a + 16 * a_ld + k, a_ld);
        TILE_DOT(2, 5, 6);
        if (vectors > 1) {
            TILE_LOAD(7, b + k * PANEL + 16, PANEL);
            TILE_DOT(1, 4, 7);
            TILE_DOT(3, 5, 7);
        }
    }
    TILE_STORE(0, c, c_ld);
    TILE_STORE(2, below, c_ld);
    if (vectors > 1) {
        TILE_STORE(1, c + 16, c_ld);
        TILE_STORE(3, below + 16, c_ld);
    }
}

/* Rows outermost, so that 32 rows of A are transposed once. columns: a
 * multiple of LANES; depth: of DEPTH_STEP. */
INLINE void
gemm_stripes(const enum gemm_init init, int64_t rows, int64_t columns,
    int64_t depth, const float *a, int64_t a_row, int64_t a_col, const float *b,
    int64_t b_panel, float *c, int64_t c_ld, const float *factor)
{
    float turned[ROWS * DEEPEST] __attribute__((aligned(64)));
    for (int64_t m = 0; m < rows; m += ROWS, a += ROWS * a_row) {
        float *to = c + m * c_ld;
        const float *from = a;
        int64_t ld = a_row, n = 0;
        if (a_col != 1) {
            from = turned, ld = DEEPEST;
            for (int64_t k = 0; k < depth; k += 16)
                for (int i = 0; i < ROWS; i += 16)
                    transpose_block(
                        turned + i * ld + k, ld, a + k * a_col + i, a_col);
        }
        if (init == GEMM_SCALE)
            scale_rows(to, c_ld, columns, factor + m);
        TILE_STORED();
        const float *panel = b;
        for (; n + PANEL <= columns; n += PANEL, panel += b_panel)
            gemm_block(VECTORS, init == GEMM_ZERO, depth, from, ld, panel,
                to + n, c_ld);
        if (n < columns)
            gemm_block(
                1, init == GEMM_ZERO, depth, from, ld, panel, to + n, c_ld);
    }
}

#endif
