/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills the tables of a plan's directions: boxes, sums and verbs.
 *
 * The verb of a copy is the first that applies:
 * - the other rank is remote: a ring;
 * - the destination is a window: its source stores;
 * - the source is a window: its destination loads;
 * - towards the sequence side with long rows: the destination reads through the
 *   kernel where it can;
 * - else a ring.
 *
 * The owner of a sum loads sources that are windows, and takes the others from
 * rings. A pair whose bytes fit a slot in both directions uses slots for all of
 * them, unless stores pay.
 */
#include <string.h>
#include "base/dtype.h"
#include "base/size.h"
#include "collectives/plan/plan.h"
#include "comm/remote/remote.h"

struct fill {
    ulyx_plan_t *plan;
    struct uli_work *work;
    ulyx_direction_t direction;
    enum uli_side from, to;
    int32_t other; /* the peer, where one pair is rebuilt */
};

static struct fill
fill_of(ulyx_plan_t *plan, int direction)
{
    return (struct fill){.plan = plan,
        .work = &plan->work[direction],
        .direction = direction,
        .from = uli_plan_side(direction, true),
        .to = uli_plan_side(direction, false)};
}

/* Is a rank's source or destination declared to be a window? */
static bool
side_is_window(const struct fill *f, int32_t rank, bool source)
{
    enum uli_side side = source ? f->from : f->to;
    return f->plan->ranks[rank].memory[side == ULI_SIDE_SEQ ? 0 : 1] ==
           ULYX_POINTER_WINDOW;
}

/* Where a move's rectangle lies in a rank's tensor, dimensions in loop
 * order. */
struct place_side {
    int64_t offset, stride[3];
};

static struct place_side
side_placed(const struct fill *f, const struct uli_move *move,
    const struct uli_place *place, bool source, const int order[3])
{
    const int64_t *strides = uli_plan_strides(
        f->plan, f->direction, place->rank, move->tensor, source);
    return (struct place_side){uli_place_offset(place, strides),
        {strides[order[0]], strides[order[1]], strides[order[2]]}};
}

/* The same rectangle, dense in a stream. */
static struct place_side
side_packed(const int64_t extent[3], int64_t run_bytes)
{
    int64_t line = extent[2] * run_bytes;
    return (struct place_side){0, {extent[1] * line, line, run_bytes}};
}

/* The box of a move between the tensors of this call. dst or src NULL: that end
 * is a stream. The loops have the stream's order. */
static void
make_box(const struct fill *f, const struct uli_move *move,
    const struct uli_place *dst, const struct uli_place *src,
    struct uli_box *box)
{
    const int64_t extents[3] = {move->batches, move->rows, move->heads};
    struct place_side to, from;
    int order[3];
    uli_plan_stream_order(f->plan, f->direction, move, order);
    for (int d = 0; d < 3; d++)
        box->extent[d] = extents[order[d]];
    box->run_bytes =
        uli_layout_shape(f->plan->layout)->tensors[move->tensor].dim *
        uli_plan_elem_bytes(
            f->plan->layout, move->tensor, dst ? f->to : f->from);
    to = dst ? side_placed(f, move, dst, false, order)
             : side_packed(box->extent, box->run_bytes);
    from = src ? side_placed(f, move, src, true, order)
               : side_packed(box->extent, box->run_bytes);
    box->dst_offset = to.offset;
    box->src_offset = from.offset;
    memcpy(box->dst_stride, to.stride, sizeof(to.stride));
    memcpy(box->src_stride, from.stride, sizeof(from.stride));
}

/* Bytes of a run that is adjacent at both ends by the strides of creation,
 * which both ends have.
 */
static int64_t
usual_run(const struct fill *f, const struct uli_move *move)
{
    const struct uli_rank_info *ranks = f->plan->ranks;
    const struct uli_place *src = move->sources;
    int32_t t = move->tensor;
    struct uli_box box = {.extent = {move->batches, move->rows, move->heads},
        .run_bytes = uli_layout_shape(f->plan->layout)->tensors[t].dim *
                     uli_plan_elem_bytes(f->plan->layout, t, f->to)};
    memcpy(box.dst_stride, ranks[move->dst.rank].strides[t][f->to],
        sizeof(box.dst_stride));
    memcpy(box.src_stride, ranks[src->rank].strides[t][f->from],
        sizeof(box.src_stride));
    uli_box_normalize(&box);
    return box.run_bytes;
}

