/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributed attention on P ranks: exchange q, k, v, attend, exchange back.
 * With ULYX_SAVE_HEADS, distributed attention keeps the head-sharded q, k and
 * v, so that the model need not keep them. With --save none the model keeps its
 * q, k and v, and backward exchanges them again. All layers use one distributed
 * attention, because they differ only in their saved memory.
 */
#include "attend.h"
#include "values.h"

#include <stdio.h>
#include <stdlib.h>

static int
call_failed(const char *what)
{
    fprintf(stderr, "train_bytes: %s: %s\n", what, ulyx_last_error());
    return 3;
}

/* Finds the number of local rows, and the position of each in the sequence. */
static int
query_rows(struct attend *attend)
{
    const ulyx_plan_t *plan;
    int32_t rank;

    if (ulyx_comm_get_rank(attend->comm, &rank) != ULYX_SUCCESS ||
        ulyx_dist_attention_get_plan(attend->dist, 0, &plan, NULL) !=
            ULYX_SUCCESS ||
        ulyx_plan_get_seq_rows(plan, 0, rank, &attend->rows) != ULYX_SUCCESS)
        return call_failed("rows");
    attend->positions =
        calloc((size_t)attend->rows + 1, sizeof(*attend->positions));
    if (!attend->positions)
        return -1;
    if (ulyx_plan_get_positions(
            plan, 0, rank, attend->rows, attend->positions) != ULYX_SUCCESS)
        return call_failed("positions");
    return 0;
}

static int
sharded_create(struct attend *attend)
{
    const struct options *options = attend->options;
    ulyx_dist_attention_params_t params = ULYX_DIST_ATTENTION_PARAMS_INIT;
    ulyx_part_t tokens = ULYX_PART_INIT;

    tokens.rows = options->seq;
    tokens.order =
        options->zigzag ? ULYX_TOKENS_ZIGZAG : ULYX_TOKENS_CONTIGUOUS;
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
    if (ulyx_dist_attention_create(attend->comm, &params, &attend->dist) !=
        ULYX_SUCCESS)
        return call_failed("dist attention");
    attend->keeps_inputs = !options->save_none;
    if (ulyx_dist_attention_get_bytes(attend->dist, &attend->workspace_bytes,
            &attend->saved_bytes, NULL) != ULYX_SUCCESS)
        return call_failed("dist attention");
    return query_rows(attend);
}

static void
sharded_destroy(struct attend *attend)
{
    if (ulyx_dist_attention_destroy(attend->dist) != ULYX_SUCCESS)
        call_failed("dist attention");
}

static int
sharded_step(struct attend *attend, const ulyx_docs_t *docs)
{
    if (ulyx_dist_attention_update(attend->dist, docs, NULL, values_stream()) !=
        ULYX_SUCCESS)
        return call_failed("documents");
    return 0;
}

static int
count_bytes(struct attend *attend)
{
    ulyx_dist_attention_times_t times = ULYX_DIST_ATTENTION_TIMES_INIT;

    if (ulyx_dist_attention_get_times(attend->dist, &times) != ULYX_SUCCESS)
        return call_failed("times");
    attend->exchanged_bytes += times.sent_bytes;
    return 0;
}

/* Each tensor has one part, so the call takes arrays of one pointer. */
static int
sharded_forward(struct attend *attend, int64_t layer, const real *q,
    const real *k, const real *v, real *out)
{
    const void *const qs[] = {q}, *const ks[] = {k}, *const vs[] = {v};
    void *const outs[] = {out};
    ulyx_dist_attention_forward_t call = ULYX_DIST_ATTENTION_FORWARD_INIT;

    call.q = qs, call.k = ks, call.v = vs, call.out = outs;
    call.workspace = attend->workspace;
    call.workspace_bytes = attend->workspace_bytes;
    call.saved = attend->saved[layer];
    call.saved_bytes = attend->saved_bytes;
    if (ulyx_dist_attention_forward(attend->dist, &call, values_stream()) !=
        ULYX_SUCCESS)
        return call_failed("forward");
    return count_bytes(attend);
}

static int
sharded_backward(struct attend *attend, int64_t layer, const real *q,
    const real *k, const real *v, const real *out, const real *dout, real *dq,
    real *dk, real *dv)
{
    const void *const qs[] = {q}, *const ks[] = {k}, *const vs[] = {v};
    const void *const outs[] = {out}, *const douts[] = {dout};
    void *const dqs[] = {dq}, *const dks[] = {dk}, *const dvs[] = {dv};
    ulyx_dist_attention_backward_t call = ULYX_DIST_ATTENTION_BACKWARD_INIT;

    if (!attend->keeps_inputs) /* else `saved` has them, head-sharded */
        call.q = qs, call.k = ks, call.v = vs;
    call.out = outs, call.dout = douts;
    call.dq = dqs, call.dk = dks, call.dv = dvs;
    call.workspace = attend->workspace;
    call.workspace_bytes = attend->workspace_bytes;
    call.saved = attend->saved[layer];
    call.saved_bytes = attend->saved_bytes;
    if (ulyx_dist_attention_backward(attend->dist, &call, values_stream()) !=
        ULYX_SUCCESS)
        return call_failed("backward");
    return count_bytes(attend);
}

const struct attend_ops attend_sharded_ops = {sharded_create, sharded_destroy,
    sharded_step, sharded_forward, sharded_backward};
