#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fibre_aarch64_test.sh SOURCE-DIR: the fibre switch of aarch64, under qemu.
set -eu
for tool in aarch64-linux-gnu-gcc qemu-aarch64; do
    if ! command -v "$tool" >/dev/null; then
        echo "SKIPPED: no $tool"
        exit 77
    fi
done
program=$(mktemp)
trap 'rm -f "$program"' EXIT
aarch64-linux-gnu-gcc -std=gnu11 -O2 -D_GNU_SOURCE -static -I "$1/tests" \
    "$1/tests/emulate/self/fibre_test.c" "$1/tests/emulate/core/fibre.c" \
    "$1/tests/emulate/core/switch.S" -o "$program"
qemu-aarch64 "$program"
