#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Checks that every C file is formatted as by clang-format 14, apart from
# headers in cuda/ folders, which are CUDA C++. Other versions of clang-format
# differ in details, so the check is skipped without version 14.
set -eu
cd "$(dirname "$0")/.."
tool=
for candidate in clang-format-14 clang-format; do
    if "$candidate" --version 2>/dev/null | grep -q 'version 14\.'; then
        tool=$candidate
        break
    fi
done
if [ -z "$tool" ]; then
    echo "SKIPPED: clang-format 14 is not installed"
    exit 77
fi
find include src tests perf tools examples \( -path '*/cuda/*' \
    -o -path 'src/collectives/device' \) -prune \
    -o -name '*.[ch]' -print0 \
    | xargs -0 "$tool" --dry-run -Werror
