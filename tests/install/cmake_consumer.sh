#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cmake_consumer.sh BUILD CONSUMER VERSION: find_package(ulyx CONFIG) from an
# installed and moved tree, both libraries, C and C++; and a version that this
# one does not satisfy is refused.
set -eu
. "$(dirname "$0")/stage.sh"
consumer=$2
version=$3
next=$((${version%%.*} + 1)).0

"$CMAKE" -S "$consumer" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" \
    -DWANTED_VERSION="$version"
"$CMAKE" --build "$work/build"
for program in c_ulyx cxx_ulyx c_ulyx_static cxx_ulyx_static; do
    expect_version "$work/build/$program" "$version"
done
ldd "$work/build/c_ulyx" | grep -q "$prefix" || fail "c_ulyx is not shared"
if ldd "$work/build/c_ulyx_static" | grep libulyx; then
    fail "c_ulyx_static needs the shared library"
fi

if "$CMAKE" -S "$consumer" -B "$work/next" -DCMAKE_PREFIX_PATH="$prefix" \
    -DWANTED_VERSION="$next" >"$work/next.log" 2>&1; then
    fail "version $next was accepted"
fi
grep -q "$next" "$work/next.log" || fail "the refusal does not name $next"
