#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sanitize.sh address|thread [CTEST OPTIONS...]: the test suite in a build folder
# of its own, instrumented: for addresses, leaks and undefined behaviour, or for
# data races. The first report ends the program that has it. Random tests draw
# half of what they draw elsewhere, a fifth for races (ULYX_TEST_DRAWS says
# otherwise). Ends in what did not run and why, and one line that sums up.
# Eighths of the suite, for machines that end long commands: -I 1,,8 to -I 8,,8.
set -eu
cd "$(dirname "$0")/.."
here=$(pwd)
run=
case "${1:-}" in
address)
    folder=build-asan sanitizers=address,undefined draws=0.5
    ;;
thread)
    folder=build-tsan sanitizers=thread draws=0.2
    # OpenBLAS is not built with it: its own threads would seem to race.
    export OPENBLAS_NUM_THREADS=1
    # It needs a memory layout that some kernels randomise away.
    if setarch "$(uname -m)" -R true 2>/dev/null; then
        run="setarch $(uname -m) -R"
    fi
    ;;
*)
    echo "usage: $0 address|thread [ctest options]" >&2
    exit 2
    ;;
esac
shift
./scripts/setup.sh
./scripts/build.sh "$folder" -DULYX_SANITIZE="$sanitizers" \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DULYX_CUDA=OFF

# UCX's hooks on malloc and mmap and the sanitizers' own would call each other.
export UCX_MEM_EVENTS=no
# Sizes that no machine has must come back as NULL, as without a sanitizer.
null=allocator_may_return_null=1
# Freed memory is kept back for a while: little of it, since some tests hold
# what a process has against what it had.
export ASAN_OPTIONS="detect_leaks=1:quarantine_size_mb=16:strict_string_checks=1\
:detect_stack_use_after_return=1:$null:${ASAN_OPTIONS:-}"
export LSAN_OPTIONS="suppressions=$here/scripts/lsan.supp:print_suppressions=0"
export UBSAN_OPTIONS="print_stacktrace=1"
# Ranks are forked while the test's process may have threads. A rank that ends by
# _exit has no other moment to fail than that of the report.
export TSAN_OPTIONS="halt_on_error=1:die_after_fork=0:$null\
:suppressions=$here/scripts/tsan.supp:${TSAN_OPTIONS:-}"
export ULYX_TEST_DRAWS="${ULYX_TEST_DRAWS:-$draws}"

report=$here/$folder/report.xml
rm -f "$report"
status=0
# shellcheck disable=SC2086 # words
$run ctest --test-dir "$folder" -j2 --output-on-failure \
    --output-junit "$report" "$@" || status=$?
[ ! -e "$report" ] || python3 scripts/sanitize_summary.py "$sanitizers" "$folder"
exit $status
