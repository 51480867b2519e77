/* SPDX-License-Identifier: Apache-2.0
 *
 * The lists of a direction by copy engines; engine_table.h has the scheme.
 * Copy items are visited twice: first to count them, and again when all ranks'
 * strides are known, to make copies and items, which are then sorted by round.
 */
#include "collectives/device/engine/engine_table.h"

#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"

struct build {
    const struct uli_engine_params *params;
    struct uli_engine_table *table;
    const struct uli_shape *shape;
    enum uli_side from, to;
    bool fills;      /* else counts */
    int32_t *rounds; /* [nitems]: the round of an item */
    /* [nranks]: of each source of the present sum */
    int32_t *group;
    int64_t *offset;
    int64_t (*stride)[3];
};

static ulyx_status_t
no_memory(void)
{
    return uli_error(
        ULYX_ERR_NO_MEMORY, "lists of an exchange by copy engines: no memory");
}

/* ---- places -------------------------------------------------------------- */

/* Returns where an item begins in a tensor. */
static int64_t
tensor_offset(const struct build *b, const struct uli_engine_copy_item *cut,
    const struct uli_place *place, enum uli_side side)
{
    int32_t t = cut->move->tensor;
    const int64_t *stride = b->params->strides[place->rank][t][side];
    return (place->batch + cut->first[0]) * stride[0] +
           (place->row + cut->first[1]) * stride[1] +
           (place->head + cut->first[2]) * stride[2] +
           cut->first[3] * uli_plan_elem_bytes(b->params->layout, t, side);
}

/* Returns where an item lies in the receive buffer of its pair. */
static int64_t
recv_buffer_offset(
    const struct build *b, const struct uli_engine_copy_item *cut, int32_t src)
{
    return cut->round % ULI_ENGINE_SLOTS * b->params->slot_bytes +
           cut->at[src];
}

static const int64_t *
strides_of(const struct build *b, const struct uli_engine_copy_item *cut,
    int32_t rank, enum uli_side side)
{
    return b->params->strides[rank][cut->move->tensor][side];
}

/* ---- copies -------------------------------------------------------------- */

static void
add_copy(const struct build *b, struct uli_engine_copies *copies,
    const struct uli_engine_copy_item *cut, int32_t peer, struct uli_box *box)
{
    int64_t order = copies->count++;
    if (!b->fills)
        return;
    struct uli_engine_copy *copy = &copies->at[order];
    uli_box_normalize(box);
    copy->box = *box;
    copy->order = order;
    copy->round = cut->round;
    copy->tensor = cut->move->tensor;
    copy->peer = peer;
}

static void
set_extents(const struct uli_engine_copy_item *cut, struct uli_box *box)
{
    memset(box, 0, sizeof(*box));
    memcpy(box->extent, cut->count, sizeof(box->extent));
    box->run_bytes = cut->count[3] * cut->element_bytes;
}

static void
build_push(const struct build *b, const struct uli_engine_copy_item *cut,
    const struct uli_place *src)
{
    struct uli_box box;
    set_extents(cut, &box);
    if (b->fills) {
        box.src_offset = tensor_offset(b, cut, src, b->from);
        memcpy(box.src_stride, strides_of(b, cut, src->rank, b->from),
            sizeof(box.src_stride));
        box.dst_offset = recv_buffer_offset(b, cut, src->rank);
        uli_gpu_packed_strides(box.extent, box.run_bytes, box.dst_stride);
    }
    add_copy(b, &b->table->push, cut, cut->move->dst.rank, &box);
}

/* A source in the receive buffer, or in this rank's own tensor. */
static void
build_take(const struct build *b, const struct uli_engine_copy_item *cut)
{
    const struct uli_move *move = cut->move;
    const struct uli_place *src = move->sources;
    struct uli_box box;
    set_extents(cut, &box);
    if (b->fills) {
        box.dst_offset = tensor_offset(b, cut, &move->dst, b->to);
        memcpy(box.dst_stride, strides_of(b, cut, move->dst.rank, b->to),
            sizeof(box.dst_stride));
        box.src_offset = cut->round < 0
                             ? tensor_offset(b, cut, src, b->from)
                             : recv_buffer_offset(b, cut, src->rank);
        if (cut->round < 0)
            memcpy(box.src_stride, strides_of(b, cut, src->rank, b->from),
                sizeof(box.src_stride));
        else
            uli_gpu_packed_strides(box.extent, box.run_bytes, box.src_stride);
    }
    add_copy(b, &b->table->take, cut, src->rank, &box);
}

/* ---- items --------------------------------------------------------------- */

static struct uli_gpu_item *
add_item(const struct build *b, const struct uli_engine_copy_item *cut,
    enum uli_gpu_kind kind)
{
    int64_t index = b->table->nitems++;
    if (!b->fills)
        return NULL;
    struct uli_gpu_item *item = &b->table->items[index];
    memset(item, 0, sizeof(*item));
    item->kind = kind;
    item->tensor = cut->move->tensor;
    item->dst_rank = item->src_rank = b->params->rank;
    b->rounds[index] = cut->round;
    return item;
}

