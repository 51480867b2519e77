/* SPDX-License-Identifier: Apache-2.0
 *
 * Helpers without vectors, which the tile code of all instruction sets shares.
 */
#include "attention/kernels/tile.h"
#include <float.h>
#include <math.h>
#include <sched.h>
#include "attention/element.h"
#include "attention/translate/view.h"

#define LOG2_E 1.4426950408889634
#define LN_2   0.6931471805599453

struct uli_tile_head
uli_tile_head_of(const struct uli_attn_problem *problem, int64_t head)
{
    /* a cap beyond these bounds acts as the bound, in all digits */
    double cap = problem->softcap > 0
                     ? fmin(fmax(problem->softcap, 0x1p-60), 0x1p60)
                     : 0;
    struct uli_tile_head h = {.scale = (float)fmin(problem->scale, FLT_MAX),
        .cap = (float)cap,
        .slope = (float)uli_attn_slope(problem, head),
        .sink = uli_attn_sink(problem, head)};
    h.cap_inverse = h.cap > 0 ? (float)(1 / cap) : 0;
    h.transformed = h.cap > 0 || h.slope != 0;
    /* Never 0, because 0 times the -inf of a masked score is NaN; never inf,
     * because inf times a difference of 0 is NaN. */
    double factor = h.transformed ? LOG2_E : problem->scale * LOG2_E;
    h.factor = (float)fmin(fmax(factor, FLT_MIN), FLT_MAX);
    h.exact = factor;
    return h;
}

/* The distance |e - n| less the distance of the nearest key, with
 * e = i + off - j0. Where |e| is more than 2^20, the nearest key's distance is
 * subtracted from the excess in integers, so that the rest is exact in floats
 * for every key close to the nearest. */
struct uli_tile_alibi
uli_tile_alibi_of(const struct uli_attn_problem *problem,
    const struct uli_attn_doc *doc, int64_t i, int64_t j0)
{
    struct uli_tile_alibi alibi = {0, 0};
    if (uli_attn_visible_begin(problem, doc, i) >=
        uli_attn_visible_end(problem, doc, i))
        return alibi;
    int64_t e = uli_sat_sub(uli_sat_add(i, doc->off), j0);
    int64_t near = uli_min(uli_max(e, -(1 << 20)), 1 << 20);
    int64_t beyond = e > near ? uli_sat_sub(e, near) : uli_sat_sub(near, e);
    alibi.at = (float)near;
    alibi.plus = (float)uli_sat_sub(beyond, uli_tile_nearest(problem, doc, i));
    return alibi;
}

int64_t
uli_tile_nearest(const struct uli_attn_problem *problem,
    const struct uli_attn_doc *doc, int64_t i)
{
    int64_t at = uli_sat_add(i, doc->off);
    int64_t begin = uli_attn_visible_begin(problem, doc, i);
    int64_t end = uli_attn_visible_end(problem, doc, i);
    if (at < begin)
        return uli_sat_sub(begin, at);
    return at >= end ? uli_sat_sub(at, end - 1) : 0;
}

struct uli_tile_final
uli_tile_finish(
    const struct uli_tile_head *head, double max, double sum, double shift)
{
    struct uli_tile_final final = {0, head->sink, -INFINITY};
    if (max == -INFINITY && sum == 0)
        return final;
    double max2 = max * head->exact;
    double sink2 = (head->sink + shift) * LOG2_E;
    double top = sink2 > max2 ? sink2 : max2;
    double weight = exp2(max2 - top);
    double total = sum * weight + exp2(sink2 - top);
    final.factor = (float)(weight / total);
    final.lse = (top + log2(total)) * LN_2 - shift;
    final.max = max2 * LN_2 - shift;
    return final;
}

void
uli_tile_store_row(
    unsigned char *to, ulyx_dtype_t dtype, const float *values, int64_t count)
{
    uint16_t *halves = (uint16_t *)(void *)to;
    if (dtype == ULYX_DTYPE_F32)
        memcpy(to, values, (size_t)count * 4);
    else if (dtype == ULYX_DTYPE_BF16)
        for (int64_t c = 0; c < count; c++)
            halves[c] = uli_bf16_of_float(values[c]);
    else
        for (int64_t c = 0; c < count; c++)
            halves[c] = uli_f16_of_float(values[c]);
}

