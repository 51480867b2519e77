#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cuda-tools.sh NAME [NVCC]: prints where nvdisasm or cuobjdump, which read
# machine code, is: on PATH, beside nvcc, or where --install has put it; nothing
# where it is not.
# cuda-tools.sh --install: where there is nvcc and one of them is missing, both
# from PyPI into ULYX_CUDA_TOOLS, or ~/.cache/ulyx/cuda-tools (31 MB); silent
# where nothing is missing or there is no nvcc. Exit 1: they cannot be installed.
set -eu
folder=${ULYX_CUDA_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/ulyx/cuda-tools}

# find NAME NVCC
find_tool() {
    command -v "$1" && return
    for place in "$(dirname "$2")" /usr/local/cuda/bin \
        "$folder"/lib/python3*/site-packages/nvidia/*/bin; do
        if [ -x "$place/$1" ]; then
            echo "$place/$1"
            return
        fi
    done
}

if [ "$1" != --install ]; then
    find_tool "$1" "${2:-nvcc}"
    exit 0
fi

nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc || true)
[ -n "$nvcc" ] || exit 0
[ -n "$(find_tool nvdisasm "$nvcc")" ] &&
    [ -n "$(find_tool cuobjdump "$nvcc")" ] && exit 0
echo "setup: installing nvdisasm and cuobjdump into $folder"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { mkdir -p "$folder" && python3 -m venv "$folder" &&
    "$folder/bin/python" -m pip install --quiet --disable-pip-version-check \
        nvidia-cuda-nvdisasm nvidia-cuda-cuobjdump; } >"$log" 2>&1; then
    cat "$log" >&2
    echo "setup: nvdisasm and cuobjdump are not installed; tests that count" \
        "machine code are skipped" >&2
    exit 1
fi
