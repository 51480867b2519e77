#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""examples/attention_layer.c prints the same tokens on 1 to 4 ranks, and what
they are; docs/USING.md shows the file as it is."""
import sys
import example


def run(program, ranks):
    """Returns the lines of all ranks, by token."""
    lines = "".join(example.outputs(program, ranks)).splitlines()
    return sorted(lines, key=lambda line: int(line.split()[1]))


def expected_out(position):
    """Returns the first number of a token's output, from the formula."""
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
    shown = example.read(source)
    failed += not example.shows(using, shown)
    print(f"{failed} failed")
    return 1 if failed else 0


sys.exit(main())
