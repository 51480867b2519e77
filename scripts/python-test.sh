#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python-test.sh [PYTEST OPTIONS...]: runs the tests of the Python package with
# the library in build/. The tests of the core always run, in an environment
# under build/ that has only NumPy, pytest and mypy. The tests of ulyx.torch run
# if the environment of scripts/python-env.sh has PyTorch. The last line is
# "python: N passed".
set -eu
cd "$(dirname "$0")/.."
core=build/python-env
torch=${ULYX_PYTHON_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/ulyx/python-env}
log=build/python-test.log

export ULYX_LIBRARY="$PWD/build/src/libulyx.so" PYTHONPATH="$PWD/python"
unset ULYX_RANK ULYX_NRANKS ULYX_COMM_ID

# The environment is ready if both packages can be imported: an earlier
# installation may have been interrupted.
if ! "$core/bin/python" -c 'import numpy, pytest' 2>/dev/null; then
    rm -rf "$core"
    "${ULYX_PYTHON:-python3}" -m venv "$core"
    "$core/bin/python" -m pip install --quiet --disable-pip-version-check \
        numpy pytest
fi
"$core/bin/python" -c 'import mypy' 2>/dev/null ||
    "$core/bin/python" -m pip install --quiet --disable-pip-version-check mypy ||
    echo "python: mypy could not be installed: types are not checked"

passed=0
status=0
# run PYTHON TESTS...: runs tests, and adds the number that passed to $passed.
run()
{
    "$@" >"$log" 2>&1 || {
        status=1
        cat "$log"
    }
    grep -E '^SKIPPED' "$log" || true
    count=$(sed -n -E 's/^.*\b([0-9]+) passed.*$/\1/p' "$log" | tail -n 1)
    passed=$((passed + ${count:-0}))
}

run "$core/bin/python" -m pytest -q -p no:cacheprovider \
    --ignore-glob 'python/tests/with_*' "$@" python/tests
if "$torch/bin/python" -c 'import torch' 2>/dev/null; then
    run "$torch/bin/python" -m pytest -q -p no:cacheprovider "$@" \
        python/tests/with_torch
    emulated=$PWD/build/tests/emulate/python/libulyx_emulated.so
    if [ -e "$emulated" ]; then
        run env ULYX_LIBRARY="$emulated" "$torch/bin/python" -m pytest -q \
            -p no:cacheprovider "$@" python/tests/with_device
    else
        echo "python: no $emulated: the tests of device memory do not run"
    fi
    if "$torch/bin/python" -c 'import transformers' 2>/dev/null; then
        run "$torch/bin/python" -m pytest -q -p no:cacheprovider "$@" \
            python/tests/with_transformers
    else
        echo "python: no transformers in $torch: the tests of" \
            "ulyx.transformers do not run"
    fi
else
    echo "python: no PyTorch in $torch (scripts/python-env.sh installs it):" \
        "the tests of ulyx.torch do not run"
fi
[ "$passed" -gt 0 ] || status=1
echo "python: $passed passed"
exit $status
