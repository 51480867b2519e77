/* SPDX-License-Identifier: Apache-2.0
 *
 * Random cases: odd, tiny and empty sizes, and every feature in every
 * combination.
 */
#include "attention/kernelcheck/kc.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/mask.h"

static int64_t
random_draw(struct test_random *random, int64_t low, int64_t high)
{
    return test_random_in(random, low, high);
}

static bool
random_chance(struct test_random *random, int percent)
{
    return random_draw(random, 0, 99) < percent;
}

static int64_t
draw_len(struct test_random *random, int64_t max)
{
    static const int64_t odd[] = {0, 1, 2, 3, 7, 17, 31, 32, 33, 63, 64, 65,
        113, 127, 128, 129, 203, 239, 255, 256, 257};
    if (random_chance(random, 50)) {
        int64_t len = odd[random_draw(random, 0, 20)];
        return len < max ? len : max;
    }
    return random_draw(random, 0, max);
}

static void
draw_dims(ulyx_attention_t *p, struct test_random *random,
    const struct kc_preference *preference)
{
    static const int64_t dims[][2] = {{64, 64}, {128, 128}, {80, 80}, {96, 96},
        {192, 128}, {256, 256}, {8, 8}, {40, 40}, {16, 72}, {72, 24}, {8, 64},
        {128, 8}, {512, 512}, {144, 200}};
    int64_t n = random_chance(random, 60) ? random_draw(random, 0, 4)
                                          : random_draw(random, 0, 13);
    /* Dimensions that are multiples of nothing. With large logits the columns
     * of a row share the error of its scores. A block of few columns then has
     * too few independent errors for the tolerance rule, for every kernel: 1 of
     * 200 draws with dimensions 8 to 40 fails. */
    bool any = preference->logit_gain <= 1 && random_chance(random, 25);
    p->dim_qk = any ? random_draw(random, 1, 40) : dims[n][0];
    p->dim_v = any ? random_draw(random, 1, 40) : dims[n][1];
    if (!preference->dim_qk)
        return;
    p->dim_qk = preference->dim_qk;
    p->dim_v = preference->dim_v;
}

static void
draw_heads(struct kc_case *kc, struct test_random *random, bool plain)
{
    static const int64_t heads[][2] = {
        {1, 1}, {2, 2}, {3, 3}, {2, 1}, {4, 2}, {4, 1}, {6, 2}, {7, 1}};
    ulyx_attention_t *p = &kc->problem;
    int64_t n = random_draw(random, 0, 7);
    p->heads_q = heads[n][0];
    p->heads_kv = heads[n][1];
    p->heads_global = p->heads_q;
    if (plain || random_chance(random, 50))
        return;
    p->heads_global = p->heads_q + random_draw(random, 0, 5);
    p->head_offset = random_draw(random, 0, p->heads_global - p->heads_q);
    if (random_chance(random, 30)) {
        kc->head_ids = kc_alloc(8 * p->heads_q);
        for (int64_t i = 0; i < p->heads_q; i++)
            kc->head_ids[i] = p->heads_global - 1 - i;
        p->head_ids = kc->head_ids;
    }
    if (random_chance(random,
            30)) { /* any map, also with KV heads that no query head reads */
        p->heads_kv = random_draw(random, 1, 4);
        kc->kv_map = kc_alloc(8 * p->heads_q);
        for (int64_t i = 0; i < p->heads_q; i++)
            kc->kv_map[i] = random_draw(random, 0, p->heads_kv - 1);
        p->kv_map = kc->kv_map;
    }
}

static void
draw_mask(ulyx_attention_t *p, struct test_random *random)
{
    p->mask = (ulyx_mask_kind_t)random_draw(random, 0, ULI_MASKS - 1);
    p->align = (ulyx_mask_align_t)random_draw(random, 0, 1);
    if (p->mask == ULYX_MASK_WINDOW) {
        p->window_left = random_chance(random, 20) ? ULYX_UNBOUNDED
                         : random_chance(random, 20)
                             ? INT64_MAX - 2
                             : random_draw(random, 0, p->len_k / 2 + 2);
        p->window_right = random_chance(random, 20) ? ULYX_UNBOUNDED
                          : random_chance(random, 40)
                              ? 0
                              : random_draw(random, 0, p->len_k / 2 + 2);
    }
    if (random_chance(random, 25))
        p->diagonal = random_draw(random, -p->len_k / 2, p->len_k / 2);
    if (random_chance(random, 2))
        p->diagonal = random_chance(random, 50) ? INT64_MAX : INT64_MIN;
}

