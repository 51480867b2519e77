/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of a pass on tensors laid out in memory. Every buffer has guards.
 * Everything that the call must write or must not read is filled with NaN
 * first, and every byte of an output buffer that is no element must be
 * unchanged afterwards.
 */
#include "attention/kernelcheck/kc.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/element.h"
#include "base/dtype.h"
#include "support/buffers.h"

#define PIECES_MAX 5

int64_t
kc_pad(const char *kernel, int64_t n)
{
    return (strcmp(kernel, "sm90") == 0 ? 16 : 8) * n;
}

/* A tensor in memory. Row (batch i, head n, row r) is found by strides, by
 * piece or, in a packed tensor, by segment. */
struct laid {
    ulyx_attention_tensor_t tensor;
    ulyx_attention_piece_t pieces[PIECES_MAX];
    struct test_buffer buffers[PIECES_MAX];
    int buffer_count; /* 0: the tensor lies in another tensor's buffer */
    uint64_t flags[PIECES_MAX];
    const ulyx_segment_t *segments; /* offsets count rows */
    int64_t segment_count;
    struct kc_shape shape;
    ulyx_dtype_t dtype;
};

struct session {
    const struct kc_case *kc;
    const struct kc_layout *layout;
    struct laid laid[KC_TENSORS];
    ulyx_segment_t *lists[2];
    struct test_buffer workspace;
    bool ok;
};

static unsigned char *
row_at(const struct laid *laid, int64_t i, int64_t n, int64_t r)
{
    const ulyx_attention_tensor_t *t = &laid->tensor;
    if (laid->segments) {
        for (int64_t s = 0; s < laid->segment_count; s++) {
            const ulyx_segment_t *seg = &laid->segments[s];
            if (seg->head == n && seg->batch == i && r >= seg->row_begin &&
                r < seg->row_end)
                return (unsigned char *)t->base +
                       (seg->offset + r - seg->row_begin) * t->row_stride;
        }
        return NULL;
    }
    for (int64_t s = 0; s < t->piece_count; s++) {
        const ulyx_attention_piece_t *p = &laid->pieces[s];
        if (r >= p->row_begin && r < p->row_begin + p->rows)
            return (unsigned char *)p->base + i * p->batch_stride +
                   n * p->head_stride + (r - p->row_begin) * p->row_stride;
    }
    return (unsigned char *)t->base + i * t->batch_stride + n * t->head_stride +
           r * t->row_stride;
}

/* Sets the strides of a block of `rows` rows in the requested order. Returns
 * the bytes of the block. */
static int64_t
set_strides(const struct kc_layout *layout, const struct kc_shape *shape,
    int64_t rows, int64_t row_bytes, int64_t *batch, int64_t *row,
    int64_t *head)
{
    int64_t unit = row_bytes + layout->pad;
    switch (layout->strides) {
    case KC_SBHD:
        *head = unit;
        *batch = unit * shape->heads + layout->pad;
        *row = *batch * shape->batch;
        break;
    case KC_BHSD:
        *row = unit;
        *head = unit * rows + layout->pad;
        *batch = *head * shape->heads;
        break;
    default:
        *head = unit;
        *row = unit * shape->heads + layout->pad;
        *batch = *row * rows;
        break;
    }
    return (unit + layout->pad) * shape->batch * shape->heads * rows +
           layout->pad * (rows * shape->batch + shape->heads * shape->batch);
}

static int64_t
list_rows(const ulyx_segment_t *list, int64_t count)
{
    return count ? list[count - 1].offset + list[count - 1].row_end -
                       list[count - 1].row_begin
                 : 0;
}

static void
lay_packed(struct laid *laid, const struct kc_layout *layout, int64_t bytes)
{
    int64_t rows = list_rows(laid->segments, laid->segment_count);
    laid->tensor.row_stride = bytes + layout->pad;
    test_buffer_init(
        &laid->buffers[0], (size_t)(rows * laid->tensor.row_stride), 0);
    laid->tensor.base = laid->buffers[0].data;
    laid->buffer_count = 1;
}

static void
lay_pieces(struct laid *laid, const struct kc_layout *layout, int64_t bytes)
{
    int64_t at = 0;
    int count = layout->pieces;
    for (int n = 0; n < count; n++) {
        ulyx_attention_piece_t *p = &laid->pieces[n];
        int64_t rows =
            n + 1 < count ? (laid->shape.rows - at) / 3 : laid->shape.rows - at;
        p->row_begin = at;
        p->rows = rows;
        int64_t size = set_strides(layout, &laid->shape, rows, bytes,
            &p->batch_stride, &p->row_stride, &p->head_stride);
        test_buffer_init(&laid->buffers[n], (size_t)size, 0);
        p->base = laid->buffers[n].data;
        p->flag = &laid->flags[n];
        p->flag_value = 7;
        at += rows;
    }
    laid->buffer_count = count;
    laid->tensor.pieces = laid->pieces;
    laid->tensor.piece_count = count;
    laid->tensor.piece_size = sizeof(laid->pieces[0]);
}

