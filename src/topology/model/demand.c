/* SPDX-License-Identifier: Apache-2.0
 *
 * The demand of a shape: how much each rank holds and reads; see demand.h.
 * Tokens and query heads are balanced (the first ranks have one more); query
 * head i reads KV head floor(i * hkv / h).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "topology/model/demand.h"

/* Begin of part i of n balanced parts. */
static int64_t
part_begin(int64_t total, int64_t n, int64_t i)
{
    return total / n * i + uli_min(i, total % n);
}

static ulyx_status_t
demand_shape_check(const struct uli_demand_shape *shape)
{
    const struct {
        const char *name;
        int64_t value, limit;
    } rows[] = {{"nodes", shape->nodes, ULI_DEMAND_RANKS_MAX},
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
    if (shape->nodes * shape->ranks_per_node > ULI_DEMAND_RANKS_MAX)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%" PRId64 " nodes of %" PRId64 " ranks: more than %d ranks",
            shape->nodes, shape->ranks_per_node, ULI_DEMAND_RANKS_MAX);
    if (shape->heads % shape->kv_heads)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "heads is %" PRId64 ", must be a multiple of kv_heads (%" PRId64
            ")",
            shape->heads, shape->kv_heads);
    return ULYX_SUCCESS;
}

/* KV heads [first, end) that the rank reads; empty without query heads. */
static void
kv_range(const struct uli_demand_shape *shape, int64_t nranks, int64_t r,
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
count_readers(const struct uli_demand_shape *shape, int32_t nranks,
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

/* Bytes of one head of a token (all batches): in its own type, as a partial,
 * and in the type in which partials are summed. Partials of 16-bit elements
 * have 32 bits if any KV head has several readers. */
struct head_bytes {
    int64_t plain, partial, accumulator;
};

static struct head_bytes
head_bytes(const struct uli_demand_shape *shape, bool sums)
{
    int64_t elements = shape->batch * shape->dim, e = shape->element_bytes;
    return (struct head_bytes){elements * e, elements * (sums && e < 4 ? 4 : e),
        elements * (e > 4 ? 8 : 4)};
}

/* Only the first and the last KV head of a rank can have other readers: all
 * query heads of the KV heads between them are on this rank. A shared head is
 * counted for the node by the first rank of the node that reads it. The lowest
 * rank that reads a head gives it; of this rank's KV heads only the first can
 * have a lower reader. */
static void
fill_rank(struct uli_demand *x, const struct uli_demand_shape *shape, int32_t r)
{
    int32_t node = x->node[r], begin = x->first[node];
    struct head_bytes bytes = head_bytes(shape, x->sums);
    int64_t first, end, shared = 0;
    int64_t heads_begin = part_begin(shape->heads, x->nranks, r);
    int64_t heads = part_begin(shape->heads, x->nranks, r + 1) - heads_begin;
    kv_range(shape, x->nranks, r, &first, &end);
    for (int64_t k = first; k < end; k = k + 1 < end ? end - 1 : end) {
        bool others =
            count_readers(shape, x->nranks, begin, x->first[node + 1], k) > 1;
        shared += others;
        if (others && count_readers(shape, x->nranks, begin, r, k) == 0) {
            x->reads.node_shared[node] += 2 * bytes.plain;
            x->partials.node_shared[node] += 2 * bytes.accumulator;
        }
    }
    bool given =
        end > first && heads_begin % (shape->heads / shape->kv_heads) != 0;
    int64_t own = 2 * (end - first - shared);
    x->rows[r] = part_begin(shape->seq, x->nranks, r + 1) -
                 part_begin(shape->seq, x->nranks, r);
    x->reads.own[r] = bytes.plain * (heads + own);
    x->reads.shared[r] = 2 * bytes.plain * shared;
    x->partials.own[r] = bytes.plain * heads + bytes.partial * own;
    x->partials.shared[r] = 2 * bytes.partial * shared;
    x->gives[r] = bytes.plain * (heads + 2 * (end - first - given));
}

static int64_t *
demand_take(int64_t **at, size_t count)
{
    int64_t *taken = *at;
    *at += count;
    return taken;
}

static struct uli_holding
take_holding(int64_t **at, size_t ranks, size_t nodes)
{
    struct uli_holding holding;
    holding.own = demand_take(at, ranks);
    holding.shared = demand_take(at, ranks);
    holding.node_shared = demand_take(at, nodes);
    return holding;
}

/* Two blocks: the int64_t arrays begin at rows, the others at node. There are
 * no more nodes than ranks. */
static ulyx_status_t
demand_allocate(struct uli_demand *x)
{
    size_t ranks = (size_t)x->nranks, nodes = (size_t)x->nodes;
    int64_t *at = calloc(7 * ranks + 2 * nodes, sizeof(*at));
    x->rows = at;
    x->node = calloc(3 * ranks + nodes + 1, sizeof(*x->node));
    if (!x->rows || !x->node) {
        uli_demand_destroy(x);
        return uli_error(ULYX_ERR_NO_MEMORY, "exchange: no memory");
    }
    demand_take(&at, ranks);
    x->reads = take_holding(&at, ranks, nodes);
    x->partials = take_holding(&at, ranks, nodes);
    x->gives = demand_take(&at, ranks);
    x->none = demand_take(&at, ranks);
    x->place = x->node + ranks;
    x->members = x->place + ranks;
    x->first = x->members + ranks;
    return ULYX_SUCCESS;
}

/* first[n + 1] first counts the ranks of node n; then it becomes the begin of
 * node n + 1 in members. */
ulyx_status_t
uli_demand_create_empty(int32_t nranks, int32_t nodes, const int32_t *node_of,
    struct uli_demand *demand_p)
{
    struct uli_demand x = {.nranks = nranks,
        .nodes = nodes,
        .local = ULI_MODEL_NEAR,
        .directions = 1 << ULYX_SEQ_TO_HEAD};
    ULI_TRY(demand_allocate(&x));
    for (int32_t r = 0; r < nranks; r++) {
        x.node[r] = node_of[r];
        x.place[r] = x.first[node_of[r] + 1]++;
    }
    for (int32_t n = 0; n < nodes; n++) {
        if (x.first[n + 1] > x.ranks_per_node)
            x.ranks_per_node = x.first[n + 1];
        x.first[n + 1] += x.first[n];
    }
    for (int32_t r = 0; r < nranks; r++)
        x.members[x.first[x.node[r]] + x.place[r]] = r;
    *demand_p = x;
    return ULYX_SUCCESS;
}

/* A KV head has several readers if the query heads of some rank begin inside
 * the group of that KV head. */
static bool
has_sharers(const struct uli_demand_shape *shape, int32_t nranks)
{
    int64_t group = shape->heads / shape->kv_heads;
    for (int64_t r = 1; r < nranks; r++) {
        int64_t begin = part_begin(shape->heads, nranks, r);
        if (begin < shape->heads && begin % group != 0)
            return true;
    }
    return false;
}

ulyx_status_t
uli_demand_create(
    const struct uli_demand_shape *shape, struct uli_demand *demand_p)
{
    ULI_TRY(demand_shape_check(shape));
    int32_t nranks = (int32_t)(shape->nodes * shape->ranks_per_node);
    int32_t *node_of = calloc((size_t)nranks, sizeof(*node_of));
    struct uli_demand x;
    if (!node_of)
        return uli_error(ULYX_ERR_NO_MEMORY, "exchange: no memory");
    for (int32_t r = 0; r < nranks; r++)
        node_of[r] = r / (int32_t)shape->ranks_per_node;
    ulyx_status_t status =
        uli_demand_create_empty(nranks, (int32_t)shape->nodes, node_of, &x);
    free(node_of);
    ULI_TRY(status);
    x.local = shape->local;
    x.directions = (1 << ULYX_DIRECTIONS) - 1;
    x.sums = has_sharers(shape, nranks);
    for (int32_t r = 0; r < nranks; r++)
        fill_rank(&x, shape, r);
    *demand_p = x;
    return ULYX_SUCCESS;
}

void
uli_demand_destroy(struct uli_demand *demand)
{
    free(demand->rows);
    free(demand->node);
    memset(demand, 0, sizeof(*demand));
}

struct uli_factors
uli_demand_factors(const struct uli_demand *x, ulyx_direction_t direction)
{
    const struct uli_holding rows = {x->rows, x->none, x->none};
    const struct uli_holding gives = {x->gives, x->none, x->none};
    switch (direction) {
    case ULYX_SEQ_TO_HEAD_ADJOINT:
        return (struct uli_factors){x->partials, rows};
    case ULYX_HEAD_TO_SEQ:
        return (struct uli_factors){gives, rows};
    case ULYX_HEAD_TO_SEQ_ADJOINT:
        return (struct uli_factors){rows, gives};
    default:
        return (struct uli_factors){rows, x->reads};
    }
}

/* Part `place` of n balanced parts. */
static int64_t
part_of(int64_t total, int32_t n, int32_t place)
{
    return part_begin(total, n, place + 1) - part_begin(total, n, place);
}

int64_t
uli_demand_carried(
    const struct uli_demand *x, const struct uli_holding *holding, int32_t r)
{
    int32_t n = x->node[r];
    return holding->own[r] + part_of(holding->node_shared[n],
                                 uli_demand_node_ranks(x, n), x->place[r]);
}

int64_t
uli_demand_handed(const struct uli_demand *x, const struct uli_holding *holding,
    int32_t from, int32_t to)
{
    return part_of(holding->shared[to], uli_demand_node_ranks(x, x->node[from]),
        x->place[from]);
}
