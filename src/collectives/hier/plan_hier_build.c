/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of the hierarchical schedule: the items that this rank puts into and
 * takes from the streams that leave, enter and stay in its node. Needs the
 * strides of this rank only; where a call has other strides, this rank's boxes
 * are rebuilt in place.
 */
#include <stdlib.h>
#include <string.h>
#include "base/dtype.h"
#include "base/size.h"
#include "base/status.h"
#include "collectives/hier/plan_hier.h"

/* A node's share in a sum of this rank, before the shares are sorted. */
struct share {
    int32_t tensor;
    bool shared;
    int32_t node;
    int64_t batches, rows, heads;
    struct uli_place dst;
    struct uli_hier_part part;
};

struct build {
    struct ulyx_plan *plan;
    struct uli_hier *h;
    struct uli_hier_work *work;
    int direction;
    int32_t from, to;   /* nodes of the streams being visited */
    int32_t first_rail; /* index of their rail 0 in h->rails */
    struct share *shares;
    int64_t nshares, share_room;
    bool failed;
};

/* The next element of a growing array, zeroed; NULL: no memory. */
static void *
build_append(struct build *b, void *array_p, int64_t *count_p, int64_t *room_p,
    size_t bytes)
{
    char *array;
    memcpy(&array, array_p, sizeof(array));
    if (*count_p == *room_p) {
        int64_t room = *room_p * 2 + 8;
        array = realloc(array, (size_t)room * bytes);
        if (!array) {
            b->failed = true;
            return NULL;
        }
        memcpy(array_p, &array, sizeof(array));
        b->h->table_bytes += (room - *room_p) * (int64_t)bytes;
        *room_p = room;
    }
    array += *count_p * (int64_t)bytes;
    ++*count_p;
    return memset(array, 0, bytes);
}

/* ---- boxes --------------------------------------------------------------- */

/* The box between an item in this rank's tensor (the box's source side) and the
 * item's dense bytes in a stream (destination side), with loops in the order of
 * the dense side. */
static struct uli_box
dense_box(const struct ulyx_plan *plan, int direction, int32_t tensor,
    bool source, const struct uli_hier_area *area)
{
    const int64_t *strides =
        uli_plan_strides(plan, direction, plan->comm->rank, tensor, source);
    struct uli_box box = {.extent = {area->batches, area->rows, area->heads}};
    box.run_bytes = uli_layout_shape(plan->layout)->tensors[tensor].dim *
                    uli_plan_elem_bytes(
                        plan->layout, tensor, uli_plan_side(direction, source));
    box.src_offset = uli_place_offset(&area->place, strides);
    memcpy(box.src_stride, strides, sizeof(box.src_stride));
    box.dst_stride[2] = box.run_bytes;
    box.dst_stride[1] = box.dst_stride[2] * area->heads;
    box.dst_stride[0] = box.dst_stride[1] * area->rows;
    uli_box_normalize(&box);
    return box;
}

/* The same box with its sides exchanged: from the dense bytes to the tensor,
 * with loops still in the order of the dense side. */
static struct uli_box
turned_box(const struct ulyx_plan *plan, int direction, int32_t tensor,
    const struct uli_hier_area *area)
{
    struct uli_box box = dense_box(plan, direction, tensor, false, area);
    struct uli_box out = box;
    out.dst_offset = box.src_offset;
    out.src_offset = box.dst_offset;
    memcpy(out.dst_stride, box.src_stride, sizeof(out.dst_stride));
    memcpy(out.src_stride, box.dst_stride, sizeof(out.src_stride));
    return out;
}

static struct uli_hier_area
area_of(const struct uli_hier_item *item, const struct uli_place *place)
{
    return (struct uli_hier_area){
        item->batches, item->rows, item->heads, *place};
}

/* ---- items --------------------------------------------------------------- */

static void
add_give(struct build *b, struct uli_hier_stream *stream,
    const struct uli_hier_item *item, int32_t i)
{
    struct uli_hier_give *give = build_append(
        b, &stream->gives, &stream->ngives, &stream->give_room, sizeof(*give));
    if (!give)
        return;
    give->at = item->at;
    give->bytes = item->bytes;
    give->tensor = item->tensor;
    give->before = i ? b->h->nodes.local[item->givers[i - 1].rank] : -1;
    give->acc_bytes = item->sum && item->ngivers > 1 ? (int32_t)item->unit : 0;
    give->area = area_of(item, &item->givers[i]);
    give->box =
        dense_box(b->plan, b->direction, item->tensor, true, &give->area);
}

