/* SPDX-License-Identifier: Apache-2.0
 *
 * Pairs of calls whose results must be equal bit for bit; only the merge of two
 * halves of the keys may differ by rounding.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/kernelcheck/kc.h"

struct base {
    const char *kernel;
    ulyx_dtype_t dtype;
    struct test_random random;
    int64_t dim_qk, dim_v;
};

/* Sizes that leave ragged tiles on every kernel. Backward alone is requested
 * only on an emulated device, which would take minutes with the sizes for the
 * host. Its tiles have at most 64 rows, so smaller sizes leave ragged tiles
 * too. */
static const struct sizes {
    int64_t len, dim_qk, dim_v;
    int64_t begin[3], length[3]; /* the documents of a pack */
} both_passes = {211, 64, 64, {3, 70, 205}, {67, 130, 6}},
  backward_alone = {67, 24, 16, {3, 21, 65}, {18, 42, 2}};

static const struct sizes *
base_sizes(void)
{
    return kc_first_pass == 1 ? &backward_alone : &both_passes;
}

/* Makes a case of 2 batch items and 4 heads on 2 KV heads. */
static void
make_case(struct base *base, struct kc_case *kc, ulyx_mask_kind_t mask)
{
    const struct sizes *sizes = base_sizes();
    ulyx_attention_t p = ULYX_ATTENTION_INIT;
    p.dtype = base->dtype;
    p.batch = 2, p.heads_q = 4, p.heads_kv = 2;
    p.len_q = p.len_k = sizes->len;
    p.dim_qk = base->dim_qk, p.dim_v = base->dim_v;
    p.mask = mask;
    kc_simple(kc, &p, &base->random);
}

/* Runs both passes of two problems (and layouts) on one case. Returns whether
 * the bits are equal. */
static bool
base_agree(struct base *base, const char *what, struct kc_case *kc,
    const ulyx_attention_t *a, const ulyx_attention_t *b,
    const struct kc_layout *layout_b)
{
    struct kc_layout layout = {.kernel = base->kernel, .threads = 1};
    bool ok = true;
    for (int backward = kc_first_pass; backward < kc_passes && ok; backward++) {
        struct kc_result x, y;
        int first = backward ? KC_DQ : KC_OUT;
        int last = backward ? KC_DV : KC_LSE;
        ok = kc_run(kc, a, &layout, backward, &x);
        ok = kc_run(kc, b, layout_b ? layout_b : &layout, backward, &y) && ok;
        ok = ok &&
             kc_same(kc, what, &x, &y, (enum kc_name)first, (enum kc_name)last);
        kc_result_free(&x);
        kc_result_free(&y);
    }
    return ok;
}

static bool
causal_is_window(struct base *base)
{
    struct kc_case kc;
    make_case(base, &kc, ULYX_MASK_CAUSAL);
    kc_solve(&kc);
    ulyx_attention_t b = kc.problem, c = kc.problem;
    b.mask = c.mask = ULYX_MASK_WINDOW;
    b.window_left = ULYX_UNBOUNDED;
    c.window_left = c.len_q - 1;
    bool ok = base_agree(base, "causal and window (unbounded, 0)", &kc,
                  &kc.problem, &b, NULL) &&
              base_agree(base, "causal and window (S - 1, 0)", &kc, &kc.problem,
                  &c, NULL);
    kc_free(&kc);
    return ok;
}

static bool
one_document_is_plain(struct base *base)
{
    struct kc_case kc;
    make_case(base, &kc, ULYX_MASK_CAUSAL);
    kc_solve(&kc);
    ulyx_attention_t plain = kc.problem;
    int64_t len = kc.problem.len_q;
    const int64_t begin[2] = {0, len}, length[2] = {len, len};
    kc_set_docs(&kc, false, begin, length, 2);
    bool ok = base_agree(
        base, "one document and plain", &kc, &plain, &kc.problem, NULL);
    kc_free(&kc);
    return ok;
}

/* Copies rows [from, from + rows) of batch item 0 into a case of that length.
 */
static void
pack_cut(const struct kc_case *pack, struct kc_case *alone, int64_t from)
{
    for (int t = 0; t < KC_TENSORS; t++) {
        struct kc_values *to = &alone->values[t];
        for (int64_t n = 0; n < to->shape.heads; n++)
            memcpy(kc_row(to, 0, n, 0), kc_row(&pack->values[t], 0, n, from),
                (size_t)(to->shape.rows * to->shape.columns) * 8);
    }
}