void
uli_tile_store_rows(struct uli_attn_call *call, enum uli_attn_tensor tensor,
    const struct uli_attn_run *run, int64_t row, int64_t rows,
    const float *values, int64_t ld)
{
    const struct uli_attn_view *view = &call->views[tensor];
    for (int64_t n = 0; n < rows;) {
        struct uli_attn_span span =
            uli_attn_q_span(call, tensor, run, row + n, row + rows);
        for (int64_t r = 0; r < span.rows; r++, n++)
            uli_tile_store_row(span.data + r * span.stride, view->dtype,
                values + n * ld, view->columns);
    }
}

void
uli_tile_store_lse(struct uli_attn_call *call, const struct uli_attn_run *run,
    int64_t row, double lse)
{
    struct uli_attn_span to =
        uli_attn_q_span(call, ULI_ATTN_LSE, run, row, row + 1);
    if (to.data)
        uli_element_store(to.data, call->views[ULI_ATTN_LSE].dtype, 0, lse);
}

void
uli_tile_store_empty(struct uli_attn_call *call, const struct uli_attn_run *run,
    int64_t row, int64_t rows, double lse)
{
    const float zeros[512] = {0};
    uli_tile_store_rows(call, ULI_ATTN_OUT, run, row, rows, zeros, 0);
    for (int64_t n = 0; n < rows; n++)
        uli_tile_store_lse(call, run, row + n, lse);
}

void
uli_tile_key_range(const struct uli_attn_problem *problem,
    const struct uli_attn_doc *doc, int64_t i, int64_t end, int64_t *first_p,
    int64_t *end_p)
{
    int64_t low = uli_attn_visible_begin(problem, doc, i);
    int64_t high = uli_attn_visible_end(problem, doc, end - 1);
    *first_p = low / ULI_TILE_KEYS;
    *end_p = low < high ? (high + ULI_TILE_KEYS - 1) / ULI_TILE_KEYS : *first_p;
}

/* The thread that has the turn runs, unless fewer cores are free than the call
 * has threads: then that thread may need this core, so this thread yields. */
void
uli_tile_await(struct uli_attn_call *call, _Atomic int32_t *turns, int32_t turn)
{
    for (int64_t round = 0;
         atomic_load_explicit(turns, memory_order_acquire) != turn; round++) {
        if (atomic_load_explicit(&call->failed, memory_order_relaxed))
            return;
        if (round > 200)
            sched_yield();
    }
}

struct uli_tile_readers
uli_tile_readers_of(const struct uli_attn_problem *problem,
    const struct uli_attn_doc *doc, int64_t kv)
{
    const struct uli_attn_runs *runs = &problem->q_runs;
    struct uli_tile_readers readers = {
        .kv = kv, .batch = doc->q_batch, .end = problem->heads_q};
    if (doc->q_rows == 0)
        readers.end = 0;
    else if (runs->segments)
        readers.end = runs->count;
    else if (!problem->kv_map && problem->heads_q) {
        int64_t group = problem->heads_q / problem->heads_kv;
        readers.next = kv * group;
        readers.end = readers.next + group;
    }
    return readers;
}

int64_t
uli_tile_next_reader(
    const struct uli_attn_problem *problem, struct uli_tile_readers *readers)
{
    const struct uli_attn_runs *runs = &problem->q_runs;
    while (readers->next < readers->end) {
        int64_t n = readers->next++;
        if (!runs->segments) {
            if (uli_attn_kv_head(problem, n) == readers->kv)
                return n * runs->batch + readers->batch;
            continue;
        }
        struct uli_attn_run run = uli_attn_run_at(runs, n);
        if (run.batch == readers->batch &&
            uli_attn_kv_head(problem, run.head) == readers->kv)
            return n;
    }
    return -1;
}
