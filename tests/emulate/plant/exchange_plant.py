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
WORK, MOVE = FOLDER + "exchange_work.h", FOLDER + "exchange_move.h"
SUM, LAID = FOLDER + "exchange_sum.h", FOLDER + "exchange_laid.h"
FILES = (KERNEL, WORDS, WORK, MOVE, SUM, LAID)

# name, file, statement, its replacement
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

# Faults of the loops over a tile, and of how warps share tiles: name, file,
# text before the place, the place, its replacement.
LOOPS = [
    ("WALK_STEP_WITHOUT_THE_RUN", MOVE,
     "side.step = ", "digits_offset(step, stride, bytes)",
     "digits_offset(step, stride, 0)"),
    ("WALK_STEP_WITHOUT_RUNS", MOVE,
     "(int32_t)step.v, ", "(int32_t)step.k", "0"),
    ("WALK_STEP_WITHOUT_ROWS", MOVE,
     "", "(int32_t)step.j", "0"),
    ("WALK_BEGINS_WITH_THE_ITEM", MOVE,
     "src + shift, ", "begin / bytes + lane", "(int64_t)lane"),
    ("WALK_CARRY_NOT_PASSED_ON", MOVE, "", "w.left[d + 1]--;", ""),
    ("WALK_CARRY_FOR_EVER", MOVE, "", "w.left[d] += w.size[d];", ""),
    ("WALK_CARRY_LATE", MOVE, "if (", "w.left[d] <= 0", "w.left[d] < 0"),
    ("WALK_CARRY_OF_THE_OTHER_SIDE", MOVE,
     "", "w.src.at += w.src.carry[d];", "w.src.at += w.dst.carry[d];"),
    ("WALK_CARRY_OF_ROWS_WITHOUT_RUNS", MOVE,
     "stride[1] - ", "size.k * stride[2]", "stride[2]"),
    ("WALK_CARRY_OF_BATCHES_WITHOUT_ROWS", MOVE,
     "stride[0] - ", "size.j * stride[1]", "stride[1]"),
    ("LAST_VECTOR_NOT_MOVED", MOVE,
     "bool here = ", "n + u * WARP < count", "n + u * WARP < count - 1"),
    ("VECTORS_PAST_THE_TILE", MOVE,
     "to[u] = ", "here", "w.left[0] != edge"),
    ("EDGES_MOVED_AS_VECTORS", MOVE, "", "w.left[0] != edge", "true"),
    ("EDGES_OF_THE_LAST_ROW_NOT_MOVED", MOVE,
     "", "end = divide_rest(end, vectors, &rest) * each;",
     "end = (divide_rest(end, vectors, &rest) - 1) * each;"),
    ("EDGES_BEGIN_WITH_THE_ITEM", MOVE,
     "int64_t n = ", "divide_rest(first, vectors, &rest) * each + lane",
     "lane"),
    ("EDGES_CUT_ONE_LATE", MOVE, "+= ", "in_row < shift", "in_row <= shift"),
    ("EDGES_IN_TOO_WIDE_UNITS", MOVE, "if (", "shift % 2", "false"),
    ("VECTORS_TOO_WIDE", MOVE, "if (", "bits % 16 == 0", "bits % 8 == 0"),
    ("DISTANCE_LEFT_OUT", MOVE,
     "", "bits |= (uint64_t)(uintptr_t)dst - (uint64_t)(uintptr_t)src;", ""),
    ("SUM_BEGINS_WITH_THE_ITEM", SUM,
     "(item, V, ", "begin / V + lane", "lane"),
    ("SUM_OF_THE_FIRST_SHARES_AGAIN", SUM,
     "if (!all)\n                ", "shares_from(c, item, s, shares);",
     "shares_from(c, item, 0, shares);"),
    ("SUM_WITHOUT_LATER_SHARES", SUM,
     "bool all = ", "item.nsources <= SUM_SHARES", "true"),
    ("SUM_LEAVES_OUT_THE_LAST_SHARE", SUM,
     "if (", "s + u < item.nsources && left > n * WARP",
     "s + u + 1 < item.nsources && left > n * WARP"),
    ("SUM_LEAVES_OUT_THE_LAST_VECTOR", SUM,
     "if (", "left > n * WARP)\n                store_total(", None),
    ("SUM_PAST_THE_TILE", SUM,
     "int64_t left = (end - begin) / V - ", "lane", "(lane - 1)"),
    ("SUM_STEPS_ONE_VECTOR_SHORT", SUM,
     "left -= ", "SUM_VECTORS * WARP", "(SUM_VECTORS - 1) * WARP"),
    ("SUM_CARRY_OUT_OF_THE_RUN_LOST", MOVE,
     "at.v -= size.v;\n        ", "at.k++;", ""),
    ("SUM_CARRY_OUT_OF_RUNS_LOST", MOVE,
     "at.k -= size.k;\n        ", "at.j++;", ""),
    ("SUM_CARRY_OUT_OF_ROWS_LOST", MOVE,
     "at.j -= size.j;\n        ", "at.i++;", ""),
    ("SUM_OF_ONE_GROUP", SUM,
     "bool opens = s > 0 && ", "group != t.group", "false"),
    ("SUM_WITHOUT_THE_LAST_GROUP", SUM,
     "        }\n        ", "tree_close_group(t);", ""),
    ("SUM_TAKES_SHARES_FOR_ALIGNED", SUM,
     "if (", "(uintptr_t)share_of(c, item, s) % unit != 0", "false"),
    ("SUM_TAKES_DST_FOR_ALIGNED", SUM,
     "bits % (uint64_t)v != 0 || ", "(uintptr_t)dst % unit != 0", "false"),
    ("SUM_TAKES_RUNS_FOR_WHOLE", SUM,
     "if (", "bits % (uint64_t)v != 0", "false"),
    ("TILE_PAST_THE_ITEM", WORK,
     "int64_t end = ", "begin + each < length ? begin + each : length",
     "begin + each"),
    ("BLOCKS_BEGIN_ALIKE", WORK,
     "uint32_t worker = ", "blockIdx.x * warps + threadIdx.x / WARP",
     "threadIdx.x / WARP"),
    ("WARPS_OF_OTHER_BLOCKS_LEFT_OUT", WORK,
     "t += ", "warps * gridDim.x", "warps"),
    ("STRIDES_OF_THE_CALL_LEFT_OUT", WORK,
     "", "moved = item_moved<SUMS>(c, item);", ""),
    ("LAID_AT_THE_TABLES_OFFSET", LAID,
     "if (stride)\n        ", "offset_p = 0;", ""),
    ("LAID_BY_ONE_STRIDE", LAID,
     "", "offset_p += at[d] * stride[d];", "offset_p += at[d] * stride[0];"),
    ("LAID_WITH_THE_TABLES_RUN", LAID, "", "laid.run = rect.run;", ""),
    ("LAID_SOURCE_NOT_ORDERED", LAID, "int i = 0; ", "i < 3", "i < 2"),
    ("LAID_WITHOUT_ALIGNMENT_OF_DST", LAID,
     "(uint64_t)laid.run | ", "align_of(laid.extent, laid.dst_stride, 1)",
     "0"),
    ("LAID_WITHOUT_ALIGNMENT_OF_SRC", LAID,
     "", "laid.align |= align_of(laid.extent, laid.src_stride, 1);", ""),
    ("LAID_WITHOUT_ALIGNMENT_OF_SHARES", LAID,
     "", "laid.align |= align_of(laid.extent, share_stride(c, laid, s),\n"
     "            dtype_bytes(laid.partial_dtype));", ""),
    ("LAID_SHARE_BY_STRIDES_OF_DST", LAID,
     ".at\n                       : ",
     "strides_of(c, source.rank, item.tensor, false)",
     "strides_of(c, source.rank, item.tensor, true)"),
]


