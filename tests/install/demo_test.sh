#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# demo_test.sh SOURCE BUILD: scripts/demo.sh with the programs of this build,
# which stand-ins for setup.sh and build.sh leave as they are: its steps, its
# last line, and its end where the sweep fails.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/scripts" "$work/build-demo"
ln -s "$2/bin" "$work/build-demo/bin"
cp "$1/scripts/demo.sh" "$work/scripts/"
for script in setup build; do
    printf '#!/bin/sh\necho %s "$@"\n' $script >"$work/scripts/$script.sh"
    chmod +x "$work/scripts/$script.sh"
done

# expect PATTERN: a line of the demo's output must match.
expect()
{
    grep -E -q -e "$1" "$work/log" || {
        cat "$work/log"
        echo "FAILED: no line \"$1\""
        exit 1
    }
}

sh "$work/scripts/demo.sh" -n 2 >"$work/log" 2>&1 || {
    cat "$work/log"
    echo "FAILED: demo.sh"
    exit 1
}
expect '^setup demo$'
expect '^build build-demo .*-DBUILD_TESTING=OFF'
expect '^demo: 2 of 4: '
tail -n 1 "$work/log" >"$work/last"
mv "$work/last" "$work/log"
expect '^demo: 18 rows on 4 ranks, 0 wrong elements, .*; [0-9]+ s$'
[ ! -x "$2/bin/train_bytes" ] || expect 'of a loss, 4 ranks and 1: [0-9.e-]+; '

if sh "$work/scripts/demo.sh" --no-such-option >"$work/log" 2>&1; then
    echo "FAILED: it ended well where the sweep failed"
    exit 1
fi
expect '^demo: the sweep failed$'
