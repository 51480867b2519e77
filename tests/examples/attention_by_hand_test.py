#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/attention_by_hand.c gives the operator's results on any number of
ranks, more than heads too; docs/ATTENTION.md shows its middle as it is."""
import sys
import example

RANKS = (1, 2, 3, 4, 15)
HEADS, KV_HEADS = 14, 2


def main():
    program, source, document = sys.argv[1:]
    failed = 0
    for ranks in RANKS:
        printed = "".join(example.outputs(program, ranks))
        right = printed.count(": as the operator gives\n")
        reads = [f"head {head} reads KV head {head * KV_HEADS // HEADS},"
                 for head in range(HEADS)]
        if right != ranks or any(printed.count(text) != 1 for text in reads):
            print(f"{ranks} ranks printed:\n{printed}")
            failed += 1
    text = example.read(source)
    middle = text[text.index("/* Two plans"):text.index("\n/* The map counts")]
    failed += not example.shows(document, middle)
    print(f"{failed} failed")
    return 1 if failed else 0


sys.exit(main())
