/* SPDX-License-Identifier: Apache-2.0
 *
 * The soak's attention; see attention.h. Each query head has a KV head of its
 * own: a gradient of a shared KV head would be a sum over ranks, whose bits
 * depend on the set of ranks.
 */
#include "soak/attention.h"

#include <stdlib.h>
#include <string.h>

enum { HEADS = 6, DIM = 16, WIDTH = HEADS * DIM };

/* A value in [-1, 1) that depends on the tensor, row and column only, so that
 * all ranks compute the same one. */
static float
entry_value(int tensor, int64_t row, int64_t column)
{
    uint64_t x = (uint64_t)((tensor * INT64_C(1000003) + row) * 4099 + column);
    x = (x ^ x >> 13) * UINT64_C(0x9E3779B97F4A7C15);
    return (float)(int32_t)(x >> 32) * 0x1p-31f;
}

static size_t
tensor_bytes(const struct attention *a)
{
    return (size_t)a->rows * WIDTH * sizeof(float);
}

static void
tensor_fill(struct attention *a, int t)
{
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t c = 0; c < WIDTH; c++)
            a->tensors[t][i * WIDTH + c] = entry_value(t, a->positions[i], c);
}

/* ---- making it ----------------------------------------------------------- */

static ulyx_status_t
dist_create(ulyx_comm_t *comm, int64_t rows, double timeout_s,
    ulyx_dist_attention_t **dist_p)
{
    ulyx_dist_attention_params_t params = ULYX_DIST_ATTENTION_PARAMS_INIT;
    ulyx_part_t part = ULYX_PART_INIT;
    part.rows = rows;
    part.order = rows % 2 ? ULYX_TOKENS_ZIGZAG : ULYX_TOKENS_CONTIGUOUS;
    params.heads = HEADS;
    params.dim_qk = DIM;
    params.dtype = ULYX_DTYPE_F32;
    params.parts = &part;
    params.nparts = 1;
    params.mask_kind = ULYX_MASK_CAUSAL;
    params.threads = 1;
    params.timeout_s = timeout_s;
    return ulyx_dist_attention_create(comm, &params, dist_p);
}

static ulyx_status_t
sizes_query(ulyx_comm_t *comm, int64_t rows, struct attention *a)
{
    const ulyx_plan_t *plan;
    int32_t rank, groups;
    ulyx_comm_get_rank(comm, &rank);
    ulyx_status_t status =
        ulyx_dist_attention_get_plan(a->dist, 0, &plan, &groups);
    if (status == ULYX_SUCCESS)
        status = ulyx_plan_get_seq_rows(plan, 0, rank, &a->rows);
    a->positions = calloc((size_t)rows + 1, sizeof(*a->positions));
    if (status == ULYX_SUCCESS)
        status = ulyx_plan_get_positions(plan, 0, rank, rows + 1, a->positions);
    if (status == ULYX_SUCCESS)
        status = ulyx_dist_attention_get_bytes(
            a->dist, &a->workspace_bytes, &a->saved_bytes, NULL);
    return status;
}

static void
tensors_allocate(struct attention *a)
{
    for (int t = 0; t < ATTENTION_TENSORS; t++)
        a->tensors[t] = calloc(1, tensor_bytes(a) + 1);
    for (int t = 0; t < ATTENTION_INPUTS; t++)
        tensor_fill(a, t);
    a->workspace =
        aligned_alloc(64, (size_t)(a->workspace_bytes + 127) / 64 * 64);
    a->saved = aligned_alloc(64, (size_t)(a->saved_bytes + 127) / 64 * 64);
}

static ulyx_status_t
attention_make(
    ulyx_comm_t *comm, int64_t rows, double timeout_s, struct attention *a)
{
    ulyx_status_t status = dist_create(comm, rows, timeout_s, &a->dist);
    if (status == ULYX_SUCCESS)
        status = sizes_query(comm, rows, a);
    if (status == ULYX_SUCCESS)
        tensors_allocate(a);
    return status;
}