static void
cut_result(const struct kc_result *pack, struct kc_result *part,
    const struct kc_case *alone, int64_t from)
{
    memset(part, 0, sizeof(*part));
    for (int t = 0; t < KC_TENSORS; t++) {
        if (!pack->values[t].at)
            continue;
        part->values[t].shape = alone->values[t].shape;
        struct kc_values *to = &part->values[t];
        to->at = kc_alloc(8 * kc_count(&to->shape));
        for (int64_t n = 0; n < to->shape.heads; n++)
            memcpy(kc_row(to, 0, n, 0), kc_row(&pack->values[t], 0, n, from),
                (size_t)(to->shape.rows * to->shape.columns) * 8);
    }
}

static bool
document_alone(struct base *base, const struct kc_case *pack, int64_t from,
    int64_t rows, const struct kc_result results[2])
{
    ulyx_attention_t p = pack->problem;
    struct kc_layout layout = {.kernel = base->kernel, .threads = 2};
    struct kc_case alone;
    p.docs_q = NULL;
    p.batch = 1;
    p.len_q = p.len_k = rows;
    kc_simple(&alone, &p, &base->random);
    pack_cut(pack, &alone, from);
    bool ok = true;
    for (int backward = kc_first_pass; backward < kc_passes && ok; backward++) {
        struct kc_result mine, part;
        cut_result(&results[backward], &part, &alone, from);
        ok = kc_run(&alone, &p, &layout, backward, &mine) &&
             kc_same(&alone, "document in a pack and alone", &part, &mine,
                 backward ? KC_DQ : KC_OUT, backward ? KC_DV : KC_LSE);
        kc_result_free(&mine);
        kc_result_free(&part);
    }
    kc_free(&alone);
    return ok;
}

static bool
pack_is_its_documents(struct base *base)
{
    struct kc_layout layout = {.kernel = base->kernel, .threads = 2};
    const struct sizes *sizes = base_sizes();
    struct kc_result results[2];
    struct kc_case kc;
    make_case(base, &kc, ULYX_MASK_CAUSAL);
    kc_set_docs(&kc, false, sizes->begin, sizes->length, 3);
    kc_solve(&kc);
    bool ok = true;
    memset(results, 0, sizeof(results));
    for (int backward = kc_first_pass; backward < kc_passes && ok; backward++)
        ok = kc_run(&kc, &kc.problem, &layout, backward, &results[backward]);
    for (int n = 0; n < 3 && ok; n++)
        ok = document_alone(
            base, &kc, sizes->begin[n], sizes->length[n], results);
    kc_result_free(&results[0]);
    kc_result_free(&results[1]);
    kc_free(&kc);
    return ok;
}

static bool
layouts_agree(struct base *base)
{
    bool ok = true;
    for (int n = 0; n < 8 && ok; n += kc_first_pass == 1 ? 3 : 1) {
        struct kc_layout layout = {.kernel = base->kernel,
            .strides = (enum kc_strides)(n % KC_STRIDES),
            .pad = kc_pad(base->kernel, n),
            .pieces = n < 4 ? 0 : n - 3,
            .threads = 1 + n % 4,
            .wide_kv = false};
        struct kc_case kc;
        make_case(base, &kc, n % 2 ? ULYX_MASK_CAUSAL : ULYX_MASK_NONE);
        kc_solve(&kc);
        ok = base_agree(base, "strides, pieces and threads", &kc, &kc.problem,
            &kc.problem, &layout);
        kc_free(&kc);
    }
    return ok;
}

/* Runs heads [from, from + 2) with their KV head, as one rank would hold
 * them. */
static bool
heads_alone(struct base *base, const struct kc_case *kc, int64_t from,
    const struct kc_result *whole, int backward)
{
    ulyx_attention_t p = kc->problem;
    struct kc_layout layout = {.kernel = base->kernel, .threads = 2};
    struct kc_result mine, part = {0};
    struct kc_case some;
    p.heads_q = 2, p.heads_kv = 1, p.head_offset = from;
    p.heads_global = 4;
    kc_simple(&some, &p, &base->random);
    for (int t = 0; t < KC_TENSORS; t++) {
        struct kc_values *to = &some.values[t];
        bool keys = to->shape.heads == 1;
        part.values[t].shape = to->shape;
        part.values[t].at = kc_alloc(8 * kc_count(&to->shape));
        size_t bytes = (size_t)(to->shape.rows * to->shape.columns) * 8;
        for (int64_t i = 0; i < to->shape.batch; i++)
            for (int64_t n = 0; n < to->shape.heads; n++) {
                int64_t head = (keys ? from / 2 : from) + n;
                memcpy(kc_row(to, i, n, 0), kc_row(&kc->values[t], i, head, 0),
                    bytes);
                if (whole->values[t].at)
                    memcpy(kc_row(&part.values[t], i, n, 0),
                        kc_row(&whole->values[t], i, head, 0), bytes);
            }
    }
    bool ok = kc_run(&some, &p, &layout, backward, &mine) &&
              kc_same(&some, "heads together and apart", &part, &mine,
                  backward ? KC_DQ : KC_OUT, backward ? KC_DV : KC_LSE);
    kc_result_free(&mine);
    kc_result_free(&part);
    kc_free(&some);
    return ok;
}

