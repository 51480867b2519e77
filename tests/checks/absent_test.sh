#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# absent_test.sh ROOT COMPILER: the files that replace a part that a build leaves
# out (CUDA, NCCL, UCX) compile. Tested also in builds that have the part.
set -eu
cd "$1"
compiler=$2
find src -name '*absent.c' -exec "$compiler" -std=c11 -D_GNU_SOURCE -Iinclude \
    -Isrc -Wall -Wextra -Werror -Wno-missing-field-initializers -fsyntax-only {} +
count=$(find src -name '*absent.c' | wc -l)
echo "$count files"
[ "$count" -ge 5 ]
