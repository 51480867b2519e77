#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the portable backward kernels' source with faults planted into it, each
behind a number that a test sets at run time. A place that is not found is an
error, so the list keeps up with the source.

backward_plant.py SOURCE-DIR OUTPUT-DIR
"""
import sys

import plant

PLAIN = "attention/cuda/portable/backward_plain.cu"

# name, text that leads to the place, the place, what takes its place (None: a
# statement that is left out)
FAULTS = [
    ("DLSE_FORGOTTEN", "if (tensor_given(args.dlse))\n        ",
     "delta -= *(const float *)row_of(args.dlse);", None),
    ("DELTA_ONE_COLUMN_SHORT", "c < ", "a.dim_v", "a.dim_v - 1"),
    ("DELTA_FORGOTTEN", "*ds_p = p * ", "(dp - delta)", "dp"),
    ("CAP_FORGOTTEN", "", "score = t * a.cap;", None),
    ("CAP_NOT_DIFFERENTIATED", "", "rise = 1 - t * t;", None),
    ("ALIBI_FORGOTTEN", "float power = ", "slope != 0", "slope > 1e30f"),
    ("P_IN_BASE_E_BY_BASE_2", "fminf(power, 0) * ", "(float)BACKWARD_LOG2_E",
     "1.0f"),
    ("MASK_ONE_SHORT", "lane >= ", "sight.begin", "1 + sight.begin"),
    ("MASK_ONE_LONG", "lane < ", "sight.end", "1 + sight.end"),
    ("STATISTICS_OF_THE_LANE", "query = ", "queries ? row : lane", "lane"),
    ("STATISTICS_OF_THE_ROW", "dp[r],\n                work->lse[", "query", "row"),
    ("DQ_NOT_SCALED", "args.dq_dtype, a.dim_qk, work, first, ", "args.scale",
     "1.0f"),
    ("DK_NOT_SCALED", "args.dk_dtype, a.dim_qk, work, first, ", "args.scale",
     "1.0f"),
    ("DV_SCALED", "args.dv_dtype, a.dim_v, work, first, ", "1", "args.scale"),
    ("A_COLUMN_TOO_MANY", "4 * lane + e;\n                if (", "c >= columns",
     "c > columns"),
    ("A_ROW_TOO_MANY", "if (", "row >= work->tile.rows",
     "row > work->tile.rows"),
    ("LAST_KEYS_DROPPED", "queries_load(args, shared, at, work);\n"
     "    for (int64_t t = work->first; t < ", "work->end", "work->end - 1"),
    ("LAST_QUERIES_DROPPED", "head, 0);\n"
     "        for (int64_t t = work->first; t < ", "work->end",
     "work->end - 1"),
    ("HEADS_OF_ANOTHER_KV_HEAD", "if (", "kv_head_of(a, head) != work->head",
     "head % a.heads_kv != work->head"),
    ("SLOPE_OF_THE_KV_HEAD", "continue;\n"
     "        float slope = (float)head_param(a, a.slopes, ", "head",
     "work->head"),
    ("KEYS_NOT_AWAITED", "a.dim_v, v, at.ld);\n        ", "__syncthreads();",
     None),
    ("KEYS_OVERWRITTEN", "tile_sums<NV>(k, stream, a.dim_qk, at.ld, ds, dq);\n"
     "        ", "__syncthreads();", None),
    ("QUERIES_NOT_AWAITED",
     "queries_stream(args, shared, at, work, head, t * stream);\n"
     "            ", "__syncthreads();", None),
    ("QUERIES_OVERWRITTEN",
     "tile_sums<NV>(q, stream, a.dim_qk, at.ld, ds, dk);\n            ",
     "__syncthreads();", None),
    ("WORK_TAKEN_TOO_SOON", "for (;;) {\n        ", "__syncthreads();", None),
    ("WORK_READ_TOO_SOON", "backward_take(args, work);\n        ",
     "__syncthreads();", None),
    ("SINK_WITHOUT_DLSE_OF_ROWS_WITHOUT_KEYS", "if (tensor_given(args.dlse))\n"
     "        return ", "(double)*(const float *)row_of(args.dlse)", "0.0"),
    ("SINK_OF_A_GAP", "return ", "*i_p < *q_rows_p", "true"),
    ("SINKS_ONE_THREAD_SHORT", "for (int n = ", "1", "2"),
    ("SINKS_ADDED_TOO_SOON", "sums[threadIdx.x] = sum;\n    ",
     "__syncthreads();", None),
]


def planted(number, place, instead):
    test = f"backward_planted == {number}"
    return f"if (!({test})) {place}" if instead is None else plant.choice(
        test, place, instead)


def main():
    sources = plant.Sources(sys.argv[1], [PLAIN])
    for number, (name, lead, place, instead) in enumerate(FAULTS, 1):
        sources.put(name, PLAIN, lead + place,
                    lead + planted(number, place, instead))
    sources.write(sys.argv[2], "backward", [name for name, *_ in FAULTS])


main()
