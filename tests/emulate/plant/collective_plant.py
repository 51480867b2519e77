#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the collectives' kernels with faults planted into them, each behind a
number that a test sets at run time. A place that is not found, or found twice,
is an error, so the list keeps up with the sources.

collective_plant.py SOURCE-DIR OUTPUT-DIR
"""
import sys

import plant

FOLDER = "collectives/device/collective/"
WORDS, RECV_BUFFER = FOLDER + "collective_flags.h", FOLDER + "collective_recv_buffer.h"
MOVE = FOLDER + "collective_move.h"
SUM, PIECES = FOLDER + "allreduce.cu", FOLDER + "alltoall.cu"

# name, file, expression or statement, its replacement
FAULTS = [
    ("READY_WITHOUT_RELEASE", WORDS,
     "ptx_st_release_sys_u64(&yours->ready, c.n);",
     "ptx_st_relaxed_sys_u64(&yours->ready, c.n);"),
    ("DONE_NOT_AWAITED", WORDS,
     "__syncthreads_and(kept) != 0 && block_ends(c)", "true"),
    ("FILLED_WITHOUT_RELEASE", RECV_BUFFER,
     "ptx_st_release_sys_u64(\n"
     "            &queue.recv_buffer->yours[queue.number].filled, queue.sent);",
     "ptx_st_relaxed_sys_u64("
     "&queue.recv_buffer->yours[queue.number].filled, queue.sent);"),
    ("EMPTIED_WITHOUT_RELEASE", RECV_BUFFER,
     "ptx_st_release_sys_u64(\n"
     "            &queue.recv_buffer->yours[queue.number].emptied, queue.received);",
     "ptx_st_relaxed_sys_u64("
     "&queue.recv_buffer->yours[queue.number].emptied, queue.received);"),
    ("CHUNK_WITHOUT_ACQUIRE", RECV_BUFFER,
     "ptx_ld_acquire_sys_u64(&queue.recv_buffer->mine[queue.number].filled)",
     "ptx_ld_relaxed_sys_u64(&queue.recv_buffer->mine[queue.number].filled)"),
    ("ROOM_WITHOUT_ACQUIRE", RECV_BUFFER,
     "ptx_ld_acquire_sys_u64(&queue.recv_buffer->mine[queue.number].emptied)",
     "ptx_ld_relaxed_sys_u64(&queue.recv_buffer->mine[queue.number].emptied)"),
    ("CHUNK_NOT_AWAITED", RECV_BUFFER, "queue.received < filled", "true"),
    ("ONE_CHUNK_MORE_THAN_ROOM", RECV_BUFFER,
     "queue.sent < emptied + ULI_RECV_SLOTS",
     "queue.sent < emptied + ULI_RECV_SLOTS + 1"),
    ("CHUNKS_PUT_INTO_ONE_SLOT", RECV_BUFFER,
     "(int64_t)(queue.sent & 1)", "(int64_t)0"),
    ("FIRST_BYTES_NOT_COPIED", MOVE,
     "warp_copies_as<uint8_t>(dst, src, head);", ";"),
    ("READY_NOT_AWAITED", WORDS,
     "!warp_awaits_ready(c, p)", "false"),
    ("QUEUES_BEGIN_ALIKE", PIECES,
     "queue * a.chunk_bytes, a.queues", "0, a.queues"),
    ("SUM_IN_ANOTHER_ORDER", SUM,
     "const unsigned char *from = place_at(places.from, p) + skip;\n"
     "        elements<BYTES> held", "the last rank first"),
    ("LAST_ELEMENTS_LEFT_OUT", SUM, "count > whole * V", "false"),
    ("SHARES_NOT_AWAITED", SUM,
     "!queues_await(c, a, number, false) || "
     "!queues_await(c, a, number, true)",
     "!queues_await(c, a, number, true)"),
]


def planted(number, text, instead):
    """Where the place begins a list, only its first entry is replaced; a
    declaration remains one."""
    test = f"collective_planted == {number}"
    if text.endswith("a.queues"):
        first, rest = text.split(",", 1)
        return f"({test} ? {instead.split(',', 1)[0]} : {first}),{rest}"
    if "const unsigned char *from" in text:
        return text.replace(
            "from, p)", f"from, {test} ? nranks - 1 - p : p)")
    return plant.choice(test, text, instead)


def main():
    sources = plant.Sources(sys.argv[1], (WORDS, RECV_BUFFER, MOVE, SUM, PIECES))
    for number, (name, file, text, instead) in enumerate(FAULTS, 1):
        sources.put(name, file, text, planted(number, text, instead))
    sources.write(sys.argv[2], "collective", [name for name, *_ in FAULTS])


main()
