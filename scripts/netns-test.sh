#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# netns-test.sh: a few hosts on one machine. A host is a set of namespaces of
# its own (network, IPC, processes, host name, /dev/shm). A switch, which is a
# bridge in another network namespace, connects the hosts. The namespaces have
# no names and exist only as long as the keeper processes of this script, which
# the kernel kills when the script ends in any way: nothing is left behind.
# `netns-test.sh --help` describes the options.
set -eu

usage() {
    cat <<'TEXT'
netns-test.sh run [OPTIONS] [--] COMMAND [ARGUMENTS...]
    runs the command as a rank on each of H hosts x R ranks
netns-test.sh spread [OPTIONS] [--] COMMAND [ARGUMENTS...]
    runs a test program once, on this machine; the rank processes that it forks
    are moved to the hosts (tests/support/hosts.h), with --placement block (the
    default) or cyclic
netns-test.sh suite [--build FOLDER] [--short] [--only PATTERN]
    tests the library across hosts (scripts/netns-suite.sh)
netns-test.sh check
    ends with 77 and a reason where hosts cannot be made

options of run; spread has -H, --rate, --queue, --loss, --limit
    -H HOSTS          number of hosts (2); HOST is one of 0 .. HOSTS-1
    -R RANKS          number of ranks on each host (1)
    --launch hand     start ranks with ULYX_RANK, ULYX_NRANKS, MASTER_ADDR and
                      a secret (the default)
    --launch mpirun   start ranks by Open MPI, with its daemons on the hosts
    --rate RATE       rate of each host's link, both ways, as tc takes it: 1gbit
    --queue BYTES     queue of the link, with --rate: a tiny one loses packets
    --env NAME=VALUE  variable of all ranks; RANK:NAME=VALUE: of one rank
    --loss PERCENT    packets that the links lose (ends with 77 where the kernel
                      has no netem)
    --fault FAULT     SECONDS after the start:
                      down:HOST:SECONDS    the switch's end of a link goes down
                      off:HOST:SECONDS     the host's end of its link goes down
                      vanish:HOST:SECONDS  the host vanishes, with its ranks
                      freeze:HOST:SECONDS  all ranks on the host are stopped
                      kill:RANK:SECONDS    one rank is killed
                      stop:RANK:SECONDS    one rank is stopped
                      pause:RANK:SECONDS:FOR  one rank is stopped for FOR seconds
                      With mpirun only down, off and vanish. For down and off,
                      SECONDS may be "before": before ranks start
    --begun TEXT      SECONDS of faults count from the moment when all ranks have
                      written TEXT; needs --logs
    --limit SECONDS   time after which ranks are killed and end with 124 (120)
    --logs FOLDER     keep the output of rank N in FOLDER/rank-N, and all exit
                      codes in FOLDER/exits

Rank 0 writes to the terminal, the other ranks to logs, which are shown when they
fail. The exit code is the first one that is not 0, of ranks on hosts that still
exist; 77 where the rights to make hosts are missing (root, or CAP_SYS_ADMIN and
CAP_NET_ADMIN).
TEXT
}

die() {
    echo "netns-test.sh: $*" >&2
    exit 2
}

# ---- hosts ------------------------------------------------------------------

# Prints why hosts cannot be made here; nothing if they can.
why_not() {
    for tool in unshare nsenter setpriv timeout ip; do
        command -v $tool >/dev/null || {
            echo "$tool is not installed (util-linux, coreutils, iproute2)"
            return
        }
    done
    unshare --net --ipc --uts --pid --fork --mount-proc \
        ip link add up type bridge 2>/dev/null ||
        echo "no rights to make namespaces and bridges"
}

# keep NAME: starts a keeper, which holds a host's namespaces until it is
# killed. PID 1 of a host is a sleep: the host ends with this process.
keep() {
    # shellcheck disable=SC2016 # expanded inside
    setpriv --pdeathsig KILL unshare --net --ipc --uts --pid --fork \
        --kill-child --mount-proc sh -c '
            hostname "$1" && mount -t tmpfs tmpfs /dev/shm &&
            ip link set lo up && : >"$2" && exec sleep 1000000' \
        keeper "$1" "$work/ready-$1" 2>"$work/keeper-$1" &
    eval "keeper_$1=$!"
    keepers="$keepers $!"
}

# pid_of NAME: the PID 1 of a host as this script sees it.
pid_of() {
    eval "k=\$keeper_$1"
    tries=0
    while [ ! -e "$work/ready-$1" ]; do
        tries=$((tries + 1))
        [ $tries -lt 500 ] ||
            die "$1 did not come up: $(cat "$work/keeper-$1")"
        sleep 0.02
    done
    # shellcheck disable=SC2154 # set by eval
    tr -d ' ' <"/proc/$k/task/$k/children"
}

