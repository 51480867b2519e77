#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# soak.sh MINUTES [--hosts N] [--goals] [--seed N] [--deadline SECONDS]
# [--build FOLDER] [--write FILE]: random communicators and calls with random faults
# (tests/soak/soak.c), an eighth of the time with threads, the rest with
# processes and, with --hosts, beside them with processes on N hosts made of
# namespaces (scripts/netns-test.sh; wants root). With --goals MINUTES is the
# most: it ends when each fault was injected often (tests/soak/soak.c: 1,000
# kills, 200 of the others; across hosts 100). Prints what went wrong, then
# the table; --write docs/RELIABILITY.md writes that page. MINUTES may be a
# fraction. --seed repeats a run's draws; --deadline is of calls that wait for a
# rank that stays stopped, 0.5 when not given. Ends with 1 where anything went
# wrong or a goal was not reached; with 77 where hosts cannot be made.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$here/../build hosts='' seed='' page='' minutes='' deadline=0.5 goals=''
usage() {
    sed -n '3,14s/^# //p' "$0" >&2
    exit 2
}
while [ $# -gt 0 ]; do
    case $1 in
    --hosts | --build | --seed | --write | --deadline) [ $# -gt 1 ] || usage ;;
    esac
    case $1 in
    --hosts) hosts=$2 && shift ;;
    --build) build=$2 && shift ;;
    --goals) goals=goals ;;
    --deadline) deadline=$2 && shift ;;
    --seed) seed=$2 && shift ;;
    --write) page=$2 && shift ;;
    -*) usage ;;
    *)
        [ -z "$minutes" ] || usage
        minutes=$1
        ;;
    esac
    shift
done
case $minutes$hosts$seed$deadline in
*[!0-9.]*) usage ;;
esac
[ -n "$minutes" ] || usage
soak=$build/bin/soak
[ -x "$soak" ] || {
    echo "soak.sh: $soak is not built (ninja -C $build soak)" >&2
    exit 2
}
seed=${seed:-$(date +%s)000}
line="scripts/soak.sh $minutes${hosts:+ --hosts $hosts}${goals:+ --goals}"
line="$line --seed $seed"
[ "$deadline" = 0.5 ] || line="$line --deadline $deadline"
[ -z "$page" ] || line="$line --write $page"
work=$(mktemp -d)
# shellcheck disable=SC2086 # none, one or two jobs
trap '[ -z "$jobs" ] || kill $jobs; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM HUP
failed=0 jobs=''

# share PARTS: so many eighths of the time, in seconds.
share() {
    awk -v m="$minutes" -v p="$1" 'BEGIN { printf "%.1f", m * 60 * p / 8 }'
}

# run WORLD SECONDS [COMMAND...]: takes the place of this shell; its rows. The
# command runs it elsewhere.
run() {
    world=$1 seconds=$2
    shift 2
    exec "$@" "$soak" "$world" "$seconds" "$deadline" "$seed" $goals \
        >"$work/$world"
}

# code_of JOB: its exit status.
code_of() {
    code=0
    wait "$1" || code=$?
    [ $code != 77 ] || exit 77
    [ $code = 0 ] || failed=1
}

if [ -n "$hosts" ]; then
    "$here/netns-test.sh" check
fi
(run threads "$(share 1)") || failed=1
run processes "$(share 7)" &
processes=$!
jobs=$processes
if [ -n "$hosts" ]; then
    limit=$(awk -v m="$minutes" 'BEGIN { printf "%d", m * 60 + 120 }')
    run hosts "$(share 7)" \
        "$here/netns-test.sh" spread -H "$hosts" --limit "$limit" -- &
    jobs="$jobs $!"
    code_of $!
    jobs=$processes
fi
code_of $processes
jobs=''
cat "$work/threads" "$work/processes" >"$work/rows"
[ -z "$hosts" ] || cat "$work/hosts" >>"$work/rows"

rows() {
    echo '| fault | ranks are | injected | ranks | named |' \
        'longest wait, ms | wrong data | leaks | other | ended by UCX |'
    echo '|---|---|--:|--:|--:|--:|--:|--:|--:|--:|'
    awk -F '\t' '$1 == "row" {
        printf "| %s | %s | %d | %d | %s | %s | %d | %d | %d | %d |\n", $2, $3,
            $4, $5, ($6 == $5 ? "all" : $6), ($7 == "-" ? "-" : $7), $8, $9,
            $10, $11 }' "$work/rows"
}

cpu() {
    sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1
}

page() {
    cat <<TEXT
# What faults do

<!-- Written by scripts/soak.sh: do not edit. -->

Made on $(date -u +%Y-%m-%d), $(nproc) cores of $(cpu), by

    $line

which repeats it after a build. Forty seconds of it are in the test suite
(\`ctest -R Soak.faults\`).

A scene is a new communicator of 3 to 5 ranks, created or split from another, one
kind of call made again and again (plan creation, attach, split, alltoall,
reshuffle, its adjoint, allreduce, attention forward and backward), of contiguous or
zigzag tokens, by one of four paths of data and, between hosts, each schedule, with one
fault at a random moment. Every result is compared with what
it has to be, before the fault and after it; what a failed call read is
written over at once.

$(rows)

- *injected*: scenes. *ranks*: those that had to get the error. *named*: those that got the
  right error, with the rank it is about in the text. Of **none**, **pause** (a rank is
  stopped for up to 0.3 s), **fork** (a child is forked in the middle of a call, and its
  own calls have to give \`ERR_FORKED\`) and **link pause** (a host's link is down for up to
  0.15 s) it is the ranks whose calls went on as if nothing had been.
- **abort**, **kill**, **stop** (for good) and **link down** (of a host): each other rank
  has to return \`ERR_ABORTED\`, \`ERR_RANK_LOST\` or \`ERR_TIMEOUT\`, naming the rank, or
  ranks behind the link. After all but the last the survivors shrink, and exchange among
  all that are left; where a stopped rank is all of its host, no rank may continue without
  it, unless it continues without them when it is resumed.
- *longest wait*: from the moment when a rank's error was due until it arrived:
  from the fault, or, of a stopped rank or a link that is down, from the deadline of the
  call ($deadline s, of attention twice that). More than 15 s counts as *other*.
- *wrong data*: ranks whose call succeeded with another result than it has to have; also a
  stopped rank that forms a communicator of its own when it is resumed, beside the
  others' communicator.
- *leaks*: ranks that hold more descriptors, mapped shared memory, threads or heap than
  before the communicator, 5 s after its end.
- *other*: ranks that crashed, hung, or could not go on. *ended by UCX*: scenes in which
  an assertion of UCX ended a survivor; they are in no other column.
TEXT
}

rows
if [ -n "$page" ]; then
    page >"$work/page"
    cp "$work/page" "$page"
fi
exit $failed
