/* SPDX-License-Identifier: Apache-2.0
 *
 * Row addresses. Element (batch i, head n, row r) of a tensor lies at
 *   strided: base + i * batch_stride + n * head_stride + r * row_stride
 *   pieces:  as strided within the piece that holds r, with r counted from
 *            the piece's row_begin
 *   packed:  base + (offset of the run + r - row_begin) * row_stride
 */
#include "attention/translate/view.h"
#include <sched.h>
#include "base/status.h"

static const ulyx_attention_piece_t *
piece_of(const struct uli_attn_view *view, int64_t row)
{
    int64_t low = 0, high = view->piece_count;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (uli_attn_piece_at(view, middle)->row_begin <= row)
            low = middle;
        else
            high = middle;
    }
    return uli_attn_piece_at(view, low);
}

/* Polls the flag, and yields the core after some polls: the thread that sets
 * the flag may need it. */
static void
wait_for_flag(struct uli_attn_call *call, const ulyx_attention_piece_t *piece)
{
    for (int64_t round = 0;; round++) {
        if (__atomic_load_n(piece->flag, __ATOMIC_ACQUIRE) >= piece->flag_value)
            return;
        if (atomic_load_explicit(&call->failed, memory_order_relaxed))
            return;
        if (round < 64)
            continue;
        sched_yield();
        if (uli_deadline_over(call->deadline)) {
            atomic_store(&call->failed, ULYX_ERR_TIMEOUT);
            return;
        }
    }
}

static struct uli_attn_span
span_of(struct uli_attn_call *call, const struct uli_attn_view *view,
    const struct uli_attn_run *run, int64_t row, int64_t end)
{
    struct uli_attn_span span = {NULL, view->row_stride, end - row};
    if (!view->given)
        return span;
    if (view->packed_rows >= 0) {
        span.data = view->base +
                    (run->offset + row - run->row_begin) * view->row_stride;
        return span;
    }
    if (!view->pieces) {
        span.data = view->base + run->batch * view->batch_stride +
                    run->head * view->head_stride + row * view->row_stride;
        return span;
    }
    const ulyx_attention_piece_t *piece = piece_of(view, row);
    bool own = piece->batch_stride || piece->row_stride || piece->head_stride;
    int64_t batch_stride = own ? piece->batch_stride : view->batch_stride;
    int64_t head_stride = own ? piece->head_stride : view->head_stride;
    span.stride = own ? piece->row_stride : view->row_stride;
    span.rows = uli_min(end, piece->row_begin + piece->rows) - row;
    span.data = (unsigned char *)piece->base + run->batch * batch_stride +
                run->head * head_stride +
                (row - piece->row_begin) * span.stride;
    if (piece->flag && !view->output)
        wait_for_flag(call, piece);
    return span;
}

struct uli_attn_span
uli_attn_q_span(struct uli_attn_call *call, enum uli_attn_tensor tensor,
    const struct uli_attn_run *run, int64_t row, int64_t end)
{
    return span_of(call, &call->views[tensor], run, row, end);
}

/* The first run of the list that is not before (head, batch, row). */
static int64_t
first_run_after(
    const struct uli_attn_runs *runs, int64_t head, int64_t batch, int64_t row)
{
    int64_t low = 0, high = runs->count;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        struct uli_attn_run run = uli_attn_run_at(runs, middle);
        bool after = run.head != head     ? run.head > head
                     : run.batch != batch ? run.batch > batch
                                          : run.row_end > row;
        if (after)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

struct uli_attn_span
uli_attn_k_span(struct uli_attn_call *call, enum uli_attn_tensor tensor,
    int64_t kv_head, int64_t batch, int64_t row, int64_t end)
{
    const struct uli_attn_runs *runs = &call->problem.k_runs;
    const struct uli_attn_view *view = &call->views[tensor];
    struct uli_attn_run run = {
        .head = kv_head, .batch = batch, .row_end = runs->rows};
    if (!runs->segments)
        return span_of(call, view, &run, row, end);
    struct uli_attn_span absent = {NULL, view->row_stride, end - row};
    int64_t index = first_run_after(runs, kv_head, batch, row);
    if (index == runs->count)
        return absent;
    run = uli_attn_run_at(runs, index);
    if (run.head != kv_head || run.batch != batch || run.row_begin >= end)
        return absent;
    if (run.row_begin > row) {
        absent.rows = run.row_begin - row;
        return absent;
    }
    return span_of(call, view, &run, row, uli_min(end, run.row_end));
}

void
uli_attn_signal_outputs(struct uli_attn_call *call)
{
    for (int t = 0; t < ULI_ATTN_TENSORS; t++) {
        const struct uli_attn_view *view = &call->views[t];
        if (!view->given || !view->output)
            continue;
        for (int64_t i = 0; i < view->piece_count; i++) {
            const ulyx_attention_piece_t *piece = uli_attn_piece_at(view, i);
            if (piece->flag)
                __atomic_store_n(
                    piece->flag, piece->flag_value, __ATOMIC_RELEASE);
        }
    }
}
