#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the portable forward kernels' sources with faults planted into them,
each behind a number that a test sets at run time. A place that is not found is
an error, so the list keeps up with the sources.

mma_plant.py SOURCE-DIR OUTPUT-DIR
"""
import sys

import plant

FOLDER = "attention/cuda/"
PORTABLE = FOLDER + "portable/"
MMA, PLAIN = PORTABLE + "forward_mma.h", PORTABLE + "forward_plain.cu"
SOFTMAX, STORE = PORTABLE + "mma_softmax.h", PORTABLE + "mma_store.h"
SIGHT = PORTABLE + "mma_sight.h"
MASK, ROW = FOLDER + "forward_mask.h", PORTABLE + "forward_row.h"
TILES, WORK = PORTABLE + "forward_tiles.h", FOLDER + "forward_work.h"
ROWS = FOLDER + "rows_gpu.h"
FILES = (MMA, PLAIN, SOFTMAX, SIGHT, MASK, ROW, TILES, WORK, ROWS, STORE,
         PORTABLE + "mma_shape.h", PORTABLE + "mma_products.h",
         PORTABLE + "forward_mma64.cu")
IN_MMA, IN_PLAIN, IN_BOTH = 1, 2, 3

# name, kernels, file, text before the place, the place, its replacement (None:
# the statement is left out)
FAULTS = [
    ("K_NOT_AWAITED", IN_MMA, MMA, "w.work->tile.rows);\n        ",
     "ptx_cp_async_wait<1>();", None),
    ("V_NOT_AWAITED", IN_MMA, MMA, "rows, p, o);\n        ",
     "ptx_cp_async_wait<1>();", None),
    ("NO_BARRIER_BEFORE_KEYS", IN_MMA, MMA, "", "__syncthreads(); /* keys",
     None),
    ("NO_BARRIER_BEFORE_VALUES", IN_MMA, MMA, "",
     "__syncthreads(); /* values", None),
    ("SLOT_IN_USE", IN_MMA, MMA, "load_step<S>(w, false, tile + 1, ", "third",
     "second"),
    ("MASK_ONE_LONG", IN_MMA, SIGHT, "int to = min(", "sight.end",
     "1 + sight.end"),
    ("MASK_ONE_SHORT", IN_MMA, SIGHT, "int from = ", "sight.begin",
     "1 + sight.begin"),
    ("KEYS_PAST_THE_DOCUMENT", IN_MMA, SIGHT, "+ row, ", "sight.keys",
     "S::KEYS"),
    ("PART_TAKEN_FOR_ALL", IN_MMA, MASK, "&& sight.end + ", "first", "last"),
    ("PART_TAKEN_FOR_NONE", IN_MMA, MASK, "|| sight.end + ", "last", "first"),
    ("NO_RESCALE", IN_MMA, SOFTMAX, "", "o[mt][n][2 * h] *= alpha;", None),
    ("SUM_NOT_RESCALED", IN_MMA, SOFTMAX, "rows.sum[mt][h] * ", "alpha",
     "1.0f"),
    ("PLAIN_NO_BARRIER_BEFORE_SCORES", IN_PLAIN, PLAIN, "args.dim_qk);\n"
     "        ", "__syncthreads();", None),
    ("PLAIN_NO_BARRIER_AFTER_SCORES", IN_PLAIN, PLAIN, "s, rows, p);\n"
     "        ", "__syncthreads();", None),
    ("PLAIN_NO_BARRIER_AFTER_VALUES", IN_PLAIN, PLAIN, "at.ld, p, rows);\n"
     "        ", "__syncthreads();", None),
    ("PLAIN_MASK_ONE_LONG", IN_PLAIN, PLAIN, "lane >= ", "sight.end",
     "1 + sight.end"),
    ("PLAIN_MASK_ONE_SHORT", IN_PLAIN, PLAIN, "lane < ", "sight.begin",
     "1 + sight.begin"),
    ("PLAIN_KEYS_PAST_THE_DOCUMENT", IN_PLAIN, PLAIN, "lane >= ", "sight.keys",
     "KEYS"),
    ("PLAIN_NO_RESCALE", IN_PLAIN, PLAIN, "", "rows.o[r][n][e] *= alpha;",
     None),
    ("PLAIN_SUM_NOT_RESCALED", IN_PLAIN, PLAIN, "rows.sum[r] = fmaf(rows."
     "sum[r], ", "alpha", "1.0f"),
    ("LSE_IN_BASE_2", IN_BOTH, ROW, "log2f(total)) * ", "FORWARD_LN_2", "1.0"),
    ("SINK_FORGOTTEN", IN_BOTH, ROW, "sum * weight + ",
     "exp2f((float)(sink2 - top))", "0.0f"),
    ("ALIBI_NOT_OF_THE_NEAREST", IN_BOTH, ROW, "beyond - ", "nearest",
     "nearest + 1"),
    ("TAIL_NOT_CLEARED", IN_MMA, TILES, "first + n * STEP < ", "rows", "ROWS"),
    ("COLUMNS_NOT_CLEARED", IN_MMA, TILES, "(chunk + 8 * c) * 8 < ", "columns",
     "COLUMNS"),
    ("LSE_PAST_THE_TILE", IN_MMA, STORE, "S::MT && row < ",
     "w.work->tile.rows", "1 + w.work->tile.rows"),
    ("FLAGS_NOT_AWAITED", IN_BOTH, WORK, "", "", ""),
    ("V_OF_THE_WRONG_HEAD", IN_BOTH, ROWS, ": ",
     "head * args.heads_kv / args.heads_q", "head % args.heads_kv"),
    ("LSE_WHERE_NONE_IS_ASKED", IN_BOTH, ROW, "if (",
     "!args.lse.base && !args.lse.pieces", "!args.lse.align"),
    ("HEADS_OF_SLOPE_0_UNSCALED", IN_PLAIN, PLAIN, "",
     "args.cap > 0 || args.slopes", "args.cap > 0 || work->slope != 0"),
    ("WORK_TAKEN_TOO_SOON", IN_BOTH, WORK, "",
     "__syncthreads(); /* no thread reads the last work", None),
]


def planted(number, place, instead):
    test = f"mma_planted == {number}"
    return f"if (!({test})) {place}" if instead is None else plant.choice(
        test, place, instead)


def main():
    sources = plant.Sources(sys.argv[1], FILES)
    for number, (name, _, file, lead, place, instead) in enumerate(FAULTS, 1):
        if place:
            sources.put(name, file, lead + place,
                        lead + planted(number, place, instead))
            continue
        for flags in ("!args.k.flags || ", "!args.v.flags || "): # of neither
            sources.put(name, file, flags,
                        f"{flags}mma_planted == {number} || ")
    sources.write(sys.argv[2], "mma",
                  [f"{name}, {kernels}" for name, kernels, *_ in FAULTS])


main()
