/* SPDX-License-Identifier: Apache-2.0
 *
 * What a direction moves, counted from the layout's moves.
 *
 *   size     = the largest, over ranks, of the bytes of all tensors on the
 *              sequence side
 *   bus      = the largest, over ranks, of the bytes that a rank must receive
 *              from others, each element of each source once
 * The direct schedule receives exactly that, so it moves no surplus.
 */
#include <stdlib.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/exchange/exchange_schedule.h"
#include "collectives/plan/plan.h"
#include "comm/remote/remote.h"

struct tally {
    const ulyx_plan_t *plan;
    ulyx_direction_t direction;
    int32_t me;
    int64_t received;    /* by the destination that is being counted */
    int64_t sent, local; /* by this rank; within this rank */
    int64_t wire;        /* of sent: to other nodes */
};

static bool
count_move(void *context, const struct uli_move *move)
{
    struct tally *tally = context;
    const struct uli_layout *layout = tally->plan->layout;
    int64_t bytes = move->batches * move->rows * move->heads *
                    uli_layout_shape(layout)->tensors[move->tensor].dim *
                    uli_plan_elem_bytes(layout, move->tensor,
                        uli_plan_side(tally->direction, true));
    for (int32_t s = 0; s < move->nsources; s++) {
        int32_t from = move->sources[s].rank, to = move->dst.rank;
        tally->received += from == to ? 0 : bytes;
        tally->sent += from == tally->me && to != from ? bytes : 0;
        if (from == tally->me && to != from &&
            uli_comm_is_remote(tally->plan->comm, to))
            tally->wire += bytes;
        tally->local += from == tally->me && to == from ? bytes : 0;
    }
    return true;
}

static int64_t
seq_bytes(const ulyx_plan_t *plan, int32_t rank)
{
    const struct uli_shape *shape = uli_layout_shape(plan->layout);
    int64_t bytes = 0;
    for (int32_t t = 0; t < shape->ntensors; t++) {
        const struct uli_shape_tensor *tensor = &shape->tensors[t];
        bytes += shape->batch *
                 uli_layout_seq_rows(plan->layout, tensor->part, rank) *
                 tensor->heads * tensor->dim * tensor->elem_bytes;
    }
    return bytes;
}

ulyx_status_t
uli_plan_traffic(const ulyx_plan_t *plan, ulyx_direction_t direction,
    ulyx_traffic_t *traffic_p)
{
    int32_t nranks = plan->comm->nranks, me = plan->comm->rank;
    struct tally tally = {plan, direction, me, 0, 0, 0, 0};
    ulyx_traffic_t traffic = {.size = traffic_p->size};
    struct uli_place *places =
        calloc((size_t)uli_layout_scratch(plan->layout) + 1, sizeof(*places));
    if (!places)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory to count traffic");
    for (int32_t p = 0; p < nranks; p++) {
        tally.received = 0;
        for (int32_t t = 0; t < plan->exchange.ntensors; t++)
            uli_layout_each_move(
                plan->layout, direction, t, p, -1, places, count_move, &tally);
        traffic.bus_bytes = uli_max(traffic.bus_bytes, tally.received);
        traffic.size_bytes = uli_max(traffic.size_bytes, seq_bytes(plan, p));
        if (p == me)
            traffic.received_bytes = tally.received;
    }
    traffic.sent_bytes = tally.sent;
    traffic.local_bytes = tally.local;
    traffic.wire_bytes = plan->exchange.schedule->wire_bytes(
        &plan->exchange, direction, tally.wire);
    traffic.wire_counted = plan->exchange.wire_bytes;
    free(places);
    *traffic_p = traffic;
    return ULYX_SUCCESS;
}
