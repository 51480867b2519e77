/* SPDX-License-Identifier: Apache-2.0
 *
 * allreduce, allgather and broadcast by messages. All ranks have agreed before
 * a byte moves.
 *
 * A sum goes slice by slice, as on the host (channel/reduce.c), and has the
 * same bits: each rank receives its part of the slice from all, adds in rank
 * order, and sends the sum to all. A slice is read whole before anything of it
 * is written, so src may be dst. Its parts fit the channel's memory for shares.
 *
 * Cost: each rank sends and receives 2 (P - 1) / P of its bytes.
 */
#include "base/dtype.h"
#include "base/size.h"
#include "base/status.h"
#include "collectives/device/collective/channel_messages.h"
#include "collectives/device/collective/reduce_gpu.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"

enum {
    PART_ELEMENTS = 16
}; /* parts begin at multiples of this: at least 16 bytes */

/* ---- gather and broadcast ------------------------------------------------ */

static ulyx_status_t
allgather_enqueue(
    struct uli_channel_messages *channel, const struct uli_reduce_args *args)
{
    int32_t me = channel->comm->rank, nranks = channel->comm->nranks;
    char *own = args->dst + me * args->count;
    for (int32_t q = 1; q < nranks; q++) {
        int32_t p = (me + q) % nranks;
        uli_channel_messages_add(channel, p, true, args->src, args->count);
        uli_channel_messages_add(
            channel, p, false, args->dst + p * args->count, args->count);
    }
    if (args->count > 0 && own != args->src)
        ULI_TRY(channel->ops->copy(
            channel->device, own, args->src, args->count, channel->stream));
    return uli_channel_messages_send(channel);
}

static ulyx_status_t
broadcast_enqueue(
    struct uli_channel_messages *channel, const struct uli_reduce_args *args)
{
    bool root = channel->comm->rank == args->root;
    for (int32_t p = 0; p < channel->comm->nranks; p++)
        if (p != channel->comm->rank && (root || p == args->root))
            uli_channel_messages_add(channel, p, root, args->dst, args->count);
    return uli_channel_messages_send(channel);
}

/* ---- sums ---------------------------------------------------------------- */

/* Elements [at, at + count) of the tensors. Rank p adds the part that begins at
 * part_at(p). */
struct slice {
    int64_t at, count, each;
};

static int64_t
part_at(const struct slice *slice, int32_t p)
{
    return slice->at + uli_min(p * slice->each, slice->count);
}

static int64_t
part_length(const struct slice *slice, int32_t p)
{
    int64_t left = slice->at + slice->count - part_at(slice, p);
    return uli_min(left, slice->each);
}

static void
add_shares(struct uli_channel_messages *channel,
    const struct uli_reduce_args *args, const struct slice *slice, int32_t p)
{
    int64_t elem = uli_dtype_size(args->dtype);
    uli_channel_messages_add(channel, p, true,
        args->src + part_at(slice, p) * elem, part_length(slice, p) * elem);
    uli_channel_messages_add(channel, p, false,
        channel->arrived + p * channel->share_bytes,
        part_length(slice, channel->comm->rank) * elem);
}

static void
add_sums(struct uli_channel_messages *channel,
    const struct uli_reduce_args *args, const struct slice *slice, int32_t p)
{
    int64_t elem = uli_dtype_size(args->dtype);
    int32_t me = channel->comm->rank;
    uli_channel_messages_add(channel, p, true,
        args->dst + part_at(slice, me) * elem, part_length(slice, me) * elem);
    uli_channel_messages_add(channel, p, false,
        args->dst + part_at(slice, p) * elem, part_length(slice, p) * elem);
}

static ulyx_status_t
sum_launch(struct uli_channel_messages *channel,
    const struct uli_reduce_args *args, const struct slice *slice)
{
    int32_t me = channel->comm->rank;
    int64_t at = part_at(slice, me) * uli_dtype_size(args->dtype);
    const struct uli_messages_sum sum = {
        .own = (const unsigned char *)args->src + at,
        .shares = channel->arrived,
        .dst = (unsigned char *)args->dst + at,
        .share_bytes = channel->share_bytes,
        .count = part_length(slice, me),
        .rank = me,
        .nranks = channel->comm->nranks,
        .dtype = args->dtype};
    if (sum.count == 0)
        return ULYX_SUCCESS;
    ULI_TRY(uli_cuda_enter(channel->device));
    return uli_cuda_leave(uli_cuda_status(
        uli_messages_sum_launch(&sum, channel->blocks, channel->stream),
        "launch of the sums of an allreduce"));
}

