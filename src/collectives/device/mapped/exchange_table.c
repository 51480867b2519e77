/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of the exchange on device memory. The table of a direct call has
 * the copies whose source is this rank, peer by peer from the next higher rank
 * on, then the copies within this rank, and the zeros and sums of its
 * destinations. A small call packs all shares into the peers' slots first and
 * empties its own slots after DONE. Sender and receiver walk the same moves in
 * the same order, so both know the place of a share in a slot without a
 * message.
 */
#include <string.h>
#include "base/dtype.h"
#include "base/size.h"
#include "base/status.h"
#include "collectives/device/mapped/exchange_table.h"

struct build {
    const struct uli_gpu_table_params *params;
    struct uli_gpu_table table;
    int64_t item_room, source_room;
    int32_t nranks;
    enum uli_side from, to;
    struct uli_place *scratch; /* of uli_layout_each_move */
    int64_t *slot_at;          /* [nranks] bytes used of a pair's slot */
    int32_t *group;            /* [nranks] of the current sum, as below */
    int64_t *offset;
    int64_t (*stride)[3];
    int64_t packed[3]; /* strides within a slot, of the present item */
    bool second;       /* after DONE */
    bool failed;       /* no room */
};

/* ---- room ---------------------------------------------------------------- */

static struct uli_gpu_item *
add_item(struct build *b, enum uli_gpu_kind kind, const struct uli_move *move)
{
    struct uli_gpu_table *table = &b->table;
    if (table->nitems == INT32_MAX || table->nitems == b->item_room)
        return NULL;
    struct uli_gpu_item *item = &table->items[table->nitems++];
    memset(item, 0, sizeof(*item));
    item->kind = kind;
    item->tensor = move->tensor;
    item->dst_rank = move->dst.rank;
    item->src_rank = b->params->rank;
    return item;
}

static struct uli_gpu_source *
add_sources(struct build *b, int64_t count)
{
    struct uli_gpu_table *table = &b->table;
    if (table->nsources + count > b->source_room)
        return NULL;
    struct uli_gpu_source *first = &table->sources[table->nsources];
    table->nsources += count;
    memset(first, 0, (size_t)count * sizeof(*first));
    return first;
}

/* ---- places -------------------------------------------------------------- */

static const int64_t *
strides_of(
    const struct build *b, int32_t rank, int32_t tensor, enum uli_side side)
{
    return b->params->strides[rank][tensor][side];
}

static int64_t
offset_of(const struct build *b, int32_t tensor, enum uli_side side,
    const struct uli_place *place)
{
    const int64_t *strides = strides_of(b, place->rank, tensor, side);
    return place->batch * strides[0] + place->row * strides[1] +
           place->head * strides[2];
}

/* Takes the next place of a share in a pair's slot. */
static int64_t
take_slot(struct build *b, int32_t peer, int64_t bytes)
{
    int64_t at = b->slot_at[peer];
    b->slot_at[peer] = at + uli_round_up(bytes, ULI_GPU_SLOT_ALIGN);
    return at;
}

/* ---- rectangles ---------------------------------------------------------- */

/* Strides in a slot of a move's runs of run_bytes, one behind another in the
 * order of the destination's strides of creation. A call's strides have no
 * effect, so both ends use the same strides. */
static void
pack_move(struct build *b, const struct uli_move *move, int64_t run_bytes)
{
    const int64_t extent[3] = {move->batches, move->rows, move->heads};
    const int64_t *stride = strides_of(b, move->dst.rank, move->tensor, b->to);
    bool done[3] = {false, false, false};
    memset(b->packed, 0, sizeof(b->packed));
    for (int n = 0; n < 3; n++) {
        int inner = -1;
        for (int d = 0; d < 3; d++)
            if (!done[d] && extent[d] > 1 &&
                (inner < 0 || stride[d] < stride[inner]))
                inner = d;
        if (inner < 0)
            return;
        done[inner] = true;
        b->packed[inner] = run_bytes;
        run_bytes *= extent[inner];
    }
}

static void
index_of(const struct build *b, const struct uli_place *place, bool slot,
    int64_t index_p[3])
{
    const int64_t index[3] = {place->batch, place->row, place->head};
    memcpy(index_p, slot ? b->packed : index, sizeof(index));
}

/* Fills in the rectangle of the item that was added last, whose slots are
 * known. own: the source of a copy, or NULL. */
