#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cmake_consumer.sh BUILD CONSUMER VERSION: find_package(ulyx CONFIG) from an
# installed and moved tree, both libraries, C and C++; versions whose API may be
# another are refused; the static library where pkg-config knows nothing, and
# what is said where its needs are nowhere.
set -eu
. "$(dirname "$0")/stage.sh"
consumer=$2
version=$3
major=${version%%.*}
rest=${version#*.}
minor=${rest%%.*}

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

# refused NAME WORD OPTIONS...: configuring must fail and print the word.
refused()
{
    name=$1
    word=$2
    shift 2
    if "$CMAKE" -S "$consumer" -B "$work/$name" \
        -DCMAKE_PREFIX_PATH="$prefix" "$@" >"$work/$name.log" 2>&1; then
        fail "$name: it was accepted"
    fi
    tr -s '\n ' ' ' <"$work/$name.log" | grep -q -e "$word" || {
        cat "$work/$name.log"
        fail "$name: it does not say \"$word\""
    }
}

for other in $((major + 1)).0 "$major.$((minor + 1))" "$major.$((minor - 1))"; do
    refused "version-$other" "$other" -DWANTED_VERSION="$other"
done

# Without pkg-config's files the linker's folders are searched.
PKG_CONFIG_LIBDIR=/nonexistent "$CMAKE" -S "$consumer" -B "$work/static" \
    -DCMAKE_PREFIX_PATH="$prefix" -DWANTED_COMPONENTS=static
"$CMAKE" --build "$work/static" --target c_ulyx_static
expect_version "$work/static/c_ulyx_static" "$version"

export PKG_CONFIG_LIBDIR=/nonexistent
refused missing 'hwloc was not found: install libhwloc-dev (pkg-config: ' \
    -DWANTED_COMPONENTS=static -DCMAKE_FIND_USE_CMAKE_SYSTEM_PATH=OFF
refused component 'no component devel: it has shared and static' -DWANTED_COMPONENTS=devel