/* Computes the expected rows of this rank in a communicator of one rank. */
static ulyx_status_t
expected_compute(int64_t rows, struct attention *a)
{
    struct attention whole = {0};
    ulyx_comm_t *alone;
    ulyx_status_t status = ulyx_comm_create_local(1, NULL, &alone);
    if (status != ULYX_SUCCESS)
        return status;
    status = attention_make(alone, rows, 0, &whole);
    if (status == ULYX_SUCCESS)
        status = attention_step(&whole);
    for (int t = ATTENTION_OUT; t < ATTENTION_TENSORS; t++) {
        a->expected[t] = calloc(1, tensor_bytes(a) + 1);
        for (int64_t i = 0; status == ULYX_SUCCESS && i < a->rows; i++)
            memcpy(a->expected[t] + i * WIDTH,
                whole.tensors[t] + a->positions[i] * WIDTH,
                WIDTH * sizeof(float));
    }
    attention_close(&whole);
    ulyx_comm_destroy(alone);
    return status;
}

ulyx_status_t
attention_open(
    ulyx_comm_t *comm, int64_t rows, double timeout_s, struct attention *a)
{
    ulyx_status_t status = attention_make(comm, rows, timeout_s, a);
    return status == ULYX_SUCCESS ? expected_compute(rows, a) : status;
}

/* ---- a step -------------------------------------------------------------- */

static ulyx_status_t
forward_run(struct attention *a)
{
    ulyx_dist_attention_forward_t call = ULYX_DIST_ATTENTION_FORWARD_INIT;
    const void *q = a->tensors[ATTENTION_Q], *k = a->tensors[ATTENTION_K],
               *v = a->tensors[ATTENTION_V];
    void *out = a->tensors[ATTENTION_OUT];
    call.q = &q;
    call.k = &k;
    call.v = &v;
    call.out = &out;
    call.workspace = a->workspace;
    call.workspace_bytes = a->workspace_bytes;
    call.saved = a->saved;
    call.saved_bytes = a->saved_bytes;
    return ulyx_dist_attention_forward(a->dist, &call, NULL);
}

static ulyx_status_t
backward_run(struct attention *a)
{
    ulyx_dist_attention_backward_t call = ULYX_DIST_ATTENTION_BACKWARD_INIT;
    const void *out = a->tensors[ATTENTION_OUT],
               *dout = a->tensors[ATTENTION_DOUT];
    void *dq = a->tensors[ATTENTION_DQ], *dk = a->tensors[ATTENTION_DK],
         *dv = a->tensors[ATTENTION_DV];
    call.out = &out;
    call.dout = &dout;
    call.dq = &dq;
    call.dk = &dk;
    call.dv = &dv;
    call.workspace = a->workspace;
    call.workspace_bytes = a->workspace_bytes;
    call.saved = a->saved;
    call.saved_bytes = a->saved_bytes;
    return ulyx_dist_attention_backward(a->dist, &call, NULL);
}

ulyx_status_t
attention_step(struct attention *a)
{
    for (int t = ATTENTION_OUT; t < ATTENTION_TENSORS; t++)
        memset(a->tensors[t], 0xff, tensor_bytes(a));
    ulyx_status_t status = forward_run(a);
    return status == ULYX_SUCCESS ? backward_run(a) : status;
}

bool
attention_is_right(const struct attention *a)
{
    for (int t = ATTENTION_OUT; t < ATTENTION_TENSORS; t++)
        if (memcmp(a->tensors[t], a->expected[t], tensor_bytes(a)) != 0)
            return false;
    return true;
}

void
attention_spoil(struct attention *a)
{
    for (int t = 0; t < ATTENTION_INPUTS; t++)
        if (a->tensors[t])
            memset(a->tensors[t], 0x5a, tensor_bytes(a));
}

/* ---- its end ------------------------------------------------------------- */

ulyx_status_t
attention_close(struct attention *a)
{
    ulyx_status_t status = ulyx_dist_attention_destroy(a->dist);
    for (int t = 0; t < ATTENTION_TENSORS; t++) {
        free(a->tensors[t]);
        free(a->expected[t]);
    }
    free(a->positions);
    free(a->workspace);
    free(a->saved);
    memset(a, 0, sizeof(*a));
    return status;
}
