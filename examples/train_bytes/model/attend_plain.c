/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on one rank, without a communicator. Backward needs q, k, v and
 * out, which the model keeps, and the LSE, which is saved here.
 */
#include "attend.h"

#include <stdio.h>
#include <stdlib.h>

static ulyx_docs_t
docs_of(const struct attend *attend)
{
    ulyx_docs_t docs = ULYX_DOCS_INIT;

    docs.count = attend->batch->docs;
    docs.begin = attend->batch->begins;
    return docs;
}

static ulyx_attention_t
problem_of(const struct attend *attend)
{
    ulyx_attention_t problem = ULYX_ATTENTION_INIT;

    problem.dtype = REAL_DTYPE;
    problem.mask = ULYX_MASK_CAUSAL;
    problem.batch = 1;
    problem.len_q = problem.len_k = attend->rows;
    problem.heads_q = attend->heads;
    problem.heads_kv = attend->kv_heads;
    problem.dim_qk = problem.dim_v = attend->head_dim;
    problem.max_docs = attend->options->docs;
    return problem;
}

static ulyx_attention_exec_t
exec_of(const struct attend *attend)
{
    ulyx_attention_exec_t exec = ULYX_ATTENTION_EXEC_INIT;

    exec.threads = attend->threads;
    return exec;
}

static int
plain_create(struct attend *attend)
{
    ulyx_attention_t problem;
    ulyx_attention_exec_t exec = exec_of(attend);
    int64_t bytes[2];

    attend->rows = attend->options->seq;
    attend->positions =
        calloc((size_t)attend->rows, sizeof(*attend->positions));
    if (!attend->positions)
        return -1;
    for (int64_t i = 0; i < attend->rows; i++)
        attend->positions[i] = i;
    problem = problem_of(attend);
    for (int pass = 0; pass < 2; pass++)
        if (ulyx_attention_workspace(&problem, pass, &exec, &bytes[pass]) !=
            ULYX_SUCCESS) {
            fprintf(stderr, "train_bytes: attention: %s\n", ulyx_last_error());
            return -1;
        }
    attend->workspace_bytes = bytes[0] > bytes[1] ? bytes[0] : bytes[1];
    attend->saved_bytes = attend->heads * attend->rows * (int64_t)sizeof(real);
    return 0;
}

static void
plain_destroy(struct attend *attend)
{
    (void)attend;
}

static int
plain_step(struct attend *attend, const ulyx_docs_t *docs)
{
    (void)attend, (void)docs; /* docs_of gives them to every call */
    return 0;
}

/* [rows][heads][head_dim], dense. */
static ulyx_attention_tensor_t
attend_tensor(const struct attend *attend, int64_t heads, const real *base)
{
    ulyx_attention_tensor_t t = ULYX_ATTENTION_TENSOR_INIT;

    t.base = (void *)base;
    t.head_stride = attend->head_dim * (int64_t)sizeof(real);
    t.row_stride = t.head_stride * heads;
    t.batch_stride = t.row_stride * attend->rows;
    return t;
}

/* The LSE of a layer, [heads][rows]. */
static ulyx_attention_tensor_t
lse_of(const struct attend *attend, int64_t layer)
{
    ulyx_attention_tensor_t t = ULYX_ATTENTION_TENSOR_INIT;

    t.base = attend->saved[layer];
    t.row_stride = (int64_t)sizeof(real);
    t.head_stride = t.row_stride * attend->rows;
    t.batch_stride = t.head_stride * attend->heads;
    return t;
}

static int
plain_forward(struct attend *attend, int64_t layer, const real *q,
    const real *k, const real *v, real *out)
{
    ulyx_attention_tensor_t tq = attend_tensor(attend, attend->heads, q),
                            tk = attend_tensor(attend, attend->kv_heads, k),
                            tv = attend_tensor(attend, attend->kv_heads, v),
                            to = attend_tensor(attend, attend->heads, out),
                            lse = lse_of(attend, layer);
    ulyx_attention_forward_t call = ULYX_ATTENTION_FORWARD_INIT;
    ulyx_attention_t problem = problem_of(attend);
    ulyx_attention_exec_t exec = exec_of(attend);
    ulyx_docs_t docs = docs_of(attend);

    problem.docs_q = &docs;
    call.q = &tq, call.k = &tk, call.v = &tv, call.out = &to, call.lse = &lse;
    if (ulyx_attention_forward(&problem, &call, &exec, attend->workspace,
            attend->workspace_bytes, NULL) == ULYX_SUCCESS)
        return 0;
    fprintf(stderr, "train_bytes: attention: %s\n", ulyx_last_error());
    return 3;
}

static int
plain_backward(struct attend *attend, int64_t layer, const real *q,
    const real *k, const real *v, const real *out, const real *dout, real *dq,
    real *dk, real *dv)
{
    ulyx_attention_tensor_t tq = attend_tensor(attend, attend->heads, q),
                            tk = attend_tensor(attend, attend->kv_heads, k),
                            tv = attend_tensor(attend, attend->kv_heads, v),
                            to = attend_tensor(attend, attend->heads, out),
                            tdo = attend_tensor(attend, attend->heads, dout),
                            tdq = attend_tensor(attend, attend->heads, dq),
                            tdk = attend_tensor(attend, attend->kv_heads, dk),
                            tdv = attend_tensor(attend, attend->kv_heads, dv),
                            lse = lse_of(attend, layer);
    ulyx_attention_backward_t call = ULYX_ATTENTION_BACKWARD_INIT;
    ulyx_attention_t problem = problem_of(attend);
    ulyx_attention_exec_t exec = exec_of(attend);
    ulyx_docs_t docs = docs_of(attend);

    problem.docs_q = &docs;
    call.q = &tq, call.k = &tk, call.v = &tv, call.out = &to;
    call.dout = &tdo, call.lse = &lse;
    call.dq = &tdq, call.dk = &tdk, call.dv = &tdv;
    if (ulyx_attention_backward(&problem, &call, &exec, attend->workspace,
            attend->workspace_bytes, NULL) == ULYX_SUCCESS)
        return 0;
    fprintf(stderr, "train_bytes: attention: %s\n", ulyx_last_error());
    return 3;
}

const struct attend_ops attend_plain_ops = {
    plain_create, plain_destroy, plain_step, plain_forward, plain_backward};
