#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that every function that a public header declares is exported and that
every exported function is declared; and that each declaration has a comment
right above it.

check_declared.py [ROOT]
"""
import glob
import os
import re
import sys

DECLARATION = re.compile(r"^ULYX_API[^;(]*?\b(ulyx_\w+)\(", re.M | re.S)


def declarations(text):
    """Yields (name, explained). explained: the line above ends a comment, or
    another declaration with the same comment."""
    for match in DECLARATION.finditer(text):
        above = text[:match.start()].rstrip(" ")
        yield match.group(1), above.endswith(("*/\n", ";\n"))


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else \
        os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    errors, declared = [], set()
    for path in sorted(glob.glob(os.path.join(root, "include/ulyx/*.h"))):
        with open(path, encoding="utf-8") as file:
            for name, explained in declarations(file.read()):
                declared.add(name)
                if not explained:
                    errors.append(f"{name}: no comment above its declaration")
    with open(os.path.join(root, "src/ulyx.exports"), encoding="utf-8") as file:
        exported = set(file.read().split())
    errors += [f"{name}: declared, not exported"
               for name in sorted(declared - exported)]
    errors += [f"{name}: exported, not declared"
               for name in sorted(exported - declared)]
    print("\n".join(errors + [f"{len(declared)} functions, "
                              f"{len(errors)} errors"]))
    return 1 if errors or not declared else 0


sys.exit(main())
