/* SPDX-License-Identifier: Apache-2.0
 *
 * What both passes share: pointers, flights, the saved parts' header.
 */
#include "attention/operator/operator_pass.h"

#include <stdio.h>
#include <string.h>
#include "attention/attention.h"
#include "base/dtype.h"
#include "base/status.h"

#define INVALID(...) uli_error(ULYX_ERR_INVALID_ARGUMENT, __VA_ARGS__)
#define MAGIC        UINT64_C(0x756c79785f736176)

/* ---- pointers ------------------------------------------------------------ */

void
uli_pass_seq(const struct uli_pass *pass, const struct uli_head_group *group,
    enum uli_operator_tensor tensor, int32_t axis, struct uli_pointers *list)
{
    const struct ulyx_operator *op = pass->op;
    int64_t first = axis ? group->kv_first : group->q_first;
    for (int32_t i = 0; i < op->nparts[axis]; i++) {
        char *base = pass->call->tensors[tensor][i];
        int64_t strides[3];
        uli_operator_seq_strides(op, tensor, axis, i, strides);
        list->at[list->count++] = base ? base + first * strides[2] : NULL;
    }
}

void *
uli_pass_seq_delta(const struct uli_pass *pass,
    const struct uli_head_group *group, int32_t slot, int32_t i)
{
    const struct ulyx_operator *op = pass->op;
    char *base = uli_pass_head(pass, group, slot, ULI_HEAD_SEQ_DELTA);
    for (int32_t j = 0; j < i; j++)
        base += uli_round_up(op->seq_rows_max[op->part_of[0][j]] *
                                 op->params->p.batch * group->q_heads *
                                 op->stat_bytes,
            64);
    return base;
}

void *
uli_pass_head(const struct uli_pass *pass, const struct uli_head_group *group,
    int32_t slot, enum uli_head_tensor tensor)
{
    if (tensor == ULI_HEAD_DK || tensor == ULI_HEAD_DV)
        slot = group->kv_slot;
    if (tensor == ULI_HEAD_PIECE_DK || tensor == ULI_HEAD_PIECE_DV)
        slot = 0;
    int64_t at = pass->layout->tensors[slot][tensor];
    if (group->saved[tensor] >= 0)
        return (char *)pass->call->saved + group->saved[tensor];
    return at < 0 ? NULL : (char *)pass->call->workspace + at;
}

void
uli_pass_add_head(const struct uli_pass *pass,
    const struct uli_head_group *group, int32_t slot,
    enum uli_head_tensor tensor, int32_t axis, struct uli_pointers *list)
{
    for (int32_t i = 0; i < pass->op->nparts[axis]; i++)
        list->at[list->count++] = uli_pass_head(pass, group, slot, tensor);
}

ulyx_attention_tensor_t
uli_pass_view(const struct uli_pass *pass, const struct uli_head_group *group,
    int32_t slot, enum uli_head_tensor tensor)
{
    const ulyx_operator_params_t *p = &pass->op->params->p;
    const struct uli_head_sizes *sizes = &group->sizes;
    bool statistic = tensor == ULI_HEAD_LSE || tensor == ULI_HEAD_DELTA;
    bool keys = uli_head_keys(tensor), wide = uli_head_wide(tensor);
    int64_t heads = keys ? sizes->kv_heads : sizes->q_heads;
    int64_t rows = pass->op->rows[keys];
    int64_t elem = uli_dtype_size(sizes->dtypes[tensor]);
    int64_t unit = statistic ? elem : elem * (wide ? p->dim_qk : p->dim_v);
    ulyx_attention_tensor_t view = ULYX_ATTENTION_TENSOR_INIT;
    view.base = uli_pass_head(pass, group, slot, tensor);
    view.dtype = sizes->dtypes[tensor];
    view.row_stride = statistic || sizes->packed ? unit : unit * heads;
    view.head_stride = statistic ? unit * rows : unit;
    view.batch_stride = unit * heads * rows;
    return view;
}

/* ---- plans --------------------------------------------------------------- */

