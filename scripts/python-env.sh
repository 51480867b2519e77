#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python-env.sh [PACKAGE...]: makes, once, the Python environment for the tests
# of ulyx.torch, with PyTorch, transformers and the named packages. PyPI's
# PyTorch comes with 5.6 GB of CUDA libraries, so no other script calls this
# one, and it checks the free space first. The folder is ULYX_PYTHON_ENV, or
# ~/.cache/ulyx/python-env. ULYX_PYTHON is the interpreter (python3).
set -eu
folder=${ULYX_PYTHON_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/ulyx/python-env}
python=${ULYX_PYTHON:-python3}
needed_mb=12000 # archives, and the files unpacked from them

if [ ! -x "$folder/bin/python" ]; then
    mkdir -p "$folder"
    free_mb=$(df -Pm "$folder" | awk 'NR == 2 { print $4 }')
    if [ "$free_mb" -lt "$needed_mb" ]; then
        echo "python-env: $folder has $free_mb MB free, and the installation of" \
            "PyTorch needs $needed_mb; ULYX_PYTHON_ENV names another folder" >&2
        exit 1
    fi
    "$python" -m venv "$folder"
fi
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
    numpy pytest mypy torch transformers "$@"
"$folder/bin/python" - <<'PY'
import sys, torch, transformers
print(f"python-env: Python {sys.version.split()[0]}, torch {torch.__version__}, "
      f"transformers {transformers.__version__} in {sys.prefix}")
PY
