#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sanitize.sh address|thread [CTEST OPTIONS...]: runs the test suite in a build
# folder of its own, instrumented for addresses, leaks and undefined behaviour,
# or for data races. A program ends at its first report. Random tests make half
# of their usual draws, or a fifth for races (ULYX_TEST_DRAWS overrides this).
# The output ends with the tests that did not run, with reasons, the tests that
# failed, and a line that sums up. -I 1,,8 to -I 8,,8 run an eighth of the suite
# each, for machines that end long commands.
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
    # OpenBLAS is not instrumented, so its own threads would seem to race.
    export OPENBLAS_NUM_THREADS=1
    # The sanitizer needs a memory layout that some kernels randomise.
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

# Otherwise the hooks of UCX on malloc and mmap and those of the sanitizers
# would call each other.
export UCX_MEM_EVENTS=no
# malloc must return NULL for sizes that no machine has, as without a sanitizer.
null=allocator_may_return_null=1
# The sanitizer keeps freed memory for a while. It may keep only little, as some
# tests compare the memory of a process at two times.
export ASAN_OPTIONS="detect_leaks=1:quarantine_size_mb=16:strict_string_checks=1\
:detect_stack_use_after_return=1:$null:${ASAN_OPTIONS:-}"
export LSAN_OPTIONS="suppressions=$here/scripts/lsan.supp:print_suppressions=0"
export UBSAN_OPTIONS="print_stacktrace=1"
# die_after_fork=0: ranks are forked while the test's process may have threads.
# halt_on_error=1: a report ends its process at once. Otherwise the sanitizer
# would change the exit status only in exit, which a rank that ends by _exit
# does not pass, and the rank would count as good.
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