static void
add_zero(const struct build *b, const struct uli_engine_copy_item *cut)
{
    const struct uli_move *move = cut->move;
    struct uli_gpu_item *item = add_item(b, cut, ULI_GPU_ZERO);
    struct uli_box box;
    if (!item)
        return;
    memset(&box, 0, sizeof(box));
    memcpy(box.extent, cut->count, sizeof(box.extent));
    box.run_bytes = cut->count[3] *
                    uli_plan_elem_bytes(b->params->layout, move->tensor, b->to);
    box.dst_offset = tensor_offset(b, cut, &move->dst, b->to);
    memcpy(box.dst_stride, strides_of(b, cut, move->dst.rank, b->to),
        sizeof(box.dst_stride));
    memcpy(box.src_stride, box.dst_stride, sizeof(box.src_stride));
    uli_box_normalize(&box);
    uli_gpu_item_of_box(item, &box);
}

static void
make_sum(const struct build *b, const struct uli_engine_copy_item *cut,
    struct uli_sum *sum)
{
    const struct uli_move *move = cut->move;
    const struct uli_shape_tensor *tensor = &b->shape->tensors[move->tensor];
    memset(sum, 0, sizeof(*sum));
    memcpy(sum->extent, cut->count, sizeof(sum->extent));
    sum->run = cut->count[3];
    sum->dtype = tensor->dtype;
    sum->partial_dtype = uli_plan_dtype(tensor, b->from);
    sum->dst_offset = tensor_offset(b, cut, &move->dst, b->to);
    memcpy(sum->dst_stride, strides_of(b, cut, move->dst.rank, b->to),
        sizeof(sum->dst_stride));
    sum->nsources = move->nsources;
    for (int32_t s = 0; s < move->nsources; s++) {
        const struct uli_place *place = &move->sources[s];
        b->group[s] = b->params->nodes[place->rank];
        b->offset[s] = place->rank == b->params->rank
                           ? tensor_offset(b, cut, place, b->from)
                           : recv_buffer_offset(b, cut, place->rank);
        if (place->rank == b->params->rank)
            memcpy(b->stride[s], strides_of(b, cut, place->rank, b->from),
                sizeof(b->stride[s]));
        else
            uli_gpu_packed_strides(
                sum->extent, sum->run * cut->element_bytes, b->stride[s]);
    }
    uli_plan_normalize_sum(sum, b->stride);
}

static void
add_sum(const struct build *b, const struct uli_engine_copy_item *cut)
{
    const struct uli_move *move = cut->move;
    struct uli_gpu_item *item = add_item(b, cut, ULI_GPU_SUM);
    int64_t first = b->table->nsources;
    struct uli_sum sum;
    b->table->nsources += move->nsources;
    if (!item)
        return;
    struct uli_gpu_source *sources = &b->table->sources[first];
    make_sum(b, cut, &sum);
    memset(sources, 0, (size_t)move->nsources * sizeof(*sources));
    for (int32_t s = 0; s < move->nsources; s++) {
        sources[s].rank = move->sources[s].rank;
        sources[s].group = b->group[s];
        sources[s].offset = b->offset[s];
        sources[s].slot = move->sources[s].rank != b->params->rank;
        memcpy(sources[s].stride, b->stride[s], sizeof(sources[s].stride));
    }
    item->first_source = first;
    uli_gpu_item_of_sum(item, &sum, sources);
}

/* ---- the walk ------------------------------------------------------------ */

static bool
visit_out(void *context, const struct uli_engine_copy_item *cut)
{
    const struct build *b = context;
    const struct uli_move *move = cut->move;
    for (int32_t s = 0; s < move->nsources; s++)
        if (move->sources[s].rank == b->params->rank)
            build_push(b, cut, &move->sources[s]);
    return true;
}

static bool
visit_in(void *context, const struct uli_engine_copy_item *cut)
{
    const struct build *b = context;
    if (cut->move->kind == ULI_MOVE_COPY)
        build_take(b, cut);
    else if (cut->move->kind == ULI_MOVE_ZERO)
        add_zero(b, cut);
    else
        add_sum(b, cut);
    return true;
}

/* Visits the moves to peers, from the next higher rank on, then the moves to
 * this rank. */
static void
walk_all(struct build *b, struct uli_engine_walk *walk)
{
    struct uli_engine_table *table = b->table;
    int32_t me = b->params->rank, nranks = b->shape->nranks;
    walk->direction = b->params->direction;
    table->push.count = table->take.count = 0;
    table->nitems = table->nsources = table->out = table->in = 0;
    for (int32_t q = 1; q < nranks; q++) {
        int32_t p = (me + q) % nranks;
        uli_engine_each_copy(walk, p, visit_out, b);
        table->out_rounds[p] = uli_engine_rounds(walk, me);
        table->out = (int32_t)uli_max(table->out, table->out_rounds[p]);
    }
    uli_engine_each_copy(walk, me, visit_in, b);
    for (int32_t p = 0; p < nranks; p++) {
        table->in_rounds[p] = uli_engine_rounds(walk, p);
        table->in = (int32_t)uli_max(table->in, table->in_rounds[p]);
    }
}