static bool
heads_split(struct base *base)
{
    struct kc_layout layout = {.kernel = base->kernel, .threads = 1};
    struct kc_case kc;
    bool ok = true;
    make_case(base, &kc, ULYX_MASK_CAUSAL);
    kc_solve(&kc);
    for (int backward = kc_first_pass; backward < kc_passes && ok; backward++) {
        struct kc_result whole;
        ok = kc_run(&kc, &kc.problem, &layout, backward, &whole) &&
             heads_alone(base, &kc, 0, &whole, backward) &&
             heads_alone(base, &kc, 2, &whole, backward);
        kc_result_free(&whole);
    }
    kc_free(&kc);
    return ok;
}

/* Copies all rows of `from` with batch items and KV heads in reverse order. The
 * query heads of one KV head keep their order, because dk and dv are summed in
 * it. */
static void
values_reverse(
    const struct kc_values *from, struct kc_values *to, int64_t kv_heads)
{
    const struct kc_shape *s = &from->shape;
    int64_t group = s->heads / kv_heads;
    for (int64_t i = 0; i < s->batch && from->at; i++)
        for (int64_t n = 0; n < s->heads; n++)
            memcpy(kc_row(to, s->batch - 1 - i,
                       (kv_heads - 1 - n / group) * group + n % group, 0),
                kc_row(from, i, n, 0), (size_t)(s->rows * s->columns) * 8);
}

/* With batch items and KV heads in reverse order, the results must be in
 * reverse order. */
static bool
order_is_free(struct base *base)
{
    struct kc_layout layout = {.kernel = base->kernel, .threads = 2};
    struct kc_case kc, other;
    bool ok = true;
    make_case(base, &kc, ULYX_MASK_CAUSAL);
    kc_solve(&kc);
    int64_t kv_heads = kc.values[KC_K].shape.heads;
    make_case(base, &other, ULYX_MASK_CAUSAL);
    for (int t = 0; t < KC_TENSORS; t++)
        values_reverse(&kc.values[t], &other.values[t], kv_heads);
    for (int backward = kc_first_pass; backward < kc_passes && ok; backward++) {
        struct kc_result x, y, back = {0};
        ok = kc_run(&kc, &kc.problem, &layout, backward, &x) &&
             kc_run(&other, &other.problem, &layout, backward, &y);
        for (int t = 0; ok && t < KC_TENSORS; t++) {
            back.values[t].shape = y.values[t].shape;
            back.values[t].at = kc_alloc(8 * kc_count(&y.values[t].shape));
            values_reverse(&y.values[t], &back.values[t], kv_heads);
        }
        ok = ok && kc_same(&kc, "batch and heads reversed", &x, &back,
                       backward ? KC_DQ : KC_OUT, backward ? KC_DV : KC_LSE);
        kc_result_free(&x);
        kc_result_free(&y);
        kc_result_free(&back);
    }
    kc_free(&kc);
    kc_free(&other);
    return ok;
}

/* Compares a rank's share of a BALANCED plan with all rows at once: out, lse,
 * dq. */
static bool
segments_agree(struct base *base)
{
    struct kc_layout layout = {.kernel = base->kernel, .threads = 2};
    const struct sizes *sizes = base_sizes();
    struct kc_preference preference = {.dtype = base->dtype,
        .dim_qk = base->dim_qk,
        .dim_v = base->dim_v,
        .max_len = sizes->len - 11};
    struct kc_case kc, all;
    do {
        kc_generate(&kc, &base->random, &preference);
        if (!kc.q_segments || kc.problem.q_segment_count == 0)
            kc_free(&kc);
    } while (!kc.q_segments);
    kc_solve(&kc);
    all = kc;
    all.problem.q_segments = all.problem.k_segments = NULL;
    all.q_segments = all.k_segments = NULL;
    bool ok = true;
    for (int backward = kc_first_pass; backward < kc_passes && ok; backward++) {
        struct kc_result part, whole;
        ok = kc_run(&kc, &kc.problem, &layout, backward, &part) &&
             kc_run(&all, &all.problem, &layout, backward, &whole) &&
             kc_same(&kc, "segments and whole heads", &part, &whole,
                 backward ? KC_DQ : KC_OUT, backward ? KC_DQ : KC_LSE);
        kc_result_free(&part);
        kc_result_free(&whole);
    }
    kc_free(&kc);
    return ok;
}