static void
note_rect(struct build *b, const struct uli_move *move, int64_t run,
    const struct uli_place *own)
{
    const struct uli_gpu_item *item = &b->table.items[b->table.nitems - 1];
    if (!b->table.rects)
        return;
    struct uli_gpu_rect *rect = &b->table.rects[b->table.nitems - 1];
    *rect = (struct uli_gpu_rect){
        .extent = {move->batches, move->rows, move->heads}, .run = run};
    index_of(b, &move->dst, item->dst_slot, rect->dst);
    if (own)
        index_of(b, own, item->src_slot, rect->src);
}

/* ---- copies and zeros ---------------------------------------------------- */

/* Not yet normalized. */
static void
make_box(
    const struct build *b, const struct uli_move *move, struct uli_box *box)
{
    int32_t t = move->tensor;
    const struct uli_shape_tensor *tensor =
        &uli_layout_shape(b->params->layout)->tensors[t];
    memset(box, 0, sizeof(*box));
    box->extent[0] = move->batches;
    box->extent[1] = move->rows;
    box->extent[2] = move->heads;
    box->run_bytes =
        tensor->dim * uli_plan_elem_bytes(b->params->layout, t, b->to);
    box->dst_offset = offset_of(b, t, b->to, &move->dst);
    memcpy(box->dst_stride, strides_of(b, move->dst.rank, t, b->to),
        sizeof(box->dst_stride));
    if (move->nsources) {
        box->src_offset = offset_of(b, t, b->from, move->sources);
        memcpy(box->src_stride, strides_of(b, move->sources->rank, t, b->from),
            sizeof(box->src_stride));
    } else {
        memcpy(box->src_stride, box->dst_stride, sizeof(box->src_stride));
    }
}

static bool
add_copy(struct build *b, const struct uli_move *move)
{
    int32_t me = b->params->rank, src = move->sources->rank;
    struct uli_gpu_item *item = add_item(b, ULI_GPU_COPY, move);
    struct uli_box box;
    if (!item)
        return false;
    make_box(b, move, &box);
    pack_move(b, move, box.run_bytes);
    item->src_rank = src;
    if (b->table.slots && src != me) {
        item->src_slot = 1;
        box.src_offset = take_slot(b, src, uli_box_bytes(&box));
        memcpy(box.src_stride, b->packed, sizeof(box.src_stride));
    } else if (b->table.slots && item->dst_rank != me) {
        item->dst_slot = 1;
        box.dst_offset = take_slot(b, item->dst_rank, uli_box_bytes(&box));
        memcpy(box.dst_stride, b->packed, sizeof(box.dst_stride));
    }
    note_rect(b, move, box.run_bytes, move->sources);
    uli_box_normalize(&box);
    uli_gpu_item_of_box(item, &box);
    return true;
}

static bool
add_zero(struct build *b, const struct uli_move *move)
{
    struct uli_gpu_item *item = add_item(b, ULI_GPU_ZERO, move);
    struct uli_box box;
    if (!item)
        return false;
    make_box(b, move, &box);
    note_rect(b, move, box.run_bytes, NULL);
    uli_box_normalize(&box);
    uli_gpu_item_of_box(item, &box);
    return true;
}

/* ---- sums ---------------------------------------------------------------- */

static int64_t
share_bytes(const struct build *b, const struct uli_move *move)
{
    return uli_layout_shape(b->params->layout)->tensors[move->tensor].dim *
           uli_plan_elem_bytes(b->params->layout, move->tensor, b->from);
}

/* Does the share of a sum of this rank come by a slot? */
static bool
share_has_slot(const struct build *b, const struct uli_place *place)
{
    return b->table.slots && place->rank != b->params->rank;
}

/* Finds the places of a sum's shares: in tensors, or in slots, where the places
 * are taken here. */
static void
place_shares(struct build *b, const struct uli_move *move)
{
    int64_t bytes =
        share_bytes(b, move) * move->batches * move->rows * move->heads;
    pack_move(b, move, share_bytes(b, move));
    for (int32_t s = 0; s < move->nsources; s++) {
        const struct uli_place *place = &move->sources[s];
        bool slot = share_has_slot(b, place);
        b->group[s] = b->params->nodes[place->rank];
        b->offset[s] = slot ? take_slot(b, place->rank, bytes)
                            : offset_of(b, move->tensor, b->from, place);
        memcpy(b->stride[s],
            slot ? b->packed
                 : strides_of(b, place->rank, move->tensor, b->from),
            sizeof(b->stride[s]));
    }
}

