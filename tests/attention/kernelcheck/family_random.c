/* SPDX-License-Identifier: Apache-2.0
 *
 * Random cases compared with the reference by the tolerance rule: normal data,
 * and logits thirty times as large.
 */
#include <stdio.h>
#include "attention/kernelcheck/kc.h"

static const ulyx_dtype_t dtypes[] = {
    ULYX_DTYPE_F32, ULYX_DTYPE_BF16, ULYX_DTYPE_F16, ULYX_DTYPE_F64};

static struct kc_layout
draw_layout(struct test_random *random, const char *kernel)
{
    struct kc_layout layout = {.kernel = kernel};
    layout.strides = (enum kc_strides)test_random_in(random, 0, KC_STRIDES - 1);
    int64_t pad = test_random_in(random, 0, 3);
    layout.pad = pad == 3 ? 24 : kc_pad(kernel, pad);
    layout.pieces = test_random_in(random, 0, 3) == 0
                        ? (int)test_random_in(random, 1, 5)
                        : 0;
    layout.threads = (int)test_random_in(random, 1, 3);
    layout.give_delta = test_random_in(random, 0, 1);
    layout.wide_kv = test_random_in(random, 0, 1);
    layout.no_lse = test_random_in(random, 0, 3) == 0;
    layout.no_max = test_random_in(random, 0, 3) == 0;
    return layout;
}

static bool
run_case(const struct kc_case *kc, const struct kc_layout *layout)
{
    bool ok = true;
    for (int backward = kc_first_pass; backward < kc_passes && ok; backward++) {
        struct kc_result result;
        ok = kc_run(kc, &kc->problem, layout, backward, &result) &&
             kc_judge(kc, &result, backward, false);
        kc_result_free(&result);
    }
    if (!ok) {
        char text[512];
        kc_describe(kc, text, sizeof(text));
        printf("  kernel %s: %s\n", layout->kernel, text);
    }
    return ok;
}

static void
random_cases(const struct kc_options *options, const char *kernel,
    int64_t draws, int64_t max_len, double gain, struct kc_tally *t)
{
    draws = kc_draws(options, draws);
    for (int d = 0; d < 4; d++) {
        if (!kc_takes(kernel, dtypes[d]))
            continue;
        for (int64_t n = 0; n < draws; n++) {
            struct test_random random = {
                options->seed + (uint64_t)(n * 8 + d) * 7919};
            struct kc_preference preference = {.dtype = dtypes[d],
                .dim_qk = options->dim_qk,
                .dim_v = options->dim_v,
                .max_len = max_len,
                .logit_gain = gain};
            struct kc_case kc;
            kc_generate(&kc, &random, &preference);
            if (!kc_takes_problem(kernel, &kc.problem)) {
                kc_free(&kc);
                continue;
            }
            kc_solve(&kc);
            struct kc_layout layout = draw_layout(&random, kernel);
            t->cases++;
            if (!run_case(&kc, &layout)) {
                printf("  seed %llu, draw %lld of dtype %d\n",
                    (unsigned long long)options->seed, (long long)n, dtypes[d]);
                t->failed++;
            }
            kc_free(&kc);
        }
    }
}

void
kc_family_random(
    const struct kc_options *options, const char *kernel, struct kc_tally *t)
{
    random_cases(options, kernel, 40, 100, 0, t);
    random_cases(options, kernel, 8, 300, 0, t);
}

void
kc_family_large_logits(
    const struct kc_options *options, const char *kernel, struct kc_tally *t)
{
    random_cases(options, kernel, 10, 140, 30, t);
}