/* The verb of a copy at this rank; NONE where the other rank moves it. Does not
 * depend on a call's strides. */
static int32_t
copy_verb(const struct fill *f, const struct uli_move *move, bool slot)
{
    int32_t src = move->sources[0].rank, dst = move->dst.rank;
    bool mine = dst == f->plan->comm->rank;
    int64_t min_row = f->plan->ranks[dst].cma_min_row;
    if (slot || uli_comm_is_remote(f->plan->comm, mine ? src : dst))
        return ULI_VERB_STREAM;
    if (side_is_window(f, dst, false))
        return mine ? ULI_VERB_NONE : ULI_VERB_STORE;
    if (side_is_window(f, src, true))
        return mine ? ULI_VERB_LOAD : ULI_VERB_NONE;
    if (f->to == ULI_SIDE_SEQ && min_row > 0 && usual_run(f, move) >= min_row)
        return ULI_VERB_READ;
    return ULI_VERB_STREAM;
}

/* The box of a copy by this rank's verb. Under READ the source's end may have
 * to send a stream instead, so its box has the stream's order. */
static void
copy_box(const struct fill *f, const struct uli_move *move, int32_t verb,
    struct uli_box *box)
{
    bool mine = move->dst.rank == f->plan->comm->rank;
    bool both = verb != ULI_VERB_STREAM && (mine || verb != ULI_VERB_READ);
    make_box(f, move, mine || both ? &move->dst : NULL,
        !mine || both ? move->sources : NULL, box);
    if (verb == ULI_VERB_STREAM || verb == ULI_VERB_READ)
        uli_box_merge(box);
    else
        uli_box_normalize(box);
}

static struct uli_item *
add_item(struct uli_items *items, int32_t tensor, int64_t sum)
{
    struct uli_item *item = &items->at[items->count++];
    item->tensor = tensor;
    item->sum = sum;
    return item;
}

static void
add_local(struct fill *f, const struct uli_move *move)
{
    struct uli_local *local = &f->work->locals[f->work->nlocals++];
    local->tensor = move->tensor;
    local->zero = move->kind == ULI_MOVE_ZERO;
    if (local->zero)
        make_box(f, move, &move->dst, NULL, &local->box);
    else
        make_box(f, move, &move->dst, move->sources, &local->box);
    uli_box_normalize(&local->box);
}

/* Does the share of rank `source` in sums of rank `owner` come by a stream? */
static bool
share_streams(const struct fill *f, int32_t source, int32_t owner)
{
    int32_t other = source == f->plan->comm->rank ? owner : source;
    return !side_is_window(f, source, true) || f->work->pairs[other].slot ||
           uli_comm_is_remote(f->plan->comm, other);
}

/* Adds source s to the sum with this index. */
static void
add_source(struct fill *f, const struct uli_move *move, int32_t s,
    int64_t index, struct uli_sum_item *sum)
{
    struct uli_sum_source *source = &sum->sources[s];
    int32_t me = f->plan->comm->rank;
    source->rank = move->sources[s].rank;
    source->stream = false;
    if (source->rank == me)
        return;
    struct uli_pair_work *pair = &f->work->pairs[source->rank];
    pair->last_sum = index;
    source->stream = share_streams(f, source->rank, me);
    pair->loaded |= !source->stream;
    if (!source->stream)
        return;
    source->item = pair->in.count;
    sum->loads_only = false;
    struct uli_item *item = add_item(&pair->in, move->tensor, index);
    item->verb = ULI_VERB_STREAM;
    make_box(f, move, NULL, NULL, &item->box); /* no places: the sum has them */
}

static void
add_sum(struct fill *f, const struct uli_move *unsorted)
{
    const struct uli_move move = uli_plan_by_node(f->plan, unsorted);
    struct uli_sum_pool *pool = &f->plan->pools[f->direction];
    int64_t index = f->work->nsums++;
    struct uli_sum_item *sum = &f->work->sums[index];
    sum->tensor = move.tensor;
    sum->loads_only = true;
    sum->sources = pool->sources + pool->used;
    for (int32_t s = 0; s < move.nsources; s++)
        add_source(f, &move, s, index, sum);
    uli_plan_make_sum(f->plan, f->direction, &move, pool, sum);
    pool->used += move.nsources;
}