static void
add_take(struct build *b, struct uli_hier_stream *stream,
    const struct uli_hier_item *item, const struct uli_place *dst)
{
    struct uli_hier_take *take = build_append(
        b, &stream->takes, &stream->ntakes, &stream->take_room, sizeof(*take));
    if (!take)
        return;
    take->at = item->at;
    take->bytes = item->bytes;
    take->tensor = item->tensor;
    take->sum = item->sum;
    if (!item->sum) {
        take->area = area_of(item, dst);
        take->box =
            turned_box(b->plan, b->direction, item->tensor, &take->area);
        return;
    }
    struct share *share = build_append(
        b, &b->shares, &b->nshares, &b->share_room, sizeof(*share));
    if (!share)
        return;
    *share = (struct share){.tensor = item->tensor,
        .shared = item->shared,
        .node = b->from,
        .batches = item->batches,
        .rows = item->rows,
        .heads = item->heads,
        .dst = *dst,
        .part = {.rail = b->first_rail + item->rail,
            .take = stream->ntakes - 1,
            .unit = item->unit,
            .acc = item->ngivers > 1}};
}

static void
item_visit(void *context, const struct uli_hier_item *item)
{
    struct build *b = context;
    struct uli_hier *h = b->h;
    int32_t rail = b->first_rail + item->rail, me = h->comm->rank;
    struct uli_hier_stream *stream = &b->work->streams[rail];
    for (int32_t i = 0; b->from == h->node && i < item->ngivers; i++)
        if (item->givers[i].rank == me)
            add_give(b, stream, item, i);
    for (int32_t i = 0; b->to == h->node && i < item->nreaders; i++)
        if (item->readers[i].rank == me)
            add_take(b, stream, item, &item->readers[i]);
}

static ulyx_status_t
build_pair(struct build *b, int32_t from, int32_t to, int64_t *rail_bytes)
{
    struct uli_hier *h = b->h;
    struct uli_hier_bytes bytes;
    int32_t rails = uli_nodes_size(&h->nodes, to);
    b->from = from;
    b->to = to;
    b->first_rail = to == h->node ? h->in_first[from] : h->out_first[to];
    ULI_TRY(uli_hier_each_item(h->layout, &h->nodes, b->direction, from, to,
        item_visit, b, rail_bytes, &bytes));
    for (int32_t j = 0; j < rails; j++) {
        const struct uli_hier_rail *rail = &h->rails[b->first_rail + j];
        struct uli_hier_stream *stream = &b->work->streams[b->first_rail + j];
        if (rail->kind == ULI_HIER_OUT && rail->proxy == h->comm->rank)
            b->work->carried_bytes += rail_bytes[j];
        stream->bytes = rail_bytes[j];
        if (rail_bytes[j] / h->small_bytes >> (ULI_HIER_TAG_BITS - 1))
            return uli_error(ULYX_ERR_UNSUPPORTED,
                "algo is \"hier\": %lld bytes to node %d make too many chunks "
                "of %lld",
                (long long)rail_bytes[j], to, (long long)h->small_bytes);
    }
    if (from == h->node && to != h->node) {
        b->work->node.wire += bytes.wire;
        b->work->node.direct += bytes.direct;
    }
    return ULYX_SUCCESS;
}

/* ---- sums ---------------------------------------------------------------- */

