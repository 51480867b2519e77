#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel_glibc.sh VERSION FOLDER PYTHON: makes in FOLDER, once, what wheel.sh
# --glibc VERSION compiles with:
#   bin/cc, bin/c++
#              compile with gcc and g++ of this system, and link with zig, which has
#              the symbols of every glibc (PyPI's ziglang, some 100 MB)
#   lib/       hwloc, libsodium and expat, static, compiled with zig
#   licences/  the licences of these libraries
# The sources of the libraries come from the distribution (apt-get source, which
# needs deb-src lines), or from the folder ULYX_WHEEL_SOURCES, which has
# hwloc-*, libsodium-* and expat-*.
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
# wrapper NAME COMPILER: makes a command that compiles where an argument is a
# source, and links where all are objects. It links gcc's own library too, which
# detects the features of the processor when it is loaded. Zig's library does so
# only in a call that gcc's code does not make, so __builtin_cpu_supports()
# would find no feature.
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
