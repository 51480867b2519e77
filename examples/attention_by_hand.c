/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention by hand: a program that runs the exchange and the attention itself,
 * because it does something of its own between the two. Forward and backward,
 * with GQA. One process per rank; at the end each rank compares its results
 * with those of ulyx_dist_attention_*, which is all of this in one object.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <ulyx/ulyx.h>

#define TRY(call)                                                              \
    if ((call) != ULYX_SUCCESS)                                                \
    return fprintf(stderr, "%s: %s\n", #call, ulyx_last_error()), 1

enum { S = 17, H = 14, HKV = 2, D = 8, ALL = S * H * D };

/* This rank's tokens, all heads: [rows of this rank][H or HKV][D]. */
static float q[ALL], k[ALL], v[ALL], out[ALL], dout[ALL], dq[ALL], dk[ALL],
    dv[ALL];
/* All tokens, this rank's heads: [S][heads or kv_heads][D]; lse [heads][S]. */
static float q_h[ALL], k_h[ALL], v_h[ALL], out_h[ALL], dout_h[ALL], dq_h[ALL],
    dk_h[ALL], dv_h[ALL], lse_h[H * S];
/* The operator's out, dq, dk and dv, laid out as those above. */
static float its_out[ALL], its_dq[ALL], its_dk[ALL], its_dv[ALL];

static void /* stands for the projections, and for the loss */
values_fill(
    float *x, int64_t rows, int64_t width, const int64_t *position, int salt)
{
    for (int64_t i = 0; i < rows * width; i++)
        x[i] = (position[i / width] * 37 + i % width * 11 + salt) % 23 / 23.0f;
}

/* Two plans, because q, k and v travel together and out travels alone. */
static int
plans_create(ulyx_comm_t *comm, ulyx_plan_t **qkv_p, ulyx_plan_t **out_p)
{
    ulyx_part_t tokens = ULYX_PART_INIT;
    ulyx_tensor_t query = ULYX_TENSOR_INIT, key, tensors[3];
    ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;

    tokens.rows = S;
    query.dtype = ULYX_DTYPE_F32, query.heads = H, query.dim = D;
    key = query, key.heads = HKV, key.ownership = ULYX_HEADS_KV;
    tensors[0] = query, tensors[1] = tensors[2] = key;
    params.heads = H, params.parts = &tokens, params.nparts = 1;
    params.tensors = tensors, params.ntensors = 3;
    TRY(ulyx_plan_create(comm, &params, qkv_p));
    params.tensors = &query, params.ntensors = 1; /* out lies as q does */
    TRY(ulyx_plan_create(comm, &params, out_p));
    return 0;
}

/* [S][heads][D]. A zero stride is no default here: it repeats the row. */
static ulyx_attention_tensor_t
dense_rows(float *base, int64_t heads)
{
    ulyx_attention_tensor_t t = ULYX_ATTENTION_TENSOR_INIT;
    t.base = base, t.batch_stride = S * heads * D * 4;
    t.row_stride = heads * D * 4, t.head_stride = D * 4;
    return t;
}

static int
pass_by_hand(ulyx_plan_t *qkv, ulyx_plan_t *back, int32_t rank)
{
    int64_t first, heads, kv_heads, map[H], count, bytes, more;
    ulyx_attention_t problem = ULYX_ATTENTION_INIT;
    ulyx_attention_forward_t forward = ULYX_ATTENTION_FORWARD_INIT;
    ulyx_attention_backward_t backward = ULYX_ATTENTION_BACKWARD_INIT;

    /* 1. Which heads this rank holds, and which KV head each of them reads. */
    TRY(ulyx_plan_get_heads(qkv, 0, rank, &first, &heads));
    TRY(ulyx_plan_get_heads(qkv, 1, rank, &first, &kv_heads));
    TRY(ulyx_plan_get_kv_map(qkv, 0, 1, H, map, &count));

    /* 2. The problem is one rank's: all tokens, the heads that it holds. */
    problem.dtype = ULYX_DTYPE_F32, problem.mask = ULYX_MASK_CAUSAL;
    problem.batch = 1, problem.len_q = problem.len_k = S;
    problem.heads_q = heads, problem.heads_kv = kv_heads, problem.kv_map = map;
    problem.dim_qk = problem.dim_v = D;
    ulyx_attention_tensor_t tq = dense_rows(q_h, heads),
                            tk = dense_rows(k_h, kv_heads),
                            tv = dense_rows(v_h, kv_heads),
                            to = dense_rows(out_h, heads),
                            tdo = dense_rows(dout_h, heads),
                            tdq = dense_rows(dq_h, heads),
                            tdk = dense_rows(dk_h, kv_heads),
                            tdv = dense_rows(dv_h, kv_heads),
                            lse = ULYX_ATTENTION_TENSOR_INIT;
    lse.base = lse_h, lse.batch_stride = heads * S * 4; /* [heads][S] */
    lse.row_stride = 4, lse.head_stride = S * 4;
    TRY(ulyx_attention_workspace(
        &problem, ULYX_ATTENTION_PASS_FORWARD, NULL, &bytes));
    TRY(ulyx_attention_workspace(
        &problem, ULYX_ATTENTION_PASS_BACKWARD, NULL, &more));
    bytes = bytes > more ? bytes : more;
    void *workspace = aligned_alloc(64, bytes / 64 * 64 + 64);

    /* 3. Forward: q, k, v to heads; attend; out to tokens. */
    const void *qkv_src[] = {q, k, v}, *out_src[] = {out_h};
    void *qkv_dst[] = {q_h, k_h, v_h}, *out_dst[] = {out};
    TRY(ulyx_reshuffle_execute(qkv, ULYX_SEQ_TO_HEAD, qkv_src, qkv_dst, NULL));
    forward.q = &tq, forward.k = &tk, forward.v = &tv, forward.out = &to;
    forward.lse = &lse; /* backward needs it */
    TRY(ulyx_attention_forward(
        &problem, &forward, NULL, workspace, bytes, NULL));
    TRY(ulyx_reshuffle_execute(back, ULYX_HEAD_TO_SEQ, out_src, out_dst, NULL));

    /* 4. Backward: the same way back, each exchange by its adjoint. The last
     * one adds up dk and dv of KV heads that several ranks hold. */
    const void *dout_src[] = {dout}, *grad_src[] = {dq_h, dk_h, dv_h};
    void *dout_dst[] = {dout_h}, *grad_dst[] = {dq, dk, dv};
    TRY(ulyx_reshuffle_execute(
        back, ULYX_HEAD_TO_SEQ_ADJOINT, dout_src, dout_dst, NULL));
    backward.q = &tq, backward.k = &tk, backward.v = &tv, backward.out = &to;
    backward.lse = &lse, backward.dout = &tdo;
    backward.dq = &tdq, backward.dk = &tdk, backward.dv = &tdv;
    TRY(ulyx_attention_backward(
        &problem, &backward, NULL, workspace, bytes, NULL));
    TRY(ulyx_reshuffle_execute(
        qkv, ULYX_SEQ_TO_HEAD_ADJOINT, grad_src, grad_dst, NULL));
    free(workspace);
    return 0;
}

/* The map counts from the rank's first KV head. */
static int
heads_print(const ulyx_plan_t *qkv, int32_t rank)
{
    int64_t first, heads, kv_first, kv_heads, map[H], n;

    TRY(ulyx_plan_get_heads(qkv, 0, rank, &first, &heads));
    TRY(ulyx_plan_get_heads(qkv, 1, rank, &kv_first, &kv_heads));
    TRY(ulyx_plan_get_kv_map(qkv, 0, 1, H, map, &n));
    printf("rank %d:", (int)rank);
    for (int64_t i = 0; i < n; i++)
        printf(" head %d reads KV head %d,", (int)(first + i),
            (int)(kv_first + map[i]));
    return 0;
}

/* Computes its_out, its_dq, its_dk and its_dv by the operator. */
static int
pass_by_operator(ulyx_comm_t *comm)
{
    int64_t workspace_bytes, saved_bytes;
    ulyx_dist_attention_t *dist;
    ulyx_part_t tokens = ULYX_PART_INIT;
    ulyx_dist_attention_params_t params = ULYX_DIST_ATTENTION_PARAMS_INIT;
    ulyx_dist_attention_forward_t forward = ULYX_DIST_ATTENTION_FORWARD_INIT;
    ulyx_dist_attention_backward_t backward = ULYX_DIST_ATTENTION_BACKWARD_INIT;

    tokens.rows = S, params.parts = &tokens, params.nparts = 1;
    params.heads = H, params.kv_heads = HKV, params.dim_qk = D;
    params.dtype = ULYX_DTYPE_F32, params.mask_kind = ULYX_MASK_CAUSAL;
    TRY(ulyx_dist_attention_create(comm, &params, &dist));
    TRY(ulyx_dist_attention_get_bytes(
        dist, &workspace_bytes, &saved_bytes, NULL));
    void *workspace = aligned_alloc(64, workspace_bytes / 64 * 64 + 64);
    void *saved = aligned_alloc(64, saved_bytes / 64 * 64 + 64);
    const void *q_of[] = {q}, *k_of[] = {k}, *v_of[] = {v};
    const void *out_of[] = {its_out}, *dout_of[] = {dout};
    void *to_out[] = {its_out}, *to_dq[] = {its_dq}, *to_dk[] = {its_dk},
         *to_dv[] = {its_dv};
    forward.q = q_of, forward.k = k_of, forward.v = v_of, forward.out = to_out;
    forward.workspace = workspace, forward.workspace_bytes = workspace_bytes;
    forward.saved = saved, forward.saved_bytes = saved_bytes;
    TRY(ulyx_dist_attention_forward(dist, &forward, NULL));
    backward.out = out_of, backward.dout = dout_of, backward.dq = to_dq;
    backward.dk = to_dk, backward.dv = to_dv, backward.workspace = workspace;
    backward.workspace_bytes = workspace_bytes;
    backward.saved = saved, backward.saved_bytes = saved_bytes;
    TRY(ulyx_dist_attention_backward(dist, &backward, NULL));
    TRY(ulyx_dist_attention_destroy(dist));
    free(saved), free(workspace);
    return 0;
}

/* The most by which two arrays are apart; infinite where one has a NaN. */
static float
values_apart(const float *a, const float *b, int64_t count)
{
    float most = 0;
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(a[i] - b[i]) <= most))
            most = a[i] == a[i] && b[i] == b[i] ? fabsf(a[i] - b[i]) : INFINITY;
    return most;
}

