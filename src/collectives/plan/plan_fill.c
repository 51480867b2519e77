/* SPDX-License-Identifier: Apache-2.0
 *
 * Fills the tables of a plan's directions: boxes, sums and verbs.
 *
 * The verb of a copy: the other rank is remote: a ring; else
 * the destination is a window: its source stores; else
 * the source is a window: its destination loads; else, towards the sequence
 * side and with long rows, the destination reads through the kernel where it
 * can; else a ring. Of a sum: its owner loads sources that are windows, and
 * takes the others from rings. A pair whose bytes both ways fit a slot uses
 * the slots for all of them.
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
};

/* Can a rank's memory be reached here, being a window? */
static bool
side_is_window(const struct fill *f, int32_t rank, bool source)
{
    enum uli_side side = source ? f->from : f->to;
    return f->plan->ranks[rank].memory[side == ULI_SIDE_SEQ ? 0 : 1] ==
           ULYX_POINTER_WINDOW;
}

static void
make_box(const struct fill *f, const struct uli_move *move, struct uli_box *box)
{
    const ulyx_plan_t *plan = f->plan;
    const struct uli_place *src = move->sources;
    int32_t t = move->tensor;
    memset(box, 0, sizeof(*box));
    box->extent[0] = move->batches;
    box->extent[1] = move->rows;
    box->extent[2] = move->heads;
    box->run_bytes = uli_layout_shape(plan->layout)->tensors[t].dim *
                     uli_plan_elem_bytes(plan->layout, t, f->to);
    box->dst_offset = uli_plan_offset(plan, t, f->to, &move->dst);
    memcpy(box->dst_stride, plan->ranks[move->dst.rank].strides[t][f->to],
        sizeof(box->dst_stride));
    if (move->nsources) {
        box->src_offset = uli_plan_offset(plan, t, f->from, src);
        memcpy(box->src_stride, plan->ranks[src->rank].strides[t][f->from],
            sizeof(box->src_stride));
    } else {
        memcpy(box->src_stride, box->dst_stride, sizeof(box->src_stride));
    }
    uli_box_normalize(box);
}

/* Which side of a pair moves a copy, and how; NONE at the other side. */
static int32_t
copy_verb(const struct fill *f, int32_t src, int32_t dst, bool slot,
    const struct uli_box *box)
{
    bool mine = dst == f->plan->comm->rank;
    int64_t min_row = f->plan->ranks[dst].cma_min_row;
    if (slot || uli_comm_is_remote(f->plan->comm, mine ? src : dst))
        return ULI_VERB_STREAM;
    if (side_is_window(f, dst, false))
        return mine ? ULI_VERB_NONE : ULI_VERB_STORE;
    if (side_is_window(f, src, true))
        return mine ? ULI_VERB_LOAD : ULI_VERB_NONE;
    if (f->to == ULI_SIDE_SEQ && min_row > 0 && box->run_bytes >= min_row)
        return ULI_VERB_READ;
    return ULI_VERB_STREAM;
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
    make_box(f, move, &local->box);
    f->work->copied_bytes += uli_box_bytes(&local->box);
}

/* The runs of source s of a sum, as they travel. */
static void
share_box(const struct uli_sum *sum, int32_t s, struct uli_box *box)
{
    memset(box, 0, sizeof(*box));
    memcpy(box->extent, sum->extent, sizeof(box->extent));
    memcpy(box->src_stride, sum->src_stride[s], sizeof(box->src_stride));
    box->src_offset = sum->src_offset[s];
    box->run_bytes = sum->run * uli_dtype_size(sum->partial_dtype);
}

