#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# demo.sh [ULYX_PERF OPTIONS...]: sets up, builds into build/, sweeps the
# exchange of real models' attention over 4 local processes beside memcpy, and
# trains a small model on 4 ranks and on 1: the losses are the same.
set -eu
cd "$(dirname "$0")/.."
./scripts/setup.sh
./scripts/build.sh build
build/bin/ulyx_perf --procs 4 --model all --quick --vs memcpy "$@"
[ -x build/bin/train_bytes ] || exit 0 # without OpenBLAS, said when configured

steps=200
for ranks in 4 1; do
    log=build/demo-train-$ranks.txt
    echo
    echo "train_bytes: $steps steps on $ranks rank(s), all losses in $log"
    build/bin/train_bytes --ranks $ranks --steps $steps --seq 512 --dim 96 \
        --layers 2 --lr 0.004 --rank-threads 1 >"$log"
    sed -n -e 2p -e '/^step/!{3,$p;}' "$log"
done
awk '$1 != "step" { next }
    FNR == NR { loss[$2] = $4; next }
    { apart = loss[$2] / $4 - 1; apart = apart < 0 ? -apart : apart
      if (apart > most) most = apart }
    END { printf "\nlargest difference of a loss, 4 ranks against 1: %.2g " \
        "of it\n", most }' build/demo-train-4.txt build/demo-train-1.txt
