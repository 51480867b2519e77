#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the exchange by messages and the transport "staged" with faults planted into
them, each behind a number that a test sets at run time. A place that is not
found, or found twice, is an error, so the list keeps up with the sources.

carried_plant.py SOURCE-DIR OUTPUT-DIR
"""
import sys

import plant

STAGED = "transport/staged/cuda/staged.cu"
PACKED, CALL = "collectives/device/messages/messages.cu", "collectives/device/messages/messages_call.c"

# name, file, statement or expression, its replacement
FAULTS = [
    ("CHUNK_NOT_AWAITED", STAGED,
     "warp_load_flag(&queue->polled->filled[slot])",
     "ULI_STAGED_FILLED(n, p.size)"),
    ("WORDS_WITHOUT_ACQUIRE", STAGED,
     "ptx_ld_acquire_sys_u64(word)", "ptx_ld_relaxed_sys_u64(word)"),
    ("FILLED_WITHOUT_RELEASE", STAGED,
     "ptx_st_release_sys_u64(\n"
     "            &queue->posted->filled[slot], ULI_STAGED_FILLED(n, p.size));",
     "ptx_st_relaxed_sys_u64("
     "&queue->posted->filled[slot], ULI_STAGED_FILLED(n, p.size));"),
    ("PART_NOT_BEGUN_ANEW", STAGED,
     "ends ? 0 : at + bytes;\n    }\n    __syncwarp();\n"
     "    return ends ? TURN_ENDS : TURN_MOVES;\n}\n\n"
     "/* Receives chunk `taken`", "at + bytes"),
    ("BLOCKS_COUNTED_WITHOUT_ORDER", STAGED,
     "ptx_atom_add_acq_rel_gpu_u32(blocks, 1)",
     "ptx_atom_add_relaxed_gpu_u32(blocks, 1)"),
    ("PACKED_BEYOND_THE_WINDOW", PACKED, "!own && end > args.end", "false"),
    ("CUT_ITEM_NOT_CONTINUED", PACKED,
     "args.call.items[args.order[middle]].first_tile <= at",
     "args.call.items[args.order[middle]].first_tile <= at + args.tile_bytes"),
    ("CLOSED_BY_EVERY_BLOCK", PACKED, "is_last_block(c)", "true"),
    ("BATCH_NOT_AWAITED", CALL, "ULI_TRY(await_batch(c, k - 1));", ";"),
    ("LAST_BATCH_NOT_AWAITED", CALL,
     "ULI_TRY(await_batch(c, rounds - 1));", ";"),
    ("PACK_NOT_AWAITED", CALL,
     "ULI_TRY(ULI_MESSAGES_DEVICE(\n"
     "            messages, event_order, messages->packed_event, messages->inner));",
     ";"),
]


def planted(number, text, instead):
    """Where the place is the beginning of a condition, the rest of the
    condition belongs to it."""
    test = f"carried_planted == {number}"
    if text.startswith("ends ? 0"):
        return f"({test}) ? {instead} : {text}"
    return plant.choice(test, text, instead)


def main():
    sources = plant.Sources(sys.argv[1], (STAGED, PACKED, CALL))
    for number, (name, file, text, instead) in enumerate(FAULTS, 1):
        sources.put(name, file, text, planted(number, text, instead))
    sources.write(sys.argv[2], "carried", [name for name, *_ in FAULTS])


main()
