/* SPDX-License-Identifier: Apache-2.0
 *
 * Shapes and values that broke other attention kernels, each with its name:
 * empty and single rows, ragged tiles, documents without queries or keys, rows
 * without keys, softmax extremes, unequal dimensions. Both passes are compared
 * as in random cases. --full takes the lengths as reported where they are
 * longer.
 */
#include <stdio.h>
#include <string.h>
#include "attention/kernelcheck/kc.h"

#define DOCS_MAX 4

struct reported {
    const char *name;
    int64_t batch, len_q, len_k, heads_q, heads_kv, dim_qk, dim_v;
    ulyx_mask_kind_t mask;
    ulyx_mask_align_t align;
    int64_t left, right;
    double softcap, gain, sink;
    int docs;
    int64_t q[DOCS_MAX], k[DOCS_MAX]; /* lengths of consecutive documents */
    bool full;
};

#define CAUSAL ULYX_MASK_CAUSAL
#define WINDOW ULYX_MASK_WINDOW

static const struct reported cases[] = {
    {"one query, one key", 1, 1, 1, 2, 1, 64, 64, CAUSAL},
    {"one query, logits of -thousands", 1, 1, 9, 1, 1, 64, 64, .gain = 900},
    {"one query of a group, no rows", 2, 0, 7, 4, 1, 64, 64},
    {"queries without any key", 2, 9, 0, 4, 1, 64, 64},
    {"keys in no document", 1, 40, 40, 2, 1, 64, 64, CAUSAL, .docs = 2,
        .q = {9, 7}, .k = {9, 7}},
    {"document without queries", 1, 90, 90, 2, 1, 64, 64, CAUSAL, .docs = 3,
        .q = {30, 0, 60}, .k = {30, 25, 35}},
    {"document without keys", 1, 90, 90, 2, 1, 64, 64, CAUSAL, .docs = 3,
        .q = {30, 25, 35}, .k = {30, 0, 60}},
    {"causal documents with fewer keys than queries", 1, 150, 150, 2, 1, 64, 64,
        CAUSAL, .docs = 3, .q = {70, 40, 40}, .k = {20, 90, 10}},
    {"more queries than keys, bottom right", 1, 239, 30, 1, 1, 64, 64, CAUSAL},
    {"more queries than keys, top left", 1, 239, 30, 1, 1, 64, 64, CAUSAL,
        ULYX_ALIGN_TOP_LEFT},
    {"more keys than queries, top left", 1, 30, 239, 1, 1, 64, 64, CAUSAL,
        ULYX_ALIGN_TOP_LEFT},
    {"799 and 3", 1, 799, 3, 1, 1, 64, 64, CAUSAL},
    {"113 and 203", 1, 113, 203, 1, 1, 128, 128, CAUSAL},
    {"128 and 217", 1, 128, 217, 1, 1, 128, 128},
    {"length not a multiple of a tile", 1, 129, 129, 1, 1, 128, 128, CAUSAL},
    {"window of no neighbours", 1, 70, 70, 1, 1, 64, 64, WINDOW},
    {"softcap of saturated logits", 1, 70, 70, 1, 1, 64, 64, CAUSAL,
        .softcap = 5, .gain = 60},
    {"sink far above all scores", 1, 70, 70, 1, 1, 64, 64, CAUSAL, .sink = 90},
    {"sink far below all scores", 1, 70, 70, 1, 1, 64, 64, CAUSAL,
        .sink = -900},
    {"keys and values of other widths", 1, 65, 65, 3, 3, 192, 128, CAUSAL},
    {"dimension 512", 1, 65, 65, 2, 1, 512, 512, CAUSAL},
    {"dimension 8", 1, 65, 65, 1, 1, 8, 8, CAUSAL},
    {"one document of 7 tokens", 1, 7, 7, 2, 2, 64, 64, CAUSAL, .docs = 1,
        .q = {7}, .k = {7}},
    {"documents of 137, 541 and 89", 1, 767, 767, 1, 1, 64, 64, CAUSAL,
        .docs = 3, .q = {137, 541, 89}, .k = {137, 541, 89}},
    {"cross attention, 126 and 1300", 1, 126, 1300, 1, 1, 64, 64},
    {"documents of 137, 2041 and 89", 1, 2267, 2267, 4, 4, 64, 64, CAUSAL,
        .docs = 3, .q = {137, 2041, 89}, .k = {137, 2041, 89}, .full = true},
    {"cross attention, 126 and 6300", 1, 126, 6300, 8, 8, 64, 64, .full = true},
    {"mla_192_128_uneven", 1, 513, 513, 3, 3, 192, 128, CAUSAL, .full = true},
    {"gemma_512_256", 1, 640, 640, 8, 4, 512, 512, CAUSAL, .full = true},
};

