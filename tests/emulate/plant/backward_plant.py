#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the portable backward kernels' sources with faults planted into them,
each behind a number that a test sets at run time. A place that is not found is
an error, so the list keeps up with the sources.

backward_plant.py SOURCE-DIR OUTPUT-DIR
"""
import sys

import plant

PORTABLE = "attention/cuda/portable/"
PLAIN, MMA = PORTABLE + "backward_plain.cu", PORTABLE + "backward_mma.h"
PARTS, ROWS = PORTABLE + "backward_parts.h", PORTABLE + "backward_rows.cu"
SIGHT = PORTABLE + "mma_sight.h"
COPIED = (PORTABLE + "backward_mma64.cu", PORTABLE + "backward_mma256.cu")
# The kernels that have a fault, as bits: mma.sync with one group of warps,
# plain, mma.sync with two groups. A fault of rows shows with the first or the
# second.
IN_MMA, IN_PLAIN, IN_BOTH, IN_WIDE = 1, 2, 3, 4

# name, kernels, file, text before the place, the place, its replacement (None:
# the statement is left out; "": the same, before an else)
FAULTS = [
    ("DLSE_FORGOTTEN", IN_BOTH, PARTS,
     "tensor_given(args.dlse) ? ", "*(const float *)row_of(args.dlse)",
     "0.0f"),
    ("DELTA_COLUMNS_SHORT", IN_BOTH, PARTS,
     "a.dtype, ", "a.dim_v", "a.dim_v - 8"),
    ("DELTA_FORGOTTEN", IN_PLAIN, PLAIN,
     "two = one * ", "(dp[r] - work->delta[query])", "dp[r]"),
    ("CAP_FORGOTTEN", IN_BOTH, PARTS,
     "", "score = t * a.cap;", None),
    ("CAP_NOT_DIFFERENTIATED", IN_BOTH, PARTS,
     "", "*rise_p = 1 - t * t;", None),
    ("ALIBI_FORGOTTEN", IN_BOTH, PARTS,
     "return ", "slope != 0", "slope > 1e30f"),
    ("P_IN_BASE_E_BY_BASE_2", IN_PLAIN, PLAIN,
     "fminf(power, 0) * ", "(float)BACKWARD_LOG2_E", "1.0f"),
    ("MASK_ONE_SHORT", IN_PLAIN, PLAIN,
     "lane >= ", "sight.begin", "1 + sight.begin"),
    ("MASK_ONE_LONG", IN_PLAIN, PLAIN,
     "lane < ", "sight.end", "1 + sight.end"),
    ("STATISTICS_OF_THE_LANE", IN_PLAIN, PLAIN,
     "query = ", "queries ? row : lane", "lane"),
    ("STATISTICS_OF_THE_ROW", IN_PLAIN, PLAIN,
     "s[r], work->lse[", "query", "row"),
    ("DQ_NOT_SCALED", IN_PLAIN, PLAIN,
     "args.dq_dtype, a.dim_qk, work, first, ", "args.scale", "1.0f"),
    ("DK_NOT_SCALED", IN_PLAIN, PLAIN,
     "args.dk_dtype, a.dim_qk, work, first, ", "args.scale", "1.0f"),
    ("DV_SCALED", IN_PLAIN, PLAIN,
     "args.dv_dtype, a.dim_v, work, first, ", "1", "args.scale"),
    ("A_COLUMN_TOO_MANY", IN_PLAIN, PLAIN,
     "4 * lane + e;\n                if (", "c >= columns", "c > columns"),
    ("A_ROW_TOO_MANY", IN_PLAIN, PLAIN,
     "if (", "row >= work->tile.rows", "row > work->tile.rows"),
    ("LAST_KEYS_DROPPED", IN_PLAIN, PLAIN,
     "queries_load(args, shared, at, work);\n"
     "    for (int64_t t = work->first; t < ", "work->end", "work->end - 1"),
    ("LAST_QUERIES_DROPPED", IN_PLAIN, PLAIN,
     "head, 0);\n"
     "        for (int64_t t = work->first; t < ", "work->end",
     "work->end - 1"),
    ("HEADS_OF_ANOTHER_KV_HEAD", IN_PLAIN, PLAIN,
     "if (", "kv_head_of(a, head) != work->head",
     "head % a.heads_kv != work->head"),
    ("SLOPE_OF_THE_KV_HEAD", IN_PLAIN, PLAIN,
     "continue;\n"
     "        float slope = (float)head_param(a, a.slopes, ", "head",
     "work->head"),
    ("KEYS_NOT_AWAITED", IN_PLAIN, PLAIN,
     "a.dim_v, v, at.ld);\n        ", "__syncthreads();", None),
    ("KEYS_OVERWRITTEN", IN_PLAIN, PLAIN,
     "tile_sums<NV>(k, stream, a.dim_qk, at.ld, ds, dq);\n"
     "        ", "__syncthreads();", None),
    ("QUERIES_NOT_AWAITED", IN_PLAIN, PLAIN,
     "queries_stream(args, shared, at, work, head, t * stream);\n"
     "            ", "__syncthreads();", None),
    ("QUERIES_OVERWRITTEN", IN_PLAIN, PLAIN,
     "tile_sums<NV>(q, stream, a.dim_qk, at.ld, ds, dk);\n            ",
     "__syncthreads();", None),
    ("WORK_TAKEN_TOO_SOON", IN_BOTH, PARTS,
     "for (;;) {\n        ", "__syncthreads();", None),
    ("WORK_READ_TOO_SOON", IN_BOTH, PARTS,
     "backward_take(args, work);\n        ", "__syncthreads();", None),
    ("DELTA_OF_ROWS_WITHOUT_KEYS", IN_BOTH, ROWS,
     "", "-dlse_of(args, row_of)", "0.0f"),
    ("DELTA_OF_ROWS_WITHOUT_KEYS_COMPUTED", IN_BOTH, ROWS,
     "bool sees = ", "forward_begin(mask, n) < forward_end(mask, n)", "false"),
    ("DELTA_ONE_WARP_SHORT", IN_MMA, ROWS,
     "n < t.rows; n += ", "32", "64"),
    ("SINK_WITHOUT_DLSE_OF_ROWS_WITHOUT_KEYS", IN_BOTH, ROWS,
     "if (tensor_given(args.dlse))\n"
     "        return ", "(double)*(const float *)row_of(args.dlse)", "0.0"),
    ("SINK_OF_A_GAP", IN_BOTH, ROWS,
     "return ", "*i_p < *q_rows_p", "true"),
    ("SINKS_ONE_THREAD_SHORT", IN_BOTH, ROWS,
     "for (int n = ", "1", "2"),
    ("SINKS_ADDED_TOO_SOON", IN_BOTH, ROWS,
     "sums[threadIdx.x] = sum;\n    ", "__syncthreads();", None),
    ("MMA_DELTA_FORGOTTEN", IN_MMA, MMA,
     "dp[0][n][e] = ", "(dp[0][n][e] - delta[query])", "dp[0][n][e]"),
    ("MMA_CAP_NOT_DIFFERENTIATED", IN_MMA, MMA,
     "* ", "rise", "1.0f"),
    ("MMA_SCORES_NOT_SCALED", IN_MMA, MMA,
     "fmaf(s[0][n][e], ", "w.args.scale", "1.0f"),
    ("MMA_P_IN_BASE_E_BY_BASE_2", IN_MMA, MMA,
     "fminf(s[0][n][e], 0) * ", "(float)BACKWARD_LOG2_E", "1.0f"),
    ("MMA_MASK_ONE_SHORT", IN_MMA, SIGHT,
     "from = ", "sight.begin", "1 + sight.begin"),
    ("MMA_MASK_ONE_LONG", IN_MMA, SIGHT,
     "int to = min(", "sight.end", "1 + sight.end"),
    ("MMA_PART_TAKEN_FOR_ALL", IN_MMA, MMA,
     "if (", "part != SEES_ALL", "false"),
    ("MMA_STATISTICS_OF_THE_ROW", IN_MMA, MMA,
     "query = ", "SUM == SUM_DQ ? row : column", "row"),
    ("MMA_STATISTICS_OF_THE_FIRST_SLOT", IN_MMA, MMA,
     "w, SUM == SUM_DQ ? 0 : ", "slot * S::STREAM", "0"),
    ("MMA_TILES_NOT_AWAITED", IN_MMA, MMA,
     "if (two)\n            ", "ptx_cp_async_wait<1>();", ""),
    ("MMA_NO_BARRIER_BEFORE_PRODUCTS", IN_MMA, MMA,
     "", "__syncthreads(); /* the copies of all threads are there */", None),
    ("MMA_SLOT_OVERWRITTEN", IN_MMA, MMA,
     "", "__syncthreads(); /* the slot is free */", None),
    ("MMA_SLOT_OF_THE_NEXT_TILE", IN_MMA, MMA,
     "", "body(slot, step);", "body(slot ^ 1, step);"),
    ("MMA_DV_OF_DS", IN_MMA, MMA,
     "weights_pack<first, BF16>(", "s", "dp"),
    ("MMA_DK_OF_DOUT", IN_MMA, MMA,
     "mma_add_values<first, BF16>(", "flow", "flow_2"),
    ("MMA_TILE_PAST_THE_DOCUMENT", IN_MMA, MMA,
     "(int)", "mask_min(t.k_rows - j, S::STREAM)", "S::STREAM"),
    ("MMA_A_ROW_TOO_MANY", IN_MMA, MMA,
     "if (", "row >= work->tile.rows", "row > work->tile.rows"),
    ("MMA_A_COLUMN_TOO_MANY", IN_MMA, MMA,
     "if (", "8 * n < columns", "8 * n <= columns"),
    ("MMA_DQ_NOT_SCALED", IN_MMA, MMA,
     "a.dim_qk, w.work, ", "w.args.scale", "1.0f"),
    ("MMA_LAST_TILE_DROPPED", IN_MMA, MMA,
     "step.t + 1 < ", "work->end", "work->end - 1"),
    ("MMA_HEADS_OF_ANOTHER_KV_HEAD", IN_MMA, MMA,
     "head < a.heads_q && ", "kv_head_of(a, head) != work->head",
     "head % a.heads_kv != work->head"),
    ("WIDE_GROUPS_NOT_ADDED", IN_WIDE, MMA,
     "", "sums[0][n][e] += place[(4 * n + e) * 32];", None),
    ("WIDE_GROUPS_ADDED_TOO_SOON", IN_WIDE, MMA,
     "place[(4 * n + e) * 32] = sums[0][n][e];\n    ", "__syncthreads();",
     None),
    ("WIDE_ROWS_OF_ONE_GROUP", IN_WIDE, MMA,
     "< S::STREAM ? ", "(int)threadIdx.y * pass::COLUMNS", "0"),
    ("WIDE_DV_NOT_SUMMED", IN_WIDE, MMA,
     "bool values = ", "threadIdx.y == 1", "false"),
    ("WIDE_SECOND_TILE_NOT_LOADED", IN_WIDE, MMA,
     "if (S::GROUPS == 1 || ", "threadIdx.y == 1", "false"),
    ("WIDE_DV_SCALED", IN_WIDE, MMA,
     "w.work, values ? ", "1", "args.scale"),
]


def planted(number, place, instead):
    test = f"backward_planted == {number}"
    return f"if (!({test})) {place}" if instead is None else plant.choice(
        test, place, instead)


def main():
    sources = plant.Sources(sys.argv[1], (PLAIN, MMA, SIGHT, PARTS, ROWS) + COPIED)
    for number, (name, _, file, lead, place, instead) in enumerate(FAULTS, 1):
        sources.put(name, file, lead + place,
                    lead + planted(number, place, instead))
    sources.write(sys.argv[2], "backward",
                  [f"{name}, {kernels}" for name, kernels, *_ in FAULTS])


main()
