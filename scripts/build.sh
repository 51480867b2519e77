#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# build.sh FOLDER [CMAKE OPTIONS...]: configures and builds into FOLDER. On a
# terminal the build shows its progress; elsewhere it is quiet unless something
# fails.
set -eu
cd "$(dirname "$0")/.."
folder=$1
shift
mkdir -p "$folder"
generator=
[ -e "$folder/CMakeCache.txt" ] || generator="-G Ninja"
# shellcheck disable=SC2086 # two words or none
cmake -S . -B "$folder" $generator "$@" >"$folder/configure.log" 2>&1 || {
    cat "$folder/configure.log"
    exit 1
}
echo "building in $folder"
if [ -t 1 ]; then
    exec cmake --build "$folder"
fi
cmake --build "$folder" >"$folder/build.log" 2>&1 || {
    tail -n 60 "$folder/build.log"
    exit 1
}
grep 'warning:' "$folder/build.log" || true
