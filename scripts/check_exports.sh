#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_exports.sh SHARED STATIC: what libulyx.so exports is what
# src/ulyx.exports lists, and global names of the static library begin with
# ulyx_ or uli_. After a change that is meant:
#     scripts/check_exports.sh --update build/src/libulyx.so
set -eu
list=$(dirname "$0")/../src/ulyx.exports

exported()
{
    nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' \
        | LC_ALL=C sort -u
}

if [ "$1" = --update ]; then
    exported "$2" >"$list"
    exit
fi
status=0
exported "$1" | diff -u "$list" - || {
    echo "exports differ from src/ulyx.exports; if that is meant:"
    echo "    scripts/check_exports.sh --update build/src/libulyx.so"
    status=1
}
if exported "$1" | grep -v '^ulyx_'; then
    echo "the names above leave libulyx.so without the prefix ulyx_"
    status=1
fi
# Mangled names are of kernels, whose C++ entry points CUDA makes.
if nm -g --defined-only "$2" 2>/dev/null | awk 'NF == 3 { print $3 }' \
    | grep -vE '^(ulyx_|uli_|_Z|__|DW\.ref\.)'; then
    echo "the names above are global in the static library without a prefix"
    status=1
fi
exit $status
