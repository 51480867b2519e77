/* SPDX-License-Identifier: Apache-2.0
 *
 * Streams between two nodes; see layout_hier.h. The time is that of sorting the
 * moves between the two nodes; each move takes some temporary memory.
 */
#include "collectives/hier/layout_hier.h"

#include <stdlib.h>
#include <string.h>
#include "base/dtype.h"
#include "base/size.h"
#include "base/status.h"
#include "collectives/exchange/exchange.h"
#include "collectives/hier/layout_hier_rects.h"
#include "collectives/plan/plan.h"

/* ---- nodes --------------------------------------------------------------- */

ulyx_status_t
uli_nodes_create(int32_t nranks, int32_t nnodes, const int32_t *node,
    struct uli_hier_nodes *nodes_p)
{
    struct uli_hier_nodes x = {.nranks = nranks, .nnodes = nnodes};
    x.node = calloc((size_t)nranks, sizeof(int32_t));
    x.local = calloc((size_t)nranks, sizeof(int32_t));
    x.ranks = calloc((size_t)nranks, sizeof(int32_t));
    x.first = calloc((size_t)nnodes + 1, sizeof(int32_t));
    if (!x.node || !x.local || !x.ranks || !x.first) {
        uli_nodes_destroy(&x);
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for %d nodes", nnodes);
    }
    for (int32_t r = 0; r < nranks; r++) {
        x.node[r] = node[r];
        x.local[r] = x.first[node[r] + 1]++;
    }
    for (int32_t n = 0; n < nnodes; n++)
        x.first[n + 1] += x.first[n];
    for (int32_t r = 0; r < nranks; r++)
        x.ranks[x.first[node[r]] + x.local[r]] = r;
    *nodes_p = x;
    return ULYX_SUCCESS;
}

void
uli_nodes_destroy(struct uli_hier_nodes *nodes)
{
    free(nodes->node);
    free(nodes->local);
    free(nodes->ranks);
    free(nodes->first);
}

bool
uli_nodes_cross(const struct uli_hier_nodes *nodes, const struct uli_move *move)
{
    for (int32_t s = 0; s < move->nsources; s++)
        if (nodes->node[move->sources[s].rank] != nodes->node[move->dst.rank])
            return true;
    return false;
}

/* ---- what ranks read ----------------------------------------------------- */

struct pair {
    const struct uli_layout *layout;
    const struct uli_hier_nodes *nodes;
    ulyx_direction_t direction;
    int32_t from, to;
    int32_t source; /* the rank of `from` whose moves are visited now */
    struct uli_hier_rects rects;
    struct uli_place *scratch, *givers, *readers;
    struct uli_place *cut_givers, *cut_readers;
    uli_hier_fn visit;
    void *context;
    int64_t *rail_bytes;
    struct uli_hier_bytes bytes;
};

/* Replicated copies on the sequence side have the same place on all ranks. */
static bool
pair_alike(const struct pair *x, int32_t tensor)
{
    const struct uli_shape *shape = uli_layout_shape(x->layout);
    return uli_plan_side(x->direction, false) == ULI_SIDE_SEQ &&
           shape->parts[shape->tensors[tensor].part].kind ==
               ULYX_PART_REPLICATED;
}

/* Adds the move for the visited source; a sum is added at its first source of
 * `from`. */
static bool
add_move(void *context, const struct uli_move *move)
{
    struct pair *x = context;
    struct uli_hier_rect rect = {.sum = move->kind == ULI_MOVE_SUM,
        .tensor = move->tensor,
        .batches = move->batches,
        .rows = move->rows,
        .heads = move->heads,
        .dst = move->dst};
    if (!uli_nodes_cross(x->nodes, move))
        return true;
    for (int32_t s = 0; s < move->nsources; s++)
        if (x->nodes->node[move->sources[s].rank] == x->from)
            x->givers[rect.ngivers++] = move->sources[s];
    if (x->givers[0].rank != x->source)
        return true;
    rect.key = rect.sum ? move->dst : x->givers[0];
    if (rect.sum && pair_alike(x, move->tensor))
        rect.key.rank = -1;
    uli_hier_rects_add(&x->rects, rect, x->givers);
    return !x->rects.failed;
}

static void
pair_collect(struct pair *x)
{
    const struct uli_hier_nodes *nodes = x->nodes;
    int32_t ntensors = uli_layout_shape(x->layout)->ntensors;
    for (int32_t t = 0; t < ntensors; t++)
        for (int32_t i = 0; i < uli_nodes_size(nodes, x->to); i++)
            for (int32_t k = 0; k < uli_nodes_size(nodes, x->from); k++) {
                x->source = uli_nodes_rank(nodes, x->from, k);
                uli_layout_each_move(x->layout, x->direction, t,
                    uli_nodes_rank(nodes, x->to, i), x->source, x->scratch,
                    add_move, x);
            }
}

/* ---- streams ------------------------------------------------------------- */

