#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu-attention.sh FOLDER check|sanitize|bench[:ROWS[:VARIANTS[:PEERS]]]...:
# tests attention on the card, with programs built in FOLDER. check: kernelcheck
# of each row of the table of kernels. sanitize: the tools of compute-sanitizer.
# bench: compares with cuDNN and FlashAttention (--rows, --variants and --vs of
# kernelcheck; by default all rows, the variant that a call chooses, all peers).
# Prints a table at the end. Findings of the sanitizer in the Hopper kernels are
# shown but do not count, because it reports false ones for wgmma and bulk
# copies. Exit code: 0 all passed, 1 something failed, 77 no GPU or no
# sanitizer.
set -u
check=$1/bin/card_kernelcheck
bench=$1/bin/kernelcheck
shift
# The program may have been built elsewhere.
ULYX_BENCH_PEER=$(dirname "$0")/../tests/attention/kernelcheck/bench/torch_peer.py
export ULYX_BENCH_PEER

capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null |
    head -n 1)
[ -n "$capability" ] || {
    echo "skipped: no GPU"
    exit 77
}
rows="mma plain"
[ "$capability" = 9.0 ] && rows="sm90 $rows"

table=$(mktemp)
child=
trap 'rm -f "$table"' EXIT
# A signal that ends this script also ends the program that it runs, which
# timeout has put into a process group of its own.
trap '[ -z "$child" ] || kill "$child" 2>/dev/null
    cat "$table"
    exit 1' INT TERM
failed=0

# step NAME SECONDS COMMAND...: runs the command, and adds its result to the
# table.
step() {
    name=$1
    seconds=$2
    shift 2
    begun=$(date +%s)
    timeout "$seconds" "$@" &
    child=$!
    wait "$child"
    rc=$?
    child=
    case $rc in
    0) result=passed ;;
    77) result=skipped ;;
    124) result="failed: over $seconds s" ;;
    *) result="failed: exit $rc" ;;
    esac
    [ "$rc" -ne 0 ] && [ "$rc" -ne 77 ] && failed=1
    printf '%-30s %-24s %4d s\n' "$name" "$result" \
        $(($(date +%s) - begun)) >>"$table"
    tail -n 1 "$table"
}

run_check() {
    for row in $rows; do
        for family in random large-logits counting retrieval metamorphic \
            reported; do
            step "$row $family" 60 "$check" --kernel "$row" \
                --family "$family" --draws 20 --forward
        done
        # sequences that are too long for the emulator
        step "$row counting-long" 60 "$check" --kernel "$row" \
            --family counting-long --draws 2 --forward
    done
    # sm90 has no backward of its own
    for row in mma plain; do
        for family in random large-logits gradient counting metamorphic \
            reported; do
            [ "$row $family" = "mma gradient" ] && continue # takes no fp32
            step "$row $family backward" 60 "$check" --kernel "$row" \
                --family "$family" --draws 5 --backward
        done
    done
}

# racecheck does not understand TMA and wgmma, as the emulator's detector of
# races does.
run_sanitize() {
    for row in $rows; do
        tools="memcheck initcheck synccheck racecheck"
        pass=
        [ "$row" = sm90 ] && tools="memcheck initcheck synccheck" pass=--forward
        for tool in $tools; do
            before=$failed
            step "$row $tool" 60 compute-sanitizer --tool "$tool" \
                --error-exitcode 1 "$check" --kernel "$row" --family random \
                --draws 2 ${pass:+"$pass"}
            [ "$row" != sm90 ] || failed=$before
        done
    done
}

# run_bench bench[:ROWS[:VARIANTS[:PEERS]]]
run_bench() {
    part_rows=$(echo "$1" | cut -s -d : -f 2)
    part_variants=$(echo "$1" | cut -s -d : -f 3)
    part_peers=$(echo "$1" | cut -s -d : -f 4)
    step "bench ${part_rows:-of all rows}" 300 "$bench" --bench --vs \
        "${part_peers:-torch}" ${part_rows:+--rows "$part_rows"} \
        ${part_variants:+--variants "$part_variants"}
}

for part; do
    case $part in
    check) run_check ;;
    sanitize)
        command -v compute-sanitizer >/dev/null || {
            echo "skipped: no compute-sanitizer"
            exit 77
        }
        run_sanitize
        ;;
    bench | bench:*) run_bench "$part" ;;
    *)
        echo "gpu-attention.sh: no part $part" >&2
        exit 1
        ;;
    esac
done

cat "$table"
exit "$failed"
