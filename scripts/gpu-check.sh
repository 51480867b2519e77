#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu-check.sh [--dry-run] [--limit SECONDS] [FOLDER]: on a machine with a GPU,
# builds with what is there, runs the tests of a card, the sweeps that docs/GPU.md
# lists, attention beside its peers, then what takes long, and prints one table,
# with floors and goals (gpu_table.py); FOLDER/gpu-check.csv has the rows,
# FOLDER/gpu-check/ the JSON and the log of each step. Ranks that share the card
# are processes under MPS where it can be started, else threads. Ends within 8
# minutes: a step gets what is left but for what later groups keep, and what no
# time is left for is skipped, and says so. --dry-run prints the steps and their
# commands. Exit: 0 all passed, 1 something failed or is below its floor, 77 no
# GPU.
set -u
cd "$(dirname "$0")/.." || exit 1
dry=
limit=480
folder=build-gpu
while [ $# -gt 0 ]; do
    case $1 in
    --dry-run) dry=1 ;;
    --limit)
        limit=$2
        shift
        ;;
    -*)
        echo "gpu-check.sh: unknown option $1" >&2
        exit 1
        ;;
    *) folder=$1 ;;
    esac
    shift
done
# What the groups after the present one keep of the limit: of 480 seconds 150,
# 60 and 11.
keep_sweeps=$((limit * 5 / 16))
keep_attention=$((limit / 8))
keep_table=$((limit / 48 + 1))
reserve=$((keep_sweeps + keep_attention + keep_table))
started=$(date +%s)
failed=0
perf=$folder/bin/ulyx_perf

if [ -z "$dry" ]; then
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU') || gpus=0
    if [ "$gpus" -eq 0 ]; then
        echo "skipped: no GPU"
        exit 77
    fi
    mkdir -p "$folder/gpu-check" || exit 1
    work=$(mktemp -d)
    table=$work/table
    : >"$table"
fi

# ---- steps -------------------------------------------------------------------

# left SECONDS: what of the limit remains for this group, at most SECONDS.
left() {
    rest=$((limit - reserve - $(date +%s) + started))
    [ "$rest" -gt "$1" ] && rest=$1
    echo "$rest"
}

# note NAME RESULT SECONDS
note() {
    printf '%-34s %-30s %4d s\n' "$1" "$2" "$3" >>"$table"
}

# step NAME SECONDS COMMAND...: runs it, notes how it ended; its output is in
# the step's log, and shown when it fails.
step() {
    name=$1
    if [ -n "$dry" ]; then
        printf '%s\t%s\t' "$name" "$2"
        shift 2
        echo "$*"
        return 0
    fi
    seconds=$(left "$2")
    shift 2
    if [ "$seconds" -lt 2 ]; then
        note "$name" "skipped: no time left" 0
        return 1
    fi
    log=$folder/gpu-check/$(echo "$name" | tr ' /' '__').log
    begun=$(date +%s)
    timeout "$seconds" "$@" >"$log" 2>&1
    rc=$?
    case $rc in
    0) result=passed ;;
    77) result="skipped: see its log" ;;
    124) result="failed: over $seconds s" ;;
    *) result="failed: exit $rc" ;;
    esac
    if [ "$rc" -ne 0 ] && [ "$rc" -ne 77 ]; then
        failed=1
        tail -n 20 "$log"
    fi
    note "$name" "$result" $(($(date +%s) - begun))
    [ "$rc" -eq 0 ]
}

# sweep NAME RANKS OPTIONS...: rows of ulyx_perf on device memory, into the
# table of rows as well.
sweep() {
    row=$1
    ranks=$2
    shift 2
    json=$folder/gpu-check/$(echo "$row" | tr ' /' '__').json
    step "$row" 40 "$perf" "$as" "$ranks" --memory cuda --csv -J "$json" \
        "$@" || return
    [ -n "$dry" ] || grep -v '^model,' "$log" | grep '^[a-z0-9-]*,[a-z0-9_]*,' |
        sed "s/^/$row,$ranks,/" >>"$work/rows"
}

# ---- MPS ---------------------------------------------------------------------

as=--procs
mps=
start_mps() {
    if ! command -v nvidia-cuda-mps-control >/dev/null; then
        as=-t
        note "MPS" "not here: ranks are threads" 0
        return
    fi
    CUDA_MPS_PIPE_DIRECTORY=$work/mps
    CUDA_MPS_LOG_DIRECTORY=$work/mps
    mkdir "$work/mps"
    export CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    if nvidia-cuda-mps-control -d >"$work/mps/start" 2>&1; then
        mps=1
        note "MPS" "started: ranks are processes" 0
    else
        as=-t
        unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
        note "MPS" "does not start: ranks are threads" 0
    fi
}

