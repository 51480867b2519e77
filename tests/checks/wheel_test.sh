#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel_test.sh SCRIPTS: what a wheel for an older glibc is compiled with.
# wheel_glibc.sh makes it, here from stand-ins for Python with zig, gcc, g++ and
# three libraries: the words of each compiler, the licences, and the message
# where sources are missing.
set -eu
scripts=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/sources"

fail()
{
    echo "wheel_test: $1" >&2
    exit 1
}

# `python -m venv FOLDER` copies this stand-in to FOLDER; zig prints its words.
cat >"$work/bin/python" <<'PYTHON'
#!/bin/sh
case $2 in
venv) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" ;;
ziglang) shift 2 && echo "zig $*" ;;
esac
PYTHON
cat >"$work/bin/gcc" <<'GCC'
#!/bin/sh
[ "$1" = -print-libgcc-file-name ] && echo /gcc/libgcc.a || echo "gcc $*"
GCC
printf '#!/bin/sh\necho "g++ $*"\n' >"$work/bin/g++"
printf '#!/bin/sh\necho "$@" >configure.words\n' >"$work/configure"
printf '#!/bin/sh\ncp "%s" .\n' "$work/configure" >"$work/bin/autoreconf"
printf '#!/bin/sh\n:\n' >"$work/bin/make"
chmod +x "$work/bin/"* "$work/configure"

# sources_of FOLDER LICENCE: sources without a configure script.
sources_of()
{
    mkdir -p "$work/sources/$1"
    : >"$work/sources/$1/configure.ac"
    echo "licence of $1" >"$work/sources/$1/$2"
}

make_it()
{
    PATH="$work/bin:$PATH" ULYX_WHEEL_SOURCES="$work/sources" \
        sh "$scripts/wheel_glibc.sh" 2.28 "$work/made" "$work/bin/python"
}

sources_of hwloc-2.9.0 COPYING
sources_of libsodium-1.0.18 LICENSE
if make_it 2>"$work/said"; then
    fail "it went on without the sources of expat"
fi
grep -q 'no sources of expat' "$work/said" || fail "$(cat "$work/said")"
mkdir -p "$work/sources/expat-2.5.0"
sources_of expat-2.5.0/expat COPYING
make_it

for name in hwloc libsodium expat; do
    grep -q "licence of $name" "$work/made/licences/$name.txt" ||
        fail "no licence of $name"
done
grep -q -- '--disable-libudev' \
    "$work/made/sources/hwloc-2.9.0/configure.words" || fail "hwloc's words"

target="-target $(uname -m)-linux-gnu.2.28"
# compiler NAME WANTED WORDS...
compiler()
{
    name=$1 wanted=$2
    shift 2
    said=$(PATH="$work/bin:$PATH" "$work/made/bin/$name" "$@")
    [ "$said" = "$wanted" ] || fail "$name $*: $said, not $wanted"
}
compiler cc "gcc -c a.c" -c a.c
compiler cc "zig cc $target -shared a.o /gcc/libgcc.a" -shared a.o
compiler c++ "g++ -c a.cc" -c a.cc
compiler c++ "zig c++ $target -shared a.o /gcc/libgcc.a" -shared a.o

rm -rf "$work/sources"
make_it || fail "what has been made is made again"

for words in "--glibc" "--glibc 3" "--glibc 2.x8"; do
    ended=0
    # shellcheck disable=SC2086 # words
    sh "$scripts/wheel.sh" $words >"$work/said" 2>&1 || ended=$?
    if [ "$ended" != 2 ] || ! grep -q 'needs a version' "$work/said"; then
        fail "wheel.sh $words ended with $ended"
    fi
done
