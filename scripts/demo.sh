#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# demo.sh [ULYX_PERF OPTIONS...]: installs the packages that it needs, and
# builds the library and programs into build-demo/. Then it times the exchange
# of the attention of real models between 4 local processes, compared with
# memcpy, and trains a small model on 4 ranks and on 1 rank, with equal losses.
# Takes about a minute on 2 cores; the last line sums up.
set -eu
cd "$(dirname "$0")/.."
folder=build-demo
begun=$(date +%s)

step()
{
    echo
    echo "demo: $1 ($(($(date +%s) - begun)) s so far)"
}

# The library for host memory, its tools and examples; no tests.
step "1 of 4: packages and build"
./scripts/setup.sh demo
./scripts/build.sh $folder -DBUILD_TESTING=OFF -DULYX_CUDA=OFF -DULYX_MPI=OFF

step "2 of 4: the exchange of real models' attention, each element checked"
rm -f $folder/demo-sweep-ended
{
    $folder/bin/ulyx_perf --procs 4 --model all --quick --vs memcpy "$@"
    : >$folder/demo-sweep-ended # not made when ulyx_perf fails
} | tee $folder/demo-sweep.txt
[ -e $folder/demo-sweep-ended ] || { echo "demo: the sweep failed"; exit 1; }
summary=$(sed -n 's/^# Summary: //p' $folder/demo-sweep.txt | tail -n 1)
summary=${summary:-the sweep succeeded}

# train_bytes is built only with OpenBLAS, which setup.sh installs.
if [ -x $folder/bin/train_bytes ]; then
    steps=200
    number=3
    for ranks in 4 1; do
        log=$folder/demo-train-$ranks.txt
        step "$number of 4: train_bytes, $steps steps on $ranks rank(s)"
        $folder/bin/train_bytes --ranks $ranks --steps $steps --seq 512 \
            --dim 96 --layers 2 --lr 0.004 --rank-threads 1 >"$log"
        sed -n -e 2p -e '/^step/!{3,$p;}' "$log"
        echo "all losses are in $log"
        number=4
    done
    summary="$summary; largest relative difference of a loss, 4 ranks and 1: $(awk '
        $1 != "step" { next }
        FNR == NR { loss[$2] = $4; next }
        { apart = loss[$2] / $4 - 1; apart = apart < 0 ? -apart : apart
          if (apart > most) most = apart }
        END { printf "%.2g", most }' \
        $folder/demo-train-4.txt $folder/demo-train-1.txt)"
fi

echo
echo "demo: $summary; $(($(date +%s) - begun)) s"
