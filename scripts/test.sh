#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test.sh [CTEST OPTIONS...]: sets up, builds into build/ and runs the test
# suite; ctest has the last word. Without options the Python package's tests run
# as well, before it.
set -eu
cd "$(dirname "$0")/.."
./scripts/setup.sh
# Kernels of all head dimensions are compiled by tests, one by one.
./scripts/build.sh build -DULYX_CUDA_FULL=OFF
python=0
[ $# -gt 0 ] || ./scripts/python-test.sh || python=1
ctest --test-dir build -j2 --output-on-failure "$@" || exit
exit $python