/* Makes the sum of a move in canonical form, with its arrays in the builder. */
static void
make_sum(struct build *b, const struct uli_move *move, struct uli_sum *sum)
{
    int32_t t = move->tensor;
    const struct uli_shape_tensor *tensor =
        &uli_layout_shape(b->params->layout)->tensors[t];
    memset(sum, 0, sizeof(*sum));
    sum->extent[0] = move->batches;
    sum->extent[1] = move->rows;
    sum->extent[2] = move->heads;
    sum->run = tensor->dim;
    sum->dtype = tensor->dtype;
    sum->partial_dtype = uli_plan_dtype(tensor, b->from);
    sum->dst_offset = offset_of(b, t, b->to, &move->dst);
    memcpy(sum->dst_stride, strides_of(b, move->dst.rank, t, b->to),
        sizeof(sum->dst_stride));
    sum->nsources = move->nsources;
    place_shares(b, move);
    uli_plan_normalize_sum(sum, b->stride);
}

static void
fill_source(struct build *b, const struct uli_move *move, int32_t s,
    struct uli_gpu_source *source)
{
    const struct uli_place *place = &move->sources[s];
    int64_t number = source - b->table.sources;
    source->rank = place->rank;
    source->group = b->group[s];
    source->offset = b->offset[s];
    memcpy(source->stride, b->stride[s], sizeof(source->stride));
    source->slot = share_has_slot(b, place);
    if (b->table.indices)
        index_of(b, place, source->slot, b->table.indices[number].at);
}

static bool
add_sum(struct build *b, const struct uli_move *move)
{
    int64_t first = b->table.nsources;
    struct uli_gpu_item *item = add_item(b, ULI_GPU_SUM, move);
    struct uli_gpu_source *sources = add_sources(b, move->nsources);
    struct uli_sum sum;
    if (!item || !sources)
        return false;
    make_sum(b, move, &sum);
    item->first_source = first;
    for (int32_t s = 0; s < sum.nsources; s++)
        fill_source(b, move, s, &sources[s]);
    note_rect(b, move,
        uli_layout_shape(b->params->layout)->tensors[move->tensor].dim, NULL);
    uli_gpu_item_of_sum(item, &sum, sources);
    b->table.sums = true;
    return true;
}

/* Adds the copy of this rank's share of a peer's sum into the peer's slot. */
static bool
add_share(struct build *b, const struct uli_move *move)
{
    struct uli_gpu_item *item = add_item(b, ULI_GPU_COPY, move);
    const struct uli_place *own = move->sources;
    if (!item)
        return false;
    while (own->rank != b->params->rank)
        own++;
    pack_move(b, move, share_bytes(b, move));
    struct uli_box box = {.extent = {move->batches, move->rows, move->heads},
        .run_bytes = share_bytes(b, move),
        .src_offset = offset_of(b, move->tensor, b->from, own)};
    memcpy(box.src_stride, strides_of(b, own->rank, move->tensor, b->from),
        sizeof(box.src_stride));
    memcpy(box.dst_stride, b->packed, sizeof(box.dst_stride));
    item->dst_slot = 1;
    box.dst_offset = take_slot(b, item->dst_rank, uli_box_bytes(&box));
    note_rect(b, move, box.run_bytes, own);
    uli_box_normalize(&box);
    uli_gpu_item_of_box(item, &box);
    return true;
}

/* ---- the walk ------------------------------------------------------------ */

/* A move to a peer. */
static bool
visit_out(void *context, const struct uli_move *move)
{
    struct build *b = context;
    if (move->kind == ULI_MOVE_COPY)
        b->failed = !add_copy(b, move);
    else if (b->table.slots)
        b->failed = !add_share(b, move);
    return !b->failed;
}

/* A move to this rank. In a small call, moves that need no slot of a peer
 * belong to the first part, and the others to the second. */
static bool
visit_in(void *context, const struct uli_move *move)
{
    struct build *b = context;
    bool own =
        move->kind == ULI_MOVE_COPY && move->sources->rank == b->params->rank;
    bool first = own || move->kind == ULI_MOVE_ZERO;
    if (b->table.slots && first == b->second)
        return true;
    if (own)
        b->failed = !add_copy(b, move);
    else if (move->kind == ULI_MOVE_ZERO)
        b->failed = !add_zero(b, move);
    else if (move->kind == ULI_MOVE_SUM)
        b->failed = !add_sum(b, move);
    else if (b->table.slots)
        b->failed = !add_copy(b, move);
    return !b->failed;
}