static struct build
engine_table_begin(const struct uli_engine_params *params, struct uli_engine_table *table,
    bool fills)
{
    struct build b = {.params = params,
        .table = table,
        .shape = uli_layout_shape(params->layout),
        .from = uli_plan_side(params->direction, true),
        .to = uli_plan_side(params->direction, false),
        .fills = fills};
    return b;
}

static bool
allocate_copies(struct uli_engine_copies *copies, int32_t rounds)
{
    copies->at = calloc((size_t)copies->count + 1, sizeof(*copies->at));
    copies->first = calloc((size_t)rounds + 2, sizeof(*copies->first));
    return copies->at && copies->first;
}

ulyx_status_t
uli_engine_table_create(const struct uli_engine_params *params,
    struct uli_engine_walk *walk, struct uli_engine_table *table)
{
    struct build b = engine_table_begin(params, table, false);
    size_t n = (size_t)b.shape->nranks;
    memset(table, 0, sizeof(*table));
    table->out_rounds = calloc(n, sizeof(*table->out_rounds));
    table->in_rounds = calloc(n, sizeof(*table->in_rounds));
    if (!table->out_rounds || !table->in_rounds)
        return no_memory();
    walk_all(&b, walk);
    table->items = calloc((size_t)table->nitems + 1, sizeof(*table->items));
    table->sources =
        calloc((size_t)table->nsources + 1, sizeof(*table->sources));
    table->sums = calloc((size_t)table->in + 1, sizeof(*table->sums));
    if (!table->items || !table->sources || !table->sums ||
        !allocate_copies(&table->push, table->out) ||
        !allocate_copies(&table->take, table->in))
        return no_memory();
    return ULYX_SUCCESS;
}

void
uli_engine_table_free(struct uli_engine_table *table)
{
    free(table->push.at);
    free(table->push.first);
    free(table->take.at);
    free(table->take.first);
    free(table->items);
    free(table->sources);
    free(table->sums);
    free(table->out_rounds);
    free(table->in_rounds);
    memset(table, 0, sizeof(*table));
}

/* ---- by round ------------------------------------------------------------ */

static int
compare_copies(const void *a, const void *b)
{
    const struct uli_engine_copy *x = a, *y = b;
    if (x->round != y->round)
        return x->round < y->round ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

static void
sort_copies(struct uli_engine_copies *copies, int32_t rounds)
{
    int64_t i = 0;
    qsort(
        copies->at, (size_t)copies->count, sizeof(*copies->at), compare_copies);
    for (int32_t k = -1; k <= rounds; k++) {
        while (i < copies->count && copies->at[i].round < k)
            i++;
        copies->first[k + 1] = i;
    }
}

/* Counts the items of each round, copies them to their places in `sorted`, and
 * cuts each round's launch into tiles. */
static void
sort_items(const struct build *b, struct uli_gpu_item *sorted)
{
    struct uli_engine_table *table = b->table;
    int64_t at = 0;
    for (int64_t i = 0; i < table->nitems; i++)
        table->sums[b->rounds[i] + 1].count++;
    for (int32_t k = 0; k <= table->in; k++) {
        table->sums[k].first = at;
        at += table->sums[k].count;
        table->sums[k].count = 0;
    }
    for (int64_t i = 0; i < table->nitems; i++) {
        struct uli_engine_sums *sums = &table->sums[b->rounds[i] + 1];
        sorted[sums->first + sums->count++] = table->items[i];
    }
    memcpy(table->items, sorted, (size_t)table->nitems * sizeof(*sorted));
    for (int32_t k = 0; k <= table->in; k++) {
        struct uli_engine_sums *sums = &table->sums[k];
        struct uli_gpu_table part = {
            .items = table->items + sums->first, .nitems = sums->count};
        uli_gpu_table_cut(&part, b->params->workers);
        sums->ntiles = part.ntiles;
        sums->tile_bytes = part.tile_bytes;
    }
}

ulyx_status_t
uli_engine_table_fill(const struct uli_engine_params *params,
    struct uli_engine_walk *walk, struct uli_engine_table *table)
{
    struct build b = engine_table_begin(params, table, true);
    size_t n = (size_t)b.shape->nranks, items = (size_t)table->nitems + 1;
    struct uli_gpu_item *sorted = malloc(items * sizeof(*sorted));
    b.rounds = malloc(items * sizeof(*b.rounds));
    b.group = malloc(n * sizeof(*b.group));
    b.offset = malloc(n * sizeof(*b.offset));
    b.stride = malloc(n * sizeof(*b.stride));
    bool there = sorted && b.rounds && b.group && b.offset && b.stride;
    if (there) {
        walk_all(&b, walk);
        sort_copies(&table->push, table->out);
        sort_copies(&table->take, table->in);
        memset(table->sums, 0, ((size_t)table->in + 1) * sizeof(*table->sums));
        sort_items(&b, sorted);
    }
    free(sorted);
    free(b.rounds);
    free(b.group);
    free(b.offset);
    free(b.stride);
    return there ? ULYX_SUCCESS : no_memory();
}