def planted(number, statement, instead):
    """A statement becomes a choice between two; a condition or a declaration is
    changed in place."""
    test = f"exchange_planted == {number}"
    if "%s" in instead:
        return statement.replace("if (", f"if (!({test}) && ", 1)
    if statement.startswith("if (!"):
        return statement.replace("if (", f"if (!({test}) && ", 1)
    if statement.startswith("bool last = "):
        rest = statement[len("bool last = "):]
        return f"bool last = {test} || {rest}"
    return plant.choice(test, statement, instead)


def planted_loop(number, place, instead):
    """A replacement of None means that the condition before a statement gets
    one vector less."""
    test = f"exchange_planted == {number}"
    if instead is None:
        return place.replace("left >", f"left - ({test}) >", 1)
    return plant.choice(test, place, instead)


def main():
    sources = plant.Sources(sys.argv[1], FILES)
    for number, (name, file, statement, instead) in enumerate(FAULTS, 1):
        sources.put(name, file, statement,
                    planted(number, statement, instead))
    for number, (name, file, lead, place, instead) in enumerate(
            LOOPS, 1 + len(FAULTS)):
        sources.put(name, file, lead + place,
                    lead + planted_loop(number, place, instead))
    sources.write(sys.argv[2], "exchange",
                  [name for name, *_ in FAULTS + LOOPS])


main()
