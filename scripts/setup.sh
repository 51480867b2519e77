#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# setup.sh [demo|build|test|bench]: installs the packages that
# scripts/packages.txt lists for the purpose (default: test; bench needs all)
# and that this machine does not have; for test and bench also the tools of
# cuda-tools.sh. Prints nothing if nothing is missing. Without root or sudo,
# prints the names of the packages and ends with 1.
set -eu
list=$(dirname "$0")/packages.txt
purpose=${1:-test}
case $purpose in
demo) purposes=demo ;;
build) purposes='demo|build' ;;
test) purposes='demo|build|test' ;;
bench) purposes='demo|build|test|bench' ;;
*)
    echo "setup: $purpose is not a purpose; there are demo, build, test, bench" >&2
    exit 1
    ;;
esac
names=$(sed -n -E "s/^([a-z0-9][^ ]*) +($purposes) .*/\1/p" "$list")

if ! command -v dpkg-query >/dev/null; then
    echo "setup: not a Debian or Ubuntu machine; ulyx needs the counterparts" \
        "of:" $names >&2
    exit 0
fi

missing=
for name in $names; do
    state=$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null || true)
    [ "$state" = installed ] || missing="$missing $name"
done
# The tools that read machine code come from PyPI; without them some tests are
# skipped.
cuda_tools() {
    case $purpose in
    test | bench) "$(dirname "$0")/cuda-tools.sh" --install || true ;;
    esac
}

[ -n "$missing" ] || {
    cuda_tools
    exit 0
}

as_root=
if [ "$(id -u)" -ne 0 ]; then
    # sudo can ask for a password only on a terminal.
    if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }
    then
        as_root=sudo
    else
        echo "setup: these packages are missing, and installing them needs" \
            "root:" >&2
        echo "    apt-get install$missing" >&2
        exit 1
    fi
fi

echo "setup: installing$missing"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# shellcheck disable=SC2086 # a list of words
if ! { $as_root apt-get update \
    && $as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y \
        --no-install-recommends $missing; } >"$log" 2>&1; then
    cat "$log" >&2
    echo "setup: apt-get failed; missing are:$missing" >&2
    exit 1
fi
cuda_tools
