#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# netns-suite.sh [--build FOLDER] [--short] [--only PATTERN] [--causes]: tests
# the library across hosts made of namespaces (netns-test.sh): its results, and
# its errors when something fails. Prints a line for each case; if the case
# fails, also the output of ranks. --short: only the few cases that the test
# suite runs. --causes: also the error of each rank.
set -eu
here=$(dirname "$0")
netns=$here/netns-test.sh
build=$here/../build
short='' only='*' causes=''
while [ $# -gt 0 ]; do
    case $1 in
    --build) build=$2 && shift ;;
    --only) only=$2 && shift ;;
    --short) short=1 ;;
    --causes) causes=1 ;;
    *)
        sed -n '3,8s/^# //p' "$0"
        exit 2
        ;;
    esac
    shift
done
"$netns" check || exit $?
bin=$build/bin
[ -x "$bin/hosts_rank" ] || {
    echo "netns-suite: $bin/hosts_rank is not built"
    exit 2
}
if "$bin/ulyx_info" transports | grep -q 'ucx .*not usable'; then
    "$bin/ulyx_info" transports | grep ucx
    exit 77
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
failed=0 done=0
# Waits end soon, so that a hang becomes an error that this suite reports.
export ULYX_TIMEOUT=30 ULYX_KEEPALIVE=3

outcome() { # NAME REASON; the reason is empty for a success
    done=$((done + 1))
    if [ -z "$2" ]; then
        echo "ok      $1"
        return
    fi
    failed=$((failed + 1))
    echo "FAILED  $1: $2"
    for log in "$work"/logs/*; do
        [ ! -e "$log" ] || sed "s/^/    $(basename "$log"): /" "$log" |
            tail -n 30
    done
}

wanted() {
    # shellcheck disable=SC2254 # a pattern
    case $1 in
    $only) return 0 ;;
    esac
    return 1
}

# good NAME COMMAND...: a case whose command must end with 0, or with 77 and a
# reason to skip it. The output is in logs/out.
good() {
    name=$1
    shift
    wanted "$name" || return 0
    rm -rf "$work/logs" && mkdir -p "$work/logs"
    code=0
    "$@" >"$work/logs/out" 2>&1 || code=$?
    if [ $code = 77 ]; then # what the kernel lacks
        echo "skipped $name: $(sed -n 's/.*skipped: //p' "$work/logs/out")"
        return
    fi
    [ $code = 0 ] || code="ended with $code"
    outcome "$name" "${code#0}"
}

# bad NAME PATTERN RANKS [NETNS OPTIONS] COMMAND...: a case in which each of the
# ranks must end within its deadline, with an error that the pattern matches.
bad() {
    name=$1 pattern=$2 ranks=$3
    shift 3
    wanted "$name" || return 0
    rm -rf "$work/logs"
    "$netns" run --limit 90 --logs "$work/logs" "$@" >"$work/run" 2>&1 || :
    why=''
    for r in $ranks; do
        line=$(grep "^rank $r: ULYX_ERR" "$work/logs/rank-$r" || :)
        if [ -z "$line" ]; then
            why="$why rank $r named no error;"
        elif ! echo "$line" | grep -q -E "$pattern"; then
            why="$why rank $r: $line;"
        else
            # The seconds of the call may be 4 more than its limit, as
            # everything waits for a processor on a busy machine.
            late=$(echo "$line" | sed -E \
                's/.* after ([0-9.]+) s of at most ([0-9]+):.*/\1 \2/' |
                awk '$2 > 0 && $1 > $2 + 4 { print "late" }')
            [ -z "$late" ] || why="$why rank $r is late: $line;"
        fi
    done
    outcome "$name" "$why"
    [ -z "$causes" ] || grep -h '^rank .*: ULYX_ERR' "$work"/logs/rank-* || :
}

# ---- what it computes -------------------------------------------------------

# The losses of a training, one per line.
losses() {
    sed -n 's/^step \([0-9]*\) loss \([0-9.]*\) .*/\1 \2/p' "$1"
}

