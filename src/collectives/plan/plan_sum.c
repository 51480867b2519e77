/* SPDX-License-Identifier: Apache-2.0
 *
 * A move that is a sum, as strides, in canonical form: dimensions by
 * destination stride, largest outermost, merged where the destination and all
 * sources are adjacent. Owner and sharers compute it from the same gathered
 * strides, so they agree on the order of the elements in a stream.
 */
#include <string.h>
#include "base/dtype.h"
#include "collectives/plan/plan.h"

int64_t
uli_plan_offset(const ulyx_plan_t *plan, int32_t tensor, enum uli_side side,
    const struct uli_place *place)
{
    const int64_t *strides = plan->ranks[place->rank].strides[tensor][side];
    return place->batch * strides[0] + place->row * strides[1] +
           place->head * strides[2];
}

/* Sources come in rank order and nodes are numbered by their first rank, so
 * mostly nothing moves. */
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

/* Ones outermost, then by destination stride; a fixed order of equal ones. */
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

/* The innermost dimension joins the run; what was outside moves inwards. */
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
    sort_dims(sum, src);
    return true;
}

/* Dimension 1 joins dimension 2, or 0 joins 1. */
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
    sort_dims(sum, src);
    return true;
}

void
uli_plan_normalize_sum(struct uli_sum *sum, int64_t (*src)[3])
{
    int64_t dst_elem = uli_dtype_size(sum->dtype);
    int64_t src_elem = uli_dtype_size(sum->partial_dtype);
    sort_dims(sum, src);
    while (merge_run(sum, src, dst_elem, src_elem) || merge_dims(sum, src, 1) ||
           merge_dims(sum, src, 0))
        ;
}

void
uli_plan_make_sum(const ulyx_plan_t *plan, ulyx_direction_t direction,
    const struct uli_move *move, struct uli_sum_pool *pool,
    struct uli_sum *sum_p)
{
    enum uli_side from = uli_plan_side(direction, true);
    enum uli_side to = uli_plan_side(direction, false);
    const struct uli_shape_tensor *t =
        &uli_layout_shape(plan->layout)->tensors[move->tensor];
    int64_t(*src)[3] = pool->src_stride + pool->used;
    struct uli_sum sum = {.extent = {move->batches, move->rows, move->heads},
        .run = t->dim,
        .dtype = t->dtype,
        .partial_dtype = from == ULI_SIDE_PARTIAL ? t->partial_dtype : t->dtype,
        .dst_offset = uli_plan_offset(plan, move->tensor, to, &move->dst),
        .nsources = move->nsources,
        .group = pool->group + pool->used,
        .src_offset = pool->src_offset + pool->used,
        .src_stride = (const int64_t(*)[3])src};
    memcpy(sum.dst_stride,
        plan->ranks[move->dst.rank].strides[move->tensor][to],
        sizeof(sum.dst_stride));
    for (int32_t s = 0; s < move->nsources; s++) {
        const struct uli_place *place = &move->sources[s];
        pool->group[pool->used + s] = plan->comm->peers[place->rank].node;
        pool->src_offset[pool->used + s] =
            uli_plan_offset(plan, move->tensor, from, place);
        memcpy(src[s], plan->ranks[place->rank].strides[move->tensor][from],
            sizeof(src[s]));
    }
    uli_plan_normalize_sum(&sum, src);
    *sum_p = sum;
}
