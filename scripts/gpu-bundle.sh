#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# gpu-bundle.sh [-a ARCHITECTURE] FOLDER: makes a folder for a machine that has
# a GPU, a driver, nvcc, cmake and perhaps PyTorch, but no network and none of
# the packages of setup.sh. The folder has the sources, programs built here with
# the libraries that they need, and unpacked development packages in case the
# programs do not start there and must be built. On that machine:
#
#     cd FOLDER && ./scripts/gpu-check.sh built
#
# ARCHITECTURE is that of the card alone (90a-real), so that the folder stays
# small: the script fails if it has 60 MiB or more. build-bundle/ keeps the
# objects. Works on Debian and Ubuntu.
set -eu
cd "$(dirname "$0")/.."
architecture=90a-real
[ "${1:-}" != -a ] || {
    architecture=$2
    shift 2
}
out=${1:?gpu-bundle.sh: which folder?}
most=60 # MiB
build='build-bundle'
[ ! -e "$out" ] || {
    echo "gpu-bundle.sh: $out is there already" >&2
    exit 1
}

# ---- programs ----------------------------------------------------------------

tests=$(sed -n 's/^ulyx_test(\(card_[a-z_0-9]*\).*/\1/p' \
    tests/emulate/card/CMakeLists.txt)
programs="ulyx_perf kernelcheck card_kernelcheck $tests"
generator=
command -v ninja >/dev/null && generator="-G Ninja"
# Half of the size of the programs is machine code, which can be compressed to a
# quarter.
packed=
nvcc --help 2>/dev/null | grep -q compress-mode && packed=--compress-mode=size
# The loader expands $ORIGIN. An RPATH, unlike a RUNPATH, also holds for
# libraries that libraries need. UCX, MPI and PMIx are off: there is one machine
# and no launcher.
# shellcheck disable=SC2086,SC2016 # two words or none; several targets
cmake -S . -B "$build" $generator -DULYX_CUDA=ON \
    -DCMAKE_CUDA_ARCHITECTURES="$architecture" -DCMAKE_CUDA_FLAGS="$packed" \
    -DULYX_UCX=OFF -DULYX_MPI=OFF \
    -DULYX_PMIX=OFF -DCMAKE_BUILD_RPATH='$ORIGIN/../lib' \
    -DCMAKE_EXE_LINKER_FLAGS=-Wl,--disable-new-dtags >"$out.log" 2>&1 ||
    { tail -n 20 "$out.log" >&2 && exit 1; }
# shellcheck disable=SC2086
cmake --build "$build" --parallel "${ULYX_JOBS:-$(nproc)}" --target $programs \
    >>"$out.log" 2>&1 || { tail -n 20 "$out.log" >&2 && exit 1; }

mkdir -p "$out/built/bin" "$out/built/lib" "$out/built/packages"
for program in $programs; do
    strip -o "$out/built/bin/$program" "$build/bin/$program"
done

# Copies the libraries that the loader finds for the programs here, except those
# that a compiler or a driver installs there, perhaps in a newer version.
for program in "$out"/built/bin/*; do
    ldd "$program"
done | sed -n 's/^[^ ]* *=> *\(\/[^ ]*\) .*/\1/p' | sort -u |
    grep -v -E '/(lib(c|m|dl|pthread|rt|cuda|gcc_s|stdc\+\+)|ld-linux[^/]*)\.so' |
    while read -r library; do
        cp -L "$library" "$out/built/lib/"
    done

# ---- sources and packages ----------------------------------------------------

git archive HEAD | tar -x -C "$out"
git log -1 --format=%H >"$out/built/commit"

# The packages of the modules that the build looks up by pkg-config, and those
# that these packages need.
packages="libexpat1-dev libhwloc-dev libsodium-dev libjansson-dev libcmocka-dev"
for package in $packages libudev-dev pkgconf pkgconf-bin libpkgconf3; do
    dpkg -L "$package" 2>/dev/null |
        grep -v -E '/share/(doc|man|locale|aclocal)|\.a$' |
        while read -r file; do
            [ -d "$file" ] || [ ! -e "$file" ] || echo "${file#/}"
        done
done | sort -u | tar -c -C / -T - | tar -x -C "$out/built/packages"
# The target of each link libx.so to a library libx.so.1, also that of pkgconf.
for link in "$out"/built/packages/usr/lib/*/lib*.so; do
    real=/${link#"$out/built/packages/"}
    cp -L "$real" "$(dirname "$link")/$(basename "$(readlink -f "$real")")"
done

cat >"$out/built/packages/pkg-config" <<'END'
#!/bin/sh
here=$(dirname "$0")/usr
LD_LIBRARY_PATH=$(echo "$here"/lib/*-linux-gnu) exec "$here/bin/pkgconf" "$@"
END
chmod +x "$out/built/packages/pkg-config"

size=$(du -sm "$out" | cut -f1)
echo "$out: $size MiB of at most $most, for $architecture; $(find \
    "$out/built/bin" -type f | wc -l) programs," \
    "$(find "$out/built/lib" -type f | wc -l) libraries"
rm -f "$out.log"
[ "$size" -lt "$most" ]
