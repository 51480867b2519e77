/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds of posts; the argument is in lane.h.
 */
#include "comm/lane.h"

#include <string.h>
#include "comm/rank_list.h"

struct uli_agree_post *
uli_lane_post(struct uli_control *control, enum uli_lane lane, uint64_t round)
{
    struct uli_agree_post *posts =
        lane == ULI_LANE_AGREE ? control->agree : control->shrink;

    return &posts[round & 1];
}

void
uli_lane_publish(ulyx_comm_t *comm, enum uli_lane lane, uint64_t round,
    const struct uli_agree_post *header, const void *payload, int64_t bytes)
{
    struct uli_agree_post *post = uli_lane_post(comm->control, lane, round);

    post->call = header->call;
    post->status = header->status;
    post->sequence = header->sequence;
    post->total_bytes = header->total_bytes;
    if (bytes > 0)
        memcpy(post->payload, payload, (size_t)bytes);
    atomic_store_explicit(&post->round, round, memory_order_release);
    for (int32_t p = 0; p < comm->nranks; p++)
        if (p != comm->rank && comm->peers[p].control != NULL)
            uli_doorbell_ring(comm->peers[p].control);
}

bool
uli_lane_has(
    const ulyx_comm_t *comm, enum uli_lane lane, int32_t rank, uint64_t round)
{
    struct uli_control *control = comm->peers[rank].control;

    return atomic_load_explicit(&uli_lane_post(control, lane, round)->round,
               memory_order_acquire) == round;
}

struct missing {
    const ulyx_comm_t *comm;
    enum uli_lane lane;
    uint64_t round;
};

static bool
is_missing(const void *context, int32_t rank)
{
    const struct missing *m = context;

    return !uli_lane_has(m->comm, m->lane, rank, m->round);
}

void
uli_lane_missing(const ulyx_comm_t *comm, enum uli_lane lane, uint64_t round,
    char *text_p, size_t text_bytes)
{
    struct missing missing = {comm, lane, round};

    uli_rank_ranges(comm->nranks, is_missing, &missing, text_p, text_bytes);
}
