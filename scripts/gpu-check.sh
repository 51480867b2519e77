#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu-check.sh [FOLDER]: on a machine with a GPU, builds the card tests with
# what is there, runs them, then the exchange under compute-sanitizer, and
# prints one table. Ends within 8 minutes. Exit: 0 all passed, 1 something
# failed, 77 skipped.
set -u
cd "$(dirname "$0")/.." || exit 1
folder=${1:-build-gpu}
started=$(date +%s)
limit=480

gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU') || gpus=0
if [ "$gpus" -eq 0 ]; then
    echo "skipped: no GPU"
    exit 77
fi

# left SECONDS: what of the limit remains, at most SECONDS, at least 1.
left() {
    rest=$((limit - $(date +%s) + started))
    [ "$rest" -gt "$1" ] && rest=$1
    [ "$rest" -lt 1 ] && rest=1
    echo "$rest"
}

table=$(mktemp)
trap 'rm -f "$table"' EXIT
failed=0

# step NAME SECONDS COMMAND...: runs it, notes how it ended.
step() {
    name=$1
    seconds=$(left "$2")
    shift 2
    begun=$(date +%s)
    timeout "$seconds" "$@"
    rc=$?
    case $rc in
    0) result=passed ;;
    77) result=skipped ;;
    124) result="failed: over $seconds s" ;;
    *) result="failed: exit $rc" ;;
    esac
    [ "$rc" -ne 0 ] && [ "$rc" -ne 77 ] && failed=1
    printf '%-28s %-24s %4d s\n' "$name" "$result" \
        $(($(date +%s) - begun)) >>"$table"
    [ "$rc" -eq 0 ]
}

tests="card_facts card_matmul card_exchange"
generator=
command -v ninja >/dev/null && generator="-G Ninja"
# shellcheck disable=SC2086 # two words or none; several targets
if step configure 60 cmake -S . -B "$folder" $generator -DULYX_CUDA=ON &&
    step build 300 cmake --build "$folder" --parallel --target $tests; then
    for test in $tests; do
        step "$test" 120 "$folder/bin/$test"
    done
    if command -v compute-sanitizer >/dev/null; then
        for tool in memcheck racecheck; do
            step "card_exchange $tool" 90 env ULYX_TEST_DRAWS=3 \
                compute-sanitizer --tool "$tool" --error-exitcode 1 \
                "$folder/bin/card_exchange"
        done
    fi
fi

nvidia-smi -L
cat "$table"
exit "$failed"