/* A copy from another rank. */
static void
add_copy_in(struct fill *f, const struct uli_move *move)
{
    struct uli_pair_work *pair = &f->work->pairs[move->sources[0].rank];
    int32_t verb = copy_verb(f, move, pair->slot);
    if (verb == ULI_VERB_NONE)
        return;
    struct uli_item *item = add_item(&pair->in, move->tensor, -1);
    item->verb = verb;
    copy_box(f, move, verb, &item->box);
}

static bool
fill_in(void *context, const struct uli_move *move)
{
    struct fill *f = context;
    int32_t me = f->plan->comm->rank;
    if (uli_plan_carries(f->plan, move))
        return true;
    if (move->kind == ULI_MOVE_SUM) {
        add_sum(f, move);
        return true;
    }
    if (move->kind == ULI_MOVE_ZERO || move->sources[0].rank == me) {
        add_local(f, move);
        return true;
    }
    add_copy_in(f, move);
    return true;
}

/* This rank's share of another rank's sum. */
static void
add_share(
    struct fill *f, struct uli_pair_work *pair, const struct uli_move *move)
{
    struct uli_item *item = add_item(&pair->out, move->tensor, 0);
    item->verb = ULI_VERB_STREAM;
    for (int32_t s = 0; s < move->nsources; s++)
        if (move->sources[s].rank == f->plan->comm->rank)
            make_box(f, move, NULL, &move->sources[s], &item->box);
    uli_box_merge(&item->box);
}

static bool
fill_out(void *context, const struct uli_move *move)
{
    struct fill *f = context;
    ulyx_plan_t *plan = f->plan;
    int32_t me = plan->comm->rank, p = move->dst.rank;
    struct uli_pair_work *pair = &f->work->pairs[p];
    if (uli_plan_carries(plan, move))
        return true;
    if (move->kind == ULI_MOVE_COPY) {
        int32_t verb = copy_verb(f, move, pair->slot);
        pair->taken |= verb == ULI_VERB_NONE;
        if (verb == ULI_VERB_NONE)
            return true;
        struct uli_item *item = add_item(&pair->out, move->tensor, -1);
        item->verb = verb;
        copy_box(f, move, verb, &item->box);
        return true;
    }
    bool streams = share_streams(f, me, p);
    pair->taken |= !streams;
    if (!streams)
        return true;
    f->work->remote_shares |= uli_comm_is_remote(plan->comm, p);
    add_share(f, pair, move);
    return true;
}

/* ---- all of a direction ------------------------------------------------- */

static int64_t
items_bytes(const struct uli_items *items, int32_t verb)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < items->count; i++)
        if (items->at[i].verb == verb)
            bytes += uli_box_bytes(&items->at[i].box);
    return bytes;
}

static int64_t
count_copied(const struct uli_work *work, int32_t nranks)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < work->nlocals; i++)
        bytes += uli_box_bytes(&work->locals[i].box);
    for (int32_t p = 0; p < nranks; p++)
        bytes += items_bytes(&work->pairs[p].in, ULI_VERB_LOAD) +
                 items_bytes(&work->pairs[p].out, ULI_VERB_STORE);
    return bytes;
}

/* The bytes of a direction at this rank, whoever moves them. */
static int64_t
count_all(const ulyx_plan_t *plan, ulyx_direction_t direction)
{
    const struct uli_plan_room *room = &plan->room[direction];
    int64_t bytes = 0;
    for (int32_t p = 0; p < plan->comm->nranks; p++)
        bytes += room->in[p].copies + room->in[p].sums + room->out[p].copies +
                 room->out[p].sums;
    return bytes;
}

/* Notes for which pairs a short record is enough: with slots the peer needs no
 * address, and with stores in both directions the peer needs only the addresses
 * of dst. */
static void
note_brief(struct fill *f)
{
    const struct uli_exchange *exchange = &f->plan->exchange;
    for (int32_t p = 0; p < exchange->nranks; p++) {
        struct uli_pair_work *pair = &f->work->pairs[p];
        bool remote = exchange->pairs[p].remote;
        pair->stores = !remote && !pair->slot && pair->in.count == 0 &&
                       !pair->out.streams && !pair->out.reads && !pair->taken &&
                       !pair->loaded;
        pair->brief = (pair->slot && !remote) ||
                      (pair->stores && exchange->ntensors <= ULI_SHORT_TENSORS);
    }
}

