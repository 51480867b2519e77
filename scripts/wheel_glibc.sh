#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel_glibc.sh VERSION FOLDER PYTHON: what wheel.sh --glibc VERSION compiles
# with, made in FOLDER once:
#   bin/cc     C for that glibc, by zig, which brings every glibc's symbols and
#              headers (PyPI's ziglang, some 100 MB)
#   bin/c++    nvcc's host compiler: this system's g++, but zig links
#   lib/       hwloc, libsodium and expat, static, compiled by bin/cc
#   licences/  theirs
# Their sources are the distribution's (apt-get source, which wants deb-src lines),
# or those in the folder ULYX_WHEEL_SOURCES: hwloc-*, libsodium-*, expat-*.
set -eu
version=$1 python=$3
mkdir -p "$2"
folder=$(cd "$2" && pwd)
[ ! -e "$folder/made" ] || exit 0

rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/sources" "$folder/licences"
"$python" -m venv "$folder/zig"
"$folder/zig/bin/python" -m pip install --quiet --disable-pip-version-check \
    ziglang
zig="$folder/zig/bin/python -m ziglang"
target="-target $(uname -m)-linux-gnu.$version"
# UCX and PMIx are opened at run time: their headers, and no other file of the
# system's, are looked for last.
cat >"$folder/bin/cc" <<CC
#!/bin/sh
exec $zig cc $target "\$@" -idirafter /usr/include
CC
cat >"$folder/bin/c++" <<CXX
#!/bin/sh
for word; do
    case \$word in -c | -E | -M*) exec g++ "\$@" ;; esac
done
exec $zig c++ $target "\$@"
CXX
chmod +x "$folder/bin/cc" "$folder/bin/c++"

cd "$folder/sources"
if [ -n "${ULYX_WHEEL_SOURCES:-}" ]; then
    cp -r "$ULYX_WHEEL_SOURCES"/*/ .
elif ! apt-get -qq source hwloc libsodium expat >"$folder/apt.log" 2>&1; then
    cat "$folder/apt.log" >&2
    echo "wheel: ULYX_WHEEL_SOURCES may name a folder with the sources of" \
        "hwloc, libsodium and expat" >&2
    exit 1
fi

# library NAME [CONFIGURE OPTIONS...]
library()
{
    name=$1
    shift
    # expat keeps its sources a folder deeper.
    source=$(find "$folder/sources" -maxdepth 3 -path "*/$name-*" \
        -name configure.ac | sort | head -n 1)
    [ -n "$source" ] || {
        echo "wheel: no sources of $name in $folder/sources" >&2
        exit 1
    }
    cd "$(dirname "$source")"
    {
        [ -e configure ] || autoreconf -fi
        ./configure --prefix="$folder" --libdir="$folder/lib" --disable-shared \
            --with-pic CC="$folder/bin/cc" CFLAGS=-O2 "$@"
        make
        make install
    } >"$folder/$name.log" 2>&1 || {
        tail -n 40 "$folder/$name.log" >&2
        exit 1
    }
    cat LICENSE COPYING >"$folder/licences/$name.txt" 2>/dev/null || true
    [ -s "$folder/licences/$name.txt" ] || {
        echo "wheel: no licence of $name" >&2
        exit 1
    }
}

library hwloc --disable-libudev --disable-pci --disable-opencl --disable-cuda \
    --disable-nvml --disable-libxml2 --disable-cairo
library libsodium
library expat --without-xmlwf --without-examples --without-tests \
    --without-docbook
touch "$folder/made"
