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
PLAIN, MMA = PORTABLE + "backward_plain.cu", PORTABLE + "backward_mma.cu"
PARTS = PORTABLE + "backward_parts.h"
IN_MMA, IN_PLAIN, IN_BOTH = 1, 2, 3

# name, kernels, file, text that leads to the place, the place, what takes its
# place (None: a statement that is left out)
FAULTS = [
    ("DLSE_FORGOTTEN", IN_BOTH, PARTS,
     "if (tensor_given(args.dlse))\n        ",
     "delta -= *(const float *)row_of(args.dlse);", None),
    ("DELTA_ONE_COLUMN_SHORT", IN_BOTH, PARTS,
     "c < ", "a.dim_v", "a.dim_v - 1"),
    ("DELTA_FORGOTTEN", IN_BOTH, PARTS,
     "*ds_p = p * ", "(dp - delta)", "dp"),
    ("CAP_FORGOTTEN", IN_BOTH, PARTS,
     "", "score = t * a.cap;", None),
    ("CAP_NOT_DIFFERENTIATED", IN_BOTH, PARTS,
     "", "rise = 1 - t * t;", None),
    ("ALIBI_FORGOTTEN", IN_BOTH, PARTS,
     "float power = ", "slope != 0", "slope > 1e30f"),
    ("P_IN_BASE_E_BY_BASE_2", IN_BOTH, PARTS,
     "fminf(power, 0) * ", "(float)BACKWARD_LOG2_E",
     "1.0f"),
    ("MASK_ONE_SHORT", IN_PLAIN, PLAIN,
     "lane >= ", "sight.begin", "1 + sight.begin"),
    ("MASK_ONE_LONG", IN_PLAIN, PLAIN,
     "lane < ", "sight.end", "1 + sight.end"),
    ("STATISTICS_OF_THE_LANE", IN_PLAIN, PLAIN,
     "query = ", "queries ? row : lane", "lane"),
    ("STATISTICS_OF_THE_ROW", IN_PLAIN, PLAIN,
     "dp[r],\n                work->lse[", "query", "row"),
    ("DQ_NOT_SCALED", IN_PLAIN, PLAIN,
     "args.dq_dtype, a.dim_qk, work, first, ", "args.scale",
     "1.0f"),
    ("DK_NOT_SCALED", IN_PLAIN, PLAIN,
     "args.dk_dtype, a.dim_qk, work, first, ", "args.scale",
     "1.0f"),
    ("DV_SCALED", IN_PLAIN, PLAIN,
     "args.dv_dtype, a.dim_v, work, first, ", "1", "args.scale"),
    ("A_COLUMN_TOO_MANY", IN_PLAIN, PLAIN,
     "4 * lane + e;\n                if (", "c >= columns",
     "c > columns"),
    ("A_ROW_TOO_MANY", IN_PLAIN, PLAIN,
     "if (", "row >= work->tile.rows",
     "row > work->tile.rows"),
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
     "a.dim_v, v, at.ld);\n        ", "__syncthreads();",
     None),
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
     "backward_take(args, work);\n        ",
     "__syncthreads();", None),
    ("SINK_WITHOUT_DLSE_OF_ROWS_WITHOUT_KEYS", IN_PLAIN, PLAIN,
     "if (tensor_given(args.dlse))\n"
     "        return ", "(double)*(const float *)row_of(args.dlse)", "0.0"),
    ("SINK_OF_A_GAP", IN_PLAIN, PLAIN,
     "return ", "*i_p < *q_rows_p", "true"),
    ("SINKS_ONE_THREAD_SHORT", IN_PLAIN, PLAIN,
     "for (int n = ", "1", "2"),
    ("SINKS_ADDED_TOO_SOON", IN_PLAIN, PLAIN,
     "sums[threadIdx.x] = sum;\n    ",
     "__syncthreads();", None),
    ("MMA_MASK_ONE_SHORT", IN_MMA, MMA,
     "column >= ", "sight.begin", "1 + sight.begin"),
    ("MMA_MASK_ONE_LONG", IN_MMA, MMA,
     "column < ", "sight.end", "1 + sight.end"),
    ("MMA_STATISTICS_OF_THE_ROW", IN_MMA, MMA,
     "query = ", "KEYS ? column : row", "row"),
    ("MMA_TILES_NOT_AWAITED", IN_MMA, MMA,
     "ptx_cp_async_commit();\n    ", "ptx_cp_async_wait<0>();", None),
    ("MMA_NO_BARRIER_BEFORE_PRODUCTS", IN_MMA, MMA,
     "ptx_cp_async_wait<0>();\n    ", "__syncthreads();", None),
    ("MMA_KEYS_OVERWRITTEN", IN_MMA, MMA,
     "dq, none);\n        ", "__syncthreads();", None),
    ("MMA_QUERIES_OVERWRITTEN", IN_MMA, MMA,
     "dk, dv);\n            ", "__syncthreads();", None),
    ("MMA_DV_OF_DS", IN_MMA, MMA,
     "if (KEYS) {\n        weights_pack<S, BF16>(", "s", "dp"),
    ("MMA_DK_OF_DOUT", IN_MMA, MMA,
     "weights_pack<S, BF16>(dp, weights);\n    sums_add<S, BF16>(", "flow",
     "flow + S::FLOW"),
    ("MMA_TILE_PAST_THE_DOCUMENT", IN_MMA, MMA,
     "FLOW_AT,\n        (int)", "mask_min(t.k_rows - j, S::STREAM)",
     "S::STREAM"),
    ("MMA_A_ROW_TOO_MANY", IN_MMA, MMA,
     "if (", "row >= work->tile.rows", "row > work->tile.rows"),
    ("MMA_A_COLUMN_TOO_MANY", IN_MMA, MMA,
     "% 4) + e;\n                if (", "c >= columns", "c > columns"),
    ("MMA_DQ_NOT_SCALED", IN_MMA, MMA,
     "args.dq_dtype, a.dim_qk, work, ", "args.scale", "1.0f"),
    ("MMA_LAST_KEYS_DROPPED", IN_MMA, MMA,
     "still_load<S>(args, false, shared, work);\n"
     "    for (int64_t t = work->first; t < ", "work->end", "work->end - 1"),
    ("MMA_HEADS_OF_ANOTHER_KV_HEAD", IN_MMA, MMA,
     "if (", "kv_head_of(a, head) != work->head",
     "head % a.heads_kv != work->head"),
]


def planted(number, place, instead):
    test = f"backward_planted == {number}"
    return f"if (!({test})) {place}" if instead is None else plant.choice(
        test, place, instead)


def main():
    sources = plant.Sources(sys.argv[1], (PLAIN, MMA, PARTS))
    for number, (name, _, file, lead, place, instead) in enumerate(FAULTS, 1):
        sources.put(name, file, lead + place,
                    lead + planted(number, place, instead))
    sources.write(sys.argv[2], "backward",
                  [f"{name}, {kernels}" for name, kernels, *_ in FAULTS])


main()
