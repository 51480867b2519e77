#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the portable forward kernels' sources with faults planted into them,
each behind a number that a test sets at run time. A place that is not found is
an error, so the list keeps up with the sources.

mma_plant.py SOURCE-DIR OUTPUT-DIR
"""
import os
import sys

FOLDER = "attention/cuda"
MMA, PLAIN = "forward_mma.h", "forward_plain.cu"
SOFTMAX, MASK, ROW = "mma_softmax.h", "forward_mask.h", "forward_row.h"
TILES, WORK, ROWS = "forward_tiles.h", "forward_work.h", "rows_gpu.h"
STORE = "mma_store.h"
COPIED = (MMA, PLAIN, SOFTMAX, MASK, ROW, TILES, WORK, ROWS, "mma_shape.h",
          "mma_products.h", STORE, "forward_mma64.cu")
IN_MMA, IN_PLAIN, IN_BOTH = 1, 2, 3

# name, kernels, file, text that leads to the place, the place, what takes its
# place (None: a statement that is left out)
FAULTS = [
    ("K_NOT_AWAITED", IN_MMA, MMA, "mma_part(w, tile);\n        ",
     "ptx_cp_async_wait<1>();", None),
    ("V_NOT_AWAITED", IN_MMA, MMA, "rows, p, o);\n        ",
     "ptx_cp_async_wait<1>();", None),
    ("NO_BARRIER_BEFORE_KEYS", IN_MMA, MMA, "", "__syncthreads(); /* keys",
     None),
    ("NO_BARRIER_BEFORE_VALUES", IN_MMA, MMA, "",
     "__syncthreads(); /* values", None),
    ("SLOT_IN_USE", IN_MMA, MMA, "load_step<S>(w, false, tile + 1, ", "third",
     "second"),
    ("MASK_ONE_LONG", IN_MMA, SOFTMAX, "int to = min(", "sight.end",
     "1 + sight.end"),
    ("MASK_ONE_SHORT", IN_MMA, SOFTMAX, "int from = ", "sight.begin",
     "1 + sight.begin"),
    ("KEYS_PAST_THE_DOCUMENT", IN_MMA, SOFTMAX, "+ row, ", "sight.keys",
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
    ("WORK_TAKEN_TOO_SOON", IN_BOTH, WORK, "",
     "__syncthreads(); /* nobody looks", None),
]


def plant(text, number, lead, place, instead):
    at = text.find(lead + place)
    if at < 0:
        return None
    at += len(lead)
    test = f"mma_planted == {number}"
    if instead is None:
        return f"{text[:at]}if (!({test})) {text[at:]}"
    return (f"{text[:at]}({test} ? ({instead}) : ({place}))"
            f"{text[at + len(place):]}")


def plant_flags(text, number):
    """Neither keys nor values are awaited."""
    for name in ("k", "v"):
        lead = f"(!args.{name}.flags || "
        if lead not in text:
            return None
        text = text.replace(lead, f"{lead}mma_planted == {number} || ")
    return text


def main():
    source, output = sys.argv[1], sys.argv[2]
    os.makedirs(os.path.join(output, FOLDER), exist_ok=True)
    texts = {}
    for name in COPIED:
        with open(os.path.join(source, FOLDER, name), encoding="utf-8") as file:
            texts[name] = file.read()
    for number, (name, _, file, lead, place, instead) in enumerate(FAULTS, 1):
        text = plant_flags(texts[file], number) if not place else plant(
            texts[file], number, lead, place, instead)
        if text is None:
            sys.exit(f"{file}: no place for {name}: {lead}{place}")
        texts[file] = text
    for name, text in texts.items():
        with open(os.path.join(output, FOLDER, name), "w",
                  encoding="utf-8") as file:
            file.write(text.replace(
                "#include ", '#include "mma_planted.h"\n#include ', 1))
    with open(os.path.join(output, "mma_planted.h"), "w",
              encoding="utf-8") as file:
        file.write("/* SPDX-License-Identifier: Apache-2.0 */\n#pragma once\n"
                   "#ifdef __cplusplus\nextern \"C\" int mma_planted;\n#else\n"
                   "extern int mma_planted;\n#endif\n"
                   "#define MMA_FAULTS(X)")
        for name, kernels, *_ in FAULTS:
            file.write(f" \\\n    X({name}, {kernels})")
        file.write("\n")


main()
