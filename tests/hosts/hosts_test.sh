#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# hosts_test.sh NETNS-TEST: the hosts that scripts/netns-test.sh makes are apart,
# reach each other, fail on request, and are gone afterwards.
set -eu
netns=$1
"$netns" check || exit $?
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "hosts_test: $*" >&2
    exit 1
}

# Prints what rank N wrote.
said() { cat "$work/rank-$1"; }

# Namespaces end a moment after the last process in them.
gone() {
    tries=0
    inode=$(echo "$1" | tr -dc 0-9)
    while [ -n "$(find -L /proc/[0-9]*/ns -inum "$inode" 2>/dev/null)" ]; do
        tries=$((tries + 1))
        [ $tries -lt 200 ] || fail "$1 has outlived the run"
        sleep 0.02
    done
}

# This proves that the search above finds something where there is something.
find -L /proc/self/ns -inum "$(stat -L -c %i /proc/self/ns/net)" | grep -q net ||
    fail "namespaces are not found by their number"

# ---- hosts are apart, ranks of one host are not
# shellcheck disable=SC2016 # expanded by the ranks
"$netns" run -H 2 -R 2 --logs "$work" --env 1:FRUIT=pear --env 'TREE=a b' sh -c '
    echo "$(hostname) $ULYX_RANK of $ULYX_NRANKS, ${FRUIT-none}, $TREE"
    for n in net ipc uts pid mnt; do readlink /proc/self/ns/$n; done'
[ "$(said 0 | head -1)" = "host0 0 of 4, none, a b" ] || fail "rank 0: $(said 0)"
[ "$(said 1 | head -1)" = "host0 1 of 4, pear, a b" ] || fail "rank 1: $(said 1)"
[ "$(said 3 | head -1)" = "host1 3 of 4, none, a b" ] || fail "rank 3: $(said 3)"
for r in 0 1 2 3; do said $r | sed 1d >"$work/spaces-$r"; done
cmp "$work/spaces-0" "$work/spaces-1" || fail "host 0 is two hosts"
while read -r space; do
    grep -q -F "$space" "$work/spaces-0" && fail "both hosts have $space"
    gone "$space"
done <"$work/spaces-2"

# ---- ranks that fail, hang, are killed, stopped, or lose their host
code=0
# shellcheck disable=SC2016
"$netns" run -H 2 -R 2 --logs "$work" sh -c '[ $ULYX_RANK != 2 ] || exit 5' ||
    code=$?
[ $code = 5 ] || fail "exit $code of a rank that ends with 5"
code=0
"$netns" run -H 1 --logs "$work" --limit 1 sleep 100 || code=$?
[ $code = 124 ] || fail "exit $code of a rank over the limit"
"$netns" run -H 2 -R 2 --logs "$work" --fault kill:1:0.3 --fault stop:2:0.3 \
    sleep 3
grep -q '^1 137$' "$work/exits" || fail "rank 1 was not killed"
grep -q '^2 ' "$work/exits" && fail "rank 2 was not stopped"
"$netns" run -H 3 --logs "$work" --fault vanish:1:0.3 sleep 3
grep -q '^1 137$' "$work/exits" || fail "host 1 did not vanish"
grep -q '^2 0$' "$work/exits" || fail "host 2 did not stay"

# Rank 0 reads the clock until it finds that it was stopped for a second.
# shellcheck disable=SC2016
"$netns" run -H 2 -R 2 --logs "$work" --begun here --fault pause:0:0.1:1.5 \
    --fault freeze:1:0.1 --limit 60 sh -c '
    echo here
    last=$(date +%s%N)
    while [ "$ULYX_RANK" != 1 ]; do
        sleep 0.02
        now=$(date +%s%N)
        [ $((now - last)) -lt 1000000000 ] || exit 0
        last=$now # so that no gap is missed
    done'
grep -q '^0 0$' "$work/exits" || fail "rank 0 was not paused"
grep -q '^[23] ' "$work/exits" && fail "what is frozen was waited for"
for where in down off; do
    # shellcheck disable=SC2016
    "$netns" run -H 2 --logs "$work" --fault $where:1:before sh -c '
        ip link show eth0'
    said 0 | grep -q 'state UP' || fail "host 0 has no link: $(said 0)"
    said 1 | grep -q 'state UP' && fail "host 1 has a link: $(said 1)"
done

# ---- an interrupted run removes its hosts
# shellcheck disable=SC2016
"$netns" run --logs "$work" sh -c '
    readlink /proc/self/ns/net; echo up >"$0-$ULYX_RANK"; exec sleep 100' \
    "$work/up" &
pid=$!
tries=0
while [ ! -e "$work/up-0" ] || [ ! -e "$work/up-1" ]; do
    tries=$((tries + 1))
    [ $tries -lt 1000 ] || fail "no ranks"
    sleep 0.02
done
kill -TERM $pid
code=0
wait $pid || code=$?
[ $code = 143 ] || fail "exit $code of an interrupted run"
for space in $(said 0) $(said 1); do
    gone "$space"
done