static void
build_walk(struct build *b, int32_t dst, int32_t src, uli_move_fn visit)
{
    const struct uli_layout *layout = b->params->layout;
    int32_t ntensors = uli_layout_shape(layout)->ntensors;
    for (int32_t t = 0; t < ntensors && !b->failed; t++)
        uli_layout_each_move(
            layout, b->params->direction, t, dst, src, b->scratch, visit, b);
}

/* ---- slots --------------------------------------------------------------- */

static bool
visit_need(void *context, const struct uli_move *move)
{
    struct build *b = context;
    const struct uli_shape_tensor *tensor =
        &uli_layout_shape(b->params->layout)->tensors[move->tensor];
    int64_t bytes = move->batches * move->rows * move->heads * tensor->dim *
                    uli_plan_elem_bytes(b->params->layout, move->tensor,
                        move->kind == ULI_MOVE_SUM ? b->from : b->to);
    for (int32_t s = 0; s < move->nsources; s++)
        if (move->sources[s].rank != move->dst.rank)
            take_slot(b, move->sources[s].rank, bytes);
    return true;
}

/* Whether the bytes of every pair fit a slot. Equal at every rank. */
static bool
slots_fit(struct build *b)
{
    int64_t need = 0, most = b->params->slot_bytes;
    if (most <= 0 || most == INT64_MAX)
        return most > 0;
    for (int32_t dst = 0; dst < b->nranks && need <= most; dst++) {
        memset(b->slot_at, 0, (size_t)b->nranks * sizeof(*b->slot_at));
        build_walk(b, dst, -1, visit_need);
        for (int32_t p = 0; p < b->nranks; p++)
            need = uli_max(need, b->slot_at[p]);
    }
    memset(b->slot_at, 0, (size_t)b->nranks * sizeof(*b->slot_at));
    return need <= most;
}

static void
report_slots(const struct build *b, int64_t *bytes_p)
{
    if (bytes_p)
        memcpy(bytes_p, b->slot_at, (size_t)b->nranks * sizeof(*bytes_p));
}

static void
build_all(struct build *b)
{
    int32_t me = b->params->rank;
    b->table.slots = slots_fit(b);
    for (int32_t q = 1; q < b->nranks; q++)
        build_walk(b, (me + q) % b->nranks, me, visit_out);
    report_slots(b, b->params->sent_p);
    memset(b->slot_at, 0, (size_t)b->nranks * sizeof(*b->slot_at));
    build_walk(b, me, -1, visit_in);
    b->table.nfirst = b->table.nitems;
    b->second = true;
    if (b->table.slots)
        build_walk(b, me, -1, visit_in);
    report_slots(b, b->params->received_p);
    bool one_block = b->table.slots && b->params->small_workers > 0;
    uli_gpu_table_cut(
        &b->table, one_block ? b->params->small_workers : b->params->workers);
}

static struct build
exchange_table_begin(const struct uli_gpu_table_params *params,
    const struct uli_gpu_scratch *scratch)
{
    struct build b = {.params = params,
        .nranks = uli_layout_shape(params->layout)->nranks,
        .from = uli_plan_side(params->direction, true),
        .to = uli_plan_side(params->direction, false),
        .scratch = scratch->places,
        .slot_at = scratch->slot_at,
        .group = scratch->group,
        .offset = scratch->offset,
        .stride = scratch->stride};
    return b;
}

bool
uli_gpu_slots_fit(
    const struct uli_gpu_table_params *params, struct uli_gpu_scratch *scratch)
{
    struct build b = exchange_table_begin(params, scratch);
    return slots_fit(&b);
}

ulyx_status_t
uli_gpu_table_fill(const struct uli_gpu_table_params *params,
    struct uli_gpu_scratch *scratch, int64_t item_room, int64_t source_room,
    struct uli_gpu_table *table)
{
    struct build b = exchange_table_begin(params, scratch);
    memset(b.slot_at, 0, (size_t)b.nranks * sizeof(*b.slot_at));
    b.table.items = table->items;
    b.table.sources = table->sources;
    b.table.rects = table->rects;
    b.table.indices = table->indices;
    b.item_room = item_room;
    b.source_room = source_room;
    build_all(&b);
    if (b.failed)
        return uli_error(ULYX_ERR_INTERNAL,
            "tables of an exchange on a device: %lld items and %lld sources "
            "are too few",
            (long long)item_room, (long long)source_room);
    *table = b.table;
    return ULYX_SUCCESS;
}
