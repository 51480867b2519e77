#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the Hopper kernels' headers with faults planted into them, each
behind a number that a test sets at run time. A place that is not found is an
error, so the list keeps up with the sources.

sm90_plant.py SOURCE-DIR OUTPUT-DIR
"""
import sys

import plant

FOLDER = "attention/cuda/hopper/"
LOAD, PRODUCE = FOLDER + "sm90_load.h", FOLDER + "sm90_produce.h"
CONSUME, SOFTMAX = FOLDER + "sm90_consume.h", FOLDER + "sm90_softmax.h"
STORE, FAMILY = FOLDER + "sm90_store.h", FOLDER + "sm90_family.h"
FILES = (LOAD, PRODUCE, CONSUME, SOFTMAX, STORE, FAMILY,
         FOLDER + "sm90_kernel.h", FOLDER + "forward_sm90_d64.cu")

# name, file, expression or statement, its replacement
FAULTS = [
    ("NO_WGMMA_FENCE", CONSUME, # first, because other faults change the text after it
     "ptx_wgmma_fence();\n"
     "    sm90_issue_qk<F>(s, q, c.base + F::K_AT + now % F::STAGES * "
     "F::K_BYTES);\n    sm90_wait_full(c.bars.v(before)", None),
    ("K_NOT_AWAITED", CONSUME,
     "sm90_wait_full(c.bars.k(now), now / F::STAGES);\n    sm90_turn_take", None),
    ("V_NOT_AWAITED", CONSUME,
     "sm90_wait_full(c.bars.v(before), before / F::STAGES);", None),
    ("Q_NOT_AWAITED", CONSUME,
     "sm90_wait_full(c.bars.q(n), n / F::QBUF);", None),
    ("K_STAGE_NOT_EMPTY", PRODUCE,
     "sm90_wait_empty(bars.k(kv), lap);", None),
    ("WRONG_PHASE", FAMILY, "ptx_mbarrier_wait(bar, lap & 1);",
     "ptx_mbarrier_wait(bar, (lap + 1) & 1);"),
    ("K_RELEASED_EARLY", CONSUME,
     "ptx_wgmma_wait<1>();", "sm90_release(c.bars.k(now));"),
    ("NO_FENCE_AFTER_THE_WAY_OUT", CONSUME,
     "ptx_fence_proxy_async_shared();\n", None),
    ("NO_FENCE_AFTER_GATHER", LOAD, "ptx_fence_proxy_async_shared();\n", None),
    ("MASK_ONE_LONG", SOFTMAX, "int64_t to = ", "int64_t to = 1 + "),
    ("MASK_ONE_SHORT", SOFTMAX, "int64_t from = ", "int64_t from = 1 + "),
    ("FULL_TILES_ONE_MORE", PRODUCE, "seen / keys : 0;",
     "(seen + keys - 1) / keys : 0;"),
    ("NO_RESCALE", CONSUME, "sm90_scale(o, rows.alpha);", None),
    ("TAIL_OF_V_NOT_CLEARED", LOAD,
     "bool whole = WHICH != SM90_V || ", "bool whole = true || "),
    ("RESCALED_WHERE_ALL_ROWS_ASK", SOFTMAX,
     "__any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f)",
     "__all_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f)"),
    ("MASK_IN_PAIRS", SOFTMAX, "rest < 2 ? rest : 2", "rest < 2 ? 0 : 2"),
    ("SINK_FORGOTTEN", STORE,
     "return sm90_finish(args, item->sink, max, sum, shift);",
     "return sm90_finish(args, -INFINITY, max, sum, shift);"),
    ("LSE_IN_BASE_2", SOFTMAX, "log2f(sum) * (float)SM90_LN_2", "log2f(sum)"),
    ("LSE_IN_BASE_2_BESIDE_A_SINK", SOFTMAX,
     "(float)((top + log2f(total)) * SM90_LN_2 - shift)",
     "(float)(top + log2f(total))"),
    ("SINKS_END_BY_FP32", STORE,
     "item->slope == 0 && item->sink == -INFINITY", "item->slope == 0"),
    ("FIRST_TILE_TAKEN_FOR_WHOLE", CONSUME,
     "item->full <= j && j < item->masked", "j < item->masked"),
    ("TAIL_NOT_AWAITED", LOAD,
     "ptx_mbarrier_wait(ptx_smem_addr(&kept->tail), lap & 1);", None),
    ("GATHER_NOT_AWAITED", LOAD, "ptx_cp_async_wait<0>();", None),
    ("NEAREST_KEY_FORGOTTEN", SOFTMAX, "(float)(beyond - a.nearest)",
     "(float)beyond"),
    ("CAP_FORGOTTEN", CONSUME, "c.args.cap > 0 || c.args.slopes",
     "!!c.args.slopes"),
    ("LSE_WHERE_NONE_IS_ASKED", STORE, "(args.lse.base || args.lse.pieces)",
     "args.lse.align > 0"),
    ("HEADS_OF_SLOPE_0_UNSCALED", CONSUME,
     "c.args.cap > 0 || c.args.slopes", "c.args.cap > 0 || item->slope != 0"),
]
ONLY_FENCE = ("NO_WGMMA_FENCE", "K_NOT_AWAITED")


def planted(number, name, place, instead):
    """A declaration remains one."""
    test = f"sm90_planted == {number}"
    if name in ONLY_FENCE:
        first, rest = place.split("\n", 1)
        return f"if (!({test})) {first}\n{rest}"
    if instead is None:
        return f"if (!({test})) {place}"
    if place.startswith(("int64_t", "bool")):
        head = place.split("=")[0]
        plus = {"int64_t to ": f"({test}) + ", "int64_t from ": f"({test}) + ",
                "bool whole ": f"({test}) || "}[head]
        return f"{head}= {plus}" + place.split("=", 1)[1]
    if place.startswith("seen"):
        return f"(seen + ({test} ? keys - 1 : 0)) / keys : 0;"
    return plant.choice(test, place, instead)


def main():
    sources = plant.Sources(sys.argv[1], FILES)
    for number, (name, file, place, instead) in enumerate(FAULTS, 1):
        sources.put(name, file, place, planted(number, name, place, instead))
    sources.write(sys.argv[2], "sm90", [name for name, *_ in FAULTS])


main()
