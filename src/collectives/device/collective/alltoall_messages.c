/* SPDX-License-Identifier: Apache-2.0
 *
 * alltoall and alltoallv by messages: one batch, from src to dst. Two ranks
 * whose sizes differ leave out each other's messages, and both return an error.
 */
#include "base/status.h"
#include "collectives/device/collective/alltoall_gpu.h"
#include "collectives/device/collective/channel_messages.h"

/* The bytes that `rank` sends to `other` (sent) or receives from it, as `rank`
 * has given them. */
static int64_t
bytes_between(const struct uli_channel_messages *channel, int32_t rank,
    int32_t other, bool sent)
{
    const struct uli_messages_terms *terms =
        uli_channel_messages_terms(channel, rank);
    return terms->operation == ULI_COLLECTIVE_ALLTOALL
               ? terms->count
               : terms->bytes[(sent ? 0 : channel->comm->nranks) + other];
}

/* Do this rank and p give the same sizes, both ways? */
static bool
pair_agrees(const struct uli_channel_messages *channel, int32_t p)
{
    int32_t me = channel->comm->rank;
    return bytes_between(channel, me, p, true) ==
               bytes_between(channel, p, me, false) &&
           bytes_between(channel, me, p, false) ==
               bytes_between(channel, p, me, true);
}

/* The error of the first rank with which this rank's sizes differ. */
static ulyx_status_t
check_pairs(const struct uli_channel_messages *channel)
{
    int32_t me = channel->comm->rank, p = 0;
    while (p < channel->comm->nranks && pair_agrees(channel, p))
        p++;
    if (p == channel->comm->nranks)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_MISMATCH,
        "%s: rank %d sends %lld bytes to rank %d, which expects %lld; "
        "rank %d expects %lld of the %lld bytes that rank %d sends",
        uli_collective_name((uint64_t)channel->mine->operation), p,
        (long long)bytes_between(channel, p, me, true), me,
        (long long)bytes_between(channel, me, p, false), p,
        (long long)bytes_between(channel, p, me, false),
        (long long)bytes_between(channel, me, p, true), me);
}

static void
fill_terms(
    struct uli_channel_messages *channel, const struct uli_alltoall_args *args)
{
    int32_t nranks = channel->comm->nranks;
    *channel->mine = (struct uli_messages_terms){
        .operation =
            args->even ? ULI_COLLECTIVE_ALLTOALL : ULI_COLLECTIVE_ALLTOALLV};
    if (args->even)
        channel->mine->count = args->src_bytes[0];
    for (int32_t p = 0; p < nranks && !args->even; p++) {
        channel->mine->bytes[p] = args->src_bytes[p];
        channel->mine->bytes[nranks + p] = args->dst_bytes[p];
    }
}

static ulyx_status_t
check_memory(const struct uli_channel_messages *channel,
    const struct uli_alltoall_args *args)
{
    int64_t src_begin = 0, src_end = 0, dst_begin = 0, dst_end = 0;
    for (int32_t p = 0; p < channel->comm->nranks; p++) {
        uli_alltoall_extent_add(uli_alltoall_src_at(args, p), uli_alltoall_sends(args, p),
            &src_begin, &src_end);
        uli_alltoall_extent_add(uli_alltoall_dst_at(args, p), uli_alltoall_receives(args, p),
            &dst_begin, &dst_end);
    }
    ULI_TRY(uli_channel_messages_check(
        channel, "src", args->src, src_begin, src_end));
    return uli_channel_messages_check(
        channel, "dst", args->dst, dst_begin, dst_end);
}

/* Messages begin with the next higher rank, so that not all ranks send to the
 * same rank. */
static ulyx_status_t
alltoall_enqueue(
    struct uli_channel_messages *channel, const struct uli_alltoall_args *args)
{
    int32_t me = channel->comm->rank, nranks = channel->comm->nranks;
    ULI_TRY(uli_channel_messages_begin(channel));
    for (int32_t q = 1; q < nranks; q++) {
        int32_t p = (me + q) % nranks;
        if (!pair_agrees(channel, p))
            continue;
        uli_channel_messages_add(channel, p, true,
            args->src + uli_alltoall_src_at(args, p),
            uli_alltoall_sends(args, p));
        uli_channel_messages_add(channel, p, false,
            args->dst + uli_alltoall_dst_at(args, p),
            uli_alltoall_receives(args, p));
    }
    int64_t own = uli_alltoall_sends(args, me);
    if (own > 0)
        ULI_TRY(channel->ops->copy(channel->device,
            args->dst + uli_alltoall_dst_at(args, me),
            args->src + uli_alltoall_src_at(args, me), own, channel->stream));
    return uli_channel_messages_send(channel);
}

static ulyx_status_t
alltoall_run(struct uli_channel_messages *channel,
    const struct uli_alltoall_args *args, ulyx_status_t outcome)
{
    ulyx_comm_t *comm = channel->comm;
    if (outcome == ULYX_SUCCESS)
        outcome = uli_alltoall_check(comm, args);
    if (outcome == ULYX_SUCCESS)
        outcome = check_memory(channel, args);
    if (outcome == ULYX_SUCCESS)
        fill_terms(channel, args);
    ULI_TRY(uli_channel_messages_agree(channel, outcome));
    ULI_TRY(uli_channel_messages_end(channel, alltoall_enqueue(channel, args)));
    return check_pairs(channel);
}

ulyx_status_t
uli_alltoall_messages(ulyx_comm_t *comm, const struct uli_alltoall_args *args,
    ulyx_status_t outcome)
{
    struct uli_channel_messages *channel;
    ULI_TRY(uli_channel_messages_take(comm, outcome, args->stream, &channel));
    ulyx_status_t status = alltoall_run(channel, args, outcome);
    uli_channel_messages_give(channel);
    return status;
}
