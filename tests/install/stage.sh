# SPDX-License-Identifier: Apache-2.0
# Read by the consumer tests: installs $1 (a build folder) below a fresh
# $work, then moves the tree, so that a path kept from the installation breaks
# the test. Leaves $prefix.
build=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$CMAKE" --install "$build" --prefix "$work/first" >"$work/install.log" || {
    cat "$work/install.log"
    exit 1
}
prefix=$work/moved/here
mkdir "$work/moved"
mv "$work/first" "$prefix"
if grep -rlI -e "$work/first" -e "$build" "$prefix"; then
    echo "the installed files above name the build or install folder"
    exit 1
fi

fail()
{
    echo "FAILED: $*"
    exit 1
}

# expect_version PROGRAM VERSION: the program must run and print that version.
expect_version()
{
    printed=$("$1") || fail "$1 ended with $?"
    [ "$printed" = "$2" ] || fail "$1 printed $printed, expected $2"
}
