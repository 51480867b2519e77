#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# options_test.sh SOURCE REQUIRED...: optional dependencies where only the
# required pkg-config modules are found: AUTO goes without, ON stops and names the package, OFF does not
# look, another word is refused.
set -eu
source=$1
shift
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/pc"
for module in cmocka "$@"; do
    ln -s "$(pkg-config --variable=pcfiledir $module)/$module.pc" "$work/pc/"
done
common="-DBUILD_TESTING=OFF -DULYX_CUDA=OFF -DULYX_NCCL=OFF -DULYX_MPI=OFF"

# configure OPTIONS...: writes the output to $work/log and the status to $ended.
configure()
{
    ended=0
    rm -rf "$work/build"
    # shellcheck disable=SC2086 # words
    PKG_CONFIG_PATH='' PKG_CONFIG_LIBDIR=$work/pc "$CMAKE" -S "$source" \
        -B "$work/build" $common "$@" >"$work/log" 2>&1 || ended=$?
}

# expect END WORD: the configuration must have ended so and printed the word.
expect()
{
    if [ "$ended" -ne "$1" ] || ! tr -s '\n ' ' ' <"$work/log" | grep -q "$2"
    then
        cat "$work/log"
        echo "FAILED: ended with $ended, expected $1 and \"$2\""
        exit 1
    fi
}

configure
expect 0 'UCX: no (not found: libucx-dev)'
configure -DULYX_UCX=ON
expect 1 'ULYX_UCX=ON, but UCX was not found. Install libucx-dev'
configure -DULYX_PMIX=ON
expect 1 'Install libpmix-dev'
configure -DULYX_OPENBLAS=ON
expect 1 'Install libopenblas-dev'
configure -DULYX_UCX=OFF
expect 0 'UCX: no (OFF)'
configure -DULYX_UCX=perhaps
expect 1 'ULYX_UCX=perhaps: expected AUTO, ON or OFF'
rm "$work/pc/hwloc.pc"
configure
expect 1 'hwloc was not found by pkg-config. Install libhwloc-dev'
