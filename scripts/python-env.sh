#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# python-env.sh [PACKAGE...]: makes, once, the Python environment in which the
# tests of ulyx.torch run, with PyTorch, transformers and what else is named.
# PyPI's PyTorch brings 5.6 GB of CUDA libraries, so nothing calls this by itself,
# and it looks for room first. The folder is ULYX_PYTHON_ENV, or
# ~/.cache/ulyx/python-env. ULYX_PYTHON is the interpreter (python3).
set -eu
folder=${ULYX_PYTHON_ENV:-${XDG_CACHE_HOME:-$HOME/.cache}/ulyx/python-env}
python=${ULYX_PYTHON:-python3}
needed_mb=12000 # archives and what they unpack to

if [ ! -x "$folder/bin/python" ]; then
    mkdir -p "$folder"
    free_mb=$(df -Pm "$folder" | awk 'NR == 2 { print $4 }')
    if [ "$free_mb" -lt "$needed_mb" ]; then
        echo "python-env: $folder has room for $free_mb MB, and PyTorch takes" \
            "$needed_mb while it is installed; ULYX_PYTHON_ENV names another" \
            "place" >&2
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
