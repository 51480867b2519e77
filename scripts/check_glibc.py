#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""check_glibc.py LIBRARY [VERSION]: prints the functions of the C library that
LIBRARY needs and that glibc VERSION (2.28) does not have.

A function that has only a new symbol version, because it has moved or changed,
is not printed: LIBRARY would use the older symbol version if it were built
with the older glibc. Such functions are found in the C library of this
machine, which still has the older symbol version too."""
import re
import subprocess
import sys

# Functions that older headers define by macros or inline, with other symbols.
HEADERS = re.compile(r"[fl]?stat|fstatat|mknod(at)?|__isoc23_\w+")
LIBRARIES = re.compile(r"=> (/\S*/(?:libc|libm|libpthread|libdl|librt)\.so\S*)")


def symbols(path, *options):
    """Pairs of name and version of a library's dynamic symbols."""
    text = subprocess.run(["nm", "-D", "--with-symbol-versions", *options, path],
                          check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        found = re.search(r"(\w+)@@?GLIBC_(\d+)\.(\d+)", line)
        if found:
            yield found[1], (int(found[2]), int(found[3]))


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    library = sys.argv[1]
    limit = tuple(int(n) for n in (sys.argv[2:] or ["2.28"])[0].split("."))
    newer = sorted({(name, version)
                    for name, version in symbols(library, "--undefined-only")
                    if version > limit and not HEADERS.fullmatch(name)})
    loaded = subprocess.run(["ldd", library], check=True, capture_output=True,
                            text=True).stdout
    old = {name for path in set(LIBRARIES.findall(loaded))
           for name, version in symbols(path, "--defined-only")
           if version <= limit}
    lacking = [pair for pair in newer if pair[0] not in old]
    for name, version in lacking:
        print(f"{library}: {name} needs glibc {version[0]}.{version[1]}")
    print(f"{len(newer)} newer symbols, {len(lacking)} functions that glibc "
          f"{limit[0]}.{limit[1]} lacks")
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
