/* SPDX-License-Identifier: Apache-2.0
 *
 * See exchange.h.
 */
#include "exchange.h"

#include <stdlib.h>
#include "base/status.h"

enum { ELEM_BYTES = 2, PARTIAL_BYTES = 4 };

int64_t
exchange_heads(int tensor)
{
    return tensor == 0 ? HEADS : KV_HEADS;
}

ulyx_status_t
exchange_meet(struct exchange *exchange)
{
    ULI_TRY(ulyx_comm_create_from_env(NULL, &exchange->comm));
    ULI_TRY(ulyx_comm_get_rank(exchange->comm, &exchange->rank));
    return ulyx_comm_get_nranks(exchange->comm, &exchange->nranks);
}

static ulyx_status_t
make_plan(struct exchange *exchange)
{
    ulyx_part_t part = ULYX_PART_INIT;
    ulyx_tensor_t tensors[TENSORS] = {
        ULYX_TENSOR_INIT, ULYX_TENSOR_INIT, ULYX_TENSOR_INIT};
    ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
    part.rows = exchange->rows;
    for (int t = 0; t < TENSORS; t++) {
        tensors[t].heads = exchange_heads(t);
        tensors[t].dim = DIM;
        tensors[t].ownership = t == 0 ? ULYX_HEADS_QUERY : ULYX_HEADS_KV;
    }
    params.batch = 1;
    params.heads = HEADS;
    params.parts = &part;
    params.nparts = 1;
    params.tensors = tensors;
    params.ntensors = TENSORS;
    return ulyx_plan_create(exchange->comm, &params, &exchange->plan);
}

/* The tensors begin as zeros: random bits may be floats whose sums are slow. */
static ulyx_status_t
exchange_allocate(struct exchange *exchange)
{
    int64_t rows = 0;
    ULI_TRY(ulyx_plan_get_seq_rows(exchange->plan, 0, exchange->rank, &rows));
    for (int t = 0; t < TENSORS; t++) {
        int64_t first, heads = 0;
        ULI_TRY(ulyx_plan_get_heads(
            exchange->plan, t, exchange->rank, &first, &heads));
        exchange->bytes[t] =
            (size_t)(rows * exchange_heads(t) * DIM * ELEM_BYTES);
        exchange->head_bytes[t] =
            (size_t)(exchange->rows * heads * DIM * ELEM_BYTES);
        exchange->seq[t] = calloc(1, exchange->bytes[t] + 1);
        exchange->back[t] = calloc(1, exchange->bytes[t] + 1);
        exchange->head[t] =
            calloc(PARTIAL_BYTES / ELEM_BYTES, exchange->head_bytes[t] + 1);
        if (!exchange->seq[t] || !exchange->back[t] || !exchange->head[t])
            return ULYX_ERR_NO_MEMORY;
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
exchange_plan(struct exchange *exchange)
{
    ULI_TRY(make_plan(exchange));
    return exchange_allocate(exchange);
}

void
exchange_close(struct exchange *exchange)
{
    ulyx_plan_destroy(exchange->plan);
    ulyx_comm_destroy(exchange->comm);
    for (int t = 0; t < TENSORS; t++) {
        free(exchange->seq[t]);
        free(exchange->back[t]);
        free(exchange->head[t]);
    }
}
