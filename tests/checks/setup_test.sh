#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# setup_test.sh SCRIPTS: setup.sh on machines played by stand-ins for id, sudo,
# dpkg-query and apt-get: all installed, missing as root, missing as a user with
# and without sudo, and a failing apt-get.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp "$1/setup.sh" "$1/cuda-tools.sh" "$work/"
cat >"$work/packages.txt" <<'LIST'
# Not a package test # as this line says.
have-this  demo   # why
lack-this  demo   # why
lack-that  build  # why demo is not enough
lack-more  test   # why
lack-peer  bench  # why
LIST
mkdir "$work/bin"

# stand_in NAME SCRIPT
stand_in()
{
    printf '#!/bin/sh\n%s\n' "$2" >"$work/bin/$1"
    chmod +x "$work/bin/$1"
}

# Nothing is installed from PyPI here, whether or not this machine has nvcc.
stand_in nvdisasm 'exit 0'
stand_in cuobjdump 'exit 0'

# setup END WORD [PURPOSE]: runs setup.sh, which must end with END and print the
# word (or nothing: '').
setup()
{
    : >"$work/apt"
    ended=0
    # shellcheck disable=SC2086 # a purpose or none
    WORK=$work PATH="$work/bin:$PATH" sh "$work/setup.sh" ${3:-} \
        >"$work/log" 2>&1 </dev/null || ended=$?
    said=$(cat "$work/log" "$work/apt")
    if [ "$ended" -ne "$1" ] || ! echo "$said" | grep -q "$2"; then
        echo "$said"
        echo "FAILED: ended with $ended, expected $1 and \"$2\""
        exit 1
    fi
}

stand_in dpkg-query 'case "$4" in have*) printf installed ;; *) exit 1 ;; esac'
# apt-get must have been called with the words $1..., in this order.
stand_in apt-get 'echo "apt-get $*" >>"$WORK/apt"'
stand_in sudo '[ "$1" = -n ] && shift; echo sudo >>"$WORK/apt"; exec "$@"'

stand_in id 'echo 0'
setup 0 '^.*apt-get install .*lack-this lack-that lack-more$'
if grep -q sudo "$work/apt" || grep -q have-this "$work/apt"; then
    echo "FAILED: root took sudo, or installed what was there"
    exit 1
fi

setup 0 'install .* lack-this$' demo
setup 0 'install .* lack-this lack-that$' build
setup 0 'install .* lack-this lack-that lack-more$' test
setup 0 'install .* lack-this lack-that lack-more lack-peer$' bench
setup 1 'nothing is not a purpose; there are demo, build, test, bench' nothing

stand_in id 'echo 1000'
setup 0 'sudo'
grep -q 'apt-get install .*lack-this lack-that lack-more$' "$work/apt"

stand_in sudo 'exit 1'
setup 1 'apt-get install lack-this lack-that lack-more'
[ ! -s "$work/apt" ] || { echo "FAILED: apt-get was called"; exit 1; }

stand_in id 'echo 0'
stand_in apt-get 'echo no network; exit 100'
setup 1 'no network'
setup 1 'missing are: lack-this lack-that lack-more'

# The tree's own list: every line of it is read, whatever its form.
cp "$1/packages.txt" "$work/"
stand_in apt-get 'echo "apt-get $*" >>"$WORK/apt"'
setup 0 'apt-get install' bench
lines=$(grep -c '^[^#]' "$work/packages.txt")
asked=$(sed -n 's/.*--no-install-recommends //p' "$work/apt" | wc -w)
[ "$asked" -eq "$lines" ] || {
    echo "FAILED: $lines lines in packages.txt, $asked packages"
    exit 1
}

stand_in dpkg-query 'printf installed'
setup 0 ''
[ ! -s "$work/log" ] || { echo "FAILED: not silent"; exit 1; }
