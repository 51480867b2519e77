/* SPDX-License-Identifier: Apache-2.0
 *
 * kc_bench_card of builds that have nothing to run on a card.
 */
#include <stdio.h>
#include "attention/kernelcheck/bench/bench_card.h"

int
kc_bench_card(const struct kc_options *options)
{
    printf("kernelcheck --bench --vs %s: skipped: built without CUDA\n",
        options->vs);
    return 77;
}
