#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fuzz.sh [MINUTES] [TARGET ...]: builds the fuzz targets (tests/fuzz) with
# clang, libFuzzer and the sanitizers of addresses and undefined behaviour, and
# runs each, or those named, for so many minutes (5; may be a fraction). What is
# found new goes to build-fuzz/corpus, inputs that end a target go to
# build-fuzz/found; ends with 1 where there are any. ULYX_FUZZ_BUILD names
# another folder for all of it.
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
    # The library keeps memory of destroyed handles, and hwloc loses some.
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