in_net() {
    n=$1
    shift
    nsenter --target "$n" --net -- "$@"
}

# limit PID DEVICE: limits the rate, and sets the queue, of what leaves through
# the device. Unless the queue is tiny, the burst holds the largest packet that
# the kernel passes to the device.
limit() {
    if [ -n "$loss" ]; then
        in_net "$1" tc qdisc add dev "$2" root netem loss "$loss%" \
            limit 10000 2>/dev/null && return 0
        echo "netns-test.sh: skipped: this kernel has no netem" >&2
        exit 77
    fi
    [ -n "$rate" ] || return 0
    if [ -n "$queue" ]; then
        in_net "$1" tc qdisc add dev "$2" root tbf rate "$rate" \
            burst "$queue" limit "$queue"
    else
        in_net "$1" tc qdisc add dev "$2" root tbf rate "$rate" \
            burst 256k latency 50ms
    fi
}

make_hosts() {
    keep switch
    h=0
    while [ $h -lt "$hosts" ]; do
        keep "host$h"
        h=$((h + 1))
    done
    switch=$(pid_of switch)
    in_net "$switch" ip link add hub type bridge
    in_net "$switch" ip address add 10.77.0.254/24 dev hub
    in_net "$switch" ip link set hub up
    h=0
    while [ $h -lt "$hosts" ]; do
        pid=$(pid_of "host$h")
        echo "$pid" >"$work/10.77.0.$((h + 1))"
        in_net "$switch" ip link add "port$h" type veth \
            peer name eth0 netns "$pid"
        in_net "$switch" ip link set "port$h" master hub up
        in_net "$pid" ip address add "10.77.0.$((h + 1))/24" dev eth0
        in_net "$pid" ip link set eth0 up
        limit "$pid" eth0
        limit "$switch" "port$h"
        h=$((h + 1))
    done
}

# Kills what this run has started, and, by killing the keepers, all processes on
# the hosts.
tear_down() {
    trap - EXIT INT TERM HUP
    for k in $jobs_pids $keepers; do
        kill -KILL "$k" 2>/dev/null || true
    done
    wait 2>/dev/null || true
    rm -rf "$work"
}

# on HOST COMMAND...: runs the command on the host, in the present folder.
on() {
    target=$(cat "$work/10.77.0.$(($1 + 1))")
    shift
    # shellcheck disable=SC2016 # expanded inside
    exec nsenter --target "$target" --net --ipc --uts --mount --pid -- \
        sh -c 'cd "$0" && exec "$@"' "$PWD" "$@"
}

# ---- ranks ------------------------------------------------------------------

# Prints the assignments of --env for rank $1, one per line.
environment_of() {
    printf '%s' "$environment" | while IFS= read -r line; do
        case $line in
        [0-9]*:*=*) [ "${line%%:*}" != "$1" ] || echo "${line#*:}" ;;
        ?*) echo "$line" ;;
        esac
    done
}

# rank R COMMAND...: runs one rank, with --launch hand.
rank() {
    r=$1
    shift
    environment_of "$r" >"$work/env-$r"
    while IFS= read -r line; do
        set -- "$line" "$@"
    done <"$work/env-$r"
    # shellcheck disable=SC2016 # expanded inside
    on $((r / ranks)) timeout -k 2 "$seconds" \
        sh -c 'echo $$ >"$0" && exec env "$@"' "$work/pid-$r" \
        ULYX_RANK="$r" ULYX_NRANKS=$((hosts * ranks)) \
        MASTER_ADDR=10.77.0.1 ULYX_PORT=7001 ULYX_SECRET="$secret" "$@"
}

by_hand() {
    secret=$(od -An -N16 -tx1 /dev/urandom | tr -d ' \n')
    r=0
    while [ $r -lt $((hosts * ranks)) ]; do
        if [ $r = 0 ] && [ "$logs" = "$work" ]; then
            (rank $r "$@") &
        else
            (rank $r "$@") >"$logs/rank-$r" 2>&1 &
        fi
        jobs_pids="$jobs_pids $!"
        r=$((r + 1))
    done
}

