/* SPDX-License-Identifier: Apache-2.0
 *
 * What both passes share: pointers, transfers, the saved parts' header.
 */
#include "attention/dist_attention/pass.h"

#include <stdio.h>
#include "attention/dist_attention/memory.h"
#include "base/dtype.h"
#include "base/status.h"

#define INVALID(...) uli_error(ULYX_ERR_INVALID_ARGUMENT, __VA_ARGS__)
#define MAGIC        UINT64_C(0x756c79785f736176)

const char *const uli_dist_tensor_names[ULI_DIST_TENSORS] = {
    "q", "k", "v", "out", "dout", "lse", "dq", "dk", "dv", "dlse"};

/* ---- pointers ------------------------------------------------------------ */

void
uli_pass_seq(const struct uli_pass *pass, const struct uli_head_group *group,
    enum uli_dist_tensor tensor, int32_t axis, struct uli_pointers *list)
{
    const struct ulyx_dist_attention *dist = pass->dist;
    int64_t first = axis ? group->kv_first : group->q_first;
    for (int32_t i = 0; i < dist->nparts[axis]; i++) {
        char *base = pass->call->tensors[tensor][i];
        int64_t *strides = list->strides[list->count];
        uli_dist_call_strides(dist, pass->call, tensor, i, strides);
        list->at[list->count++] = base ? base + first * strides[2] : NULL;
    }
    list->strided |= pass->call->strided[tensor];
}

void
uli_pass_add_seq_delta(const struct uli_pass *pass,
    const struct uli_head_group *group, int32_t slot, int32_t i,
    struct uli_pointers *list)
{
    uli_dist_delta_strides(pass->dist, group, i, list->strides[list->count]);
    list->at[list->count++] = uli_pass_seq_delta(pass, group, slot, i);
}

void *
uli_pass_seq_delta(const struct uli_pass *pass,
    const struct uli_head_group *group, int32_t slot, int32_t i)
{
    const struct ulyx_dist_attention *dist = pass->dist;
    char *base = uli_pass_head(pass, group, slot, ULI_HEAD_SEQ_DELTA);
    for (int32_t j = 0; j < i; j++)
        base += uli_round_up(dist->seq_rows_max[dist->part_of[0][j]] *
                                 dist->params->p.batch * group->q_heads *
                                 dist->stat_bytes,
            64);
    return base;
}

void *
uli_pass_head(const struct uli_pass *pass, const struct uli_head_group *group,
    int32_t slot, enum uli_head_tensor tensor)
{
    if (tensor == ULI_HEAD_DK || tensor == ULI_HEAD_DV)
        slot = group->kv_slot;
    if (tensor == ULI_HEAD_PART_DK || tensor == ULI_HEAD_PART_DV)
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
    for (int32_t i = 0; i < pass->dist->nparts[axis]; i++)
        list->at[list->count++] = uli_pass_head(pass, group, slot, tensor);
}

