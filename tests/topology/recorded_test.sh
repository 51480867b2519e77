#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# recorded_test.sh PYTHON FOLDER: make_machines.py writes each recorded machine
# of FOLDER again, byte for byte.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" "$2/make_machines.py" "$work"
for file in "$2"/*.xml; do
    cmp "$file" "$work/$(basename "$file")"
done
[ "$(ls "$work" | wc -l)" = "$(ls "$2"/*.xml | wc -l)" ]
