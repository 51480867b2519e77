/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradients compared with finite differences: L = <dout, out> + <dlse, lse>
 * along a random direction of q, k, v and each sink. The differences are the
 * reference's in fp64. The gradient is the kernel's, in fp64 if the kernel
 * takes fp64, else in fp32, whose terms are as accurate as the differences.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include "attention/kernelcheck/kc.h"

static const double step = 1e-5;

static double
case_objective(const struct kc_case *kc)
{
    double sum = 0;
    for (int64_t n = 0; n < kc_count(&kc->values[KC_OUT].shape); n++)
        sum += kc->values[KC_OUT].at[n] * kc->values[KC_DOUT].at[n];
    const ulyx_attention_t *p = &kc->problem;
    for (int64_t n = 0; n < p->batch * p->heads_q * p->len_q; n++) {
        int64_t batch = n / (p->heads_q * p->len_q), at[4];
        if (kc_doc_of(kc, batch, n % p->len_q, at) >= 0 &&
            isfinite(kc->values[KC_LSE].at[n]))
            sum += kc->values[KC_LSE].at[n] * kc->values[KC_DLSE].at[n];
    }
    return sum;
}

/* Returns dL/ds along `direction` of one input, by the central difference. */
static double
case_difference(struct kc_case *kc, enum kc_name name, const double *direction)
{
    struct kc_values *values = &kc->values[name];
    int64_t count = kc_count(&values->shape);
    double objectives[2];
    for (int side = 0; side < 2; side++) {
        double by = side ? step : -step;
        for (int64_t n = 0; n < count; n++)
            values->at[n] += by * direction[n];
        kc_solve(kc);
        objectives[side] = case_objective(kc);
        for (int64_t n = 0; n < count; n++)
            values->at[n] -= by * direction[n];
    }
    return (objectives[1] - objectives[0]) / (2 * step);
}

/* Sinks are fp32, so the step is a power of two that they represent exactly. */
static double
sink_difference(struct kc_case *kc, int64_t head)
{
    float *sink = (float *)kc->sinks + head, before = *sink;
    double objectives[2];
    for (int side = 0; side < 2; side++) {
        *sink = before + (side ? 0x1p-14f : -0x1p-14f);
        kc_solve(kc);
        objectives[side] = case_objective(kc);
    }
    *sink = before;
    return (objectives[1] - objectives[0]) / 0x1p-13;
}

static bool
gradient_agrees(const char *what, double gradient, double truth, double scale)
{
    if (fabs(gradient - truth) <= 1e-6 * (scale + fabs(truth)))
        return true;
    printf("FAILED gradient of %s: %.12g, by differences %.12g\n", what,
        gradient, truth);
    return false;
}

static bool
check_tensor(struct kc_case *kc, enum kc_name name, enum kc_name gradient,
    const struct kc_result *result, struct test_random *random)
{
    int64_t count = kc_count(&kc->values[name].shape);
    double *direction = kc_alloc(8 * count);
    double along = 0, norm = 1;
    for (int64_t n = 0; n < count; n++) {
        direction[n] = test_random_normal(random);
        along += direction[n] * result->values[gradient].at[n];
        norm += fabs(direction[n] * result->values[gradient].at[n]);
    }
    bool ok = gradient_agrees(
        kc_names[name], along, case_difference(kc, name, direction), norm);
    free(direction);
    return ok;
}

static bool
check_case(struct kc_case *kc, const char *kernel, struct test_random *random)
{
    struct kc_layout layout = {.kernel = kernel, .threads = 1};
    struct kc_result result;
    kc_solve(kc);
    bool ok = kc_run(kc, &kc->problem, &layout, true, &result) &&
              check_tensor(kc, KC_Q, KC_DQ, &result, random) &&
              check_tensor(kc, KC_K, KC_DK, &result, random) &&
              check_tensor(kc, KC_V, KC_DV, &result, random);
    for (int64_t n = 0; ok && kc->sinks && n < kc->problem.heads_global; n++)
        ok = gradient_agrees(
            "sink", result.d_sink[n], sink_difference(kc, n), 10);
    kc_result_free(&result);
    return ok;
}

void
kc_family_gradient(
    const struct kc_options *options, const char *kernel, struct kc_tally *t)
{
    ulyx_dtype_t dtype =
        kc_takes(kernel, ULYX_DTYPE_F64) ? ULYX_DTYPE_F64 : ULYX_DTYPE_F32;
    if (!kc_takes(kernel, dtype))
        return;
    for (int64_t n = 0; n < kc_draws(options, 30); n++) {
        struct test_random random = {options->seed + 31337 * (uint64_t)n};
        struct kc_preference preference = {.dtype = dtype,
            .dim_qk = n % 3 ? 8 : 24,
            .dim_v = n % 2 ? 16 : 8,
            .max_len = 24,
            .no_segments = true};
        struct kc_case kc;
        kc_generate(&kc, &random, &preference);
        if (kc.sinks) /* exactly representable after a step */
            for (int64_t i = 0; i < kc.problem.heads_global; i++)
                ((float *)kc.sinks)[i] = (float)ldexp(
                    nearbyint(ldexp(((float *)kc.sinks)[i], 10)), -10);
        if (!kc_takes_problem(kernel, &kc.problem)) {
            kc_free(&kc);
            continue;
        }
        t->cases++;
        if (!check_case(&kc, kernel, &random)) {
            char text[512];
            kc_describe(&kc, text, sizeof(text));
            printf("  kernel %s draw %lld: %s\n", kernel, (long long)n, text);
            t->failed++;
        }
        kc_free(&kc);
    }
}
