#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# cuda-tools.sh NAME [NVCC]: prints the path of NAME, which is nvdisasm or
# cuobjdump (these tools read machine code): from PATH, beside nvcc, or from
# where --install has put it; prints nothing if the tool is missing.
# cuda-tools.sh --install: if there is nvcc and one of the tools is missing,
# installs both from PyPI into ULYX_CUDA_TOOLS, or ~/.cache/ulyx/cuda-tools (31
# MB). Prints nothing if no tool is missing or there is no nvcc. Exit code 1:
# the tools cannot be installed.
set -eu
folder=${ULYX_CUDA_TOOLS:-${XDG_CACHE_HOME:-$HOME/.cache}/ulyx/cuda-tools}

# find_tool NAME NVCC
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
