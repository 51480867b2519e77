#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# coverage.sh [CTEST OPTIONS...]: runs the test suite in an instrumented build,
# and prints the share of lines and branches of src/ that the tests reach; the
# table by file is build-coverage/coverage.txt.
set -eu
cd "$(dirname "$0")/.."
command -v gcovr >/dev/null || {
    echo "coverage: gcovr is not installed (apt-get install gcovr)" >&2
    exit 1
}
./scripts/setup.sh
./scripts/build.sh build-coverage -DULYX_COVERAGE=ON -DCMAKE_BUILD_TYPE=Debug \
    -DULYX_CUDA=OFF
find build-coverage -name '*.gcda' -delete
status=0
ctest --test-dir build-coverage -j2 --output-on-failure "$@" || status=$?
gcovr --root . --filter src/ --exclude-unreachable-branches \
    --exclude-throw-branches --gcov-ignore-parse-errors \
    --txt build-coverage/coverage.txt --print-summary build-coverage
exit $status
