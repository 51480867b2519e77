/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds of posts; the argument is in lane.h.
 */
#include "comm/lane.h"

#include <stdio.h>
#include <string.h>

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

void
uli_lane_missing(const ulyx_comm_t *comm, enum uli_lane lane, uint64_t round,
    char *text_p, size_t text_bytes)
{
    size_t used = 0;

    text_p[0] = 0;
    for (int32_t p = 0; p < comm->nranks && used < text_bytes; p++) {
        int32_t first = p;

        if (uli_lane_has(comm, lane, p, round))
            continue;
        while (p + 1 < comm->nranks && !uli_lane_has(comm, lane, p + 1, round))
            p++;
        used += (size_t)snprintf(text_p + used, text_bytes - used,
            p == first ? "%s%d" : "%s%d-%d", used == 0 ? "" : ", ", first, p);
    }
}