static void
draw_parameters(struct kc_case *kc, struct test_random *random)
{
    ulyx_attention_t *p = &kc->problem;
    if (random_chance(random, 30))
        p->scale = 0.02 + 0.2 * test_random_unit(random);
    if (random_chance(random, 25))
        p->softcap = 1 + 30 * test_random_unit(random);
    if (random_chance(random, 30)) {
        float *sinks = kc_alloc(4 * p->heads_global);
        double size = random_chance(random, 20) ? 60 : 2;
        for (int64_t n = 0; n < p->heads_global; n++)
            sinks[n] = (float)(size * test_random_normal(random));
        p->sinks = kc->sinks = sinks;
    }
    /* beyond distances of 2^24 / slope, lse contains nothing of the scores */
    bool near = p->diagonal < 1 << 20 && p->diagonal > -(1 << 20);
    if (near && random_chance(random, 30)) {
        float *slopes = kc_alloc(4 * p->heads_global);
        for (int64_t n = 0; n < p->heads_global; n++)
            slopes[n] = random_chance(random, 25)
                            ? 0
                            : (float)exp2(-8.0 * test_random_unit(random));
        p->alibi_slopes = kc->slopes = slopes;
    }
}

static void
put_index(void *array, int32_t bytes, int64_t n, int64_t value)
{
    if (bytes == 8)
        ((int64_t *)array)[n] = value;
    else
        ((int32_t *)array)[n] = (int32_t)value;
}

/* Cuts an axis into `count` documents, each inside one batch item. Between
 * documents there are gaps, unless `cumulative`. */
static void
draw_axis(const ulyx_attention_t *p, struct test_random *random, int64_t count,
    int64_t len, bool cumulative, int32_t bytes, ulyx_docs_t *docs,
    void **arrays)
{
    int64_t at = 0, end = p->batch * len;
    arrays[0] = kc_alloc(bytes * (count + 1));
    arrays[1] = kc_alloc(bytes * (count + 1));
    for (int64_t n = 0; n < count; n++) {
        if (!cumulative && random_chance(random, 40))
            at += random_draw(random, 0, (end - at) / 4);
        int64_t left = len ? (at / len + 1) * len - at : 0;
        left = left < end - at ? left : end - at;
        int64_t rows = random_chance(random, 10) ? 0
                       : random_chance(random, 30)
                           ? left
                           : random_draw(random, 0, left);
        put_index(arrays[0], bytes, n, at);
        put_index(arrays[1], bytes, n, rows);
        at += rows;
    }
    put_index(arrays[0], bytes, count, at);
    docs->size = sizeof(*docs);
    docs->count = count;
    docs->index_bytes = bytes;
    docs->begin = arrays[0];
    docs->length = cumulative ? NULL : arrays[1];
}

static void
draw_docs(struct kc_case *kc, struct test_random *random)
{
    ulyx_attention_t *p = &kc->problem;
    int64_t count = random_draw(random, 0, 6);
    bool cumulative = random_chance(random, 40);
    int32_t bytes = random_chance(random, 50) ? 4 : 8;
    draw_axis(p, random, count, p->len_q, cumulative, bytes, &kc->docs_q,
        &kc->docs_arrays[0]);
    p->docs_q = &kc->docs_q;
    if (p->len_q == p->len_k && random_chance(random, 60))
        return;
    draw_axis(p, random, count, p->len_k, random_chance(random, 40), 12 - bytes,
        &kc->docs_k, &kc->docs_arrays[2]);
    p->docs_k = &kc->docs_k;
}

/* Appends the maximal runs of marked rows to a list, with consecutive
 * offsets. */
static int64_t
append_runs(ulyx_segment_t *list, int64_t count, int64_t head, int64_t batch,
    const unsigned char *marks, int64_t rows, int64_t *offset)
{
    for (int64_t r = 0; r < rows; r++) {
        if (!marks[r])
            continue;
        int64_t end = r;
        while (end < rows && marks[end])
            end++;
        list[count++] = (ulyx_segment_t){head, batch, r, end, *offset};
        *offset += end - r;
        r = end;
    }
    return count;
}

