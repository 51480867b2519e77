#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu-check.sh [--dry-run] [--small] [--afresh] [--limit SECONDS] [FOLDER]:
# tests and measures ulyx on a machine with a GPU, the most important things
# first: an exchange of two ranks, the sweeps that have floors, attention
# compared with cuDNN; then the other sweeps, the tests, and steps that take
# long. Each row is printed as soon as it is measured, with its floor and goal;
# the last table has all rows.
#
# FOLDER (build-gpu) is a build folder, or a folder that gpu-bundle.sh has made.
# Programs that start there are used as they are; otherwise they are built, for
# this card alone. FOLDER/gpu-check/ keeps the JSON, the log and the result of
# each step, so that the next run continues where this run was stopped, if card
# and program are the same; --afresh deletes these results. FOLDER/gpu-check.csv
# has the rows.
#
# Ranks are processes, under MPS where it works; GPU_CHECK_AS=-t makes them
# threads. A wait ends after ULYX_TIMEOUT (10) seconds with an error that names
# the rank. The run ends within --limit (480) seconds: steps for which no time
# is left are skipped, with a line each. --small moves 6 KiB once with at most 4
# ranks, to try the script; --dry-run prints the steps and their commands. Exit
# code: 0 all passed, 1 something failed or is below its floor, 77 no GPU.
set -u
cd "$(dirname "$0")/.." || exit 1
dry=
small=
afresh=
limit=480
folder=build-gpu
while [ $# -gt 0 ]; do
    case $1 in
    --dry-run) dry=1 ;;
    --small) small=1 ;;
    --afresh) afresh=1 ;;
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
started=$(date +%s)
keep=$((limit / 48 + 1)) # seconds that are kept for the table
failed=0
perf=$folder/bin/ulyx_perf
kept=$folder/gpu-check
export ULYX_TIMEOUT="${ULYX_TIMEOUT:-10}" ULYX_DEBUG="${ULYX_DEBUG:-INFO}"

if [ -z "$dry" ]; then
    gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU') || gpus=0
    if [ "$gpus" -eq 0 ]; then
        echo "skipped: no GPU"
        exit 77
    fi
    [ -z "$afresh" ] || rm -rf "$kept" "$folder/gpu-check.csv"
    mkdir -p "$kept" || exit 1
    work=$(mktemp -d)
fi

# ---- steps -------------------------------------------------------------------

# The file of a step: its name with _ for blanks and slashes, and a suffix.
file_of() {
    echo "$kept/$(echo "$1" | tr ' /' '__')$2"
}

# note NAME RESULT SECONDS
note() {
    [ -n "$dry" ] || printf '%-34s %-30s %4d s\n' "$1" "$2" "$3"
}

# step NAME SECONDS COMMAND...: runs the command for at most SECONDS and prints
# its result, unless the step has passed in an earlier run. The output goes to
# the log of the step; if the step fails, the end of the log is shown.
step() {
    name=$1
    seconds=$2
    shift 2
    if [ -n "$dry" ]; then
        printf '%s\t%s\t' "$name" "$seconds"
        echo "$*"
        return 0
    fi
    if grep -qxF "$name" "$kept/passed" 2>/dev/null; then
        note "$name" "passed before" 0
        return 0
    fi
    begun=$(date +%s)
    [ -z "$small" ] || seconds=$((seconds * 10))
    rest=$((limit - keep - begun + started))
    [ "$rest" -gt "$seconds" ] || seconds=$rest
    if [ "$seconds" -lt 2 ]; then
        note "$name" "skipped: no time left" 0
        return 1
    fi
    log=$(file_of "$name" .log)
    timeout "$seconds" "$@" >"$log" 2>&1
    rc=$?
    case $rc in
    0) result=passed ;;
    77) result="skipped: see its log" ;;
    124) result="failed: over $seconds s" ;;
    *) result="failed: exit $rc" ;;
    esac
    note "$name" "$result" $(($(date +%s) - begun))
    if [ "$rc" -ne 0 ] && [ "$rc" -ne 77 ]; then
        failed=1
        tail -n 20 "$log"
    fi
    return "$rc"
}

# passed NAME: records that a step has passed, so that a later run leaves it
# out.
passed() {
    [ -n "$dry" ] || grep -qxF "$1" "$kept/passed" 2>/dev/null ||
        echo "$1" >>"$kept/passed"
}

