/* SPDX-License-Identifier: Apache-2.0
 *
 * The matrix products of tiles: C[m][n] = init + sum over k of A(m,k) B[k][n]
 * in units. C is fp32, A has any strides, B lies in panels of PANEL columns,
 * each [k][PANEL] without gaps, in the order in which the products read it. Two
 * implementations have the same interface, gemm_stripes: vectors of an
 * instruction set (gemm_vectors.h), and tiles where a file defines TILE_DOT
 * (gemm_tiles.h).
 * The order of a sum over k depends on k alone, counted from A's first column.
 *   ROWS       rows of a register block; row counts are multiples of ROWS
 *   ROWS_MOST  rows of a taller block, used where it fits: ROWS, or 3/2 ROWS
 *   VECTORS    vectors of a register block; columns are any number of vectors
 */
#ifndef ULI_ATTENTION_GEMM_H
#define ULI_ATTENTION_GEMM_H

#include "attention/kernels/simd.h"

#define PANEL (VECTORS * LANES)
#ifndef ROWS_MOST
#define ROWS_MOST ROWS
#endif

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

#endif