static void
set_docs(struct kc_case *kc, const struct reported *r)
{
    int64_t begin[2][DOCS_MAX] = {{0}, {0}};
    for (int n = 1; n < r->docs; n++) {
        begin[0][n] = begin[0][n - 1] + r->q[n - 1];
        begin[1][n] = begin[1][n - 1] + r->k[n - 1];
    }
    if (r->docs == 0)
        return;
    kc_set_docs(kc, false, begin[0], r->q, r->docs);
    kc_set_docs(kc, true, begin[1], r->k, r->docs);
}

static ulyx_attention_t
problem_of(const struct reported *r, ulyx_dtype_t dtype)
{
    ulyx_attention_t p = ULYX_ATTENTION_INIT;
    p.dtype = dtype;
    p.param_dtype = ULYX_DTYPE_F32;
    p.batch = r->batch, p.len_q = r->len_q, p.len_k = r->len_k;
    p.heads_q = r->heads_q, p.heads_kv = r->heads_kv;
    p.dim_qk = r->dim_qk, p.dim_v = r->dim_v;
    p.mask = r->mask, p.align = r->align;
    p.window_left = r->left, p.window_right = r->right;
    p.softcap = r->softcap;
    return p;
}

static void
make_case(struct kc_case *kc, const struct reported *r, ulyx_dtype_t dtype,
    uint64_t seed)
{
    const ulyx_attention_t p = problem_of(r, dtype);
    struct test_random random = {seed};
    kc_simple(kc, &p, &random);
    if (r->gain > 0)
        kc_fill_random(kc, &random, r->gain);
    set_docs(kc, r);
    if (r->sink != 0) {
        float *sinks = kc_alloc(4 * p.heads_q);
        for (int64_t n = 0; n < p.heads_q; n++)
            sinks[n] = (float)r->sink;
        kc->sinks = sinks;
        kc->problem.sinks = sinks;
    }
    kc_solve(kc);
}

static bool
run_case(const struct reported *r, const char *kernel, ulyx_dtype_t dtype,
    uint64_t seed)
{
    struct kc_layout layout = {
        .kernel = kernel, .threads = 2, .pad = kc_pad(kernel, 1)};
    struct kc_case kc;
    bool ok = true;
    make_case(&kc, r, dtype, seed);
    for (int backward = kc_first_pass; backward < kc_passes && ok; backward++) {
        struct kc_result result;
        ok = kc_run(&kc, &kc.problem, &layout, backward, &result) &&
             kc_judge(&kc, &result, backward, false);
        kc_result_free(&result);
    }
    if (!ok)
        printf("  kernel %s, dtype %d: %s\n", kernel, dtype, r->name);
    kc_free(&kc);
    return ok;
}

void
kc_family_reported(
    const struct kc_options *options, const char *kernel, struct kc_tally *t)
{
    static const ulyx_dtype_t dtypes[] = {
        ULYX_DTYPE_F32, ULYX_DTYPE_BF16, ULYX_DTYPE_F16};
    bool slow = strcmp(kernel, "reference") == 0;
    for (size_t n = 0; n < sizeof(cases) / sizeof(cases[0]); n++) {
        if ((cases[n].full && !options->full) || slow)
            continue;
        for (int d = 0; d < 3; d++) {
            const ulyx_attention_t p = problem_of(&cases[n], dtypes[d]);
            if (!kc_takes_problem(kernel, &p) || (d == 2 && !options->full))
                continue;
            t->cases++;
            t->failed +=
                !run_case(&cases[n], kernel, dtypes[d], options->seed + n);
        }
    }
}
