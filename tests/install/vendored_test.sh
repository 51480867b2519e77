#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# vendored_test.sh SOURCE VERSION: add_subdirectory and FetchContent bring the
# two libraries and nothing else: no other command, program, language, build
# type, output folder or installed file.
set -eu
source=$1
version=$2
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail()
{
    echo "FAILED: $*"
    exit 1
}

for way in fetch subdirectory; do
    "$CMAKE" -S "$here/vendored" -B "$work/$way" -DWAY=$way \
        -DULYX_SOURCE="$source" -DCONSUMER="$here/consumer" \
        >"$work/$way.log" 2>&1 || { cat "$work/$way.log"; exit 1; }
    grep -q 'build type: ""' "$work/$way.log" || fail "$way: a build type"
    grep -q '^-- ulyx .*no CMAKE_BUILD_TYPE (not optimised)' "$work/$way.log" \
        || fail "$way: nothing is said about the build type"
    grep -q 'OPENBLAS: no (not looked for: ULYX_EXAMPLES is OFF)' \
        "$work/$way.log" || fail "$way: OpenBLAS, which only examples use"
    grep '^-- languages' "$work/$way.log" | grep -E 'CUDA|ASM|Fortran' \
        && fail "$way: a language that nobody asked for"
    others=$(sed -n 's/^ *"file": "\(.*\)",*$/\1/p' \
        "$work/$way/compile_commands.json" \
        | grep -v -e "^$source/src/" -e "^$here/consumer/" || true)
    [ -z "$others" ] || fail "$way compiles $others"
done
# Kernels require that the project itself enables the CUDA language.
if "$CMAKE" -S "$here/vendored" -B "$work/cuda" -DULYX_SOURCE="$source" \
    -DCONSUMER="$here/consumer" -DULYX_CUDA=ON >"$work/cuda.log" 2>&1; then
    fail "ULYX_CUDA=ON was taken without the language"
fi
grep -q 'enable_language(CUDA)' "$work/cuda.log" || {
    cat "$work/cuda.log"
    fail "ULYX_CUDA=ON: no reason"
}

commands=$(grep -c '"file":' "$work/fetch/compile_commands.json")
sources=$(find "$source/src" -name '*.c' | wc -l)
echo "$commands commands, $sources sources in C"
[ "$commands" -le $((sources + 2)) ] || fail "$commands commands"

"$CMAKE" --build "$work/fetch" -j2 >"$work/build.log" 2>&1 || {
    tail -n 40 "$work/build.log"
    fail "it does not build"
}
for program in use_ulyx use_ulyx_static; do
    [ "$("$work/fetch/$program")" = "$version" ] || fail "$program"
done
[ ! -e "$work/fetch/bin" ] || fail "it makes a folder bin"
"$CMAKE" --install "$work/fetch" --prefix "$work/prefix" >/dev/null
[ "$(find "$work/prefix" -type f)" = "$work/prefix/bin/use_ulyx" ] \
    || fail "it installs $(find "$work/prefix" -type f)"
