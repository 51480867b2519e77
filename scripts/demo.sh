#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# demo.sh [ULYX_PERF OPTIONS...]: sets up, builds into build/, and sweeps the
# exchange of real models' attention over 4 local processes beside memcpy.
set -eu
cd "$(dirname "$0")/.."
./scripts/setup.sh
./scripts/build.sh build
exec build/bin/ulyx_perf --procs 4 --model all --quick --vs memcpy "$@"
