/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds of posts; rounds.h says why they work.
 */
#include "comm/agreement/rounds.h"

#include <string.h>
#include "comm/remote/nodes.h"
#include "comm/remote/remote_internal.h"

struct uli_agree_post *
uli_rounds_post(
    struct uli_control *control, enum uli_rounds rounds, uint64_t round)
{
    struct uli_agree_post *posts =
        rounds == ULI_ROUNDS_AGREE ? control->agree : control->shrink;

    return &posts[round & 1];
}

/* Whether the rank's posts lie in the node's table, not in a control block. */
static bool
is_elsewhere(const ulyx_comm_t *comm, enum uli_rounds rounds, int32_t rank)
{
    return rounds == ULI_ROUNDS_AGREE && comm->remote &&
           comm->peers[rank].node != comm->remote->nodes.mine;
}

int64_t
uli_rounds_chunk(const ulyx_comm_t *comm, enum uli_rounds rounds)
{
    return rounds == ULI_ROUNDS_AGREE && comm->remote
               ? comm->remote->nodes.chunk_bytes
               : ULI_AGREE_BYTES;
}

const struct uli_agree_post *
uli_rounds_read(
    ulyx_comm_t *comm, enum uli_rounds rounds, int32_t rank, uint64_t round)
{
    if (is_elsewhere(comm, rounds, rank))
        return uli_nodes_post(comm, rank, round);
    return uli_rounds_post(comm->peers[rank].control, rounds, round);
}

/* In the shrink rounds every rank sends its post to every remote rank. */
static void
send_post(ulyx_comm_t *comm, const struct uli_agree_post *post, uint64_t round)
{
    for (int32_t p = 0; p < comm->nranks; p++) {
        struct uli_message message = {.head.kind = ULI_MESSAGE_SHRINK,
            .value = round,
            .bytes = (int64_t)post->total_bytes,
            .status = post->status};

        if (uli_comm_is_remote(comm, p) &&
            atomic_load(&comm->peers[p].dead) == 0 &&
            atomic_load(&comm->control->left[p]) == 0)
            uli_remote_send_message(
                comm, p, &message, post->payload, post->bytes);
    }
}

void
uli_rounds_publish(ulyx_comm_t *comm, enum uli_rounds rounds, uint64_t round,
    const struct uli_agree_post *header, const void *payload, int64_t bytes)
{
    struct uli_agree_post *post = uli_rounds_post(comm->control, rounds, round);

    post->call = header->call;
    post->status = header->status;
    post->sequence = header->sequence;
    post->total_bytes = header->total_bytes;
    post->bytes = (uint32_t)bytes;
    if (bytes > 0)
        memcpy(post->payload, payload, (size_t)bytes);
    atomic_store_explicit(&post->round, round, memory_order_release);
    for (int32_t p = 0; p < comm->nranks; p++)
        if (p != comm->rank && uli_comm_mapped_control(comm, p))
            uli_doorbell_ring(uli_comm_mapped_control(comm, p));
    if (rounds == ULI_ROUNDS_SHRINK && comm->remote)
        send_post(comm, post, round);
}

bool
uli_rounds_has(
    ulyx_comm_t *comm, enum uli_rounds rounds, int32_t rank, uint64_t round)
{
    const struct uli_agree_post *post =
        uli_rounds_read(comm, rounds, rank, round);

    return post &&
           atomic_load_explicit(&post->round, memory_order_acquire) == round;
}

/* ---- late ranks ---------------------------------------------------------- */

struct round {
    ulyx_comm_t *comm;
    uint64_t number;
};

static bool
is_missing(void *context, int32_t rank)
{
    const struct round *round = context;

    if (uli_rounds_has(round->comm, ULI_ROUNDS_AGREE, rank, round->number))
        return false;
    return !is_elsewhere(round->comm, ULI_ROUNDS_AGREE, rank) ||
           !uli_nodes_came(round->comm, rank, round->number);
}

static int32_t
rank_awaits(void *context, int32_t rank)
{
    const struct round *round = context;

    return is_elsewhere(round->comm, ULI_ROUNDS_AGREE, rank)
               ? uli_nodes_awaits(round->comm, rank, round->number)
               : uli_comm_awaits(round->comm, rank);
}

static bool *
mark_of(void *context, int32_t rank)
{
    const struct round *round = context;

    return &round->comm->peers[rank].named;
}

struct uli_late
uli_rounds_late(ulyx_comm_t *comm, uint64_t number)
{
    struct round round = {comm, number};
    struct uli_late_view view = {
        &round, comm->nranks, comm->rank, is_missing, rank_awaits, mark_of};
    struct uli_late late = uli_late_find(&view, ULI_LATE_REACH);

    if (late.count == 0 && comm->remote)
        return uli_nodes_relays(comm, number);
    for (int32_t p = 0; p < comm->nranks; p++)
        if (comm->peers[p].named && !is_missing(&round, p))
            /* Rank p has come to this round, and holds up a missing rank in
             * another call. So the text must not say that p has not come. */
            late.phase = ULI_LATE_MOVE;
    return late;
}
