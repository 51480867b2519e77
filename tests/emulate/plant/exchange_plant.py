#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the exchange kernels' sources with faults planted into them, each
behind a number that a test sets at run time: what the test suite must catch.
A place that is not found is an error, so the list keeps up with the sources.

exchange_plant.py SOURCE-DIR OUTPUT-DIR
"""
import sys

import plant

FOLDER = "collectives/device/mapped/"
WORDS, KERNEL = FOLDER + "exchange_flags.h", FOLDER + "exchange.cu"
WORK = FOLDER + "exchange_work.h"
FILES = (KERNEL, WORDS, WORK)

# name, file, statement, what takes its place
FAULTS = [
    ("READY_WITHOUT_RELEASE", WORDS,
     "ptx_fence_acq_rel_sys(); /* releases both stores */",
     ""),
    ("READY_NOT_AWAITED", WORDS,
     "if (!c.args->slots && ",
     "if (%s) {"),
    ("DONE_WITHOUT_RELEASE", WORDS,
     "ptx_fence_acq_rel_sys(); /* after the loads, before the store */",
     ""),
    ("DONE_OF_DEVICE_SCOPE", WORDS,
     "ptx_fence_acq_rel_sys(); /* after the loads, before the store */",
     "ptx_fence_acq_rel_gpu();"),
    ("DONE_NOT_AWAITED", WORDS,
     "return __syncthreads_and(kept) != 0 && block_ends(c);",
     "return true;"),
    ("DONE_BEFORE_RECORDS_ARE_READ", WORDS,
     "if (!block_awaits(c, ULI_GPU_AWAITS_READY))",
     "if (false)"),
    ("WORDS_WITHOUT_ACQUIRE", WORDS,
     "(void)ptx_ld_acquire_sys_u64(word);",
     ""),
    ("BLOCK_ENDS_BEFORE_ITS_WARPS", KERNEL,
     "ok = __syncthreads_and(ok) != 0;",
     "ok = true;"),
    ("BLOCKS_COUNTED_WITHOUT_ORDER", WORK,
     "last = ptx_atom_add_acq_rel_gpu_u32(blocks, 1) == gridDim.x - 1;",
     "last = ptx_atom_add_relaxed_gpu_u32(blocks, 1) == gridDim.x - 1;"),
    ("DONE_BY_EVERY_BLOCK", WORK,
     "bool last = gridDim.x == 1;",
     "bool last = true;"),
    ("EPOCH_NOT_ADVANCED", WORK,
     "c.args->state->call = c.n;",
     ""),
    ("TILES_TWICE", WORK,
     "low = find_item(c.args->items, low, high, t);",
     "low = find_item(c.args->items, low, high, t); t -= t > first;"),
    ("GIVEN_UP_NOT_LOOKED_FOR", WORDS,
     "ptx_ld_relaxed_sys_u64(&p->mine->given_up) != 0", "false"),
    ("GIVEN_UP_NOT_REPORTED", WORDS,
     "ptx_st_release_sys_u64(&c.args->peers[p].yours->given_up, c.n);",
     ""),
    ("SLOT_DONE_BEFORE_DATA", KERNEL,
     "__syncthreads();\n    block_posts(c, true);",
     "block_posts(c, true);"),
    ("SLOT_DONE_WITHOUT_RELEASE", WORDS,
     "ptx_fence_acq_rel_sys(); /* releases both stores */",
     "if (!done) ptx_fence_acq_rel_sys();"),
]


def planted(number, statement, instead):
    """A statement becomes a choice; a condition or a declaration is made one
    in place."""
    test = f"exchange_planted == {number}"
    if "%s" in instead:
        return statement.replace("if (", f"if (!({test}) && ", 1)
    if statement.startswith("if (!"):
        return statement.replace("if (", f"if (!({test}) && ", 1)
    if statement.startswith("bool last = "):
        rest = statement[len("bool last = "):]
        return f"bool last = {test} || {rest}"
    return plant.choice(test, statement, instead)


def main():
    sources = plant.Sources(sys.argv[1], FILES)
    for number, (name, file, statement, instead) in enumerate(FAULTS, 1):
        sources.put(name, file, statement,
                    planted(number, statement, instead))
    sources.write(sys.argv[2], "exchange", [name for name, *_ in FAULTS])


main()