# train HOSTS RANKS OPTIONS...: training on several hosts must have the losses
# of training on one host with as many ranks.
train() {
    name="training on $1 x $2 ranks"
    h=$1 r=$2
    shift 2
    wanted "$name" || return 0
    [ -x "$bin/train_bytes" ] || return 0
    rm -rf "$work/logs" && mkdir -p "$work/logs"
    set -- --steps 6 --seq 192 --layers 2 --dim 48 --hidden 64 --rank-threads 1
    why=
    "$bin/train_bytes" "$@" --ranks $((h * r)) >"$work/one" 2>&1 ||
        why="ends with $? on one host"
    "$netns" run -H "$h" -R "$r" --limit 110 "$bin/train_bytes" "$@" \
        >"$work/logs/out" 2>&1 || why="ends with $?"
    losses "$work/one" >"$work/losses-one"
    losses "$work/logs/out" >"$work/losses"
    [ -s "$work/losses" ] || why="${why:-no losses}"
    # fp32 sums between nodes are made in another order than within one node
    [ -n "$why" ] || why=$(paste -d ' ' "$work/losses-one" "$work/losses" |
        awk '{ d = $2 / $4 - 1; if (d < 0) d = -d; if (d > 1e-5)
            print "step " $1 ": loss " $2 " on one host, " $4 " here" }')
    outcome "$name" "$why"
}

computes() {
    for algo in direct pairwise hier; do
        good "exchange, $algo, 2 x 2" "$netns" run -H 2 -R 2 \
            --env ULYX_ALGO=$algo "$bin/hosts_rank" 20
    done
    good "property suite on 2 hosts" "$netns" spread -H 2 \
        "$bin/reshuffle_process_test"
    good "dumps of 2 hosts" "$netns" spread -H 2 "$bin/dump_test" \
        --filter '*signal*'
    good "calls that differ, 2 hosts" "$netns" spread -H 2 \
        "$bin/differ_test" --filter '*processes*:*slow*:*two_threads*'
    good "mpirun, 2 x 2" mpirun_starts
    by_launchers
    train 2 2
    wire hier AM
    wire pairwise AM
    [ -z "$short" ] || return 0
    for verb in AM TAG PUT; do
        wire direct $verb
        for algo in direct hier; do
            good "exchange, $algo by $verb, 2 x 2" "$netns" run -H 2 -R 2 \
                --env ULYX_ALGO=$algo --env ULYX_UCX_VERB=$verb \
                --env ULYX_INSECURE=$([ $verb = PUT ] && echo 1 || echo 0) \
                "$bin/hosts_rank" 5 32768
        done
    done
    for h in 2 4; do
        for r in 1 2 3 4; do
            good "exchange, $h x $r" "$netns" run -H "$h" -R "$r" \
                "$bin/hosts_rank" 20
            train "$h" "$r"
        done
        for placement in block cyclic; do
            good "property suite on $h hosts, $placement" "$netns" spread \
                -H "$h" --placement $placement --limit 300 \
                "$bin/reshuffle_process_test"
            good "distributed attention on $h hosts, $placement" "$netns" spread -H "$h" \
                --placement $placement --limit 300 \
                "$bin/dist_random_test" --filter '*processes*'
        done
    done
}

# wire ALGO VERB: the bytes on the links must be those of the plan.
wire() {
    good "bytes on the wire, $1 by $2, 2 x 4" "$netns" run -H 2 -R 4 \
        --env ULYX_ALGO="$1" --env ULYX_UCX_VERB="$2" \
        --env ULYX_INSECURE=$([ "$2" = PUT ] && echo 1 || echo 0) \
        "$bin/hosts_wire" 10 8192
}

# Sets the variables of launchers that work across hosts, without the launchers.
# shellcheck disable=SC2016 # expanded by the ranks
by_launchers() {
    good "torchrun's variables, 2 x 2" "$netns" run -H 2 -R 2 sh -c '
        export RANK=$ULYX_RANK WORLD_SIZE=$ULYX_NRANKS LOCAL_WORLD_SIZE=2
        export LOCAL_RANK=$((ULYX_RANK % 2)) MASTER_PORT=29500
        unset ULYX_RANK ULYX_NRANKS
        exec "$0" 20' "$bin/hosts_rank"
    rm -rf "$work/shared" && mkdir -m 700 "$work/shared"
    good "Slurm's variables and a shared directory, 2 x 2" "$netns" run -H 2 \
        -R 2 --env ULYX_RENDEZVOUS_DIR="$work/shared" sh -c '
        export SLURM_PROCID=$ULYX_RANK SLURM_STEP_NUM_TASKS=$ULYX_NRANKS
        export SLURM_STEP_ID=0 SLURM_STEP_NUM_NODES=2 SLURM_JOB_ID=7
        unset ULYX_RANK ULYX_NRANKS ULYX_PORT ULYX_SECRET MASTER_ADDR
        exec "$0" 20' "$bin/hosts_rank"
}