static void
add_sum(struct fill *f, const struct uli_move *unsorted)
{
    const struct uli_move by_node = uli_plan_by_node(f->plan, unsorted);
    const struct uli_move *move = &by_node;
    struct uli_sum_pool *pool = &f->plan->pools[f->direction];
    int64_t index = f->work->nsums++;
    struct uli_sum_item *sum = &f->work->sums[index];
    sum->tensor = move->tensor;
    sum->loads_only = true;
    sum->sources = pool->sources + pool->used;
    uli_plan_make_sum(f->plan, f->direction, move, pool, &sum->sum);
    pool->used += move->nsources;
    for (int32_t s = 0; s < move->nsources; s++) {
        struct uli_sum_source *source = &sum->sources[s];
        source->rank = move->sources[s].rank;
        source->stream = false;
        if (source->rank == f->plan->comm->rank)
            continue;
        struct uli_pair_work *pair = &f->work->pairs[source->rank];
        pair->last_sum = index;
        if (side_is_window(f, source->rank, true) && !pair->slot &&
            !uli_comm_is_remote(f->plan->comm, source->rank))
            continue;
        source->stream = true;
        source->item = pair->in.count;
        sum->loads_only = false;
        struct uli_item *item = add_item(&pair->in, move->tensor, index);
        item->verb = ULI_VERB_STREAM;
        share_box(&sum->sum, s, &item->box);
    }
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
    int32_t p = move->sources[0].rank;
    struct uli_pair_work *pair = &f->work->pairs[p];
    struct uli_item *item = add_item(&pair->in, move->tensor, -1);
    make_box(f, move, &item->box);
    item->verb = copy_verb(f, p, me, pair->slot, &item->box);
    if (item->verb == ULI_VERB_LOAD)
        f->work->copied_bytes += uli_box_bytes(&item->box);
    pair->in.count -= item->verb == ULI_VERB_NONE;
    return true;
}

/* This rank's share of another's sum. */
static void
add_share(
    struct fill *f, struct uli_pair_work *pair, const struct uli_move *unsorted)
{
    ulyx_plan_t *plan = f->plan;
    const struct uli_move move = uli_plan_by_node(plan, unsorted);
    struct uli_item *item = add_item(&pair->out, move.tensor, 0);
    struct uli_sum sum;
    item->verb = ULI_VERB_STREAM;
    plan->scratch_pool.used = 0;
    uli_plan_make_sum(plan, f->direction, &move, &plan->scratch_pool, &sum);
    for (int32_t s = 0; s < move.nsources; s++)
        if (move.sources[s].rank == plan->comm->rank)
            share_box(&sum, s, &item->box);
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
        struct uli_item *item = add_item(&pair->out, move->tensor, -1);
        make_box(f, move, &item->box);
        item->verb = copy_verb(f, me, p, pair->slot, &item->box);
        if (item->verb == ULI_VERB_STORE)
            f->work->copied_bytes += uli_box_bytes(&item->box);
        pair->out.count -= item->verb == ULI_VERB_NONE;
        return true;
    }
    bool remote = uli_comm_is_remote(plan->comm, p);
    if (side_is_window(f, me, true) && !pair->slot && !remote)
        return true;
    f->work->remote_shares |= remote;
    add_share(f, pair, move);
    return true;
}

/* What the items go by, and whether that takes rings here: not those that this
 * rank reads itself, and not slots. */
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

static void
fill_direction(struct fill *f)
{
    ulyx_plan_t *plan = f->plan;
    int32_t me = plan->comm->rank, nranks = plan->comm->nranks;
    f->work->nsums = f->work->nlocals = f->work->copied_bytes = 0;
    f->work->remote_shares = false;
    plan->pools[f->direction].used = 0;
    for (int32_t p = 0; p < nranks; p++) {
        struct uli_pair_work *pair = &f->work->pairs[p];
        pair->in.count = pair->out.count = 0;
        pair->last_sum = -1;
        pair->slot = p != me && uli_plan_slot(plan, f->direction, p);
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
        struct fill f = {plan, &plan->work[direction], direction,
            uli_plan_side(direction, true), uli_plan_side(direction, false)};
        if (plan->directions >> direction & 1)
            fill_direction(&f);
    }
}
