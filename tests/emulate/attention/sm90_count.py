#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sm90_count.py SASS HGMMA EX2 WHOLE MASKED UNDER: the instructions of a thread in one
key tile of a Hopper forward kernel, from nvdisasm's or cuobjdump's listing.

The innermost loops with matrix products that store nothing are the bodies of a
tile: seen whole, masked (twice: before and after) and transformed. Prints their counts, and fails
where a body does not have HGMMA products and EX2 exponentials (those two not in
a transformed body, which has more), the whole and masked bodies take more
instructions than WHOLE and MASKED, fewer than UNDER exponentials stand
between the wait for the scores and that for the product of before, or the
statistics of a row (where alone are products in fp64) do not stand under an
item's last product.
"""
import collections
import re
import sys

SHOWN = ("HGMMA", "MUFU.EX2", "MUFU.RCP", "FFMA", "FMUL", "FADD", "FMNMX",
         "F2FP", "FSEL", "R2P", "R2UR")


def functions(lines):
    """Returns {name: [(is_label, text)]} of the entry kernels."""
    found, code = {}, None
    for line in lines:
        entry = re.match(r"\s*(?:Function : |\.text\.)(\S*sm90_forward\w*)", line)
        label = re.match(r"\s*(\.L_x?_?\w+):", line)
        instruction = re.match(r"\s+/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;", line)
        if entry and ".section" not in line:
            code = found.setdefault(entry.group(1).rstrip(":"), [])
        elif code is not None and label:
            code.append((label.group(1), None))
        elif code is not None and instruction:
            code.append((int(instruction.group(1), 16), instruction.group(2)))
    return found


def operation(text):
    return re.sub(r"^@!?U?P\w+\s+", "", text).split()[0]


def loops(code):
    """Returns (first, last) of each backward branch."""
    place = {key: n for n, (key, _) in enumerate(code)}
    for n, (_, text) in enumerate(code):
        target = text and re.search(
            r"\bBRA.*?(?:`\((\.L_\w+)\)|0x([0-9a-f]+))", text)
        if target:
            key = target.group(1) or int(target.group(2), 16)
            if place.get(key, n) < n:
                yield place[key], n


def bodies(code):
    """Returns the instructions of the innermost loops that have matrix
    products."""
    ranges = [(a, b) for a, b in loops(code)
              if any(t and "HGMMA" in t for _, t in code[a:b + 1])]
    for a, b in sorted(ranges):
        texts = [t for _, t in code[a:b + 1] if t]
        names = [operation(t) for t in texts]
        if not any(n.startswith("STSM") for n in names):
            yield names, under_product(texts)


def under_product(texts):
    """Counts the exponentials from the wait that leaves one product in flight
    to the next wait."""
    count, under = 0, False
    for text in texts:
        if "WARPGROUP.DEPBAR" in text:
            under = text.rstrip().endswith("0x1")
        count += under and "MUFU.EX2" in text
    return count


def statistics_under_product(code):
    """Counts the products in fp64 between matrix products and the wait for all
    of them."""
    count, under = 0, False
    for _, text in code:
        if text and "HGMMA" in text:
            under = True
        elif text and "WARPGROUP.DEPBAR" in text:
            under = not text.rstrip().endswith("0x0")
        count += bool(under and text and "DMUL" in text)
    return count


def kind(names):
    if any(n.startswith("MUFU.RCP") for n in names):
        return "transformed"
    return "masked" if "R2P" in names else "whole"


def judge(what, names, under, wanted, limits):
    count = collections.Counter(
        next((s for s in SHOWN if n.startswith(s)), "other") for n in names)
    print(f"  {what:12} {len(names):5}  " + " ".join(
        f"{s} {count[s]}" for s in (*SHOWN, "other") if count[s]) +
        f" under PV: EX2 {under}")
    if what == "transformed":
        return True
    right = (count["HGMMA"], count["MUFU.EX2"]) == wanted
    if not right:
        print(f"{what}: HGMMA and EX2 are not {wanted}")
    if len(names) > limits[what]:
        print(f"{what}: {len(names)} instructions, at most {limits[what]}")
    if under < limits["under"]:
        print(f"{what}: {under} exponentials under a product, at least "
              f"{limits['under']}")
    return right and len(names) <= limits[what] and under >= limits["under"]


def main():
    hgmma, ex2, whole, masked, under = map(int, sys.argv[2:7])
    limits = {"whole": whole, "masked": masked, "under": under}
    with open(sys.argv[1], encoding="utf-8") as listing:
        kernels = functions(listing)
    good = len(kernels) == 2  # one kernel for bf16 and one for fp16
    for name, code in kernels.items():
        print(name)
        seen = set()
        for names, under in bodies(code):
            seen.add(kind(names))
            good = judge(kind(names), names, under, (hgmma, ex2), limits) \
                and good
        statistics = statistics_under_product(code)
        print(f"  statistics: DMUL {statistics} under the last product")
        good = good and statistics >= 2 # a thread has two rows
        if seen != {"whole", "masked", "transformed"}:
            print(f"bodies are {sorted(seen)}")
            good = False
    sys.exit(not good)


if __name__ == "__main__":
    main()
