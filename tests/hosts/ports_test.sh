#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ports_test.sh NETNS-TEST PERF: with ULYX_PORT_RANGE the library listens at no
# other ports on any host, except the meeting's, which ULYX_PORT sets.
set -eu
netns=$1 perf=$2
"$netns" check || exit $?
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "ports_test: $*" >&2
    exit 1
}

# The host's listening ports while the program runs. Column 2 of the kernel's
# table is the address and, behind its last colon, the port in hexadecimal
# digits; column 4 the state, 0A for listening.
cat >"$work/rank" <<'END'
"$@" >&2 &
pid=$!
while kill -0 $pid 2>/dev/null; do
    cat /proc/net/tcp /proc/net/tcp6 | while read -r _ own _ state _; do
        [ "$state" != 0A ] || printf 'port %d\n' "0x${own##*:}"
    done
    sleep 0.05
done
wait $pid
END
"$netns" run -H 2 -R 2 --logs "$work" --env ULYX_PORT=29600 \
    --env ULYX_PORT_RANGE=29601-29620 sh "$work/rank" \
    "$perf" -b 64K -e 64K -n 200 -w 2 >/dev/null
for r in 0 1 2 3; do
    ports=$(sed -n 's/^port //p' "$work/rank-$r" | sort -un | tr '\n' ' ')
    echo "rank $r sees $ports"
    inside=0
    for port in $ports; do
        [ "$port" != 29600 ] || continue
        [ "$port" -ge 29601 ] && [ "$port" -le 29620 ] ||
            fail "port $port is outside of the range"
        inside=$((inside + 1))
    done
    # Two ranks, each with a port of UCX and one of the keepalive.
    [ $inside -ge 4 ] || fail "rank $r has seen $inside ports of the range"
done
