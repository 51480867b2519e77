#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# nvcc_test.sh NVCC SOURCE-DIR FILE [serialized-is-an-error]: the .cu file that
# the emulator runs compiles for the architectures that we ship. With the last
# argument, ptxas must neither serialise wgmma nor spill.
set -eu
out=$(mktemp)
trap 'rm -f "$out" "$out.log"' EXIT
"$1" -std=c++17 -I "$2/src" -I "$2/include" -I "$2/tests" -Xptxas -v \
    -gencode arch=compute_80,code=sm_80 \
    -gencode arch=compute_90a,code=sm_90a -c "$3" -o "$out" 2>"$out.log" || {
    cat "$out.log"
    exit 1
}
if [ $# -gt 3 ]; then # what each kernel takes, for who reads the log
    grep -E "Compiling entry|Used " "$out.log" || true
fi
if [ $# -gt 3 ] && grep -E 'serialized|[1-9][0-9]* bytes spill' "$out.log"; then
    exit 1
fi
test -s "$out"