# Starts Open MPI in the network of the switch. An agent in place of ssh starts
# its daemons on the hosts.
by_mpirun() {
    # shellcheck disable=SC2016 # expanded when it runs
    printf '#!/bin/sh\nh=$1\nshift\nexec nsenter --target "$(cat "%s/$h")" ' \
        "$work" >"$work/agent"
    # shellcheck disable=SC2016
    echo '--net --ipc --uts --mount --pid -- sh -c "$*"' >>"$work/agent"
    chmod +x "$work/agent"
    places=
    h=1
    while [ $h -le "$hosts" ]; do
        places="$places,10.77.0.$h:$ranks"
        h=$((h + 1))
    done
    environment_of all >"$work/env"
    while IFS= read -r line; do
        set -- "$line" "$@"
    done <"$work/env"
    set -- mpirun --allow-run-as-root --wdir "$PWD" \
        --mca plm_rsh_agent "$work/agent" --mca oob_tcp_if_include \
        10.77.0.0/24 --mca btl_tcp_if_include 10.77.0.0/24 --bind-to none \
        --host "${places#,}" -np $((hosts * ranks)) env "$@"
    if [ "$logs" = "$work" ]; then
        timeout -k 5 "$seconds" nsenter --target "$switch" --net -- "$@" &
    else
        timeout -k 5 "$seconds" nsenter --target "$switch" --net -- "$@" \
            >"$logs/rank-0" 2>&1 &
    fi
    jobs_pids=$!
}

# Starts one test program, which moves the ranks that it forks to the hosts.
by_test() {
    pids=
    h=1
    while [ $h -le "$hosts" ]; do
        pids="$pids $(cat "$work/10.77.0.$h")"
        h=$((h + 1))
    done
    ULYX_TEST_HOSTS=$pids ULYX_TEST_PLACEMENT=$placement \
        ULYX_TEST_SWITCH=$switch timeout -k 5 "$seconds" "$@" &
    jobs_pids=$!
}

# ---- faults -----------------------------------------------------------------

# Prints the pid of rank $1 as this script sees it. The last number of NSpid is
# the pid inside the host.
outer_pid() {
    inner=$(cat "$work/pid-$1")
    pid=$(cat "$work/10.77.0.$(($1 / ranks + 1))")
    space=$(stat -L -c %i "/proc/$pid/ns/pid")
    find -L /proc/[0-9]*/ns/pid -inum "$space" 2>/dev/null |
        while IFS=/ read -r _ _ p _; do
            awk -v inner="$inner" -v p="$p" '/^NSpid:/ && $NF == inner {
                print p }' "/proc/$p/status" 2>/dev/null || : # it may be gone
        done
}

# Prints the ranks of host $1.
ranks_on() {
    r=$(($1 * ranks))
    while [ $r -lt $((($1 + 1) * ranks)) ]; do
        echo $r
        r=$((r + 1))
    done
}

signal_rank() { # SIGNAL RANK
    p=$(outer_pid "$2")
    [ -z "$p" ] || kill "-$1" "$p" 2>/dev/null || true
}

# Waits until all ranks have written the text of --begun. The sleeps end with
# the hosts.
await_begun() {
    [ -n "$begun" ] || return 0
    r=0
    while [ $r -lt $((hosts * ranks)) ]; do
        if grep -q -F "$begun" "$logs/rank-$r" 2>/dev/null; then
            r=$((r + 1))
        else
            pause 0.05 || return 1
        fi
    done
}

pause() {
    nsenter --target "$switch" --pid -- sleep "$1"
}

# strike KIND WHERE [FOR]
strike() {
    echo "netns-test.sh: $1 $2" >&2
    case $1 in
    down) in_net "$switch" ip link set "port$2" down ;;
    off) in_net "$(cat "$work/10.77.0.$(($2 + 1))")" ip link set eth0 down ;;
    vanish)
        in_net "$switch" ip link delete "port$2"
        kill -KILL "$(cat "$work/10.77.0.$(($2 + 1))")"
        ;;
    freeze)
        for r in $(ranks_on "$2"); do signal_rank STOP "$r"; done
        ;;
    kill) signal_rank KILL "$2" ;;
    stop) signal_rank STOP "$2" ;;
    pause)
        signal_rank STOP "$2"
        pause "$3" || return 0
        echo "netns-test.sh: $2 goes on" >&2
        signal_rank CONT "$2"
        ;;
    esac
}

# fault KIND:WHERE:SECONDS[:FOR]: waits, then makes the fault; runs in the
# background.
fault() {
    (
        IFS=:
        # shellcheck disable=SC2086 # its words
        set -- $1
        unset IFS
        await_begun || exit 0
        pause "$3" || exit 0
        strike "$1" "$2" "${4:-}"
    )
}

# Makes the faults that come before the ranks start.
faults_before() {
    for f in $faults; do
        case $f in
        *:before)
            f=${f%:before}
            strike "${f%%:*}" "${f#*:}"
            ;;
        esac
    done
}

# Has a --fault ended or stopped rank $1, or its host?
is_gone() {
    for f in $faults; do
        case $f in
        vanish:$(($1 / ranks)):* | kill:$1:* | stop:$1:*) return 0 ;;
        freeze:$(($1 / ranks)):*) return 0 ;;
        esac
    done
    return 1
}

# Has a --fault stopped rank $1 for good? Such a rank ends only with its host.
is_stopped() {
    for f in $faults; do
        case $f in
        stop:$1:* | freeze:$(($1 / ranks)):*) return 0 ;;
        esac
    done
    return 1
}

