#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# aarch64_test.sh SOURCE CMAKE: the library compiles for aarch64 without a
# warning. Nothing is linked, so the headers of this machine's packages serve.
set -eu
if ! command -v aarch64-linux-gnu-gcc >/dev/null; then
    echo "SKIPPED: no aarch64-linux-gnu-gcc (gcc-aarch64-linux-gnu)"
    exit 77
fi
work=$(mktemp -d)
multiarch=/usr/include/$(dpkg-architecture -qDEB_HOST_MULTIARCH 2>/dev/null \
    || echo "$(uname -m)-linux-gnu")
trap 'rm -rf "$work"' EXIT
"$2" -S "$1" -B "$work" -G "Unix Makefiles" \
    --toolchain "$1/cmake/toolchain-aarch64.cmake" -DULYX_WERROR=ON \
    -DCMAKE_C_FLAGS="-idirafter /usr/include -idirafter $multiarch" \
    -DULYX_CUDA=OFF -DULYX_MPI=OFF -DULYX_TOOLS=OFF -DULYX_EXAMPLES=OFF \
    -DBUILD_TESTING=OFF
"$2" --build "$work" --target ulyx_static -- -j2
ar t "$work/src/libulyx.a" | grep -q 'status.c.o'
