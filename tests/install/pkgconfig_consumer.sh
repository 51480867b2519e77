#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# pkgconfig_consumer.sh BUILD CONSUMER VERSION: ulyx.pc of an installed and
# moved tree, shared and then static, C and C++.
set -eu
. "$(dirname "$0")/stage.sh"
consumer=$2
version=$3
pc=$(find "$prefix" -name ulyx.pc)
export PKG_CONFIG_PATH="${pc%/*}"
libdir=${PKG_CONFIG_PATH%/pkgconfig}
[ "$(pkg-config --modversion ulyx)" = "$version" ] || fail "version of ulyx.pc"

# compile NAME pkg-config-options...
compile()
{
    name=$1
    shift
    flags=$(pkg-config --cflags --libs "$@" ulyx)
    # shellcheck disable=SC2086 # the flags are words
    "$CC" -std=c11 "$consumer/consumer.c" -o "$work/c_$name" $flags
    # shellcheck disable=SC2086
    "$CXX" -std=c++17 "$consumer/consumer.cc" -o "$work/cxx_$name" $flags
}

compile shared
for language in c cxx; do
    LD_LIBRARY_PATH=$libdir expect_version "$work/${language}_shared" "$version"
done
soname=libulyx.so.${version%.*}
readelf -d "$work/c_shared" | grep -q "$soname]" \
    || fail "the program does not ask for the soname $soname"
if grep -E -e '-[LI]/|/usr/local|cuda/' "$pc"; then
    fail "ulyx.pc names a folder of the build machine"
fi

rm "$libdir"/libulyx.so*
compile static --static
for language in c cxx; do
    expect_version "$work/${language}_static" "$version"
done
