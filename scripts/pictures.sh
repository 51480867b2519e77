#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Makes the pictures of the documents with the programs of a build folder:
#
#   pictures.sh [BIN [OUT]]     (build/bin, docs/pictures)
#
# docs/pictures/sweep.csv was measured; its first lines have the command.
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
bin=${1:-$root/build/bin}
out=${2:-$root/docs/pictures}
pictures=$root/docs/pictures
machines=$root/tests/data/topology

if [ ! -x "$bin/ulyx_plot" ] || [ ! -x "$bin/ulyx_info" ]; then
  echo "pictures.sh: no ulyx_plot and ulyx_info in $bin: build them, or name" \
    "the folder that has them" >&2
  exit 1
fi
mkdir -p "$out"

"$bin/ulyx_plot" plan --ranks 4 --heads 14 --kv-heads 2 --dim 64 \
  -o "$out/layouts.svg"
"$bin/ulyx_plot" sweep "$pictures/sweep.csv" -o "$out/sweep.svg" \
  --note "$(sed -n 's/^# note: //p' "$pictures/sweep.csv")"
"$bin/ulyx_info" plan --nodes 1-16 --heads 128 --operation s2h,h2s --csv |
  "$bin/ulyx_plot" scaling - -o "$out/scaling.svg" \
    --shape "128 query heads, 8 KV heads of 128, 16 bits"
"$bin/ulyx_plot" topology --xml "$machines/hgx-h100-pcie-nics.xml" \
  --ranks 8 --nodes 2 -o "$out/topology.svg"
