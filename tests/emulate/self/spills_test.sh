#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# spills_test.sh OBJECT: ptxas (OBJECT.ptxas, by scripts/ptxas_log.sh) has
# neither serialized wgmma nor spilled registers when the build compiled this
# object, for the architectures of the build. Prints what each kernel takes.
set -eu
grep -E 'Compiling entry|Used ' "$1.ptxas"
if grep -E 'serialized|[1-9][0-9]* bytes spill' "$1.ptxas"; then
    exit 1
fi
