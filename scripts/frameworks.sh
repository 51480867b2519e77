#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# frameworks.sh [PYTEST OPTIONS...]: the tests of ulyx under whole frameworks,
# which take minutes each: transformers' Trainer, TRL, DeepSpeed, Megatron. They
# run in the environment of scripts/python-env.sh (or ULYX_PYTHON_ENV), each where
# its framework is installed there; pip install what is missing. Megatron's core,
# of which one version is known to work, comes into a folder of its own under
# build/, beside the same PyTorch. Ends in a table.
set -eu
cd "$(dirname "$0")/.."
python=${ULYX_PYTHON_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/ulyx/python-env}/bin/python
megatron=$PWD/build/frameworks/megatron
export ULYX_LIBRARY="${ULYX_LIBRARY:-$PWD/build/src/libulyx.so}"
export PYTHONPATH="$PWD/python" ULYX_TEST_FRAMEWORKS=1
unset ULYX_RANK ULYX_NRANKS ULYX_COMM_ID

if ! "$python" -c 'import megatron.core' 2>/dev/null &&
    [ ! -d "$megatron/megatron" ]; then
    "$python" -m pip install --quiet --disable-pip-version-check --no-deps \
        --target "$megatron" megatron-core==0.16.1 ||
        echo "frameworks: megatron-core could not be installed" >&2
fi

status=0
table=
for folder in python/tests/with_*; do
    name=${folder#python/tests/with_}
    module=$name path=$PYTHONPATH
    if [ "$name" = megatron ]; then
        module=megatron.core path=$PYTHONPATH:$megatron
    fi
    version=$(PYTHONPATH=$path "$python" -W ignore -c \
        "import $module as found; print(found.__version__)" 2>/dev/null) || {
        table="$table
$name: not installed"
        continue
    }
    echo "== $name $version"
    result=$(PYTHONPATH=$path "$python" -m pytest -q -p no:cacheprovider "$@" \
        "$folder" | tee /dev/stderr | tail -n 1) || true
    case $result in
    *failed* | *error*) status=1 ;;
    esac
    table="$table
$name $version: $result"
done
printf '\nframework version: result%s\n' "$table"
exit $status