mpirun_starts() {
    command -v mpirun >/dev/null || return 0
    "$netns" run -H 2 -R 2 --launch mpirun "$bin/hosts_rank" 20
}

# ---- how it fails -----------------------------------------------------------

# A case of endless exchanges, with a fault once all ranks have begun.
during() { # NAME PATTERN RANKS [NETNS OPTIONS]
    d_name=$1 d_pattern=$2 d_ranks=$3
    shift 3
    bad "$d_name" "$d_pattern" "$d_ranks" --begun "has begun" "$@" \
        "$bin/hosts_rank" 1000000
}

# A case in which the fault comes between the creation of the plan and the first
# call.
ahead() { # NAME PATTERN RANKS [NETNS OPTIONS]
    d_name=$1 d_pattern=$2 d_ranks=$3
    shift 3
    bad "$d_name" "$d_pattern" "$d_ranks" --begun "has met" "$@" \
        "$bin/hosts_rank" 1000000 512 2
}

# A rank is stopped for 3 s in an exchange; the others must wait and go on.
goes_on() {
    "$netns" run -H 2 -R 2 --logs "$work/logs" --begun "has begun" \
        --fault pause:2:0:3 --env "ULYX_ALGO=$1" "$bin/hosts_rank" 400 &&
        for r in 0 1 3; do
            sed -n 's/.*done, \([0-9.]*\) s the longest.*/\1/p' \
                "$work/logs/rank-$r" | awk -v r=$r '{ n++ }
                    $1 < 2 { print "rank " r " waited for " $1 " s"; exit 1 }
                    END { if (n != 1) exit 1 }' || return 1
        done
}

# A script for ranks: those with $ULYX_RANK >= its first argument (0: all) find
# no UCX, because /dev/null is mounted over the library, in the host's own
# mounts.
# shellcheck disable=SC2016 # expanded by the ranks
without_ucx='f=$(ldconfig -p | sed -n "s/.*libucp.so.0 .*=> //p" | head -n 1)
    [ "$ULYX_RANK" -lt "$0" ] || mount --bind /dev/null "$(realpath "$f")" ||
        exit 9
    exec "$@"'

fails() {
    lost='ULYX_ERR_RANK_LOST.*rank (2|3)'
    during "a rank is killed" 'ULYX_ERR_RANK_LOST.*rank 2' "0 1 3" -H 2 -R 2 \
        --fault kill:2:0.2
    bad "UCX is left out" 'ULYX_ERR_UNSUPPORTED.*ULYX_TRANSPORTS' "0 1" \
        -H 2 -R 1 --env 'ULYX_TRANSPORTS=^ucx' "$bin/hosts_rank" 20
    bad "a wrong secret" 'ULYX_ERR_(AUTH|TIMEOUT).*' "0 1" -H 2 -R 1 \
        --env 1:ULYX_SECRET=another-secret-1234 --env ULYX_TIMEOUT=4 "$bin/hosts_rank" 20
    [ -z "$short" ] || return 0
    fails_to_meet
    for algo in direct pairwise hier; do
        fails_by_schedule --env ULYX_ALGO=$algo
    done
    during "one of four hosts vanishes" "$lost" "0 1 4 5 6 7" -H 4 -R 2 \
        --fault vanish:1:0.2
    during "a host freezes and its link goes down" \
        'ULYX_ERR_(RANK_LOST|TIMEOUT)' "0 1" -H 2 -R 2 --fault freeze:1:0.2 \
        --fault down:1:0.2
    ahead "a link goes down ahead of an exchange" \
        'ULYX_ERR_(RANK_LOST|TIMEOUT)' "0 1 2 3" -H 2 -R 2 --fault down:1:0
    ahead "an interface is off ahead of an exchange" \
        'ULYX_ERR_(RANK_LOST|TIMEOUT)' "0 1 2 3" -H 2 -R 2 --fault off:1:0
    ahead "a host vanishes ahead of an exchange" "$lost" "0 1" -H 2 -R 2 \
        --fault vanish:1:0
    good "packets are lost" "$netns" run -H 2 -R 2 --rate 1gbit --queue 8k \
        "$bin/hosts_rank" 20
    good "packets are lost at random" "$netns" run -H 2 -R 2 \
        --loss 1 "$bin/hosts_rank" 20
    good "a slow link" "$netns" run -H 2 -R 2 --rate 20mbit \
        "$bin/hosts_rank" 10
}