# run NAME SECONDS COMMAND...: a step that is recorded when it has passed.
run() {
    step "$@" && passed "$1"
}

# sweep NAME RANKS OPTIONS...: runs ulyx_perf on device memory, with the
# settings in $with; prints its rows with their floors, and adds them to the
# table of rows.
with=
sweep() {
    row=$1
    ranks=$2
    shift 2
    [ -z "$small" ] || [ "$ranks" -le 4 ] || ranks=4
    if [ -z "$dry" ] && grep -qxF "$row" "$kept/passed" 2>/dev/null; then
        python3 scripts/gpu_table.py "$kept" "$row"
        return 0
    fi
    # shellcheck disable=SC2086 # words, or none
    step "$row" 40 env $with "$perf" "$as" "$ranks" --memory cuda --csv -J \
        "$(file_of "$row" .json)" "$@"
    rc=$?
    # A program that was killed may leave MPS in a state in which all later
    # programs hang.
    [ "$rc" -lt 124 ] || restart_mps
    [ "$rc" -eq 0 ] || return "$rc"
    [ -z "$dry" ] || return 0
    python3 scripts/gpu_table.py "$kept" "$row"
    [ -s "$folder/gpu-check.csv" ] ||
        grep '^model,' "$log" | head -n 1 | sed 's/^/sweep,ranks,/' \
            >"$folder/gpu-check.csv"
    grep -v '^model,' "$log" | grep '^[a-z0-9-]*,[a-z0-9_]*,' |
        sed "s|^|$row,$ranks,|" >>"$folder/gpu-check.csv"
    passed "$row"
}

# ---- MPS ---------------------------------------------------------------------

as=${GPU_CHECK_AS:---procs}
mps=

# probe NAME: do two ranks exchange at all?
probe() {
    # shellcheck disable=SC2086 # a list of words
    step "$1" 30 "$perf" "$as" 2 --memory cuda $one
}

# A server that has started may still refuse its clients, so two ranks try it.
start_mps() {
    [ -z "$dry" ] && [ "$as" = --procs ] || return 0
    if ! command -v nvidia-cuda-mps-control >/dev/null; then
        note "MPS" "missing: ranks take turns" 0
        return 0
    fi
    mkdir -p "$work/mps"
    export CUDA_MPS_PIPE_DIRECTORY="$work/mps" CUDA_MPS_LOG_DIRECTORY="$work/mps"
    if nvidia-cuda-mps-control -d >"$work/mps/start" 2>&1 && mps=1 &&
        probe "two ranks under MPS"; then
        return 0
    fi
    note "MPS" "fails: ranks take turns" 0
    stop_mps
}

stop_mps() {
    [ -n "$mps" ] || return 0
    servers=$(echo get_server_list | timeout 5 nvidia-cuda-mps-control) ||
        servers=
    echo quit | timeout 10 nvidia-cuda-mps-control >/dev/null 2>&1 ||
        for server in $servers; do
            kill -9 "$server" 2>/dev/null
        done
    unset CUDA_MPS_PIPE_DIRECTORY CUDA_MPS_LOG_DIRECTORY
    mps=
}

restart_mps() {
    [ -n "$mps" ] || return 0
    stop_mps
    rm -rf "$work/mps"
    start_mps
}

# shellcheck disable=SC2317 # by the trap
clean_up() {
    stop_mps
    rm -rf "$work"
}
if [ -z "$dry" ]; then
    trap clean_up EXIT
    trap 'exit 1' INT TERM
fi

# ---- build -------------------------------------------------------------------