static int64_t
unit_of(const struct pair *x, const struct uli_hier_rect *rect)
{
    const struct uli_shape_tensor *t =
        &uli_layout_shape(x->layout)->tensors[rect->tensor];
    enum uli_side from = uli_plan_side(x->direction, true);
    if (rect->sum && rect->ngivers > 1)
        return uli_sum_acc_bytes(t->dtype, uli_plan_dtype(t, from));
    return uli_plan_elem_bytes(x->layout, rect->tensor, from);
}

/* Emits rows [low, high) of an item to its rail. */
static void
emit_rows(struct pair *x, struct uli_hier_item item, int64_t low, int64_t high)
{
    int64_t dim = uli_layout_shape(x->layout)->tensors[item.tensor].dim;
    int64_t *length = &x->rail_bytes[item.rail];
    if (low == high)
        return;
    for (int32_t i = 0; i < item.ngivers; i++) {
        x->cut_givers[i] = item.givers[i];
        x->cut_givers[i].row += low;
    }
    for (int32_t i = 0; i < item.nreaders; i++) {
        x->cut_readers[i] = item.readers[i];
        x->cut_readers[i].row += low;
    }
    item.givers = x->cut_givers;
    item.readers = x->cut_readers;
    item.rows = high - low;
    item.at = item.sum ? uli_round_up(*length, item.unit) : *length;
    item.bytes = item.batches * item.rows * item.heads * dim * item.unit;
    *length = item.at + item.bytes;
    x->bytes.wire += item.bytes;
    x->visit(x->context, &item);
}

/* Emits the bytes that the ranks first[0 .. nreaders).dst.rank read. */
static void
pair_emit(struct pair *x, const struct uli_hier_rect *first, int32_t nreaders)
{
    const struct uli_shape_tensor *t =
        &uli_layout_shape(x->layout)->tensors[first->tensor];
    int32_t rails = uli_nodes_size(x->nodes, x->to);
    struct uli_hier_item item = {.tensor = first->tensor,
        .sum = first->sum,
        .shared = first->key.rank < 0,
        .batches = first->batches,
        .heads = first->heads,
        .unit = unit_of(x, first),
        .ngivers = first->ngivers,
        .givers = x->rects.pool + first->givers,
        .nreaders = nreaders,
        .readers = x->readers};
    for (int32_t i = 0; i < nreaders; i++)
        x->readers[i] = first[i].dst;
    x->bytes.direct += first->batches * first->rows * first->heads * t->dim *
                       uli_plan_elem_bytes(x->layout, first->tensor,
                           uli_plan_side(x->direction, true)) *
                       first->ngivers * nreaders;
    if (nreaders == 1) {
        item.rail = x->nodes->local[first->dst.rank];
        emit_rows(x, item, 0, first->rows);
        return;
    }
    /* Spreads short rectangles over the rails. */
    int64_t turn = (first->key.row + first->key.head) % rails;
    for (int32_t j = 0; j < rails; j++) {
        item.rail = (int32_t)((j + turn) % rails);
        emit_rows(
            x, item, first->rows * j / rails, first->rows * (j + 1) / rails);
    }
}

static void
emit_all(struct pair *x)
{
    const struct uli_hier_rects *rects = &x->rects;
    for (int64_t i = 0, end; i < rects->count; i = end) {
        for (end = i + 1;
             end < rects->count &&
             uli_hier_rects_same(rects, &rects->at[i], &rects->at[end]);
             end++)
            ;
        pair_emit(x, &rects->at[i], (int32_t)(end - i));
    }
}

ulyx_status_t
uli_hier_each_item(const struct uli_layout *layout,
    const struct uli_hier_nodes *nodes, ulyx_direction_t direction,
    int32_t from, int32_t to, uli_hier_fn visit, void *context,
    int64_t *rail_bytes_p, struct uli_hier_bytes *bytes_p)
{
    struct pair x = {.layout = layout,
        .nodes = nodes,
        .direction = direction,
        .from = from,
        .to = to,
        .visit = visit,
        .context = context,
        .rail_bytes = rail_bytes_p};
    size_t nranks = (size_t)nodes->nranks;
    struct uli_place *places = calloc(
        (size_t)uli_layout_scratch(layout) + 1 + 4 * nranks, sizeof(*places));
    memset(rail_bytes_p, 0,
        (size_t)uli_nodes_size(nodes, to) * sizeof(*rail_bytes_p));
    if (places) {
        x.givers = places;
        x.readers = places + nranks;
        x.cut_givers = places + 2 * nranks;
        x.cut_readers = places + 3 * nranks;
        x.scratch = places + 4 * nranks;
        pair_collect(&x);
        uli_hier_rects_cut(&x.rects);
        if (!x.rects.failed)
            emit_all(&x);
    }
    bool good = places && !x.rects.failed;
    uli_hier_rects_free(&x.rects);
    free(places);
    *bytes_p = x.bytes;
    return good ? ULYX_SUCCESS
                : uli_error(ULYX_ERR_NO_MEMORY,
                      "no memory to plan what crosses from node %d to node %d",
                      from, to);
}