static void
session_lay(struct session *s, enum kc_name name, ulyx_dtype_t dtype)
{
    struct laid *laid = &s->laid[name];
    const ulyx_attention_t *p = &s->kc->problem;
    bool keys = name == KC_K || name == KC_V || name == KC_DK || name == KC_DV;
    ulyx_attention_tensor_t init = ULYX_ATTENTION_TENSOR_INIT;
    laid->tensor = init;
    laid->tensor.dtype = dtype;
    laid->dtype = dtype;
    laid->shape = kc_shape_of(s->kc, name);
    int64_t bytes = laid->shape.columns * uli_dtype_size(dtype);
    if (p->q_segments) {
        laid->segments = keys ? s->kc->k_segments : s->kc->q_segments;
        laid->segment_count = keys ? p->k_segment_count : p->q_segment_count;
        lay_packed(laid, s->layout, bytes);
    } else if (s->layout->pieces) {
        lay_pieces(laid, s->layout, bytes);
    } else {
        int64_t size = set_strides(s->layout, &laid->shape, laid->shape.rows,
            bytes, &laid->tensor.batch_stride, &laid->tensor.row_stride,
            &laid->tensor.head_stride);
        test_buffer_init(&laid->buffers[0], (size_t)size, 0);
        laid->tensor.base = laid->buffers[0].data;
        laid->buffer_count = 1;
    }
}

/* Lays three tensors into one buffer: [b][s][hq + hkv + hkv heads][..]. */
static void
lay_qkv(struct session *s, enum kc_name first, enum kc_name second,
    enum kc_name third, ulyx_dtype_t dtype)
{
    const enum kc_name names[3] = {first, second, third};
    int64_t row = 0, at = 0, size = uli_dtype_size(dtype);
    for (int n = 0; n < 3; n++) {
        struct kc_shape shape = kc_shape_of(s->kc, names[n]);
        row += shape.heads * shape.columns * size;
    }
    for (int n = 0; n < 3; n++) {
        struct laid *laid = &s->laid[names[n]];
        ulyx_attention_tensor_t init = ULYX_ATTENTION_TENSOR_INIT;
        laid->tensor = init;
        laid->dtype = laid->tensor.dtype = dtype;
        laid->shape = kc_shape_of(s->kc, names[n]);
        laid->tensor.head_stride = laid->shape.columns * size;
        laid->tensor.row_stride = row;
        laid->tensor.batch_stride = row * laid->shape.rows;
        if (n == 0) {
            test_buffer_init(&laid->buffers[0],
                (size_t)(laid->tensor.batch_stride * laid->shape.batch), 0);
            laid->buffer_count = 1;
        }
        laid->tensor.base = s->laid[first].buffers[0].data + at;
        at += laid->shape.heads * laid->tensor.head_stride;
    }
}

static void
session_scatter(struct session *s, enum kc_name name)
{
    struct laid *laid = &s->laid[name];
    const struct kc_values *values = &s->kc->values[name];
    for (int64_t i = 0; i < laid->shape.batch; i++)
        for (int64_t n = 0; n < laid->shape.heads; n++)
            for (int64_t r = 0; r < laid->shape.rows; r++) {
                unsigned char *row = row_at(laid, i, n, r);
                if (row)
                    uli_row_store(row, laid->dtype, laid->shape.columns,
                        kc_row(values, i, n, r));
            }
    for (int n = 0; n < s->layout->pieces; n++)
        laid->flags[n] = 7;
}

static void
session_fail(struct session *s, const char *what, enum kc_name name)
{
    char text[512];
    kc_describe(s->kc, text, sizeof(text));
    printf("FAILED %s: %s (kernel %s, strides %d, pieces %d): %s\n",
        kc_names[name], what, s->layout->kernel, s->layout->strides,
        s->layout->pieces, text);
    s->ok = false;
}

/* Reads the values, poisons them again, and then checks that all other bytes
 * are poison. */
static void
session_gather(struct session *s, enum kc_name name, struct kc_values *values_p)
{
    struct laid *laid = &s->laid[name];
    values_p->shape = laid->shape;
    values_p->at = kc_alloc(8 * kc_count(&laid->shape));
    for (int64_t i = 0; i < laid->shape.batch; i++)
        for (int64_t n = 0; n < laid->shape.heads; n++)
            for (int64_t r = 0; r < laid->shape.rows; r++) {
                unsigned char *row = row_at(laid, i, n, r);
                if (!row)
                    continue;
                uli_row_load(row, laid->dtype, laid->shape.columns,
                    kc_row(values_p, i, n, r));
                memset(row, 0xFF,
                    (size_t)(laid->shape.columns *
                             uli_dtype_size(laid->dtype)));
            }
    for (int n = 0; n < s->layout->pieces && laid->tensor.pieces; n++)
        if (laid->flags[n] != 7)
            session_fail(s, "output flag not set", name);
}

