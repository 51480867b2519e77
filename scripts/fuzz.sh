#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh [MINUTES] [TARGET ...]: builds the fuzz targets (tests/fuzz) with
# clang, libFuzzer and the sanitizers for addresses and undefined behaviour, and
# runs all targets, or the named ones, for MINUTES each (5; may be a fraction).
# New inputs go to build-fuzz/corpus, and inputs that make a target fail to
# build-fuzz/found; the exit code is 1 if there are any of these.
# ULYX_FUZZ_BUILD names another folder in place of build-fuzz.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
build=${ULYX_FUZZ_BUILD:-$here/build-fuzz}
minutes=5
case ${1:-} in
-*)
    sed -n '3,8s/^# //p' "$0" >&2
    exit 2
    ;;
[0-9]*)
    minutes=$1
    shift
    ;;
esac
seconds=$(awk -v m="$minutes" 'BEGIN { printf "%d", m * 60 + 0.5 }')
# shellcheck disable=SC2046 # names of targets have no spaces
[ $# -gt 0 ] || set -- $(ls "$here/tests/fuzz/corpus")
cmake -S "$here" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
    -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++ \
    -DULYX_CUDA=OFF -DULYX_FUZZ=ON >/dev/null
# shellcheck disable=SC2046
ninja -C "$build" $(printf 'fuzz_%s ' "$@")
failed=0
for target; do
    mkdir -p "$build/corpus/$target" "$build/found"
    echo "== $target, $seconds s"
    # No search for leaks: the library keeps memory of destroyed handles, and
    # hwloc leaks some.
    ASAN_OPTIONS=detect_leaks=0 ULYX_DEBUG=NONE \
        "$build/bin/fuzz_$target" -max_total_time="$seconds" -timeout=20 \
        -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$build/found/$target-" "$build/corpus/$target" \
        "$here/tests/fuzz/corpus/$target" >"$build/found/$target.log" 2>&1 || {
        failed=1
        tail -n 40 "$build/found/$target.log"
    }
    grep -E 'number_of_executed_units|peak_rss' "$build/found/$target.log" || :
done
exit "$failed"