# In a bundle, the options of cmake and the variables by which the unpacked
# development packages are found.
bundled=
bundled_packages() {
    unpacked=$PWD/$folder/packages
    [ -d "$unpacked" ] || return 0
    PKG_CONFIG_PATH=$(echo "$unpacked"/usr/lib/*/pkgconfig)
    PKG_CONFIG_SYSROOT_DIR=$unpacked
    export PKG_CONFIG_PATH PKG_CONFIG_SYSROOT_DIR
    export PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1 PKG_CONFIG_ALLOW_SYSTEM_LIBS=1
    command -v pkg-config >/dev/null ||
        export PKG_CONFIG="$unpacked/pkg-config"
    bundled="-DCMAKE_BUILD_RPATH=$PWD/$folder/lib
        -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags"
}

# built TARGET...: builds the targets, unless FOLDER is a bundle whose programs
# start.
built() {
    [ -z "$dry" ] && [ -n "$ready" ] && return 0
    step "build $1" 300 cmake --build "$folder" --parallel --target "$@"
}

tests=$(sed -n 's/^ulyx_test(\(card_[a-z_0-9]*\).*/\1/p' \
    tests/emulate/card/CMakeLists.txt)
ready=
if [ -z "$dry" ] && "$perf" --version >/dev/null 2>&1 &&
    [ ! -e "$folder/CMakeCache.txt" ]; then
    ready=1
    note "build" "not needed: programs are here" 0
else
    [ -n "$dry" ] || bundled_packages
    capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader \
        2>/dev/null | head -n 1 | tr -d .)
    [ "$capability" != 90 ] || capability=90a
    generator=
    command -v ninja >/dev/null && generator="-G Ninja"
    # shellcheck disable=SC2086 # words or none
    step configure 60 cmake -S . -B "$folder" $generator $bundled \
        -DULYX_CUDA=ON \
        -DCMAKE_CUDA_ARCHITECTURES="${capability:-80}-real" || exit 1
    built ulyx_perf || exit 1
fi
# Results of another card or of another program are not valid.
if [ -z "$dry" ]; then
    of="$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader |
        head -n 1), $(cksum <"$perf")"
    [ "$(cat "$kept/of" 2>/dev/null)" = "$of" ] ||
        rm -f "$kept/passed" "$folder/gpu-check.csv"
    echo "$of" >"$kept/of"
    echo "$of"
fi

# ---- the first minutes -------------------------------------------------------

beside="--vs copy,permute"
one="-n 5 -b 1M -e 1M"
many="-n 50 -b 128M -e 128M"
few="-n 10 -b 16M -e 16M"
kib="-n 400 -m 5 -b 64K -e 64K"
if [ -n "$small" ]; then
    many="-n 1 -w 0 -b 6K -e 6K --dim 16"
    one=$many
    beside="--vs copy"
    few=$many
    kib=$many
