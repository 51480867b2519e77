#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sass_test.sh NVCC SOURCE-DIR FILE: a Hopper kernel's machine code has wgmma,
# TMA loads, mbarriers and register budgets, and touches no local memory.
# Skipped where there is no cuobjdump.
set -eu
dump=$(command -v cuobjdump || true)
[ -n "$dump" ] || dump=$(dirname "$1")/cuobjdump
[ -x "$dump" ] || exit 77
out=$(mktemp)
trap 'rm -f "$out" "$out.sass"' EXIT
sh "$2/scripts/ptxas_gate.sh" "$1" -std=c++17 -I "$2/src" -I "$2/include" \
    -Xptxas=-v -gencode arch=compute_90a,code=sm_90a -cubin "$3" -o "$out"
"$dump" -sass "$out" >"$out.sass" || exit 77
for wanted in HGMMA UTMALDG SYNCS USETMAXREG MUFU.EX2 STSM; do
    grep -q "$wanted" "$out.sass" || {
        echo "no $wanted in the code of $3"
        exit 1
    }
done
if grep -E '(STL|LDL)[. ]' "$out.sass"; then
    exit 1
fi