# fails_by_schedule --env ULYX_ALGO=WHICH
fails_by_schedule() {
    algo=${2#*=}
    during "a host vanishes, $algo" "$lost" "0 1" -H 2 -R 2 "$@" \
        --fault vanish:1:0.2
    during "a link goes down, $algo" 'ULYX_ERR_(RANK_LOST|TIMEOUT)' "0 1 2 3" \
        -H 2 -R 2 "$@" --fault down:1:0.2
    during "an interface goes off, $algo" 'ULYX_ERR_(RANK_LOST|TIMEOUT)' \
        "0 1 2 3" -H 2 -R 2 "$@" --fault off:1:0.2
    during "a rank is stopped, $algo" \
        'ULYX_ERR_(TIMEOUT|ABORTED|RANK_LOST)' "0 1 3" -H 2 -R 2 "$@" \
        --env ULYX_TIMEOUT=6 --fault stop:2:0.2
    during "a host freezes, $algo" 'ULYX_ERR_(TIMEOUT|ABORTED|RANK_LOST)' \
        "0 1" -H 2 -R 2 "$@" --env ULYX_TIMEOUT=6 --fault freeze:1:0.2
    good "a rank is stopped and goes on, $algo" goes_on "$algo"
}

# Cases in which ranks cannot connect: there is no network, or ranks have
# different networks, different UCX, or different versions of ulyx.
fails_to_meet() {
    none='ULYX_ERR_UNSUPPORTED.*'
    bad "UCX is left out at one rank" "$none" "0 1 2 3" \
        -H 2 -R 2 --env '3:ULYX_TRANSPORTS=^ucx' "$bin/hosts_rank" 20
    bad "UCX is missing" "$none(libucp|UCX)" "0 1 2 3" -H 2 -R 2 \
        sh -c "$without_ucx" 0 "$bin/hosts_rank" 20
    bad "UCX is missing on one host" "$none(libucp|UCX)" "0 1 2 3" -H 2 -R 2 \
        sh -c "$without_ucx" 2 "$bin/hosts_rank" 20
    bad "UCX has no usable transport" "${none}UCX_TLS=self" "0 1 2 3" \
        -H 2 -R 2 --env UCX_TLS=self "$bin/hosts_rank" 20
    bad "UCX has no usable transport at one rank" "${none}UCX_TLS=self" \
        "0 1 2 3" -H 2 -R 2 --env 3:UCX_TLS=self "$bin/hosts_rank" 20
    bad "a device that is not there" "${none}eth7" "0 1 2 3" -H 2 -R 2 \
        --env UCX_NET_DEVICES=eth7 "$bin/hosts_rank" 20
    bad "a device that is not there at one rank" "${none}eth7" "0 1 2 3" \
        -H 2 -R 2 --env 2:UCX_NET_DEVICES=eth7 "$bin/hosts_rank" 20
    bad "one rank speaks through loopback" \
        'ULYX_ERR_(UNSUPPORTED|RANK_LOST|TIMEOUT)' "0 1 2 3" -H 2 -R 2 \
        --env 2:UCX_NET_DEVICES=lo --env ULYX_TIMEOUT=6 "$bin/hosts_rank" 20
    # shellcheck disable=SC2016 # expanded by the ranks
    bad "another version" 'ULYX_ERR_(VERSION|TIMEOUT).*' "0 1" -H 2 -R 1 \
        --env ULYX_TIMEOUT=4 sh -c \
        '[ $ULYX_RANK = 1 ] && exec "$0_other" 20; exec "$0" 20' \
        "$bin/hosts_rank"
    bad "a link is down from the start" 'ULYX_ERR_TIMEOUT' "0 1 2 3" \
        -H 2 -R 2 --env ULYX_TIMEOUT=4 --fault down:1:before \
        "$bin/hosts_rank" 20
    bad "an interface is off from the start" 'ULYX_ERR_' "0 1 2 3" \
        -H 2 -R 2 --env ULYX_TIMEOUT=4 --fault off:1:before \
        "$bin/hosts_rank" 20
    bad "a host vanishes at creation" 'ULYX_ERR_(TIMEOUT|RANK_LOST).*(2|3)' \
        "0 1" -H 2 -R 2 --env ULYX_TIMEOUT=8 --fault vanish:1:0 \
        "$bin/hosts_rank" 1000000
}

computes
fails
echo "netns-suite: $done cases, $failed failed"
[ $failed = 0 ]
