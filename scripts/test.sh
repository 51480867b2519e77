#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test.sh [CTEST OPTIONS...]: installs missing packages, builds into build/ and
# runs the test suite; the summary of ctest comes last. Without options, the
# tests of the Python package run before.
set -eu
cd "$(dirname "$0")/.."
./scripts/setup.sh
# ULYX_CUDA_FULL=OFF: tests compile the kernels of all head dimensions, one by
# one.
./scripts/build.sh build -DULYX_CUDA_FULL=OFF
python=0
[ $# -gt 0 ] || ./scripts/python-test.sh || python=1
ctest --test-dir build -j2 --output-on-failure "$@" || exit
exit $python
