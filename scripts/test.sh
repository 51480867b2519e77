#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# test.sh [CTEST OPTIONS...]: sets up, builds into build/ and runs the test
# suite; ctest has the last word.
set -eu
cd "$(dirname "$0")/.."
./scripts/setup.sh
./scripts/build.sh build
exec ctest --test-dir build -j2 --output-on-failure "$@"
