#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the copy engines' kernel with faults planted into it, each behind a
number that a test sets at run time. A place that is not found is an error, so
the list keeps up with the source.

engine_plant.py SOURCE-DIR OUTPUT-DIR
"""
import sys

import plant

KERNEL = "collectives/device/engine/engine.cu"

# name, statement, its replacement
FAULTS = [
    ("READY_NOT_AWAITED",
     "    block_awaits(c, ULI_GPU_AWAITS_READY);",
     "    if (engine_planted != %d)\n"
     "        block_awaits(c, ULI_GPU_AWAITS_READY);"),
    ("FILLED_NOT_AWAITED",
     "if (own[p] > k && rounds_with(c, args, p, 1) > k)",
     "if (engine_planted != %d && own[p] > k &&\n"
     "            rounds_with(c, args, p, 1) > k)"),
    ("CONSUMED_NOT_AWAITED",
     "if (k > 1 && own[p] > k && rounds_with(c, args, p, 0) >= k - 1)",
     "if (engine_planted != %d && k > 1 && own[p] > k &&\n"
     "            rounds_with(c, args, p, 0) >= k - 1)"),
    ("FILLED_WITHOUT_RELEASE",
     "            ptx_st_release_sys_u64(\n"
     "                &c.args->peers[p].yours->filled, round_word(c, k));",
     "            (engine_planted == %d ? ptx_st_relaxed_sys_u64\n"
     "                                  : ptx_st_release_sys_u64)(\n"
     "                &c.args->peers[p].yours->filled, round_word(c, k));"),
    ("CONSUMED_WITHOUT_RELEASE",
     "            ptx_st_release_sys_u64(\n"
     "                &c.args->peers[p].yours->consumed, round_word(c, k));",
     "            (engine_planted == %d ? ptx_st_relaxed_sys_u64\n"
     "                                  : ptx_st_release_sys_u64)(\n"
     "                &c.args->peers[p].yours->consumed, round_word(c, k));"),
    ("ROUND_FILLED_EARLY",
     "            here = await_round(c, &c.args->peers[p].mine->filled, "
     "k + 1, p);",
     "            here = await_round(c, &c.args->peers[p].mine->filled,\n"
     "                k + (engine_planted != %d), p);"),
    ("SLOT_FREE_EARLY",
     "            here = await_round(c, &c.args->peers[p].mine->consumed, "
     "k - 1, p);",
     "            here = await_round(c, &c.args->peers[p].mine->consumed,\n"
     "                k - 1 - (engine_planted == %d), p);"),
]


def main():
    sources = plant.Sources(sys.argv[1], (KERNEL,))
    for number, (name, statement, instead) in enumerate(FAULTS, 1):
        sources.put(name, KERNEL, statement, instead % number)
    sources.write(sys.argv[2], "engine", [name for name, *_ in FAULTS])


main()