static ulyx_status_t
slice_enqueue(struct uli_channel_messages *channel,
    const struct uli_reduce_args *args, const struct slice *slice)
{
    int32_t me = channel->comm->rank, nranks = channel->comm->nranks;
    for (int32_t q = 1; q < nranks; q++)
        add_shares(channel, args, slice, (me + q) % nranks);
    ULI_TRY(uli_channel_messages_send(channel));
    ULI_TRY(sum_launch(channel, args, slice));
    for (int32_t q = 1; q < nranks; q++)
        add_sums(channel, args, slice, (me + q) % nranks);
    return uli_channel_messages_send(channel);
}

static ulyx_status_t
allreduce_enqueue(
    struct uli_channel_messages *channel, const struct uli_reduce_args *args)
{
    int32_t nranks = channel->comm->nranks;
    int64_t most = channel->share_bytes / uli_dtype_size(args->dtype);
    int64_t left = args->count;
    while (left > 0) {
        struct slice slice = {
            .at = args->count - left, .count = uli_min(left, most * nranks)};
        slice.each =
            uli_round_up((slice.count - 1) / nranks + 1, PART_ELEMENTS);
        ULI_TRY(slice_enqueue(channel, args, &slice));
        left -= slice.count;
    }
    return ULYX_SUCCESS;
}

/* ---- the call ------------------------------------------------------------ */

static void
fill_terms(
    struct uli_channel_messages *channel, const struct uli_reduce_args *args)
{
    *channel->mine =
        (struct uli_messages_terms){.operation = (int64_t)uli_collective_of_kind(args->kind),
            .count = args->count,
            .dtype = args->dtype,
            .root = args->root};
}

static ulyx_status_t
check_memory(const struct uli_channel_messages *channel,
    const struct uli_reduce_args *args)
{
    int64_t bytes = args->count, all = bytes;
    if (args->kind == ULI_ALLREDUCE)
        all = bytes *= uli_dtype_size(args->dtype);
    if (args->kind == ULI_ALLGATHER)
        all *= channel->comm->nranks;
    if (args->kind != ULI_BROADCAST)
        ULI_TRY(
            uli_channel_messages_check(channel, "src", args->src, 0, bytes));
    return uli_channel_messages_check(channel, "dst", args->dst, 0, all);
}

static ulyx_status_t
reduce_enqueue(
    struct uli_channel_messages *channel, const struct uli_reduce_args *args)
{
    ULI_TRY(uli_channel_messages_begin(channel));
    switch (args->kind) {
    case ULI_ALLREDUCE:
        return allreduce_enqueue(channel, args);
    case ULI_ALLGATHER:
        return allgather_enqueue(channel, args);
    default:
        return broadcast_enqueue(channel, args);
    }
}

static ulyx_status_t
reduce_run(struct uli_channel_messages *channel,
    const struct uli_reduce_args *args, ulyx_status_t outcome)
{
    if (outcome == ULYX_SUCCESS)
        outcome = check_memory(channel, args);
    if (outcome == ULYX_SUCCESS)
        fill_terms(channel, args);
    ULI_TRY(uli_channel_messages_agree(channel, outcome));
    return uli_channel_messages_end(channel, reduce_enqueue(channel, args));
}

ulyx_status_t
uli_reduce_messages(ulyx_comm_t *comm, const struct uli_reduce_args *args,
    ulyx_status_t outcome)
{
    struct uli_channel_messages *channel;
    ULI_TRY(uli_channel_messages_take(comm, outcome, args->stream, &channel));
    ulyx_status_t status = reduce_run(channel, args, outcome);
    uli_channel_messages_give(channel);
    return status;
}