int
main(void)
{
    int64_t position[S], rows;
    int32_t rank;
    ulyx_comm_t *comm;
    ulyx_plan_t *qkv, *back;

    TRY(ulyx_comm_create_from_env(NULL, &comm));
    TRY(ulyx_comm_get_rank(comm, &rank));
    if (plans_create(comm, &qkv, &back))
        return 1;
    TRY(ulyx_plan_get_seq_rows(qkv, 0, rank, &rows));
    TRY(ulyx_plan_get_positions(qkv, 0, rank, S, position));
    values_fill(q, rows, H * D, position, 0);
    values_fill(k, rows, HKV * D, position, 7);
    values_fill(v, rows, HKV * D, position, 2);
    values_fill(dout, rows, H * D, position, 5);
    if (pass_by_hand(qkv, back, rank) || pass_by_operator(comm) ||
        heads_print(qkv, rank))
        return 1;

    /* out and dq have the operator's bits; dk and dv are sums over ranks. */
    float exact = values_apart(out, its_out, rows * H * D) +
                  values_apart(dq, its_dq, rows * H * D);
    float sums = values_apart(dk, its_dk, rows * HKV * D) +
                 values_apart(dv, its_dv, rows * HKV * D);
    int wrong = exact > 0 || sums > 1e-5f;
    printf(" %d tokens: %s\n", (int)rows,
        wrong ? "NOT what the operator gives" : "as the operator gives");
    TRY(ulyx_plan_destroy(back));
    TRY(ulyx_plan_destroy(qkv));
    TRY(ulyx_comm_destroy(comm));
    return wrong;
}
