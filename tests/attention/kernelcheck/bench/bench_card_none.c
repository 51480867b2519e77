/* SPDX-License-Identifier: Apache-2.0
 *
 * --bench --vs torch where there is nothing to run on a card.
 */
#include <stdio.h>
#include "attention/kernelcheck/bench/bench_card.h"

int
kc_bench_card(const struct kc_options *options)
{
    (void)options;
    printf("kernelcheck --bench --vs torch: skipped: built without CUDA\n");
    return 77;
}
