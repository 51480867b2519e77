#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the collectives' kernels with faults planted into them, each behind a
number that a test sets at run time. A place that is not found, or found twice,
is an error, so the list keeps up with the sources.

collective_plant.py SOURCE-DIR OUTPUT-DIR
"""
import os
import sys

FOLDER = "collectives/cuda"
WORDS, LANDING = "collective_words.h", "collective_landing.h"
MOVE, SUM, PIECES = "collective_move.h", "allreduce.cu", "alltoall.cu"

# name, file, expression or statement, what takes its place
FAULTS = [
    ("READY_WITHOUT_RELEASE", WORDS,
     "ptx_st_release_sys_u64(&yours->ready, c.n);",
     "ptx_st_relaxed_sys_u64(&yours->ready, c.n);"),
    ("DONE_WITHOUT_RELEASE", WORDS,
     "ptx_st_release_sys_u64(&a.base.peers[p].yours->done, c.n);",
     "ptx_st_relaxed_sys_u64(&a.base.peers[p].yours->done, c.n);"),
    ("DONE_NOT_AWAITED", WORDS,
     "block_awaits(c, ULI_GPU_AWAITS_DONE)", "true"),
    ("FILLED_WITHOUT_RELEASE", LANDING,
     "ptx_st_release_sys_u64(\n"
     "            &lane.landing->yours[lane.number].filled, lane.sent);",
     "ptx_st_relaxed_sys_u64("
     "&lane.landing->yours[lane.number].filled, lane.sent);"),
    ("EMPTIED_WITHOUT_RELEASE", LANDING,
     "ptx_st_release_sys_u64(\n"
     "            &lane.landing->yours[lane.number].emptied, lane.received);",
     "ptx_st_relaxed_sys_u64("
     "&lane.landing->yours[lane.number].emptied, lane.received);"),
    ("CHUNK_WITHOUT_ACQUIRE", LANDING,
     "ptx_ld_acquire_sys_u64(&lane.landing->mine[lane.number].filled)",
     "ptx_ld_relaxed_sys_u64(&lane.landing->mine[lane.number].filled)"),
    ("ROOM_WITHOUT_ACQUIRE", LANDING,
     "ptx_ld_acquire_sys_u64(&lane.landing->mine[lane.number].emptied)",
     "ptx_ld_relaxed_sys_u64(&lane.landing->mine[lane.number].emptied)"),
    ("CHUNK_NOT_AWAITED", LANDING, "lane.received < filled", "true"),
    ("ONE_CHUNK_MORE_THAN_ROOM", LANDING,
     "lane.sent < emptied + ULI_LANDING_SLOTS",
     "lane.sent < emptied + ULI_LANDING_SLOTS + 1"),
    ("CHUNKS_PUT_INTO_ONE_SLOT", LANDING,
     "(int64_t)(lane.sent & 1)", "(int64_t)0"),
    ("FIRST_BYTES_NOT_COPIED", MOVE,
     "warp_copies_as<uint8_t>(dst, src, head);", ";"),
    ("READY_NOT_AWAITED", WORDS,
     "here = await_word(\n"
     "            c, &a.base.peers[p].mine->ready, ULI_GPU_AWAITS_READY, p);",
     ";"),
    ("LANES_BEGIN_ALIKE", PIECES,
     "lane * a.chunk_bytes, a.lanes", "0, a.lanes"),
    ("SUM_IN_ANOTHER_ORDER", SUM,
     "const unsigned char *from = share_at(c, a, r, p);\n"
     "        elements<BYTES> held", "the last rank first"),
    ("LAST_ELEMENTS_LEFT_OUT", SUM, "count > whole * V", "false"),
    ("SHARES_NOT_AWAITED", SUM,
     "!lanes_await(c, a, number, false) || "
     "!lanes_await(c, a, number, true)",
     "!lanes_await(c, a, number, true)"),
]
NUMBER = "collective_planted"


def planted(number, text, instead):
    """Statements end in ";"; what does not is an expression, or the beginning
    of a list of them, of which the first is replaced."""
    test = f"{NUMBER} == {number}"
    if text.endswith(";"):
        return f"{{ if ({test}) {{ {instead} }} else {{ {text} }} }}"
    if text.endswith("a.lanes"):
        first, rest = text.split(",", 1)
        return f"({test} ? {instead.split(',', 1)[0]} : {first}),{rest}"
    return f"({test} ? ({instead}) : ({text}))"


def main():
    source, output = sys.argv[1], sys.argv[2]
    os.makedirs(os.path.join(output, FOLDER), exist_ok=True)
    texts = {}
    for name in (WORDS, LANDING, MOVE, SUM, PIECES):
        path = os.path.join(source, FOLDER, name)
        with open(path, encoding="utf-8") as file:
            texts[name] = file.read()
    clean = dict(texts)
    for number, (name, file, text, instead) in enumerate(FAULTS, 1):
        if clean[file].count(text) != 1:
            sys.exit(f"{file}: not one place for {name}: {text}")
        change = planted(number, text, instead)
        if "const unsigned char *from" in text: # a declaration stays one
            change = text.replace(
                "r, p)", f"r, {NUMBER} == {number} ? "
                "a.base.nranks - 1 - p : p)")
        texts[file] = texts[file].replace(text, change, 1)
    for name, text in texts.items():
        text = text.replace("#include ", '#include "collective_planted.h"\n'
                            "#include ", 1)
        with open(os.path.join(output, FOLDER, name), "w",
                  encoding="utf-8") as file:
            file.write(text)
    with open(os.path.join(output, "collective_planted.h"), "w",
              encoding="utf-8") as file:
        file.write("/* SPDX-License-Identifier: Apache-2.0 */\n#pragma once\n")
        file.write(f"extern int {NUMBER};\n#define COLLECTIVE_FAULTS(X)")
        for name, _, _, _ in FAULTS:
            file.write(f" \\\n    X({name})")
        file.write("\n")


main()
