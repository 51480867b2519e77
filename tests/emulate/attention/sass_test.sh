#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sass_test.sh NVCC SOURCE-DIR FILE HGMMA EX2 WHOLE MASKED UNDER [OPTION]: a
# Hopper kernel's machine code (by nvcc with OPTION) has wgmma, TMA loads,
# mbarriers and register budgets, touches no local memory, and the bodies of its
# tiles have the counts that sm90_count.py checks. Needs nvdisasm or cuobjdump
# (scripts/cuda-tools.sh); skipped without them.
set -eu

dump=$(sh "$2/scripts/cuda-tools.sh" nvdisasm "$1")
options=-c
if [ -z "$dump" ]; then
    dump=$(sh "$2/scripts/cuda-tools.sh" cuobjdump "$1")
    options=-sass
fi
[ -n "$dump" ] || exit 77
out=$(mktemp)
trap 'rm -f "$out" "$out.sass"' EXIT
sh "$2/scripts/ptxas_gate.sh" "$1" -std=c++17 -I "$2/src" -I "$2/include" \
    -Xptxas=-v -gencode arch=compute_90a,code=sm_90a -cubin ${9:+"$9"} "$3" \
    -o "$out"
"$dump" "$options" "$out" >"$out.sass" || exit 77
for wanted in HGMMA UTMALDG SYNCS USETMAXREG MUFU.EX2 STSM; do
    grep -q "$wanted" "$out.sass" || {
        echo "no $wanted in the code of $3"
        exit 1
    }
done
if grep -E '(STL|LDL)[. ]' "$out.sass"; then
    exit 1
fi
exec python3 "$2/tests/emulate/attention/sm90_count.py" "$out.sass" \
    "$4" "$5" "$6" "$7" "$8"