void
uli_pass_fail(struct uli_pass *pass, ulyx_status_t status)
{
    if (status == ULYX_SUCCESS || pass->status != ULYX_SUCCESS)
        return;
    pass->status = status;
    snprintf(pass->text, sizeof(pass->text), "%s", uli_error_text());
}

static double
seconds_left(const struct uli_pass *pass)
{
    double left = (double)(pass->deadline - uli_clock_ns()) * 1e-9;
    return left > 1e-3 ? left : 1e-3;
}

void
uli_pass_start(struct uli_pass *pass, struct uli_bundle *bundle,
    ulyx_operation_t operation, const struct uli_pointers *src,
    const struct uli_pointers *dst, struct uli_flight *flight_p)
{
    flight_p->nops = 0;
    flight_p->started_ns = uli_clock_ns();
    for (int32_t i = 0; i < bundle->nplans; i++) {
        ulyx_plan_t *plan = bundle->plans[i];
        if (pass->status != ULYX_SUCCESS) {
            uli_plan_refuse_on(plan, pass->status, pass->text);
            continue;
        }
        ulyx_status_t status = uli_plan_start(plan, operation,
            (const void *const *)(src->at + i * ULI_TENSORS),
            dst->at + i * ULI_TENSORS, seconds_left(pass),
            &flight_p->ops[flight_p->nops]);
        flight_p->nops += status == ULYX_SUCCESS;
        uli_pass_fail(pass, status);
    }
    if (flight_p->nops)
        pass->exposed_ns += uli_clock_ns() - flight_p->started_ns;
}

void
uli_pass_wait(struct uli_pass *pass, struct uli_flight *flight)
{
    int64_t begin = uli_clock_ns(), ended = flight->started_ns;
    if (!flight->nops)
        return;
    for (int32_t i = 0; i < flight->nops; i++) {
        uli_pass_fail(pass, uli_op_wait(flight->ops[i]));
        ended = uli_max(ended, flight->ops[i]->ended_ns);
    }
    int64_t now = uli_clock_ns();
    flight->nops = 0;
    /* To wake from a wait is part of the exchange that was waited for. */
    pass->exchange_ns += (ended > begin ? now : ended) - flight->started_ns;
    pass->exposed_ns += ended > begin ? now - begin : 0;
}

void
uli_pass_attend(struct uli_pass *pass, struct uli_attn_call *attention,
    ulyx_attention_pass_t kind)
{
    int64_t begin = uli_clock_ns();
    attention->workspace =
        (unsigned char *)pass->call->workspace + pass->layout->attention;
    attention->workspace_bytes = pass->layout->attention_bytes;
    uli_pass_fail(pass, uli_attn_run_pass(attention, kind));
    pass->attention_ns += uli_clock_ns() - begin;
    pass->scores += atomic_load(&attention->scores);
}

/* ---- what is saved ------------------------------------------------------- */

/* At the begin of saved: whose it is, and by which tables it lies. */
struct header {
    uint64_t magic, shape, tables;
};

