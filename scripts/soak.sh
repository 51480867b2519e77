#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# soak.sh MINUTES [--hosts N] [--goals] [--seed N] [--deadline SECONDS] [--build
# FOLDER] [--write FILE]: makes random communicators and calls with random
# faults (tests/soak/soak.c). In the first eighth of the time ranks are threads,
# then processes; with --hosts, a second run beside that of processes has its
# ranks on N hosts made of namespaces (scripts/netns-test.sh; needs root). With
# --goals, MINUTES is a maximum: the run ends when each fault has been injected
# as often as goals[] of tests/soak/soak.c says (200 times, kills 1,000 times;
# across hosts 100, faults of links 200). Prints errors, then the table; --write
# FILE writes the page docs/RELIABILITY.md. MINUTES may be a fraction. --seed
# repeats the draws of a run; --deadline (0.5) is for calls that wait for a rank
# that stays stopped. Ends with 1 if anything went wrong or a goal was not
# reached; with 77 where hosts cannot be made.
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

# share PARTS: prints PARTS eighths of the time, in seconds.
share() {
    awk -v m="$minutes" -v p="$1" 'BEGIN { printf "%.1f", m * 60 * p / 8 }'
}

# run WORLD SECONDS [COMMAND...]: replaces this shell by the soak program, whose
# rows go to a file. COMMAND starts the program in another place.
run() {
    world=$1 seconds=$2
    shift 2
    exec "$@" "$soak" "$world" "$seconds" "$deadline" "$seed" $goals \
        >"$work/$world"
}

# code_of JOB: waits for the job, and records whether it has failed.
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

After a build, this command repeats the run. The test suite has forty seconds of it
(\`ctest -R Soak.faults\`).

A scene makes a new communicator of 3 to 5 ranks, created or split from another one, and
repeats one kind of call (plan creation, attach, split, alltoall, reshuffle, its adjoint,
allreduce, attention forward and backward). Tokens are contiguous or zigzag; data takes
one of four paths, and between hosts any schedule. One fault is injected at a random
moment. Every result before and after the fault is compared with the correct one; memory
that a failed call has read is overwritten at once.

$(rows)

- *injected*: scenes. *ranks*: ranks that must get an error. *named*: ranks that got the
  right error, with a text that names the rank at fault. For **none**, **pause** (a rank
  is stopped for up to 0.3 s), **fork** (a child is forked in the middle of a call, and
  calls of the child must return \`ERR_FORKED\`) and **link pause** (the link of a host is
  down for up to 0.15 s), the two columns are ranks whose calls must succeed, and ranks
  whose calls have succeeded.
- **abort**, **kill**, **stop** (for good) and **link down** (of a host): each other rank
  must return \`ERR_ABORTED\`, \`ERR_RANK_LOST\` or \`ERR_TIMEOUT\`, with a text that names
  the rank, or ranks behind the link. After abort, kill and stop, the survivors shrink, and
  all survivors exchange again. Where a stopped rank is the only rank of its host, the
  others must not continue without it; when it is resumed, it may continue without them.
- *longest wait*: time by which a rank's error came late. The error is due at the fault;
  for a stopped rank or a link that is down, at the deadline of the call ($deadline s, for
  attention twice that). More than 15 s counts as *other*.
- *wrong data*: ranks whose call succeeded with a wrong result; also stopped ranks that,
  when they were resumed, formed a communicator of their own beside that of the others.
- *leaks*: ranks that hold more descriptors, mapped shared memory, threads or heap 5 s after
  the end of the communicator than before its creation.
- *other*: ranks that crashed, hung, or could not go on. *ended by UCX*: scenes in which an
  assertion of UCX ended a survivor; no other column counts them.
TEXT
}

rows
if [ -n "$page" ]; then
    page >"$work/page"
    cp "$work/page" "$page"
fi
exit $failed