/* Compares two halves of the keys, merged by their lse, with all keys at
 * once. */
static bool
halves_merge(struct base *base)
{
    struct kc_layout layout = {.kernel = base->kernel, .threads = 1};
    struct kc_result whole, half[2];
    const int64_t q_begin[2] = {0, 211}, q_length[2] = {211, 211};
    struct kc_case kc;
    make_case(base, &kc, ULYX_MASK_NONE);
    bool ok = kc_run(&kc, &kc.problem, &layout, false, &whole);
    kc_set_docs(&kc, false, q_begin, q_length, 2);
    for (int n = 0; n < 2; n++) {
        const int64_t begin[2] = {n ? 100 : 0, n ? 311 : 211};
        const int64_t length[2] = {n ? 111 : 100, n ? 111 : 100};
        kc_set_docs(&kc, true, begin, length, 2);
        ok = kc_run(&kc, &kc.problem, &layout, false, &half[n]) && ok;
    }
    double limit = base->dtype == ULYX_DTYPE_BF16  ? 0.03
                   : base->dtype == ULYX_DTYPE_F16 ? 4e-3
                                                   : 1e-5;
    for (int64_t n = 0; ok && n < kc_count(&whole.values[KC_OUT].shape); n++) {
        int64_t row = n / kc.problem.dim_v;
        double a = half[0].values[KC_LSE].at[row];
        double b = half[1].values[KC_LSE].at[row];
        double w = 1 / (1 + exp(b - a));
        double merged = w * half[0].values[KC_OUT].at[n] +
                        (1 - w) * half[1].values[KC_OUT].at[n];
        ok = fabs(merged - whole.values[KC_OUT].at[n]) <= limit;
        if (!ok)
            printf("FAILED merge of key halves: element %lld is %.9g, whole "
                   "%.9g\n",
                (long long)n, merged, whole.values[KC_OUT].at[n]);
    }
    kc_result_free(&whole);
    kc_result_free(&half[0]);
    kc_result_free(&half[1]);
    kc_free(&kc);
    return ok;
}

/* The output is the same with and without the statistics. */
static bool
statistics_are_free(struct base *base)
{
    struct kc_case kc;
    struct kc_layout asks = {.kernel = base->kernel, .threads = 2};
    bool ok = true;
    make_case(base, &kc, ULYX_MASK_CAUSAL);
    kc_solve(&kc);
    for (int pieces = 0; pieces <= 3 && ok; pieces += 3) {
        struct kc_layout without = asks;
        struct kc_result x, y;
        asks.pieces = without.pieces = pieces;
        without.no_lse = without.no_max = true;
        ok = kc_run(&kc, &kc.problem, &asks, false, &x);
        ok = kc_run(&kc, &kc.problem, &without, false, &y) && ok;
        ok = ok && kc_same(&kc, "with and without lse", &x, &y, KC_OUT, KC_OUT);
        kc_result_free(&x);
        kc_result_free(&y);
    }
    kc_free(&kc);
    return ok;
}

void
kc_family_metamorphic(
    const struct kc_options *options, const char *kernel, struct kc_tally *t)
{
    /* the last two tests are of forward alone */
    static bool (*const tests[])(struct base *) = {causal_is_window,
        one_document_is_plain, pack_is_its_documents, layouts_agree,
        heads_split, order_is_free, segments_agree, halves_merge,
        statistics_are_free};
    size_t count = sizeof(tests) / sizeof(tests[0]);
    if (kc_first_pass == 1)
        count -= 2;
    static const ulyx_dtype_t dtypes[] = {
        ULYX_DTYPE_F32, ULYX_DTYPE_BF16, ULYX_DTYPE_F16, ULYX_DTYPE_F64};
    for (int d = 0; d < 4; d++) {
        bool slow = strcmp(kernel, "reference") == 0;
        if (!kc_takes(kernel, dtypes[d]) || (slow && d != 3))
            continue;
        if (options->draws < 10 && t->cases > 0)
            /* a short run takes only the first dtype that the kernel takes */
            break;
        for (size_t n = 0; n < count; n++) {
            bool asked = options->dim_qk > 0;
            struct base base = {kernel, dtypes[d],
                {options->seed + (uint64_t)n * 31 + (uint64_t)d},
                asked ? options->dim_qk : base_sizes()->dim_qk,
                asked ? options->dim_v : base_sizes()->dim_v};
            t->cases++;
            if (!tests[n](&base)) {
                printf("  kernel %s, dtype %d\n", kernel, dtypes[d]);
                t->failed++;
            }
        }
    }
}