# ---- commands ---------------------------------------------------------------

# Waits for all ranks; returns the exit code of the first that failed.
collect() {
    status=0
    r=0
    for job in $jobs_pids; do
        is_stopped $r && r=$((r + 1)) && continue
        code=0
        wait "$job" || code=$?
        echo "$r $code" >>"$logs/exits"
        if [ $code != 0 ] && ! is_gone $r; then
            [ $status != 0 ] || status=$code
            if [ "$logs" = "$work" ]; then
                echo "netns-test.sh: rank $r ended with $code" >&2
                [ ! -e "$logs/rank-$r" ] || sed "s/^/[$r] /" "$logs/rank-$r" >&2
            fi
        fi
        r=$((r + 1))
    done
    return $status
}

parse() {
    while [ $# -gt 0 ]; do
        case $1 in
        -H | -R | --launch | --rate | --queue | --loss | --env | --fault | \
            --begun | --limit | --logs | --placement)
            [ $# -gt 1 ] || die "$1 needs a value"
            ;;
        esac
        case $1 in
        -H) hosts=$2 ;;
        -R) ranks=$2 ;;
        --launch)
            [ "$launch" != test ] || die "spread has no --launch"
            launch=$2
            ;;
        --placement) placement=$2 ;;
        --rate) rate=$2 ;;
        --queue) queue=$2 ;;
        --loss) loss=$2 ;;
        --begun) begun=$2 ;;
        --env) environment="$environment$2
" ;;
        --fault) faults="$faults $2" ;;
        --limit) seconds=$2 ;;
        --logs) logs=$2 ;;
        --) shift && break ;;
        -*) die "$1 is not understood (--help)" ;;
        *) break ;;
        esac
        shift 2
    done
    left=$#
}

check_options() {
    case $hosts$ranks$seconds in
    *[!0-9]*) die "-H, -R and --limit need whole numbers" ;;
    esac
    if [ "$hosts" -lt 1 ] || [ "$hosts" -gt 200 ] || [ "$ranks" -lt 1 ]; then
        die "expected 1 to 200 hosts, and 1 rank or more on each"
    fi
    [ -z "$queue" ] || [ -n "$rate" ] || die "--queue needs --rate"
    [ -z "$loss" ] || [ -z "$rate" ] || die "--loss and --rate exclude each other"
    [ -z "$begun" ] || [ -n "$logs" ] || die "--begun needs --logs"
    for f in $faults; do
        case $f in
        pause:*:*:*) ;;
        *:*:*:*) die "--fault $f has too many fields" ;;
        down:*:* | off:*:*) ;;
        *:before) die "--fault $f: only down and off may come before the start" ;;
        vanish:*:* | freeze:*:* | kill:*:* | stop:*:*) ;;
        *) die "--fault $f is not understood (--help)" ;;
        esac
    done
    case $launch in
    hand) ;;
    mpirun)
        case $faults$environment in
        *kill:* | *stop:* | *pause:* | *freeze:* | [0-9]*:*=*)
            die "faults and variables of one rank need --launch hand"
            ;;
        esac
        ;;
    test) ;;
    *) die "--launch $launch: expected hand or mpirun" ;;
    esac
    case $placement in
    block | cyclic) ;;
    *) die "--placement $placement: expected block or cyclic" ;;
    esac
}

# run WAY OPTIONS... COMMAND...
run() {
    launch=$1 placement=block
    shift
    hosts=2 ranks=1 rate='' queue='' loss='' environment='' faults=''
    seconds=120 logs='' begun=''
    parse "$@"
    shift $(($# - left))
    [ $# -gt 0 ] || die "no command (--help)"
    check_options
    reason=$(why_not)
    if [ -n "$reason" ]; then
        echo "netns-test.sh: skipped: $reason" >&2
        exit 77
    fi
    keepers='' jobs_pids=''
    work=$(mktemp -d)
    logs=${logs:-$work}
    mkdir -p "$logs"
    rm -f "$logs/exits"
    trap tear_down EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    make_hosts
    faults_before
    case $launch in
    hand) by_hand "$@" ;;
    mpirun) by_mpirun "$@" ;;
    test) by_test "$@" ;;
    esac
    for f in $faults; do
        case $f in *:before) continue ;; esac
        fault "$f" &
        keepers="$keepers $!"
    done
    collect
}

command=${1:-}
[ $# = 0 ] || shift
case $command in
run) run hand "$@" ;;
spread) run test "$@" ;;
suite) exec "$(dirname "$0")/netns-suite.sh" "$@" ;;
check)
    reason=$(why_not)
    [ -z "$reason" ] || {
        echo "skipped: $reason"
        exit 77
    }
    ;;
-h | --help) usage ;;
*)
    usage >&2
    exit 2
    ;;
esac