static void
check_buffers(struct session *s, enum kc_name name, bool output)
{
    struct laid *laid = &s->laid[name];
    for (int n = 0; n < laid->buffer_count; n++) {
        const struct test_buffer *buffer = &laid->buffers[n];
        if (!test_buffer_guards_ok(buffer))
            session_fail(s, "guard bytes changed", name);
        for (size_t at = 0; output && at < buffer->bytes; at++)
            if (buffer->data[at] != 0xFF) {
                session_fail(s, "bytes beside the elements changed", name);
                break;
            }
    }
}

static void
lay_all(struct session *s, bool backward)
{
    const ulyx_attention_t *p = &s->kc->problem;
    bool f64 = p->dtype == ULYX_DTYPE_F64;
    ulyx_dtype_t stat = f64 ? ULYX_DTYPE_F64 : ULYX_DTYPE_F32;
    ulyx_dtype_t wide = s->layout->wide_kv && !f64 ? ULYX_DTYPE_F32 : p->dtype;
    bool together = s->layout->strides == KC_PACKED_QKV && !p->q_segments &&
                    !s->layout->pieces && p->len_q == p->len_k;
    if (together)
        lay_qkv(s, KC_Q, KC_K, KC_V, p->dtype);
    for (int n = together ? KC_OUT : KC_Q; n <= KC_LSE; n++)
        session_lay(s, (enum kc_name)n, n == KC_LSE ? stat : p->dtype);
    if (!backward)
        return;
    session_lay(s, KC_DOUT, p->dtype);
    session_lay(s, KC_DELTA, stat);
    session_lay(s, KC_DLSE, stat);
    if (together && wide == p->dtype) {
        lay_qkv(s, KC_DQ, KC_DK, KC_DV, p->dtype);
        return;
    }
    session_lay(s, KC_DQ, p->dtype);
    session_lay(s, KC_DK, wide);
    session_lay(s, KC_DV, wide);
}

/* Sets offsets in bytes, by the row strides of q and of k, as a plan gives
 * them. */
static void
set_segments(struct session *s, ulyx_attention_t *problem)
{
    for (int side = 0; side < 2 && problem->q_segments; side++) {
        int64_t count =
            side ? problem->k_segment_count : problem->q_segment_count;
        int64_t unit = s->laid[side ? KC_K : KC_Q].tensor.row_stride;
        s->lists[side] = kc_alloc(count * (int64_t)sizeof(ulyx_segment_t));
        for (int64_t n = 0; n < count; n++) {
            s->lists[side][n] =
                side ? s->kc->k_segments[n] : s->kc->q_segments[n];
            s->lists[side][n].offset *= unit;
        }
    }
    if (problem->q_segments) {
        problem->q_segments = s->lists[0];
        problem->k_segments = s->lists[1];
    }
}

static bool
session_prepare(struct session *s, const ulyx_attention_t *problem,
    ulyx_attention_pass_t pass, ulyx_attention_exec_t *exec)
{
    int64_t bytes;
    ulyx_attention_exec_t init = ULYX_ATTENTION_EXEC_INIT;
    *exec = init;
    exec->kernel = s->layout->kernel;
    exec->threads = s->layout->threads;
    if (ulyx_attention_workspace(problem, pass, exec, &bytes) != ULYX_SUCCESS) {
        session_fail(s, ulyx_last_error(), KC_OUT);
        return false;
    }
    test_buffer_init(&s->workspace, (size_t)bytes, 0);
    return true;
}

static void
session_finish(struct session *s)
{
    if (s->workspace.base && !test_buffer_guards_ok(&s->workspace))
        session_fail(s, "workspace guards changed", KC_OUT);
    if (s->workspace.base)
        test_buffer_free(&s->workspace);
    for (int n = 0; n < KC_TENSORS; n++)
        for (int b = 0; b < s->laid[n].buffer_count; b++)
            test_buffer_free(&s->laid[n].buffers[b]);
    free(s->lists[0]);
    free(s->lists[1]);
}

