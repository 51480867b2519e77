#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check_exports.sh SHARED STATIC: checks that libulyx.so exports exactly the
# names in src/ulyx.exports, and that global names of the static library begin
# with ulyx_ or uli_. After an intended change:
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
    echo "exports differ from src/ulyx.exports; if this is intended:"
    echo "    scripts/check_exports.sh --update build/src/libulyx.so"
    status=1
}
if exported "$1" | grep -v '^ulyx_'; then
    echo "libulyx.so exports the names above without the prefix ulyx_"
    status=1
fi
# Mangled names belong to kernels: CUDA makes C++ entry points for them.
if nm -g --defined-only "$2" 2>/dev/null | awk 'NF == 3 { print $3 }' \
    | grep -vE '^(ulyx_|uli_|_Z|__|DW\.ref\.)'; then
    echo "the names above are global in the static library without a prefix"
    status=1
fi
exit $status