fi
# ULYX_NCCL_LIB: the NCCL that python3's PyTorch has installed, if there is one.
ULYX_NCCL_LIB=${ULYX_NCCL_LIB:-$(python3 -c 'import nvidia.nccl as n
print(list(n.__path__)[0] + "/lib/libnccl.so.2")' 2>/dev/null)}
[ -n "$ULYX_NCCL_LIB" ] && export ULYX_NCCL_LIB

# attention NAME SECONDS ROWS[:VARIANTS[:PEERS]]: compares attention with its
# peers, and prints the rows below a head that names the columns.
attention() {
    step "$1" "$2" sh scripts/gpu-attention.sh "$folder" "bench:$3" || return
    [ -n "$dry" ] || grep -e ' mask ' -e ' fwd ' -e ' bwd ' "$log"
    passed "$1"
}

# shellcheck disable=SC2086 # lists of words
first_sweeps() {
    for p in 2 4 8; do
        sweep "even P=$p" $p $many $beside -o both
    done
    for p in 4 8 2; do
        sweep "64 KiB P=$p" $p $kib -o s2h
        sweep "64 KiB graph P=$p" $p $kib -o s2h -G 5
    done
}

# Settings whose defaults have not been measured.
# shellcheck disable=SC2086
knob_sweeps() {
    with=ULYX_GPU_SMS=32 # by default each rank uses its part of the card
    sweep "even P=2 on 32 SMs" 2 $many --vs copy -o both
    with=ULYX_GPU_BLOCKS=2
    sweep "even P=2 by 2 blocks per SM" 2 $many --vs copy -o both
    with=ULYX_SLOT_BYTES=32K # by default P = 4 uses no eager slots
    sweep "64 KiB graph P=4 by slots" 4 $kib -o s2h -G 5
    with=ULYX_SLOT_BYTES=0 # by default P = 8 uses them
    sweep "64 KiB graph P=8 direct" 8 $kib -o s2h -G 5
    with=
}

# shellcheck disable=SC2086
other_sweeps() {
    sweep "GQA 32/8" 4 $many $beside --kv-heads 8 -o both
    sweep "GQA 14/2" 4 $many $beside --heads 14 --kv-heads 2 -o both
    sweep "uneven 30" 4 $many $beside --heads 30 -o both
    sweep "rows of 256 bytes" 8 $many $beside --heads 8 -o both
    sweep "rows of 128 bytes" 8 $many $beside --heads 8 --dim 64 \
        -o both
    sweep "adjoint 32/2" 4 $many --vs copy --kv-heads 2 -o s2h_adj
    sweep "copy engines" 4 $many $beside --copy-engine -o both
    sweep "adjoint 32/2 by copy engines" 4 $many --vs copy --copy-engine \
        --kv-heads 2 -o s2h_adj
    with=ULYX_ALGO=staged
    sweep "staged" 2 $few -o s2h --vs copy
    with="ULYX_ALGO=staged ULYX_STAGE_QUEUES=32"
    sweep "staged by 32 queues" 2 $few -o s2h --vs copy
    with=
    # NCCL accepts two ranks on one card only if they seem to be on two hosts;
    # this checks the bytes, and the times mean nothing.
    if [ "$as" = --procs ]; then
        sweep "nccl" 2 $few -o s2h --vs nccl
        with=ULYX_ALGO=nccl # NCCL may enqueue from its own threads during a capture
        sweep "by nccl in a graph" 2 $few -o s2h -G 2 --vs copy
        with=
    else
        note "nccl" "skipped: needs ranks as processes" 0
    fi
}

exchanges=
probe "two ranks" && exchanges=1
start_mps
[ -z "$mps" ] || exchanges=1
[ -z "$exchanges" ] || first_sweeps
stop_mps
built kernelcheck
# FlashAttention-4 compiles for each shape, so it is not among the first.
attention "attention vs torch, first" 90 0-3:auto:cudnn,fa2,fa3

# ---- the rest ----------------------------------------------------------------

if [ -n "$exchanges" ]; then
    start_mps
    knob_sweeps
    other_sweeps
    stop_mps
else
    note "sweeps" "skipped: two ranks do not exchange" 0
fi
# Variants that only a card can decide between, on the rows for which they
# matter.
attention "attention variants" 60 \
    0-3:auto,waits-first,no-turns,hints,three,mma:cudnn
attention "attention vs torch, rest" 150 4-21
attention "attention backward vs torch" 60 22-25
attention "attention backward, rest" 90 26-30

# Ranks that are threads need a hardware queue for each of their streams.
queues=CUDA_DEVICE_MAX_CONNECTIONS=32
# shellcheck disable=SC2086 # a list of words
built $tests card_kernelcheck
for test in $tests; do
    case $test in
    card_soak | card_many) ;; # these take long, and come last
    card_probe) # prints facts about the card, with the usual number of queues
        run "$test" 60 "$folder/bin/$test" && [ -z "$dry" ] && cat "$log"
        ;;
    card_exchange)
        run "$test" 60 env $queues ULYX_TEST_DRAWS=0.25 "$folder/bin/$test"
        ;;
    *) run "$test" 60 env $queues "$folder/bin/$test" ;;
    esac
done
run "attention" 90 sh scripts/gpu-attention.sh "$folder" check
# Under the sanitizer a launch may return only when its kernel has ended, so
# ranks that wait for each other must be processes. The sanitizer does not see
# what a peer stores, so initcheck, which looks for memory without a store, runs
# with one rank.
sanitized() {
    tool=$1
    ranks=$2
    name=$3
    shift 3
    run "$tool $name" 30 compute-sanitizer --target-processes all --tool "$tool" \
        --error-exitcode 1 "$perf" --procs "$ranks" --memory cuda -n 1 -w 0 \
        -b 64K -e 64K "$@"
}
if [ -n "$dry" ] || command -v compute-sanitizer >/dev/null; then
    sanitized memcheck 2 even -o both
    sanitized memcheck 2 "GQA 14/2" -o both --heads 14 --kv-heads 2
    sanitized memcheck 4 "adjoint 32/2" -o s2h_adj --kv-heads 2
    sanitized initcheck 1 even -o both
else
    note "compute-sanitizer" "skipped: not installed" 0
fi
for test in card_soak card_many; do
    run "$test" 60 env $queues ULYX_TEST_DRAWS=0.5 \
        "$folder/bin/$test"
done
run "attention sanitized" 90 sh scripts/gpu-attention.sh "$folder" sanitize

[ -n "$dry" ] && exit 0

# ---- the table ---------------------------------------------------------------

nvidia-smi --query-gpu=name,driver_version,clocks.sm,power.draw \
    --format=csv,noheader
python3 scripts/gpu_table.py "$kept" || failed=1
exit "$failed"
