#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the kernels of distributed attention with faults planted into them,
each behind a number that a test sets at run time. A place that is not found is
an error, so the list keeps up with the source.

dist_plant.py SOURCE-DIR OUTPUT-DIR
"""
import sys

import plant

KERNEL = "attention/cuda/portable/dist_rows.cu"

# name, text, its replacement
FAULTS = [
    ("DLSE_KEPT", "        if (args.dlse.base)\n",
     "        if (args.dlse.base && dist_planted != %d)\n"),
    ("HEADS_ALIKE", "int64_t head = n % args.heads,",
     "int64_t head = dist_planted == %d ? 0 : n % args.heads,"),
    ("ITEMS_ALIKE", "int64_t batch = n / args.heads / args.rows;",
     "int64_t batch = dist_planted == %d ? 0 : n / args.heads / args.rows;"),
    ("LAST_ROW_LEFT_OUT", "         n < count; n += step) {",
     "         n < count - (dist_planted == %d); n += step) {"),
    ("ONE_ROW_TOO_MANY", "int64_t step = (int64_t)gridDim.x * DELTA_THREADS;",
     "int64_t step = (int64_t)gridDim.x * DELTA_THREADS;\n"
     "    count += dist_planted == %d;"),
    ("LAST_COLUMN_LEFT_OUT", "for (int c = 0; c < args.dim; c++) {",
     "for (int c = 0; c < args.dim - (dist_planted == %d); c++) {"),
    ("NAN_OF_ROWS_WITHOUT_KEYS", "return zero && isnan(sum) ? 0 : (float)sum;",
     "return zero && isnan(sum) && dist_planted != %d ? 0 : (float)sum;"),
    ("ZERO_OF_OTHER_ROWS", "        zero = zero && value == 0;",
     "        zero = dist_planted == %d || (zero && value == 0);"),
    ("TABLES_OF_SAVED", "args.saved[2] != args.expected[2]",
     "dist_planted != %d && args.saved[2] != args.expected[2]"),
    ("MAGIC_OF_SAVED", "args.saved[0] != args.expected[0]",
     "(dist_planted != %d && args.saved[0] != args.expected[0])"),
    ("SHAPE_OF_SAVED", "args.saved[1] != args.expected[1]",
     "(dist_planted != %d && args.saved[1] != args.expected[1])"),
    ("STALE", "*args.tables != args.expected[2]",
     "dist_planted != %d && *args.tables != args.expected[2]"),
    ("NO_UPDATE_YET", "*args.tables != 0",
     "(dist_planted == %d || *args.tables != 0)"),
    ("LATER_CAUSE", "        ptx_atom_cas_relaxed_sys_u64(args.cause, 0, cause);",
     "        ptx_atom_cas_relaxed_sys_u64(\n"
     "            args.cause, dist_planted == %d ? *args.cause : 0, cause);"),
]


def main():
    sources = plant.Sources(sys.argv[1], (KERNEL,))
    for number, (name, text, instead) in enumerate(FAULTS, 1):
        sources.put(name, KERNEL, text,
                    instead.replace("%d", str(number)))
    sources.write(sys.argv[2], "dist", [name for name, *_ in FAULTS])


main()
