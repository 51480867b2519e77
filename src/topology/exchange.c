/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange of a shape: who holds and reads how much; see schedule.h.
 * Tokens and query heads are balanced (the first have one more); query head i
 * reads KV head floor(i * hkv / h).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "topology/schedule.h"

/* Begin of part i of n balanced parts. */
static int64_t
part_begin(int64_t total, int64_t n, int64_t i)
{
    return total / n * i + uli_min(i, total % n);
}

static ulyx_status_t
check(const struct uli_exchange_shape *shape)
{
    const struct {
        const char *name;
        int64_t value, limit;
    } rows[] = {{"nodes", shape->nodes, ULI_EXCHANGE_RANKS_MAX},
        {"ranks per node", shape->ranks_per_node, 1024},
        {"sequence length", shape->seq, INT64_C(1) << 40},
        {"batch", shape->batch, 1 << 20}, {"heads", shape->heads, 1 << 16},
        {"KV heads", shape->kv_heads, 1 << 16},
        {"head dimension", shape->dim, 1 << 16},
        {"element bytes", shape->element_bytes, 16}};
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        if (rows[i].value < 1 || rows[i].value > rows[i].limit)
            return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                "%s %" PRId64 ": expected 1 to %" PRId64, rows[i].name,
                rows[i].value, rows[i].limit);
    if (shape->nodes * shape->ranks_per_node > ULI_EXCHANGE_RANKS_MAX)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%" PRId64 " nodes of %" PRId64 " ranks: more than %d ranks",
            shape->nodes, shape->ranks_per_node, ULI_EXCHANGE_RANKS_MAX);
    if (shape->heads % shape->kv_heads)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%" PRId64 " heads are not a multiple of %" PRId64 " KV heads",
            shape->heads, shape->kv_heads);
    return ULYX_SUCCESS;
}

/* KV heads [first, end) that the rank reads; empty without query heads. */
static void
kv_range(const struct uli_exchange_shape *shape, int64_t nranks, int64_t r,
    int64_t *first_p, int64_t *end_p)
{
    int64_t group = shape->heads / shape->kv_heads;
    int64_t begin = part_begin(shape->heads, nranks, r);
    int64_t end = part_begin(shape->heads, nranks, r + 1);
    *first_p = begin / group;
    *end_p = end > begin ? (end - 1) / group + 1 : *first_p;
}

/* Readers of KV head k among ranks [first, end). */
static int64_t
count_readers(const struct uli_exchange_shape *shape, int32_t nranks,
    int32_t first, int32_t end, int64_t k)
{
    int64_t count = 0;
    for (int32_t r = first; r < end; r++) {
        int64_t kv_first, kv_end;
        kv_range(shape, nranks, r, &kv_first, &kv_end);
        count += k >= kv_first && k < kv_end;
    }
    return count;
}

/* Only a rank's first and last KV heads can have other readers: what lies
 * between is read by its own query heads. The first rank of the node that
 * reads a shared head counts it for the node. */
static void
fill_rank(
    struct uli_exchange *x, const struct uli_exchange_shape *shape, int32_t r)
{
    int32_t node = r / x->ranks_per_node, begin = node * x->ranks_per_node;
    int64_t head_bytes = shape->batch * shape->dim * shape->element_bytes;
    int64_t first, end, shared = 0;
    int64_t heads = part_begin(shape->heads, x->nranks, r + 1) -
                    part_begin(shape->heads, x->nranks, r);
    kv_range(shape, x->nranks, r, &first, &end);
    for (int64_t k = first; k < end; k = k + 1 < end ? end - 1 : end) {
        bool others = count_readers(shape, x->nranks, begin,
                          begin + x->ranks_per_node, k) > 1;
        shared += others;
        if (others && count_readers(shape, x->nranks, begin, r, k) == 0)
            x->node_shared_bytes[node] += 2 * head_bytes;
    }
    x->rows[r] = part_begin(shape->seq, x->nranks, r + 1) -
                 part_begin(shape->seq, x->nranks, r);
    x->own_bytes[r] = head_bytes * (heads + 2 * (end - first - shared));
    x->shared_bytes[r] = 2 * head_bytes * shared;
}

ulyx_status_t
uli_exchange_create(
    const struct uli_exchange_shape *shape, struct uli_exchange *exchange_p)
{
    ULI_TRY(check(shape));
    struct uli_exchange x = {.nodes = (int32_t)shape->nodes,
        .ranks_per_node = (int32_t)shape->ranks_per_node,
        .nranks = (int32_t)(shape->nodes * shape->ranks_per_node),
        .local = shape->local};
    size_t count = (size_t)x.nranks;
    x.rows = calloc(3 * count + (size_t)x.nodes, sizeof(*x.rows));
    if (!x.rows)
        return uli_error(ULYX_ERR_NO_MEMORY, "exchange: no memory");
    x.own_bytes = x.rows + count;
    x.shared_bytes = x.own_bytes + count;
    x.node_shared_bytes = x.shared_bytes + count;
    for (int32_t r = 0; r < x.nranks; r++)
        fill_rank(&x, shape, r);
    *exchange_p = x;
    return ULYX_SUCCESS;
}

void
uli_exchange_destroy(struct uli_exchange *exchange)
{
    free(exchange->rows);
    memset(exchange, 0, sizeof(*exchange));
}

int64_t
uli_exchange_carried(const struct uli_exchange *x, int32_t r)
{
    int32_t g = x->ranks_per_node;
    int64_t shared = x->node_shared_bytes[r / g];
    return x->own_bytes[r] + part_begin(shared, g, r % g + 1) -
           part_begin(shared, g, r % g);
}

int64_t
uli_exchange_handed(const struct uli_exchange *x, int32_t from, int32_t to)
{
    int32_t g = x->ranks_per_node;
    return part_begin(x->shared_bytes[to], g, from % g + 1) -
           part_begin(x->shared_bytes[to], g, from % g);
}