static void
mark_keys(
    const struct kc_case *kc, int64_t kv, int64_t batch, unsigned char *marks)
{
    const ulyx_attention_t *p = &kc->problem;
    memset(marks, 0, (size_t)p->len_k);
    for (int64_t s = 0; s < p->q_segment_count; s++) {
        const ulyx_segment_t *seg = &kc->q_segments[s];
        int64_t reads = p->kv_map ? p->kv_map[seg->head]
                                  : seg->head * p->heads_kv / p->heads_q;
        for (int64_t i = seg->row_begin; reads == kv && i < seg->row_end; i++)
            for (int64_t j = 0; j < p->len_k; j++)
                if (!marks[j] && kc_sees(kc, seg->batch, i, batch, j))
                    marks[j] = 1;
    }
}

/* Draws a rank's share of a BALANCED plan: a run of the (head, batch, row)
 * space, and the keys that are visible to its rows. */
static void
draw_segments(struct kc_case *kc, struct test_random *random)
{
    ulyx_attention_t *p = &kc->problem;
    int64_t total = p->heads_q * p->batch * p->len_q;
    int64_t a = random_draw(random, 0, total),
            b = random_draw(random, 0, total);
    int64_t low = a < b ? a : b, high = a < b ? b : a, offset = 0;
    int64_t most = p->heads_kv * p->batch * (p->len_k + 1) + 1;
    unsigned char *marks = kc_alloc(p->len_k);
    kc->q_segments =
        kc_alloc((p->heads_q * p->batch + 1) * (int64_t)sizeof(ulyx_segment_t));
    kc->k_segments = kc_alloc(most * (int64_t)sizeof(ulyx_segment_t));
    for (int64_t n = 0; n < p->heads_q * p->batch; n++) {
        int64_t first = low - n * p->len_q, end = high - n * p->len_q;
        first = first < 0 ? 0 : first;
        end = end > p->len_q ? p->len_q : end;
        if (first >= end)
            continue;
        kc->q_segments[p->q_segment_count++] =
            (ulyx_segment_t){n / p->batch, n % p->batch, first, end, offset};
        offset += end - first;
    }
    offset = 0;
    for (int64_t n = 0; n < p->heads_kv * p->batch; n++) {
        mark_keys(kc, n / p->batch, n % p->batch, marks);
        p->k_segment_count = append_runs(kc->k_segments, p->k_segment_count,
            n / p->batch, n % p->batch, marks, p->len_k, &offset);
    }
    kc->partial = true;
    free(marks);
}

void
kc_generate(struct kc_case *kc, struct test_random *random,
    const struct kc_preference *preference)
{
    ulyx_attention_t init = ULYX_ATTENTION_INIT;
    memset(kc, 0, sizeof(*kc));
    kc->problem = init;
    ulyx_attention_t *p = &kc->problem;
    p->dtype = preference->dtype;
    p->param_dtype = ULYX_DTYPE_F32;
    p->batch = random_chance(random, 3) ? 0 : random_draw(random, 1, 3);
    p->len_q = draw_len(random, preference->max_len);
    p->len_k = random_chance(random, 50)
                   ? p->len_q
                   : draw_len(random, preference->max_len);
    draw_dims(p, random, preference);
    draw_heads(kc, random, preference->plain);
    draw_mask(p, random);
    if (!preference->plain) {
        draw_parameters(kc, random);
        if (random_chance(random, 40))
            draw_docs(kc, random);
        if (random_chance(random, 30) && !preference->no_segments)
            draw_segments(kc, random);
    }
    kc_alloc_values(kc);
    kc_fill_random(
        kc, random, preference->logit_gain > 0 ? preference->logit_gain : 1);
    if (kc->q_segments) {
        p->q_segments = kc->q_segments;
        p->k_segments = kc->k_segments;
    }
}

void
kc_describe(const struct kc_case *kc, char *text_p, int64_t bytes)
{
    const ulyx_attention_t *p = &kc->problem;
    snprintf(text_p, (size_t)bytes,
        "dtype %d b %lld q %lld k %lld h %lld/%lld d %lld/%lld mask %d align "
        "%d window (%lld, %lld) diagonal %lld scale %g cap %g%s%s%s%s%s",
        p->dtype, (long long)p->batch, (long long)p->len_q, (long long)p->len_k,
        (long long)p->heads_q, (long long)p->heads_kv, (long long)p->dim_qk,
        (long long)p->dim_v, p->mask, p->align, (long long)p->window_left,
        (long long)p->window_right, (long long)p->diagonal, p->scale,
        p->softcap, p->docs_q ? " docs" : "", p->docs_k ? " docs_k" : "",
        p->sinks ? " sinks" : "", p->alibi_slopes ? " alibi" : "",
        p->q_segments ? " segments" : "");
}