/* Notes which verbs the items have, and whether they need rings at this rank.
 * Items that this rank reads itself and items in slots need none. */
static void
note_streams(struct fill *f)
{
    struct uli_work *work = f->work;
    work->streams = work->staged_sums = false;
    for (int32_t p = 0; p < f->plan->comm->nranks; p++) {
        struct uli_pair_work *pair = &work->pairs[p];
        const struct uli_pair *ends = &f->plan->exchange.pairs[p];
        struct uli_items *all[] = {&pair->in, &pair->out};
        for (int i = 0; i < 2; i++) {
            all[i]->streams = all[i]->reads = false;
            for (int64_t k = 0; k < all[i]->count; k++) {
                all[i]->streams |= all[i]->at[k].verb == ULI_VERB_STREAM;
                all[i]->reads |= all[i]->at[k].verb == ULI_VERB_READ;
            }
        }
        if (!pair->slot)
            work->streams |= pair->in.streams ||
                             (pair->in.reads && !ends->can_read) ||
                             (pair->out.streams && ends->remote);
    }
    for (int64_t i = 0; i < work->nsums; i++)
        work->staged_sums |= !work->sums[i].loads_only;
}

/* The first box that this rank stores at rank p, or its first own box for p =
 * this rank; NULL if there is none. */
static const struct uli_box *
first_box(const struct fill *f, int32_t p)
{
    const struct uli_work *work = f->work;
    const struct uli_items *out = &work->pairs[p].out;
    if (p == f->plan->comm->rank)
        return work->nlocals && !work->locals[0].zero ? &work->locals[0].box
                                                      : NULL;
    return out->count && out->at[0].verb == ULI_VERB_STORE ? &out->at[0].box
                                                           : NULL;
}

/* Notes whether boxes can be fanned out, by the first box of each rank: the
 * others mostly differ from it in tensor or rows only. */
static void
note_fans(struct fill *f)
{
    const struct uli_box *first = NULL;
    f->work->fans = false;
    for (int32_t p = 0; p < f->plan->comm->nranks; p++) {
        const struct uli_box *box = first_box(f, p);
        if (!box)
            continue;
        f->work->fans |= first && uli_boxes_fan(first, box);
        first = first ? first : box;
    }
}

/* Bytes from which two ranks with windows store rather than use slots. */
enum { STORE_BYTES = 2048 };

/* Slots save a flag and cost a copy. Where each of the two ranks can store into
 * the other's window, the flag costs less than the copy, except for a few rows.
 * Both ranks find the same, because `in` of one is `out` of the other. */
static bool
stores_pay(const struct fill *f, int32_t p)
{
    const ulyx_plan_t *plan = f->plan;
    const struct uli_volume *in = &plan->room[f->direction].in[p];
    const struct uli_volume *out = &plan->room[f->direction].out[p];
    return !uli_comm_is_remote(plan->comm, p) &&
           side_is_window(f, plan->comm->rank, false) &&
           side_is_window(f, p, false) && in->sums == 0 && out->sums == 0 &&
           uli_max(in->copies, out->copies) > STORE_BYTES;
}

static void
fill_direction(struct fill *f)
{
    ulyx_plan_t *plan = f->plan;
    int32_t me = plan->comm->rank, nranks = plan->comm->nranks;
    f->work->nsums = f->work->nlocals = 0;
    f->work->remote_shares = f->work->stale_sums = false;
    plan->pools[f->direction].used = 0;
    for (int32_t p = 0; p < nranks; p++) {
        struct uli_pair_work *pair = &f->work->pairs[p];
        plan->laid[f->direction][p].given = false;
        pair->in.count = pair->out.count = 0;
        pair->loaded = pair->stale = pair->taken = false;
        pair->last_sum = -1;
        pair->slot = p != me && uli_plan_slot(plan, f->direction, p) &&
                     !stores_pay(f, p);
    }
    for (int32_t t = 0; t < plan->exchange.ntensors; t++) {
        uli_layout_each_move(
            plan->layout, f->direction, t, me, -1, plan->scratch, fill_in, f);
        for (int32_t p = 0; p < nranks; p++)
            if (p != me)
                uli_layout_each_move(plan->layout, f->direction, t, p, me,
                    plan->scratch, fill_out, f);
    }
    note_streams(f);
    note_brief(f);
    note_fans(f);
    f->work->copied_bytes = count_copied(f->work, nranks);
    f->work->small = f->work->copied_bytes < ULI_COPY_MEDIUM_BYTES &&
                     count_all(plan, f->direction) < ULI_COPY_MEDIUM_BYTES;
}

