#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# sanitize.sh address|undefined|thread [CTEST OPTIONS...]: the test suite in a
# build folder of its own, instrumented. The first report of an error ends the
# program that has it.
set -eu
cd "$(dirname "$0")/.."
case "${1:-}" in
address) folder=build-asan ;;
undefined) folder=build-ubsan ;;
thread) folder=build-tsan ;;
*)
    echo "usage: $0 address|undefined|thread [ctest options]" >&2
    exit 2
    ;;
esac
sanitizer=$1
shift
here=$(pwd)
./scripts/setup.sh
./scripts/build.sh "$folder" -DULYX_SANITIZE="$sanitizer" \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo -DULYX_CUDA=OFF

# UCX's hooks on malloc and mmap and the sanitizers' own would call each other.
export UCX_MEM_EVENTS=no
# Sizes that no machine has must come back as NULL, as without a sanitizer.
null=allocator_may_return_null=1
# Freed memory is kept back for a while: little of it, since some tests hold
# what a process has against what it had.
export ASAN_OPTIONS="detect_leaks=1:quarantine_size_mb=16:$null:${ASAN_OPTIONS:-}"
export LSAN_OPTIONS="suppressions=$here/scripts/lsan.supp:print_suppressions=0"
export UBSAN_OPTIONS="print_stacktrace=1"
# Ranks are forked while the test's process may have threads.
export TSAN_OPTIONS="die_after_fork=0:$null:suppressions=$here/scripts/tsan.supp"

# ThreadSanitizer is ten times slower than the rest: a fifth of the draws.
if [ "$sanitizer" = thread ]; then
    export ULYX_TEST_DRAWS="${ULYX_TEST_DRAWS:-0.2}"
    # OpenBLAS is not built with it: its own threads would seem to race.
    export OPENBLAS_NUM_THREADS=1
fi

# ThreadSanitizer needs a memory layout that some kernels randomise away.
run=
if [ "$sanitizer" = thread ] && setarch "$(uname -m)" -R true 2>/dev/null; then
    run="setarch $(uname -m) -R"
fi
# shellcheck disable=SC2086 # words
exec $run ctest --test-dir "$folder" -j2 --output-on-failure "$@"
