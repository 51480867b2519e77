/* SPDX-License-Identifier: Apache-2.0
 *
 * One attention layer on sequence-sharded tensors, forward and backward, as a
 * framework calls it. One process per rank. The ranks together print the same
 * lines on any number of ranks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <ulyx/ulyx.h>

#define TRY(call)                                                              \
    if ((call) != ULYX_SUCCESS)                                                \
    return fprintf(stderr, "%s: %s\n", #call, ulyx_last_error()), 1

enum { TOKENS = 13, H = 6, HKV = 2, DIM = 8, ALL = TOKENS * H * DIM };

static float q[ALL], k[ALL], v[ALL], out[ALL], dout[ALL], dq[ALL], dk[ALL],
    dv[ALL]; /* each [rows of this rank][H or HKV][DIM] */

static void /* in place of the projections and of the loss */
values_fill(
    float *x, int64_t rows, int64_t width, const int64_t *position, int salt)
{
    for (int64_t i = 0; i < rows * width; i++)
        x[i] = (position[i / width] * 37 + i % width * 11 + salt) % 23 / 23.0f;
}

int
main(void)
{
    int64_t position[TOKENS], begins[] = {0, 5, TOKENS}; /* two documents */
    int64_t rows, workspace_bytes, saved_bytes;
    int32_t rank;
    ulyx_comm_t *comm;
    ulyx_dist_attention_t *dist;
    const ulyx_plan_t *plan;
    ulyx_part_t tokens = ULYX_PART_INIT;
    ulyx_docs_t docs = ULYX_DOCS_INIT;
    ulyx_dist_attention_params_t params = ULYX_DIST_ATTENTION_PARAMS_INIT;
    ulyx_dist_attention_forward_t forward = ULYX_DIST_ATTENTION_FORWARD_INIT;
    ulyx_dist_attention_backward_t backward = ULYX_DIST_ATTENTION_BACKWARD_INIT;

    tokens.rows = TOKENS, docs.count = 2, docs.begin = begins;
    params.parts = &tokens, params.nparts = 1, params.docs_q = &docs;
    params.heads = H, params.kv_heads = HKV, params.dim_qk = DIM;
    params.dtype = ULYX_DTYPE_F32, params.mask_kind = ULYX_MASK_CAUSAL;
    TRY(ulyx_comm_create_from_env(NULL, &comm)); /* once per process */
    /* Once per layer shape. The plan gives this rank's tokens. */
    TRY(ulyx_dist_attention_create(comm, &params, &dist));
    TRY(ulyx_dist_attention_get_bytes(
        dist, &workspace_bytes, &saved_bytes, NULL));
    TRY(ulyx_dist_attention_get_plan(dist, 0, &plan, NULL));
    TRY(ulyx_comm_get_rank(comm, &rank));
    TRY(ulyx_plan_get_seq_rows(plan, 0, rank, &rows));
    TRY(ulyx_plan_get_positions(plan, 0, rank, TOKENS, position));
    void *workspace = aligned_alloc(64, workspace_bytes / 64 * 64 + 64);
    void *saved = aligned_alloc(64, saved_bytes / 64 * 64 + 64);

    values_fill(q, rows, H * DIM, position, 0),
        values_fill(k, rows, HKV * DIM, position, 7);
    values_fill(v, rows, HKV * DIM, position, 2),
        values_fill(dout, rows, H * DIM, position, 5);
    /* One part, so one pointer per tensor. */
    const void *q_of[] = {q}, *k_of[] = {k}, *v_of[] = {v};
    const void *out_of[] = {out}, *dout_of[] = {dout};
    void *to_out[] = {out}, *to_dq[] = {dq}, *to_dk[] = {dk}, *to_dv[] = {dv};
    forward.q = q_of, forward.k = k_of, forward.v = v_of, forward.out = to_out;
    forward.workspace = workspace, forward.workspace_bytes = workspace_bytes;
    forward.saved = saved, forward.saved_bytes = saved_bytes;
    TRY(ulyx_dist_attention_forward(dist, &forward, NULL));
    /* q, k and v may be freed now: `saved` has what backward needs. */

    backward.out = out_of, backward.dout = dout_of, backward.dq = to_dq;
    backward.dk = to_dk, backward.dv = to_dv, backward.workspace = workspace;
    backward.workspace_bytes = workspace_bytes;
    backward.saved = saved, backward.saved_bytes = saved_bytes;
    /* The gradients need no further factor. */
    TRY(ulyx_dist_attention_backward(dist, &backward, NULL));

    for (int64_t r = 0; r < rows; r++) /* the first number of each token */
        printf("token %2d  out %8.5f  dq %8.5f  dk %8.5f  dv %8.5f\n",
            (int)position[r], out[r * H * DIM], dq[r * H * DIM],
            dk[r * HKV * DIM], dv[r * HKV * DIM]);
    TRY(ulyx_dist_attention_destroy(dist));
    TRY(ulyx_comm_destroy(comm));
    free(saved), free(workspace);
    return 0;
}
