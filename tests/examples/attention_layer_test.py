#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/attention_layer.c prints the same tokens on 1 to 4 ranks, and what
they are; docs/USING.md shows the file as it is."""
import os
import subprocess
import sys

RANK_LIMIT_S = 60


def run(program, ranks):
    """The lines of all ranks, by token."""
    started = []
    for rank in range(ranks):
        environment = dict(
            os.environ, ULYX_RANK=str(rank), ULYX_NRANKS=str(ranks),
            ULYX_LOCAL_NRANKS=str(ranks), ULYX_TIMEOUT="40",
            ULYX_JOB=f"attention_layer.{os.getpid()}.{ranks}")
        started.append(subprocess.Popen(
            [program], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env=environment))
    lines = []
    for rank, process in enumerate(started):
        out, error = process.communicate(timeout=RANK_LIMIT_S)
        if process.returncode != 0:
            print(f"rank {rank} of {ranks}: {process.returncode}: {error}")
            sys.exit(1)
        lines += out.splitlines()
    return sorted(lines, key=lambda line: int(line.split()[1]))


def expected_out(position):
    """The first number of a token's output, from the formula."""
    import math
    heads, kv_heads, dim = 6, 2, 8
    begin = 0 if position < 5 else 5

    def filled(token, column, salt):
        return (token * 37 + column * 11 + salt) % 23 / 23
    del heads, kv_heads
    q = [filled(position, c, 0) for c in range(dim)]
    weights = []
    for key in range(begin, position + 1):
        score = sum(q[c] * filled(key, c, 7) for c in range(dim))
        weights.append(math.exp(score / math.sqrt(dim)))
    values = [filled(key, 0, 2) for key in range(begin, position + 1)]
    return sum(w * x for w, x in zip(weights, values)) / sum(weights)


def numbers(line):
    return [float(word) for word in line.split()[1::2]]


def main():
    program, source, using = sys.argv[1:]
    failed = 0
    one = run(program, 1)
    if len(one) != 13:
        print(f"13 tokens expected, {len(one)} printed")
        failed += 1
    for token, line in enumerate(one):
        if abs(numbers(line)[1] - expected_out(token)) > 2e-5:
            print(f"{line}: expected out {expected_out(token):.5f}")
            failed += 1
    for ranks in (2, 3, 4):
        for line, wanted in zip(run(program, ranks), one):
            apart = [abs(a - b) for a, b in zip(numbers(line), numbers(wanted))]
            if max(apart) > 1.1e-5:
                print(f"{ranks} ranks: {line}, one rank: {wanted}")
                failed += 1
    with open(source, encoding="utf-8") as file:
        shown = f"```c\n{file.read()}```\n"
    with open(using, encoding="utf-8") as file:
        if shown not in file.read():
            print(f"{using} does not show {source} as it is")
            failed += 1
    print(f"{failed} failed")
    return 1 if failed else 0


sys.exit(main())
