#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""sanitize_summary.py SANITIZERS FOLDER: prints the tests that a run of
scripts/sanitize.sh left out, with reasons, the tests that failed, and a line
that sums up. Reads the files that ctest and CMake have written to the build
folder."""
import os
import re
import sys
import xml.etree.ElementTree as xml


def reason(case):
    """The reason of a skipped test."""
    text = case.findtext("system-out") or ""
    found = re.search(r"skipped:?\s*(.+)", text, re.IGNORECASE)
    return found.group(1).strip() if found else "no reason given"


def main():
    sanitizers, folder = sys.argv[1:]
    with open(os.path.join(folder, "left_out.txt"), encoding="utf-8") as file:
        left_out = file.read().splitlines()
    cases = xml.parse(os.path.join(folder, "report.xml")).getroot()
    states = {"run": [], "fail": [], "notrun": []}
    for case in cases.iter("testcase"):
        states.setdefault(case.get("status"), []).append(case)
    for line in left_out:
        print(f"not built: {line}")
    for case in states["notrun"]:
        print(f"skipped: {case.get('name')}: {reason(case)}")
    for case in states["fail"]:
        print(f"failed: {case.get('name')}")
    print(f"sanitize: {sanitizers}, {os.environ['ULYX_TEST_DRAWS']} of the "
          f"draws: {len(states['run'])} passed, {len(states['fail'])} failed, "
          f"{len(states['notrun'])} skipped, {len(left_out)} not built; "
          f"{float(cases.get('time')):.0f} s")


main()
