# SPDX-License-Identifier: Apache-2.0
"""Ways in which public programs read the output of nccl-tests, each written
anew from the form of that output. All return {size: (time, algbw, busbw)} of
the columns that they read, and raise where a row is not as they expect."""
import re

NUMBER = r"\d+(?:\.\d+)?(?:e[-+]?\d+)?"


def by_line_pattern(text):
    """One expression for a whole line, anchored at both ends, in which the
    names of types are spelt out."""
    line = re.compile(
        r"^\s*(?P<size>\d+)\s+(?P<count>\d+)\s+"
        r"(?P<type>u?int(?:8|32|64)|half|float|double|bfloat16|f8e4m3|f8e5m2)\s+"
        r"(?P<redop>none|sum|prod|min|max|avg)\s+(?P<root>-?\d+)\s+"
        rf"(?P<out>{NUMBER})\s+({NUMBER})\s+({NUMBER})\s+(\d+|N/A)\s+"
        rf"(?P<in>{NUMBER})\s+({NUMBER})\s+({NUMBER})\s+(\d+|N/A)\s*$")
    rows = [line.match(l) for l in text.splitlines()
            if l.strip() and not l.startswith("#")]
    if None in rows:
        raise ValueError("a line that is no row")
    return {int(m["size"]): tuple(float(m[i]) for i in (
        "out", 7, 8)) for m in rows}


def by_split(text, first):
    """Reads fields between blanks, at fixed places from `first` on."""
    found = {}
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        fields = line.split()
        if len(fields) != 13:
            raise ValueError(f"{len(fields)} fields")
        found[int(fields[0])] = tuple(map(float, fields[first:first + 3]))
    return found


def by_out_of_place(text):
    return by_split(text, 5)


def by_in_place(text):
    return by_split(text, 9)


def by_header(text):
    """Finds the places by the names in the header; of a name that occurs twice
    the last is in-place."""
    names, found = None, {}
    for line in text.splitlines():
        if "busbw" in line and "time" in line and line.startswith("#") and \
                "size" in line:
            names = re.sub(r" +", " ", line[1:].strip()).split(" ")
            last = {name: len(names) - 1 - names[::-1].index(name)
                    for name in ("time", "algbw", "busbw")}
        elif re.match(r"\s*\d+ ", line):
            fields = line.split()
            if len(fields) != len(names):
                raise ValueError("fields and names differ")
            found[int(fields[names.index("size")])] = tuple(
                float(fields[last[name]]) for name in ("time", "algbw",
                                                       "busbw"))
    return found


def by_size(text, sizes):
    """Finds each requested size by a pattern of its own."""
    found = {}
    for size in sizes:
        rows = re.findall(rf"^ *{size} +\d+ +\w+ +\w+ +-?\d+ +({NUMBER}) +"
                          rf"({NUMBER}) +({NUMBER})", text, re.M)
        if len(rows) != 1:
            raise ValueError(f"{len(rows)} rows of {size}")
        found[size] = tuple(map(float, rows[0]))
    return found


def by_types(text):
    """Finds rows by the name of a type and counts from there, as awk scripts
    do."""
    found = {}
    for line in text.splitlines():
        fields = line.split()
        if len(fields) > 3 and fields[2] in ("float", "half", "bfloat16",
                                             "double", "uint8"):
            at = fields.index("-1")
            found[int(fields[0])] = tuple(map(float, fields[at + 1:at + 4]))
    return found


def summary(text):
    """Reads the last lines, as shell scripts do."""
    wrong = re.search(r"^# Out of bounds values : (\d+) (\w+)$", text, re.M)
    average = re.search(rf"^# Avg bus bandwidth    : ({NUMBER})\s*$", text,
                        re.M)
    return int(wrong[1]), wrong[2], float(average[1])


KINDS = (by_line_pattern, by_out_of_place, by_in_place, by_header, by_types)