void
uli_plan_fill_extents(ulyx_plan_t *plan)
{
    for (int32_t p = 0; p < plan->comm->nranks; p++)
        for (int side = 0; side < ULI_SIDES; side++)
            for (int32_t t = 0; t < plan->exchange.ntensors; t++) {
                struct uli_grid grid;
                uli_plan_grid(plan->layout, t, p, (enum uli_side)side,
                    plan->ranks[p].strides[t][side], &grid);
                plan->extents[(p * ULI_SIDES + side) * ULI_TENSORS + t] =
                    uli_grid_extent(&grid);
            }
}

void
uli_plan_build(ulyx_plan_t *plan)
{
    if (uli_layout_rows_change(plan->layout))
        uli_plan_fill_strides(plan);
    uli_plan_fill_extents(plan);
    for (int direction = 0; direction < ULYX_DIRECTIONS; direction++) {
        struct fill f = fill_of(plan, direction);
        if (plan->directions >> direction & 1)
            fill_direction(&f);
    }
}

/* ---- rebuilding for other strides ---------------------------------------- */

/* Walks a pair's moves again: the number of items and the shares of sums do not
 * change. */
static bool
lay_in(void *context, const struct uli_move *move)
{
    struct fill *f = context;
    int32_t me = f->plan->comm->rank;
    if (uli_plan_carries(f->plan, move))
        return true;
    if (move->kind == ULI_MOVE_COPY)
        add_copy_in(f, move);
    else if (share_streams(f, f->other, me))
        f->work->pairs[f->other].in.count++;
    return true;
}

void
uli_plan_lay_pair(ulyx_plan_t *plan, ulyx_direction_t direction, int32_t p)
{
    struct fill f = fill_of(plan, direction);
    struct uli_pair_work *pair = &f.work->pairs[p];
    f.other = p;
    pair->in.count = pair->out.count = 0;
    pair->stale = false;
    for (int32_t t = 0; t < plan->exchange.ntensors; t++) {
        uli_layout_each_move(plan->layout, direction, t, plan->comm->rank, p,
            plan->scratch, lay_in, &f);
        uli_layout_each_move(plan->layout, direction, t, p, plan->comm->rank,
            plan->scratch, fill_out, &f);
    }
}

static bool
lay_local(void *context, const struct uli_move *move)
{
    struct fill *f = context;
    if (!uli_plan_carries(f->plan, move) && move->kind != ULI_MOVE_SUM &&
        (move->kind == ULI_MOVE_ZERO ||
            move->sources[0].rank == f->plan->comm->rank))
        add_local(f, move);
    return true;
}

static bool
lay_sum(void *context, const struct uli_move *unsorted)
{
    struct fill *f = context;
    if (unsorted->kind != ULI_MOVE_SUM || uli_plan_carries(f->plan, unsorted))
        return true;
    const struct uli_move move = uli_plan_by_node(f->plan, unsorted);
    struct uli_sum_pool *pool = &f->plan->pools[f->direction];
    uli_plan_make_sum(
        f->plan, f->direction, &move, pool, &f->work->sums[f->work->nsums++]);
    pool->used += move.nsources;
    return true;
}

static void
lay_all(struct fill *f, uli_move_fn visit)
{
    ulyx_plan_t *plan = f->plan;
    for (int32_t t = 0; t < plan->exchange.ntensors; t++)
        uli_layout_each_move(plan->layout, f->direction, t, plan->comm->rank,
            -1, plan->scratch, visit, f);
}

void
uli_plan_lay_own(ulyx_plan_t *plan, ulyx_direction_t direction)
{
    struct fill f = fill_of(plan, direction);
    f.work->nlocals = 0;
    lay_all(&f, lay_local);
}

void
uli_plan_lay_sums(ulyx_plan_t *plan, ulyx_direction_t direction)
{
    struct fill f = fill_of(plan, direction);
    f.work->nsums = plan->pools[direction].used = 0;
    lay_all(&f, lay_sum);
}