static bool
call_forward(
    struct session *s, ulyx_attention_t *problem, struct kc_result *result)
{
    ulyx_attention_exec_t exec;
    ulyx_attention_forward_t f = ULYX_ATTENTION_FORWARD_INIT;
    float *max_logit = kc_alloc(8 * problem->heads_q);
    if (!session_prepare(s, problem, ULYX_ATTENTION_PASS_FORWARD, &exec))
        return false;
    exec.scores_p = &result->scores;
    f.q = &s->laid[KC_Q].tensor, f.k = &s->laid[KC_K].tensor;
    f.v = &s->laid[KC_V].tensor, f.out = &s->laid[KC_OUT].tensor;
    f.lse = s->layout->no_lse ? NULL : &s->laid[KC_LSE].tensor;
    f.max_logit = s->layout->no_max ? NULL : max_logit;
    ulyx_status_t status = ulyx_attention_forward(problem, &f, &exec,
        s->workspace.data, (int64_t)s->workspace.bytes, NULL);
    if (status != ULYX_SUCCESS)
        session_fail(s, ulyx_last_error(), KC_OUT);
    if (!s->layout->no_max) {
        result->max_logit = kc_alloc(8 * problem->heads_q);
        uli_row_load(max_logit,
            problem->dtype == ULYX_DTYPE_F64 ? ULYX_DTYPE_F64 : ULYX_DTYPE_F32,
            problem->heads_q, result->max_logit);
    }
    free(max_logit);
    return status == ULYX_SUCCESS;
}

static bool
call_backward(
    struct session *s, ulyx_attention_t *problem, struct kc_result *result)
{
    ulyx_attention_exec_t exec;
    ulyx_attention_backward_t g = ULYX_ATTENTION_BACKWARD_INIT;
    float *d_sink = kc_alloc(4 * problem->heads_global);
    memset(d_sink, 0xFF, (size_t)(4 * problem->heads_global));
    if (!session_prepare(s, problem, ULYX_ATTENTION_PASS_BACKWARD, &exec))
        return false;
    exec.scores_p = &result->scores;
    g.q = &s->laid[KC_Q].tensor, g.k = &s->laid[KC_K].tensor;
    g.v = &s->laid[KC_V].tensor, g.dout = &s->laid[KC_DOUT].tensor;
    g.lse = &s->laid[KC_LSE].tensor, g.dlse = &s->laid[KC_DLSE].tensor;
    if (s->layout->give_delta)
        g.delta = &s->laid[KC_DELTA].tensor;
    else
        g.out = &s->laid[KC_OUT].tensor;
    g.dq = &s->laid[KC_DQ].tensor, g.dk = &s->laid[KC_DK].tensor;
    g.dv = &s->laid[KC_DV].tensor;
    g.d_sink = problem->sinks ? d_sink : NULL;
    ulyx_status_t status = ulyx_attention_backward(problem, &g, &exec,
        s->workspace.data, (int64_t)s->workspace.bytes, NULL);
    if (status != ULYX_SUCCESS)
        session_fail(s, ulyx_last_error(), KC_DQ);
    result->d_sink = kc_alloc(8 * problem->heads_global);
    if (problem->sinks)
        uli_row_load(
            d_sink, ULYX_DTYPE_F32, problem->heads_global, result->d_sink);
    free(d_sink);
    return status == ULYX_SUCCESS;
}

bool
kc_run(const struct kc_case *kc, const ulyx_attention_t *given,
    const struct kc_layout *layout, bool backward, struct kc_result *result_p)
{
    struct session s = {.kc = kc, .layout = layout, .ok = true};
    ulyx_attention_t problem = *given;
    memset(result_p, 0, sizeof(*result_p));
    result_p->from_out = backward && !layout->give_delta;
    lay_all(&s, backward);
    set_segments(&s, &problem);
    session_scatter(&s, KC_Q);
    session_scatter(&s, KC_K);
    session_scatter(&s, KC_V);
    for (int n = KC_OUT; backward && n <= KC_DLSE; n++)
        if (n != KC_DELTA || layout->give_delta)
            session_scatter(&s, (enum kc_name)n);
    bool called = backward ? call_backward(&s, &problem, result_p)
                           : call_forward(&s, &problem, result_p);
    int first = backward ? KC_DQ : KC_OUT, last = backward ? KC_DV : KC_LSE;
    /* An lse that is not requested must stay poison in every byte. */
    for (int n = first; called && n <= last; n++)
        if (n != KC_LSE || !layout->no_lse)
            session_gather(&s, (enum kc_name)n, &result_p->values[n]);
    for (int n = 0; n < KC_TENSORS; n++)
        check_buffers(&s, (enum kc_name)n, called && n >= first && n <= last);
    session_finish(&s);
    return s.ok;
}

void
kc_result_free(struct kc_result *result)
{
    for (int n = 0; n < KC_TENSORS; n++)
        free(result->values[n].at);
    free(result->d_sink);
    free(result->max_logit);
    memset(result, 0, sizeof(*result));
}