static int
by_number(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* The order of sums in all streams (layout_hier_rects.c), without the node:
 * sums with the same place at all ranks come first. */
static int
by_place(const struct share *a, const struct share *b)
{
    int order = by_number(a->tensor, b->tensor);
    order = order ? order : by_number(b->shared, a->shared);
    order = order ? order : by_number(a->dst.batch, b->dst.batch);
    order = order ? order : by_number(a->batches, b->batches);
    order = order ? order : by_number(a->dst.head, b->dst.head);
    order = order ? order : by_number(a->heads, b->heads);
    order = order ? order : by_number(a->dst.row, b->dst.row);
    return order ? order : by_number(a->rows, b->rows);
}

static int
by_place_and_node(const void *one, const void *other)
{
    const struct share *a = one, *b = other;
    int order = by_place(a, b);
    return order ? order : by_number(a->node, b->node);
}

static void
set_sum(
    const struct build *b, struct uli_hier_sum *sum, const struct share *share)
{
    int64_t dim = uli_layout_shape(b->h->layout)->tensors[share->tensor].dim;
    sum->tensor = share->tensor;
    sum->elements = share->batches * share->rows * share->heads * dim;
    sum->area = (struct uli_hier_area){
        share->batches, share->rows, share->heads, share->dst};
    sum->box = turned_box(b->plan, b->direction, sum->tensor, &sum->area);
    sum->first_part = b->work->nparts;
}

static bool
build_sums(struct build *b)
{
    struct uli_hier_work *work = b->work;
    size_t count = (size_t)b->nshares;
    if (!count)
        return true;
    work->sums = calloc(count, sizeof(*work->sums));
    work->parts = calloc(count, sizeof(*work->parts));
    if (!work->sums || !work->parts)
        return false;
    b->h->table_bytes +=
        (int64_t)(count * (sizeof(*work->sums) + sizeof(*work->parts)));
    qsort(b->shares, count, sizeof(*b->shares), by_place_and_node);
    for (size_t i = 0; i < count; i++) {
        const struct share *share = &b->shares[i];
        if (i == 0 || by_place(share, share - 1))
            set_sum(b, &work->sums[work->nsums++], share);
        work->parts[work->nparts++] = share->part;
        work->sums[work->nsums - 1].nparts++;
    }
    return true;
}

/* ---- a direction --------------------------------------------------------- */

static ulyx_status_t
build_all(struct build *b, int64_t *rail_bytes)
{
    struct uli_hier *h = b->h;
    for (int32_t n = 0; n < h->nodes.nnodes; n++) {
        ULI_TRY(build_pair(b, n, h->node, rail_bytes));
        if (n != h->node)
            ULI_TRY(build_pair(b, h->node, n, rail_bytes));
    }
    if (b->failed || !build_sums(b))
        return uli_error(ULYX_ERR_NO_MEMORY,
            "no memory for a plan's tables (%lld bytes so far)",
            (long long)h->table_bytes);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_hier_build(
    struct ulyx_plan *plan, int direction, struct uli_hier_work *work_p)
{
    struct uli_hier *h = uli_hier_of(&plan->exchange);
    struct build b = {
        .plan = plan, .h = h, .work = work_p, .direction = direction};
    int64_t *rail_bytes = calloc((size_t)h->nodes.nranks, sizeof(*rail_bytes));
    work_p->streams = calloc((size_t)h->nrails, sizeof(*work_p->streams));
    ulyx_status_t status =
        rail_bytes && work_p->streams
            ? build_all(&b, rail_bytes)
            : uli_error(ULYX_ERR_NO_MEMORY, "no memory for a plan's tables");
    free(rail_bytes);
    h->table_bytes -= b.share_room * (int64_t)sizeof(*b.shares);
    free(b.shares);
    return status;
}

void
uli_hier_lay(struct ulyx_plan *plan, ulyx_direction_t direction)
{
    struct uli_hier *h = uli_hier_of(&plan->exchange);
    struct uli_hier_work *work = &h->work[direction];
    for (int32_t i = 0; i < h->nrails; i++) {
        struct uli_hier_stream *stream = &work->streams[i];
        for (int64_t k = 0; k < stream->ngives; k++) {
            struct uli_hier_give *give = &stream->gives[k];
            give->box =
                dense_box(plan, direction, give->tensor, true, &give->area);
        }
        for (int64_t k = 0; k < stream->ntakes; k++) {
            struct uli_hier_take *take = &stream->takes[k];
            if (!take->sum)
                take->box =
                    turned_box(plan, direction, take->tensor, &take->area);
        }
    }
    for (int64_t k = 0; k < work->nsums; k++) {
        struct uli_hier_sum *sum = &work->sums[k];
        sum->box = turned_box(plan, direction, sum->tensor, &sum->area);
    }
}

void
uli_hier_free_work(struct uli_hier *h, struct uli_hier_work *work)
{
    for (int32_t i = 0; work->streams && i < h->nrails; i++) {
        free(work->streams[i].gives);
        free(work->streams[i].takes);
    }
    free(work->streams);
    free(work->sums);
    free(work->parts);
    memset(work, 0, sizeof(*work));
}
