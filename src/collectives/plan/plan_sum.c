/* SPDX-License-Identifier: Apache-2.0
 *
 * A move that is a sum, as strides, in canonical form: dimensions by
 * destination stride, largest outermost, merged where the destination and all
 * sources are adjacent. Where a source comes by a stream, the dimensions keep
 * the order in which its elements travel. That order follows the destination's
 * strides of creation, which all ranks have, whatever strides a call has.
 */
#include <string.h>
#include "base/dtype.h"
#include "collectives/plan/plan.h"

/* An insertion sort: sources come in rank order and nodes are numbered by their
 * first rank, so mostly nothing moves. */
struct uli_move
uli_plan_by_node(ulyx_plan_t *plan, const struct uli_move *move)
{
    struct uli_move sorted = *move;
    const struct uli_peer *peers = plan->comm->peers;
    for (int32_t s = 0; s < move->nsources; s++) {
        int32_t at = s;
        for (; at > 0 && peers[plan->by_node[at - 1].rank].node >
                             peers[move->sources[s].rank].node;
             at--)
            plan->by_node[at] = plan->by_node[at - 1];
        plan->by_node[at] = move->sources[s];
    }
    sorted.sources = plan->by_node;
    return sorted;
}

static void
swap_dims(struct uli_sum *sum, int64_t (*src)[3], int a, int b)
{
    int64_t held = sum->extent[a];
    sum->extent[a] = sum->extent[b];
    sum->extent[b] = held;
    held = sum->dst_stride[a];
    sum->dst_stride[a] = sum->dst_stride[b];
    sum->dst_stride[b] = held;
    for (int32_t s = 0; s < sum->nsources; s++) {
        held = src[s][a];
        src[s][a] = src[s][b];
        src[s][b] = held;
    }
}

/* Dimensions of extent 1 outermost, then by destination stride, in a fixed
 * order among equal ones. */
static void
sort_dims(struct uli_sum *sum, int64_t (*src)[3])
{
    for (int pass = 0; pass < 2; pass++)
        for (int d = 0; d < 2; d++) {
            bool later = sum->extent[d + 1] == 1
                             ? sum->extent[d] != 1
                             : sum->extent[d] != 1 &&
                                   sum->dst_stride[d] < sum->dst_stride[d + 1];
            if (later)
                swap_dims(sum, src, d, d + 1);
        }
}

/* Dimensions of extent 1 outermost; the others stay in their order. */
static void
lift_ones(struct uli_sum *sum, int64_t (*src)[3])
{
    for (int pass = 0; pass < 2; pass++)
        for (int d = 0; d < 2; d++)
            if (sum->extent[d + 1] == 1 && sum->extent[d] != 1)
                swap_dims(sum, src, d, d + 1);
}

/* Merges the innermost dimension into the run, where all sides are adjacent;
 * the outer dimensions move inwards. */
static bool
merge_run(
    struct uli_sum *sum, int64_t (*src)[3], int64_t dst_elem, int64_t src_elem)
{
    if (sum->extent[2] == 1 || sum->dst_stride[2] != sum->run * dst_elem)
        return false;
    for (int32_t s = 0; s < sum->nsources; s++)
        if (src[s][2] != sum->run * src_elem)
            return false;
    sum->run *= sum->extent[2];
    sum->extent[2] = 1;
    lift_ones(sum, src);
    return true;
}

/* Merges dimension `outer` into the next one, where all sides are adjacent. */
static bool
merge_dims(struct uli_sum *sum, int64_t (*src)[3], int outer)
{
    int inner = outer + 1;
    int64_t extent = sum->extent[inner];
    if (extent == 1 || sum->extent[outer] == 1 ||
        sum->dst_stride[outer] != sum->dst_stride[inner] * extent)
        return false;
    for (int32_t s = 0; s < sum->nsources; s++)
        if (src[s][outer] != src[s][inner] * extent)
            return false;
    sum->extent[inner] *= sum->extent[outer];
    sum->extent[outer] = 1;
    lift_ones(sum, src);
    return true;
}

