/* SPDX-License-Identifier: Apache-2.0
 *
 * P ranks: the operator exchanges q, k, v, attends and exchanges back. With
 * ULYX_SAVE_HEADS it keeps the head-sharded q, k, v itself, so the model need
 * not keep them; with --save none the model keeps them and they travel again.
 * One operator serves all layers: what differs between layers is only where the
 * saved parts lie.
 */
#include "attend.h"

#include <stdio.h>
#include <stdlib.h>

static int
fail(const char *what)
{
    fprintf(stderr, "train_bytes: %s: %s\n", what, ulyx_last_error());
    return 3;
}

/* The local rows, and which rows of the sequence they are. */
static int
query_rows(struct attend *attend)
{
    const ulyx_plan_t *plan;
    int32_t rank;

    if (ulyx_comm_get_rank(attend->comm, &rank) != ULYX_SUCCESS ||
        ulyx_operator_get_plan(attend->op, 0, &plan, NULL) != ULYX_SUCCESS ||
        ulyx_plan_get_seq_rows(plan, 0, rank, &attend->rows) != ULYX_SUCCESS)
        return fail("rows");
    attend->positions =
        calloc((size_t)attend->rows + 1, sizeof(*attend->positions));
    if (attend->positions == NULL)
        return -1;
    if (ulyx_plan_get_positions(
            plan, 0, rank, attend->rows, attend->positions) != ULYX_SUCCESS)
        return fail("positions");
    return 0;
}

static int
create(struct attend *attend)
{
    const struct options *options = attend->options;
    ulyx_operator_params_t params = ULYX_OPERATOR_PARAMS_INIT;
    ulyx_part_t tokens = ULYX_PART_INIT;

    tokens.rows = options->seq;
    tokens.order = options->zigzag ? ULYX_ORDER_ZIGZAG : ULYX_ORDER_CONTIGUOUS;
    params.parts = &tokens;
    params.nparts = 1;
    params.heads = attend->heads;
    params.kv_heads = attend->kv_heads;
    params.dim_qk = attend->head_dim;
    params.dtype = REAL_DTYPE;
    params.mask_kind = ULYX_MASK_CAUSAL;
    params.work_split =
        options->balanced ? ULYX_WORK_BALANCED : ULYX_WORK_HEADS;
    params.max_docs = options->docs;
    params.save = options->save_none ? ULYX_SAVE_NONE : ULYX_SAVE_HEADS;
    if (options->windows)
        params.seq_memory = params.head_memory = ULYX_POINTER_WINDOW;
    params.threads = attend->threads;
    if (ulyx_operator_create(attend->comm, &params, &attend->op) !=
        ULYX_SUCCESS)
        return fail("operator");
    attend->keeps_inputs = !options->save_none;
    if (ulyx_operator_get_bytes(attend->op, &attend->workspace_bytes,
            &attend->saved_bytes, NULL) != ULYX_SUCCESS)
        return fail("operator");
    return query_rows(attend);
}

static void
destroy(struct attend *attend)
{
    if (ulyx_operator_destroy(attend->op) != ULYX_SUCCESS)
        fail("operator");
}

static int
step(struct attend *attend, const ulyx_docs_t *docs)
{
    if (ulyx_operator_update(attend->op, docs, NULL, NULL) != ULYX_SUCCESS)
        return fail("documents");
    return 0;
}

static int
count_bytes(struct attend *attend)
{
    ulyx_operator_times_t times = ULYX_OPERATOR_TIMES_INIT;

    if (ulyx_operator_get_times(attend->op, &times) != ULYX_SUCCESS)
        return fail("times");
    attend->exchanged_bytes += times.sent_bytes;
    return 0;
}

/* Each tensor is one part, dense: arrays of one pointer. */
static int
forward(struct attend *attend, int64_t layer, const real *q, const real *k,
    const real *v, real *out)
{
    const void *const qs[] = {q}, *const ks[] = {k}, *const vs[] = {v};
    void *const outs[] = {out};
    ulyx_operator_forward_t call = ULYX_OPERATOR_FORWARD_INIT;

    call.q = qs, call.k = ks, call.v = vs, call.out = outs;
    call.workspace = attend->workspace;
    call.workspace_bytes = attend->workspace_bytes;
    call.saved = attend->saved[layer];
    call.saved_bytes = attend->saved_bytes;
    if (ulyx_operator_forward(attend->op, &call, NULL) != ULYX_SUCCESS)
        return fail("forward");
    return count_bytes(attend);
}

static int
backward(struct attend *attend, int64_t layer, const real *q, const real *k,
    const real *v, const real *out, const real *dout, real *dq, real *dk,
    real *dv)
{
    const void *const qs[] = {q}, *const ks[] = {k}, *const vs[] = {v};
    const void *const outs[] = {out}, *const douts[] = {dout};
    void *const dqs[] = {dq}, *const dks[] = {dk}, *const dvs[] = {dv};
    ulyx_operator_backward_t call = ULYX_OPERATOR_BACKWARD_INIT;

    if (!attend->keeps_inputs) /* else head-sharded in saved */
        call.q = qs, call.k = ks, call.v = vs;
    call.out = outs, call.dout = douts;
    call.dq = dqs, call.dk = dks, call.dv = dvs;
    call.workspace = attend->workspace;
    call.workspace_bytes = attend->workspace_bytes;
    call.saved = attend->saved[layer];
    call.saved_bytes = attend->saved_bytes;
    if (ulyx_operator_backward(attend->op, &call, NULL) != ULYX_SUCCESS)
        return fail("backward");
    return count_bytes(attend);
}

const struct attend_ops attend_sharded_ops = {
    create, destroy, step, forward, backward};
