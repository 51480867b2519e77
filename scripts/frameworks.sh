#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# frameworks.sh [--resume] [FRAMEWORK...] [-- PYTEST OPTIONS...]: runs the tests
# of ulyx under whole frameworks, which take some minutes each: torch,
# transformers (Trainer and TRL), deepspeed (and accelerate), megatron; without
# names, all. Each framework has an environment of its own on top of the PyTorch
# of scripts/python-env.sh (or ULYX_PYTHON_ENV), into which the versions below
# are installed once. The output ends with a table of results, with those of
# earlier runs, which are kept in build/frameworks/. --resume leaves out the
# frameworks whose tests have passed since the library, the package or its tests
# last changed.
set -eu
cd "$(dirname "$0")/.."
base=${ULYX_PYTHON_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/ulyx/python-env}
kept=build/frameworks
all="torch transformers deepspeed megatron"
export ULYX_LIBRARY="${ULYX_LIBRARY:-$PWD/build/src/libulyx.so}"
export PYTHONPATH="$PWD/python" ULYX_TEST_FRAMEWORKS=1
unset ULYX_RANK ULYX_NRANKS ULYX_COMM_ID

# The versions of packages for which a framework's tests were written.
pins_of()
{
    case $1 in
    transformers) echo transformers==5.24.0 accelerate==1.15.0 trl==1.16.0 \
        datasets==5.2.0 ;;
    deepspeed) echo deepspeed==0.19.8 transformers==5.24.0 accelerate==1.15.0 ;;
    megatron) echo --no-deps megatron-core==0.16.1 ;;
    esac
}

# environment_of NAME: makes the environment of a framework if needed, and
# prints its interpreter. Packages that the environment does not have are found
# in that of PyTorch, which a line in a .pth file adds to the search path.
environment_of()
{
    folder=$base/frameworks/$1
    pins=$(pins_of "$1")
    if [ ! -e "$folder/pins" ] || [ "$(cat "$folder/pins")" != "$pins" ]; then
        rm -rf "$folder"
        "$base/bin/python" -m venv "$folder"
        packages='import sysconfig; print(sysconfig.get_path("purelib"))'
        "$base/bin/python" -c "$packages" \
            >"$("$folder/bin/python" -c "$packages")/shared.pth"
        # shellcheck disable=SC2086 # words
        [ -z "$pins" ] || "$folder/bin/python" -m pip install --quiet \
            --disable-pip-version-check $pins || return 1
        echo "$pins" >"$folder/pins"
    fi >&2
    echo "$folder/bin/python"
}

# prepare NAME PYTHON: does in advance what would take the ranks of a first test
# minutes. DeepSpeed compiles a part for CPUs at its first use; a rank that is
# killed during this time leaves a lock behind, for which all later ranks would
# wait.
prepare()
{
    [ "$1" = deepspeed ] || return 0
    export TORCH_EXTENSIONS_DIR="$PWD/$kept/extensions"
    find "$TORCH_EXTENSIONS_DIR" -name lock -exec rm -f {} + 2>/dev/null || true
    DS_ACCELERATOR=cpu "$2" -c "from deepspeed.comm.torch import build_shm_op
build_shm_op()" >"$kept/deepspeed.build.log" 2>&1 || {
        cat "$kept/deepspeed.build.log" >&2
        return 1
    }
}

version_of() # PYTHON NAME
{
    distribution=$2
    [ "$2" != megatron ] || distribution=megatron-core
    "$1" -c "import importlib.metadata as found
print(found.version('$distribution'))" 2>/dev/null
}

# count TEXT WORD: the number before a word ("passed") in pytest's last line.
count()
{
    echo "$1" | sed -n -E "s/^.*\b([0-9]+) $2.*$/\1/p" | grep . || echo 0
}

# has_passed NAME: have the tests passed, and has nothing changed since?
has_passed()
{
    [ -e "$kept/$1" ] && grep -q ' 0 failed' "$kept/$1" &&
        [ -z "$(find python examples/python "$ULYX_LIBRARY" -type f \
            -not -name '*.pyc' -newer "$kept/$1" | head -n 1)" ]
}

run() # NAME [PYTEST OPTIONS...]
{
    name=$1
    shift
    rm -f "$kept/$name"
    if ! python=$(environment_of "$name") ||
        ! version=$(version_of "$python" "$name") ||
        ! prepare "$name" "$python"; then
        echo "$name $(pins_of "$name") could not be installed, 1 failed" \
            >"$kept/$name"
        return
    fi
    echo "== $name $version"
    begin=$(date +%s)
    "$python" -m pytest -q -p no:cacheprovider --durations=5 "$@" \
        "python/tests/with_$name" 2>&1 | tee "$kept/$name.log"
    last=$(tail -n 1 "$kept/$name.log")
    failed=$(($(count "$last" failed) + $(count "$last" error)))
    passed=$(count "$last" passed)
    [ "$passed" -gt 0 ] || failed=$((failed + 1))
    echo "$name $version $passed passed, $failed failed," \
        "$(count "$last" skipped) skipped, $(($(date +%s) - begin)) s" \
        >"$kept/$name"
}

"$base/bin/python" -c 'import torch, pytest' 2>/dev/null || {
    echo "frameworks: no PyTorch in $base: scripts/python-env.sh installs it" >&2
    exit 1
}
mkdir -p "$kept"
resume=0
named=
while [ $# -gt 0 ] && [ "$1" != -- ]; do
    case " $all " in
    *" $1 "*) named="$named $1" ;;
    *)
        [ "$1" = --resume ] || {
            echo "frameworks: $1 is unknown; known are: $all" >&2
            exit 2
        }
        resume=1
        ;;
    esac
    shift
done
[ $# -eq 0 ] || shift

for name in ${named:-$all}; do
    if [ $resume = 1 ] && has_passed "$name"; then
        continue
    fi
    run "$name" "$@"
done

status=0
printf '\nframework version result\n'
for name in $all; do
    cat "$kept/$name" 2>/dev/null || echo "$name not run"
    case " ${named:-$all} " in
    *" $name "*) grep -qs ' 0 failed' "$kept/$name" || status=1 ;;
    esac
done
exit $status