static struct header
header_of(const struct ulyx_operator *op)
{
    const ulyx_operator_params_t *p = &op->params->p;
    struct header header = {MAGIC, 0, op->tables};
    const int64_t values[] = {p->batch, p->heads, p->kv_heads, p->dim_qk,
        p->dim_v, p->dtype, op->rows[0], op->rows[1], op->ngroups,
        op->saved_bytes, op->saves_heads};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        header.shape =
            (header.shape ^ (uint64_t)values[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return header;
}

static ulyx_status_t
check_header(const struct ulyx_operator *op, const void *saved)
{
    struct header expected = header_of(op), found;
    memcpy(&found, saved, sizeof(found));
    if (found.magic != MAGIC || found.shape != expected.shape)
        return INVALID("saved is not what a forward of this operator left");
    if (found.tables != expected.tables)
        return INVALID("saved is of a forward with other documents: update "
                       "came between the two");
    return ULYX_SUCCESS;
}

/* ---- the call ------------------------------------------------------------ */

static ulyx_status_t
check_memory(
    const char *name, const void *pointer, int64_t bytes, int64_t needed)
{
    if (bytes < needed || (needed && !pointer))
        return INVALID("%s is %p with %lld bytes, %lld are needed", name,
            pointer, (long long)bytes, (long long)needed);
    if ((uintptr_t)pointer % 64)
        return INVALID("%s is %p, not aligned to 64 bytes", name, pointer);
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_given(
    const struct ulyx_operator *op, const struct uli_operator_call *call)
{
    static const char *const names[ULI_OP_TENSORS] = {
        "q", "k", "v", "out", "dout", "lse", "dq", "dk", "dv"};
    bool lse = op->params->p.flags & ULYX_OPERATOR_LSE;
    for (int t = 0; t < ULI_OP_TENSORS; t++) {
        bool needed = t == ULI_OP_OUT;
        if (t <= ULI_OP_V)
            needed = !call->backward || !op->saves_heads;
        else if (t == ULI_OP_LSE)
            needed = !call->backward && lse;
        else if (t != ULI_OP_OUT)
            needed = call->backward;
        if (needed && !call->given[t])
            return INVALID("%s is NULL", names[t]);
    }
    if (call->given[ULI_OP_LSE] && !lse)
        return INVALID("lse is given, the operator was made without "
                       "ULYX_OPERATOR_LSE");
    if (call->d_sink && !call->sinks)
        return INVALID("d_sink without sinks");
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_call(const struct ulyx_operator *op, const struct uli_operator_call *call)
{
    ULI_TRY(check_memory("workspace", call->workspace, call->workspace_bytes,
        uli_operator_workspace(op)));
    if (op->has_backward)
        ULI_TRY(check_memory(
            "saved", call->saved, call->saved_bytes, op->saved_bytes));
    ULI_TRY(check_given(op, call));
    return call->backward ? check_header(op, call->saved) : ULYX_SUCCESS;
}

static void
note_times(const struct uli_pass *pass, int64_t begin)
{
    struct ulyx_operator *op = pass->op;
    op->times.total_s = (double)(uli_clock_ns() - begin) * 1e-9;
    op->times.attention_s = (double)pass->attention_ns * 1e-9;
    op->times.exchange_s = (double)pass->exchange_ns * 1e-9;
    op->times.exposed_s = (double)pass->exposed_ns * 1e-9;
    op->times.scores = pass->scores;
    op->last_backward = pass->call->backward;
}

static ulyx_status_t
operator_run(struct ulyx_operator *op, const struct uli_operator_call *call,
    ulyx_status_t verdict)
{
    int64_t begin = uli_clock_ns();
    struct uli_pass pass = {.op = op,
        .call = call,
        .layout = &op->passes[call->backward],
        .deadline =
            uli_deadline_in(uli_timeout_or(call->timeout_s, op->timeout_s))};
    bool writes = op->has_backward && !call->backward;
    if (verdict == ULYX_SUCCESS)
        verdict = check_call(op, call);
    uli_pass_fail(&pass, verdict);
    if (writes && verdict == ULYX_SUCCESS)
        memset(call->saved, 0, sizeof(struct header));
    if (call->backward)
        uli_operator_backward(&pass);
    else
        uli_operator_forward(&pass);
    note_times(&pass, begin);
    if (pass.status != ULYX_SUCCESS)
        return uli_error_pass(pass.status, pass.text);
    if (writes) {
        struct header header = header_of(op);
        memcpy(call->saved, &header, sizeof(header));
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_operator_run(ulyx_operator_t *op, const struct uli_operator_call *call,
    ulyx_status_t verdict)
{
    bool idle = false;
    if (call->backward && !op->has_backward)
        return INVALID("backward of an operator made FORWARD_ONLY");
    if (!atomic_compare_exchange_strong(&op->busy, &idle, true))
        return uli_error(ULYX_ERR_BUSY, "a call of the operator is in flight");
    ulyx_status_t status = operator_run(op, call, verdict);
    atomic_store(&op->busy, false);
    return status;
}