static void
sum_merge(struct uli_sum *sum, int64_t (*src)[3])
{
    int64_t dst_elem = uli_dtype_size(sum->dtype);
    int64_t src_elem = uli_dtype_size(sum->partial_dtype);
    lift_ones(sum, src);
    while (merge_run(sum, src, dst_elem, src_elem) || merge_dims(sum, src, 1) ||
           merge_dims(sum, src, 0))
        ;
}

void
uli_plan_normalize_sum(struct uli_sum *sum, int64_t (*src)[3])
{
    sort_dims(sum, src);
    sum_merge(sum, src);
}

/* An insertion sort by stride. The destination's elements do not overlap, so no
 * two strides of dimensions above 1 are equal. */
void
uli_plan_stream_order(const ulyx_plan_t *plan, ulyx_direction_t direction,
    const struct uli_move *move, int order_p[3])
{
    enum uli_side to = uli_plan_side(direction, false);
    const int64_t *strides =
        plan->ranks[move->dst.rank].strides[move->tensor][to];
    const int64_t extents[3] = {move->batches, move->rows, move->heads};
    for (int d = 0; d < 3; d++) {
        int at = d;
        for (; at > 0; at--) {
            int outer = order_p[at - 1];
            if (extents[outer] == 1 ||
                (extents[d] != 1 && strides[outer] >= strides[d]))
                break;
            order_p[at] = outer;
        }
        order_p[at] = d;
    }
}

/* Sets source s's place, dimensions in loop order; in a stream its elements are
 * adjacent. */
static void
sum_source(const ulyx_plan_t *plan, ulyx_direction_t direction,
    const struct uli_move *move, const int order[3], bool stream, int32_t s,
    struct uli_sum_pool *pool, const struct uli_sum *sum)
{
    int64_t elem = uli_dtype_size(sum->partial_dtype);
    const struct uli_place *place = &move->sources[s];
    int64_t *to = pool->src_stride[pool->used + s];
    pool->group[pool->used + s] = plan->comm->peers[place->rank].node;
    pool->src_offset[pool->used + s] = 0;
    if (stream) {
        to[2] = sum->run * elem;
        to[1] = to[2] * sum->extent[2];
        to[0] = to[1] * sum->extent[1];
        return;
    }
    const int64_t *strides =
        uli_plan_strides(plan, direction, place->rank, move->tensor, true);
    pool->src_offset[pool->used + s] = uli_place_offset(place, strides);
    for (int d = 0; d < 3; d++)
        to[d] = strides[order[d]];
}

void
uli_plan_make_sum(const ulyx_plan_t *plan, ulyx_direction_t direction,
    const struct uli_move *move, struct uli_sum_pool *pool,
    struct uli_sum_item *sum_p)
{
    const struct uli_shape_tensor *t =
        &uli_layout_shape(plan->layout)->tensors[move->tensor];
    bool partial = uli_plan_side(direction, true) == ULI_SIDE_PARTIAL;
    const int64_t extents[3] = {move->batches, move->rows, move->heads};
    const int64_t *strides =
        uli_plan_strides(plan, direction, move->dst.rank, move->tensor, false);
    int64_t(*src)[3] = pool->src_stride + pool->used;
    struct uli_sum sum = {.run = t->dim,
        .dtype = t->dtype,
        .partial_dtype = partial ? t->partial_dtype : t->dtype,
        .dst_offset = uli_place_offset(&move->dst, strides),
        .nsources = move->nsources,
        .group = pool->group + pool->used,
        .src_offset = pool->src_offset + pool->used,
        .src_stride = (const int64_t(*)[3])src};
    int order[3];
    uli_plan_stream_order(plan, direction, move, order);
    for (int d = 0; d < 3; d++) {
        sum.extent[d] = extents[order[d]];
        sum.dst_stride[d] = strides[order[d]];
    }
    for (int32_t s = 0; s < move->nsources; s++)
        sum_source(plan, direction, move, order, sum_p->sources[s].stream, s,
            pool, &sum);
    if (sum_p->loads_only)
        uli_plan_normalize_sum(&sum, src);
    else
        sum_merge(&sum, src);
    sum_p->sum = sum;
}
