#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# package_test.sh BUILD CONSUMER VERSION LAUNCHERS: the packages that cpack makes
# of this build: named as Debian would, no file in two of them, together what is
# installed; unpacked somewhere they compile and run a user's program, and so
# does the archive. Their ulyx_perf is started by srun where Slurm is installed.
set -eu
build=$1
consumer=$2
version=$3
launchers=$4
soversion=${version%.*}
for tool in dpkg-deb dpkg-shlibdeps cpack; do
    command -v $tool >/dev/null || { echo "SKIPPED: no $tool"; exit 77; }
done
# Not in /tmp, because each node of the test's Slurm has a /tmp of its own.
work=$(mktemp -d /var/tmp/ulyx-package-XXXXXX)
trap 'rm -rf "$work"' EXIT

fail()
{
    echo "FAILED: $*"
    exit 1
}

(cd "$build" && cpack -B "$work/made") >"$work/log" 2>&1 || {
    cat "$work/log"
    fail "cpack"
}
root=$work/root
for package in "libulyx$soversion" libulyx-dev ulyx-tools; do
    file=$(ls "$work/made/${package}_${version}_"*.deb) || fail "no $package"
    dpkg-deb -c "$file" | awk '$1 !~ /^d/ { print $6 }' >>"$work/files"
    dpkg-deb -x "$file" "$root"
    [ -s "$root/usr/share/doc/$package/copyright" ] || fail "no licence"
    dpkg-deb -f "$file" Depends
done
twice=$(sort "$work/files" | uniq -d)
[ -z "$twice" ] || fail "in two packages: $twice"
dpkg-deb -f "$work/made/libulyx-dev_"*.deb Depends \
    | grep -q "libulyx$soversion (= $version), .*libhwloc-dev" \
    || fail "what libulyx-dev depends on"
dpkg-deb -f "$work/made/ulyx-tools_"*.deb Depends | grep -q 'libc6' \
    || fail "what ulyx-tools depends on"

# use PREFIX: builds a user's program by the pkg-config file, and runs it and the
# package's own programs.
use()
{
    pc=$(find "$1" -name ulyx.pc)
    lib=${pc%/pkgconfig/ulyx.pc}
    # shellcheck disable=SC2046 # words
    "$CC" -std=c11 "$consumer/consumer.c" -o "$work/program" \
        $(PKG_CONFIG_PATH="${pc%/*}" pkg-config --cflags --libs ulyx)
    # shellcheck disable=SC2046
    "$CC" -std=c11 "$1/share/doc/ulyx/examples/first_exchange.c" \
        -o "$work/example" \
        $(PKG_CONFIG_PATH="${pc%/*}" pkg-config --cflags --libs ulyx)
    [ "$(LD_LIBRARY_PATH=$lib "$work/program")" = "$version" ] || fail "$1"
    LD_LIBRARY_PATH=$lib "$work/example" | grep -q 'rank 3, head 5' \
        || fail "$1: first_exchange"
    for program in "$1"/bin/*; do
        "$program" --version | grep -q " $version\$" || fail "$program"
    done
    "$1/bin/ulyx_perf" -g 2 -b 64K -e 64K -n 2 | grep -q '0 wrong elements' \
        || fail "$1: ulyx_perf"
    "$1/bin/ulyx_info" tuning "$1/share/ulyx/ulyx.tuning" >/dev/null \
        || fail "$1: the example of a tuning file"
    if [ -x "$1/bin/train_bytes" ]; then # reads the documents beside it
        "$1/bin/train_bytes" --steps 1 --seq 16 --docs 1 --layers 1 --dim 48 \
            >/dev/null || fail "$1: train_bytes"
    fi
}

use "$root/usr"
mkdir "$work/archive"
tar -xzf "$work/made/ulyx-$version-"*.tar.gz -C "$work/archive"
use "$(echo "$work/archive"/*)"
code=0
python3 "$launchers" "$root/usr/bin" slurm test_every_mpi_type_on_one_node \
    >"$work/log" 2>&1 || code=$?
case $code in
0) echo "ulyx_perf of the package ran under srun" ;;
77) cat "$work/log" ;;
*)
    cat "$work/log"
    fail "ulyx_perf of the package under srun"
    ;;
esac
echo "$(wc -l <"$work/files") files in three packages"
