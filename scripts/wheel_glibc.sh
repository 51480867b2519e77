#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel_glibc.sh VERSION FOLDER PYTHON: what wheel.sh --glibc VERSION compiles
# with, made in FOLDER once:
#   bin/cc, bin/c++
#              compile by this system's gcc and g++, and link by zig, which brings
#              every glibc's symbols (PyPI's ziglang, some 100 MB)
#   lib/       hwloc, libsodium and expat, static, compiled by zig
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
# wrapper NAME COMPILER: with a source it compiles, with objects alone it links.
# gcc's own library looks at the processor when it is loaded, zig's at a call that
# gcc's code does not make: __builtin_cpu_supports() would say no to all.
wrapper()
{
    cat >"$folder/bin/$1" <<WRAPPER
#!/bin/sh
for word; do
    case \$word in -c | -E | -M* | *.c | *.cc | *.cpp) exec $2 "\$@" ;; esac
done
exec $zig $1 $target "\$@" $(gcc -print-libgcc-file-name)
WRAPPER
    chmod +x "$folder/bin/$1"
}
wrapper cc gcc
wrapper c++ g++

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
            --with-pic CC="$zig cc $target" CFLAGS=-O2 "$@"
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