ulyx_attention_tensor_t
uli_pass_view(const struct uli_pass *pass, const struct uli_head_group *group,
    int32_t slot, enum uli_head_tensor tensor)
{
    const ulyx_dist_attention_params_t *p = &pass->dist->params->p;
    const struct uli_head_sizes *sizes = &group->sizes;
    bool statistic = uli_head_statistic(tensor);
    bool keys = uli_head_keys(tensor), wide = uli_head_wide(tensor);
    int64_t heads = keys ? sizes->kv_heads : sizes->q_heads;
    int64_t rows = pass->dist->rows[keys];
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

void
uli_pass_earlier(struct uli_pass *pass, ulyx_status_t status)
{
    if (status == ULYX_SUCCESS || pass->earlier != ULYX_SUCCESS)
        return;
    pass->earlier = status;
    snprintf(
        pass->earlier_text, sizeof(pass->earlier_text), "%s", uli_error_text());
}

static double
seconds_left(const struct uli_pass *pass)
{
    double left = (double)(pass->deadline - uli_clock_ns()) * 1e-9;
    return left > 1e-3 ? left : 1e-3;
}

typedef const int64_t (*strides_of_call)[3];

static strides_of_call
strides_from(const struct uli_pointers *list, int32_t first)
{
    return list->strided ? (strides_of_call)(list->strides + first) : NULL;
}

void
uli_pass_start(struct uli_pass *pass, struct uli_plan_set *plan_set,
    ulyx_direction_t direction, const struct uli_pointers *src,
    const struct uli_pointers *dst, struct uli_transfer *transfer_p)
{
    transfer_p->nrequests = 0;
    transfer_p->started_ns = uli_clock_ns();
    for (int32_t i = 0; i < plan_set->nplans; i++) {
        ulyx_plan_t *plan = plan_set->plans[i];
        int32_t first = i * ULI_TENSORS;
        ulyx_request_t *request = NULL;
        ulyx_status_t earlier = ULYX_SUCCESS;
        const struct uli_plan_call call = {.direction = direction,
            .src = (const void *const *)(src->at + first),
            .dst = dst->at + first,
            .src_strides = strides_from(src, first),
            .dst_strides = strides_from(dst, first),
            .stream = pass->exchange_stream,
            .timeout_s = seconds_left(pass),
            .earlier_p = &earlier};
        if (pass->status != ULYX_SUCCESS) {
            if (!pass->silent)
                uli_plan_refuse_call(plan, &call, pass->status, pass->text);
            continue;
        }
        uli_pass_fail(pass, uli_plan_execute(plan, &call, &request));
        uli_pass_earlier(pass, earlier);
        if (request) /* NULL: the call belongs to its stream */
            transfer_p->requests[transfer_p->nrequests++] = request;
    }
    if (transfer_p->nrequests)
        pass->exposed_ns += uli_clock_ns() - transfer_p->started_ns;
}

void
uli_pass_wait(struct uli_pass *pass, struct uli_transfer *transfer)
{
    int64_t begin = uli_clock_ns(), ended = transfer->started_ns;
    if (!transfer->nrequests)
        return;
    for (int32_t i = 0; i < transfer->nrequests; i++) {
        uli_pass_fail(pass, uli_request_wait(transfer->requests[i]));
        ended = uli_max(ended, transfer->requests[i]->ended_ns);
    }
    int64_t now = uli_clock_ns();
    transfer->nrequests = 0;
    /* The time to wake from a wait belongs to the exchange that was awaited. */
    pass->exchange_ns += (ended > begin ? now : ended) - transfer->started_ns;
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
    uli_pass_fail(pass, pass->dist->memory->attend(pass, attention, kind));
    pass->attention_ns += uli_clock_ns() - begin;
    pass->scores += atomic_load(&attention->scores);
}

/* ---- what is saved ------------------------------------------------------- */

static struct uli_saved_header
header_of(const struct ulyx_dist_attention *dist)
{
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    struct uli_saved_header header = {MAGIC, 0, dist->tables};
    const int64_t values[] = {p->batch, p->heads, p->kv_heads, p->dim_qk,
        p->dim_v, p->dtype, dist->most_rows[0], dist->most_rows[1],
        dist->ngroups, dist->saved_bytes, dist->saves_heads};
    for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
        header.shape =
            (header.shape ^ (uint64_t)values[i]) * UINT64_C(0x9e3779b97f4a7c15);
    return header;
}

static ulyx_status_t
check_saved(struct uli_pass *pass)
{
    const struct uli_saved_header expected = header_of(pass->dist);
    return pass->dist->memory->check_saved(pass, &expected);
}

/* Rows x heads of a tensor that this rank has at present; the tensor may have
 * room for more. */
static int64_t
rows_present(const struct ulyx_dist_attention *dist,
    const struct uli_head_group *group, enum uli_head_tensor tensor)
{
    const struct uli_head_sizes *sizes = &group->sizes;
    bool keys = uli_head_keys(tensor);
    if (dist->rows_change) /* which no packed head side allows */
        return dist->params->p.batch * dist->rows[keys] *
               (keys ? sizes->kv_heads : sizes->q_heads);
    if (!sizes->packed)
        return keys ? sizes->kv_rows : sizes->q_rows;
    int64_t rows = 0;
    for (int64_t i = 0; i < group->nsegments[keys]; i++)
        rows += group->segments[keys][i].row_end -
                group->segments[keys][i].row_begin;
    return rows;
}

/* Zeros what neither an exchange nor the attention writes: the header, which is
 * invalid until the call has succeeded, and the room behind the rows of each
 * tensor. */
static ulyx_status_t
clear_saved(const struct uli_pass *pass)
{
    const struct ulyx_dist_attention *dist = pass->dist;
    char *saved = pass->call->saved;
    ULI_TRY(dist->memory->zero(pass, saved, ULI_SAVED_HEADER_BYTES));
    for (int32_t g = 0; g < dist->ngroups; g++) {
        const struct uli_head_group *group = &dist->groups[g];
        for (int t = 0; t < ULI_HEAD_TENSORS; t++) {
            if (group->saved[t] < 0)
                continue;
            int64_t dim = uli_head_statistic(t) ? 1
                          : uli_head_wide(t)    ? dist->params->p.dim_qk
                                                : dist->params->p.dim_v;
            int64_t used = rows_present(dist, group, t) * dim *
                           uli_dtype_size(group->sizes.dtypes[t]);
            ULI_TRY(dist->memory->zero(pass, saved + group->saved[t] + used,
                uli_dist_bytes_now(dist, group, t) - used));
        }
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
write_header(struct uli_pass *pass)
{
    const struct uli_saved_header header = header_of(pass->dist);
    return pass->dist->memory->write_header(pass, &header);
}

/* ---- the call ------------------------------------------------------------ */

static ulyx_status_t
check_memory(
    const char *name, const void *pointer, int64_t bytes, int64_t needed)
{
    if (bytes < needed || (needed && !pointer))
        return INVALID("%s is %p with %lld bytes, %lld are needed: set %s and "
                       "%s_bytes, by ulyx_dist_attention_get_bytes",
            name, pointer, (long long)bytes, (long long)needed, name, name);
    if ((uintptr_t)pointer % 64)
        return INVALID("%s is %p, not aligned to 64 bytes", name, pointer);
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_given(
    const struct ulyx_dist_attention *dist, const struct uli_dist_call *call)
{
    const char *const *names = uli_dist_tensor_names;
    bool lse = dist->params->p.flags & ULYX_DIST_ATTENTION_LSE;
    for (int t = 0; t < ULI_DIST_TENSORS; t++) {
        bool needed = t == ULI_DIST_OUT;
        if (t <= ULI_DIST_V)
            needed = !call->backward || !dist->saves_heads;
        else if (t == ULI_DIST_LSE)
            needed = !call->backward && lse;
        else if (t == ULI_DIST_DLSE)
            needed = false;
        else if (t != ULI_DIST_OUT)
            needed = call->backward;
        if (needed && !call->given[t])
            return INVALID("%s is NULL: set %s of ulyx_dist_attention_%s_t",
                names[t], names[t], call->backward ? "backward" : "forward");
    }
    for (int t = 0; t < ULI_DIST_TENSORS; t++)
        if ((t == ULI_DIST_LSE || t == ULI_DIST_DLSE) && call->given[t] && !lse)
            return INVALID("%s is given, and distributed attention was created "
                           "without ULYX_DIST_ATTENTION_LSE",
                names[t]);
    if (call->d_sink && !call->sinks)
        return INVALID("d_sink is given without sinks");
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_call(const struct ulyx_dist_attention *dist, struct uli_dist_call *call)
{
    ULI_TRY(check_memory("workspace", call->workspace, call->workspace_bytes,
        uli_dist_workspace(dist)));
    if (dist->has_backward)
        ULI_TRY(check_memory(
            "saved", call->saved, call->saved_bytes, dist->saved_now));
    ULI_TRY(check_given(dist, call));
    ULI_TRY(uli_dist_settle_strides(dist, call));
    ULI_TRY(uli_dist_check_overlap(dist, call));
    return dist->memory->check(dist, call);
}

static void
note_times(const struct uli_pass *pass, int64_t begin)
{
    struct ulyx_dist_attention *dist = pass->dist;
    dist->times.total_s = (double)(uli_clock_ns() - begin) * 1e-9;
    dist->times.attention_s = (double)pass->attention_ns * 1e-9;
    dist->times.exchange_s = (double)pass->exchange_ns * 1e-9;
    dist->times.exposed_s = (double)pass->exposed_ns * 1e-9;
    dist->times.scores = pass->scores;
    dist->last_backward = pass->call->backward;
}

/* A call without documents, rows and splits keeps the present ones. */
static ulyx_status_t
take_call_change(
    struct ulyx_dist_attention *dist, const struct uli_dist_call *call)
{
    const struct uli_dist_change change = {.stream = call->stream,
        .keep_docs = !call->has_docs[0] && !call->has_docs[1],
        .docs_q = call->has_docs[0] ? &call->docs[0] : NULL,
        .docs_k = call->has_docs[1] ? &call->docs[1] : NULL,
        .rows = call->rows,
        .splits = call->splits};
    if (change.keep_docs && !change.rows && !change.splits)
        return ULYX_SUCCESS;
    return uli_dist_replace(dist, &change);
}

/* outcome: as for uli_dist_run. A wrong argument fails the pass. */
static void
pass_check(
    struct uli_pass *pass, struct uli_dist_call *call, ulyx_status_t outcome)
{
    struct ulyx_dist_attention *dist = pass->dist;
    uli_pass_fail(pass, outcome);
    if (pass->status == ULYX_SUCCESS)
        uli_pass_fail(pass, take_call_change(dist, call));
    uli_pass_fail(pass, dist->memory->begin(pass));
    if (pass->status == ULYX_SUCCESS)
        uli_pass_fail(pass, check_call(dist, call));
    if (pass->status == ULYX_SUCCESS && call->backward)
        uli_pass_fail(pass, check_saved(pass));
}

static ulyx_status_t
dist_run(struct ulyx_dist_attention *dist, struct uli_dist_call *call,
    ulyx_status_t outcome)
{
    int64_t begin = uli_clock_ns();
    struct uli_pass pass = {.dist = dist,
        .call = call,
        .layout = &dist->passes[call->backward],
        .deadline =
            uli_deadline_in(uli_timeout_or(call->timeout_s, dist->timeout_s))};
    bool writes = dist->has_backward && !call->backward;
    pass_check(&pass, call, outcome);
    if (pass.status == ULYX_SUCCESS && writes)
        uli_pass_fail(&pass, clear_saved(&pass));
    if (call->backward)
        uli_dist_backward(&pass);
    else
        uli_dist_forward(&pass);
    if (pass.status == ULYX_SUCCESS && writes)
        uli_pass_fail(&pass, write_header(&pass));
    uli_pass_fail(&pass, dist->memory->end(&pass));
    note_times(&pass, begin);
    if (pass.status != ULYX_SUCCESS)
        return uli_error_pass(pass.status, pass.text);
    return pass.earlier == ULYX_SUCCESS
               ? ULYX_SUCCESS
               : uli_error_pass(pass.earlier, pass.earlier_text);
}

ulyx_status_t
uli_dist_run(ulyx_dist_attention_t *dist, struct uli_dist_call *call,
    ulyx_status_t outcome)
{
    bool idle = false;
    if (call->backward && !dist->has_backward)
        return INVALID(
            "backward: distributed attention was created with FORWARD_ONLY");
    if (!atomic_compare_exchange_strong(&dist->busy, &idle, true))
        return uli_error(
            ULYX_ERR_BUSY, "a call of distributed attention is in flight");
    if (outcome == ULYX_SUCCESS)
        outcome = dist->memory->enter(dist);
    bool entered = outcome == ULYX_SUCCESS;
    ulyx_status_t status = dist_run(dist, call, outcome);
    if (entered)
        status = dist->memory->leave(status);
    atomic_store(&dist->busy, false);
    return status;
}
