#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the packed exchange and the carrier "staged" with faults planted into
them, each behind a number that a test sets at run time. A place that is not
found, or found twice, is an error, so the list keeps up with the sources.

carried_plant.py SOURCE-DIR OUTPUT-DIR
"""
import os
import sys

STAGED = "comm/cuda/staged.cu"
PACKED, CALL = "collectives/cuda/packed.cu", "collectives/cuda/packed_call.c"
NUMBER = "carried_planted"

# name, file, statement or expression, what takes its place
FAULTS = [
    ("CHUNK_NOT_AWAITED", STAGED,
     "warp_hears(&lane->heard->filled[slot])",
     "ULI_STAGED_FILLED(n, p.size)"),
    ("WORDS_WITHOUT_ACQUIRE", STAGED,
     "ptx_ld_acquire_sys_u64(word)", "ptx_ld_relaxed_sys_u64(word)"),
    ("FILLED_WITHOUT_RELEASE", STAGED,
     "ptx_st_release_sys_u64(\n"
     "            &lane->told->filled[slot], ULI_STAGED_FILLED(n, p.size));",
     "ptx_st_relaxed_sys_u64("
     "&lane->told->filled[slot], ULI_STAGED_FILLED(n, p.size));"),
    ("PART_NOT_BEGUN_ANEW", STAGED,
     "ends ? 0 : at + bytes;\n    }\n    __syncwarp();\n"
     "    return ends ? TURN_ENDS : TURN_MOVES;\n}\n\n"
     "/* Chunk `taken`", "at + bytes"),
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
     "ULI_TRY(ULI_PACKED_DEVICE(\n"
     "            packed, event_order, packed->packed_event, packed->inner));",
     ";"),
]


def planted(number, text, instead):
    """Statements end in ";"; what does not is an expression, or begins with
    one."""
    test = f"{NUMBER} == {number}"
    if text.endswith(";"):
        return f"{{ if ({test}) {{ {instead} }} else {{ {text} }} }}"
    if text.startswith("ends ? 0"):
        return f"({test}) ? {instead} : {text}"
    return f"(({test}) ? ({instead}) : ({text}))"


def main():
    source, output = sys.argv[1], sys.argv[2]
    clean, texts = {}, {}
    for name in (STAGED, PACKED, CALL):
        with open(os.path.join(source, name), encoding="utf-8") as file:
            clean[name] = texts[name] = file.read()
    for number, (name, file, text, instead) in enumerate(FAULTS, 1):
        if clean[file].count(text) != 1:
            sys.exit(f"{file}: not one place for {name}: {text}")
        change = planted(number, text, instead)
        texts[file] = texts[file].replace(text, change, 1)
    for name, text in texts.items():
        path = os.path.join(output, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text.replace(
                "#include ", '#include "carried_planted.h"\n#include ', 1))
    with open(os.path.join(output, "carried_planted.h"), "w",
              encoding="utf-8") as file:
        file.write("/* SPDX-License-Identifier: Apache-2.0 */\n#pragma once\n"
                   "#ifdef __cplusplus\n"
                   f"extern \"C\" int {NUMBER};\n#else\n"
                   f"extern int {NUMBER};\n#endif\n"
                   "#define CARRIED_FAULTS(X)")
        for name, _, _, _ in FAULTS:
            file.write(f" \\\n    X({name})")
        file.write("\n")


main()
