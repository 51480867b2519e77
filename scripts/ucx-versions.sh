#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# ucx-versions.sh BUILD [-n REPEATS] [-f FILTER] [VERSION|FOLDER]...: runs the
# tests of the transport ucx, with each verb, with several versions of UCX.
# "system" is the UCX that the loader finds; a FOLDER has libucp.so.0; a VERSION
# is installed by pip from the package libucx-cu12 into BUILD/ucx. A version
# that is not available is skipped, with a line. Exit code: 0 all passed, 1
# something failed, 77 nothing could be run.
set -u
[ $# -gt 0 ] || {
    sed -n 's/^# //p' "$0" | sed -n '2,7p' >&2
    exit 2
}
build=$1
shift
repeats=1 filter='*'
while getopts n:f: option; do
    case $option in
    n) repeats=$OPTARG ;;
    f) filter=$OPTARG ;;
    *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -gt 0 ] || set -- system 1.18.1 1.22.0

# Prints the folder of a version; nothing if the version is not available.
folder_of() {
    [ -d "$1" ] && echo "$1" && return
    at=$build/ucx/$1
    if [ ! -e "$at/libucx/lib/libucp.so.0" ]; then
        python3 -m pip download --no-deps -q "libucx-cu12==$1" -d "$at" \
            >"$build/ucx-pip.log" 2>&1 &&
            python3 -m zipfile -e "$at"/*.whl "$at" || return
    fi
    [ -e "$at/libucx/lib/libucp.so.0" ] && echo "$at/libucx/lib"
}

# run TEST VERB FILTER: prints how many runs failed, and keeps the last log.
run() {
    bad=0
    for _ in $(seq "$repeats"); do
        log=$build/ucx-$name-$2.log
        ULYX_UCX_VERB=$2 ULYX_INSECURE=$([ "$2" = PUT ] && echo 1 || echo 0) \
            LD_LIBRARY_PATH=$path timeout 300 \
            "$build/bin/$1" --filter "$3" >"$log" 2>&1 && continue
        bad=$((bad + 1))
        mv "$log" "$log.failed"
    done
    printf '%-8s %-4s %-14s %d of %d runs failed\n' "$name" "$2" "$1" "$bad" \
        "$repeats"
    ran=$((ran + 1)) failed=$((failed + bad))
}

ran=0 failed=0
mkdir -p "$build/ucx"
for version in "$@"; do
    name=$(basename "$version") path=${LD_LIBRARY_PATH:-}
    if [ "$version" != system ]; then
        path=$(folder_of "$version")
        [ -n "$path" ] || {
            echo "SKIPPED: UCX $version is not available"
            continue
        }
    fi
    for verb in AM PUT TAG AUTO; do
        run ucx_put_test "$verb" "$filter"
    done
    [ "$filter" = '*' ] || continue
    for test in ucx_test ucx_verb_test ucx_fault_test ucx_alloc_test; do
        [ ! -x "$build/bin/$test" ] || run $test AUTO "$filter"
    done
done
[ "$ran" -gt 0 ] || exit 77
[ "$failed" -eq 0 ]