# shellcheck disable=SC2317 # by the trap
clean_up() {
    [ -n "$mps" ] && echo quit | timeout 20 nvidia-cuda-mps-control >/dev/null
    rm -rf "$work"
}
if [ -z "$dry" ]; then
    trap clean_up EXIT
    trap 'exit 1' INT TERM
fi

# ---- build and tests ---------------------------------------------------------

tests=$(sed -n 's/^ulyx_test(\(card_[a-z_0-9]*\).*/\1/p' \
    tests/emulate/card/CMakeLists.txt)
generator=
command -v ninja >/dev/null && generator="-G Ninja"
# shellcheck disable=SC2086 # two words or none; several targets
step configure 60 cmake -S . -B "$folder" $generator -DULYX_CUDA=ON \
    -DULYX_CUDA_FULL=ON || exit 1
# shellcheck disable=SC2086
step build 300 cmake --build "$folder" --parallel --target $tests ulyx_perf \
    kernelcheck card_kernelcheck ||
    { cat "$table" && exit 1; }

for test in $tests; do
    case $test in
    card_soak | card_many) ;; # long, and last
    *) step "$test" 60 "$folder/bin/$test" ;;
    esac
done

# ---- sweeps ------------------------------------------------------------------

reserve=$((keep_attention + keep_table))
[ -n "$dry" ] || start_mps
# NCCL as a framework of python3 brings it, unless the loader finds one.
ULYX_NCCL_LIB=${ULYX_NCCL_LIB:-$(python3 -c 'import nvidia.nccl as n
print(list(n.__path__)[0] + "/lib/libnccl.so.2")' 2>/dev/null)}
[ -n "$ULYX_NCCL_LIB" ] && export ULYX_NCCL_LIB

many="-n 200 -b 128M -e 128M --vs copy,permute"
small="-n 400 -m 5 -b 64K -e 64K"
# shellcheck disable=SC2086 # lists of words
for p in 2 4 8; do
    sweep "even P=$p" $p $many -o both
    sweep "64 KiB P=$p" $p $small -o s2h
    sweep "64 KiB graph P=$p" $p $small -o s2h -G 5
done
# shellcheck disable=SC2086
{
    sweep "rows of 256 bytes" 8 $many --heads 8 -o both
    sweep "rows of 128 bytes" 8 $many --heads 8 --dim 64 -o both
    sweep "GQA 32/8" 4 $many --kv-heads 8 -o both
    sweep "GQA 14/2" 4 $many --heads 14 --kv-heads 2 -o both
    sweep "uneven 30" 4 $many --heads 30 -o both
    sweep "adjoint 32/2" 4 $many --kv-heads 2 -o s2h_adj
    sweep "copy engines" 4 $many --copy-engine -o both
    sweep "copy engines, adjoint 32/2" 4 $many --copy-engine --kv-heads 2 \
        -o s2h_adj
}
ULYX_ALGO=staged
export ULYX_ALGO
sweep "staged" 2 -n 10 -b 16M -e 16M -o s2h --vs copy
unset ULYX_ALGO
# NCCL takes two ranks of one card where they pose as two hosts, so this is for
# its bytes, not for its time.
if [ "$as" = --procs ]; then
    sweep "nccl" 2 -n 10 -b 16M -e 16M -o s2h --vs nccl
else
    note "nccl" "skipped: needs ranks as processes" 0
fi

# ---- attention, and what takes long --------------------------------------------

reserve=$keep_table
step "attention vs torch" 150 sh scripts/gpu-attention.sh "$folder" bench
step "attention" 90 sh scripts/gpu-attention.sh "$folder" check
if [ -n "$dry" ] || command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        step "card_exchange $tool" 60 env ULYX_TEST_DRAWS=3 \
            compute-sanitizer --tool "$tool" --error-exitcode 1 \
            "$folder/bin/card_exchange"
    done
else
    note "compute-sanitizer" "skipped: not here" 0
fi
step "card_soak" 60 "$folder/bin/card_soak"
step "card_many" 60 env ULYX_TEST_DRAWS=20 "$folder/bin/card_many"
step "attention sanitized" 90 sh scripts/gpu-attention.sh "$folder" sanitize

[ -n "$dry" ] && exit 0

# ---- the table ---------------------------------------------------------------

nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw \
    --format=csv,noheader
cat "$table"
grep -s -e ' full  ' -e ' causal ' -e TFLOP -e floor \
    "$folder/gpu-check/attention_vs_torch.log"
header=$("$perf" --memory host --csv --quick -c 0 2>/dev/null | head -n 1)
{
    echo "sweep,ranks,$header"
    cat "$work/rows" 2>/dev/null
} >"$folder/gpu-check.csv"
python3 scripts/gpu_table.py "$folder/gpu-check" || failed=1
exit "$failed"
