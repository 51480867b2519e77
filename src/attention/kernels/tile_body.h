/* SPDX-License-Identifier: Apache-2.0
 *
 * The tile code of one instruction set. A file defines LANES, PAIRED, ROWS,
 * VECTORS, the SIMD_ macros for which it has instructions, the TILE_ macros of
 * gemm_tiles.h where products go by tiles, and TILE_OPS, the name of its table.
 * ITEM_ROWS and ROWS_MOST (gemm.h) have defaults. Then the file includes this
 * one.
 */
#ifndef ITEM_ROWS
#define ITEM_ROWS 256
#endif
#include "attention/kernels/forward_body.h"
#include "attention/kernels/backward_body.h"

static int64_t
scratch_bytes(
    const struct uli_attn_problem *problem, ulyx_attention_pass_t pass)
{
    struct forward forward = {.problem = problem};
    struct backward backward = {.problem = problem};
    int64_t floats = pass == ULYX_ATTENTION_PASS_FORWARD
                         ? forward_layout(&forward, ITEM_ROWS, NULL)
                         : backward_layout(&backward, NULL);
    return (floats * 4 + 4095) / 4096 * 4096 + 256;
}

static int64_t
dq_columns(const struct uli_attn_problem *problem)
{
    return columns_padded(problem->dim_qk);
}

/* gemm_begin and gemm_end enclose all products: AMX sets up the thread. */
static void
tile_forward(struct uli_attn_call *call, const struct uli_tile_item *item,
    double *head_max, void *scratch)
{
    gemm_begin();
    forward_item(call, item, head_max, scratch);
    gemm_end();
}

static void
tile_backward(struct uli_attn_call *call, const struct uli_tile_unit *unit,
    struct uli_tile_shared *shared, void *scratch)
{
    gemm_begin();
    backward_unit(call, unit, shared, scratch);
    gemm_end();
}

const struct uli_attn_tile_ops TILE_OPS = {
    .item_rows = ITEM_ROWS,
    .scratch_bytes = scratch_bytes,
    .dq_columns = dq_columns,
    .forward_item = tile_forward,
    .backward_unit = tile_backward,
};
