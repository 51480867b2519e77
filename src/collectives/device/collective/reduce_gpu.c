/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions on device memory. allgather and broadcast are messages of an
 * alltoallv in which all ranks have to agree first; allreduce has a kernel of
 * its own.
 */
#include "collectives/device/collective/reduce_gpu.h"

#include "base/dtype.h"
#include "base/size.h"
#include "collectives/device/collective/alltoall_gpu.h"

/* Messages of an alltoallv, by rank. */
struct messages {
    int64_t src_bytes[ULI_COLLECTIVE_RANKS], src_offsets[ULI_COLLECTIVE_RANKS];
    int64_t dst_bytes[ULI_COLLECTIVE_RANKS], dst_offsets[ULI_COLLECTIVE_RANKS];
};

static void
reduce_gpu_gather(const ulyx_comm_t *comm, const struct uli_reduce_args *args,
    struct messages *messages)
{
    int64_t bytes = args->count;
    bool in_place = args->src == args->dst + comm->rank * bytes;
    for (int32_t p = 0; p < comm->nranks; p++) {
        int64_t moved = in_place && p == comm->rank ? 0 : bytes;
        messages->src_bytes[p] = messages->dst_bytes[p] = moved;
        messages->src_offsets[p] = 0;
        messages->dst_offsets[p] = p * bytes;
    }
}

static void
reduce_gpu_broadcast(const ulyx_comm_t *comm, const struct uli_reduce_args *args,
    struct messages *messages)
{
    bool root = comm->rank == args->root;
    for (int32_t p = 0; p < comm->nranks; p++) {
        messages->src_bytes[p] = root && p != args->root ? args->count : 0;
        messages->dst_bytes[p] = !root && p == args->root ? args->count : 0;
        messages->src_offsets[p] = messages->dst_offsets[p] = 0;
    }
}

static void
set_messages(const ulyx_comm_t *comm, const struct uli_reduce_args *args,
    struct uli_channel_call *call_p, struct uli_collective_args *args_p)
{
    struct messages messages;
    const char *src = args->kind == ULI_BROADCAST ? args->dst : args->src;
    const struct uli_alltoall_args moves = {src, args->dst, false,
        messages.src_bytes, messages.src_offsets, messages.dst_bytes,
        messages.dst_offsets, args->stream};
    if (args->kind == ULI_BROADCAST)
        reduce_gpu_broadcast(comm, args, &messages);
    else
        reduce_gpu_gather(comm, args, &messages);
    uli_alltoall_gpu_messages(comm, &moves, call_p, args_p);
}

static void
set_sum(const ulyx_comm_t *comm, const struct uli_reduce_args *args,
    struct uli_channel_call *call_p)
{
    int64_t bytes = args->count * uli_dtype_size(args->dtype);
    *call_p = (struct uli_channel_call){.src = args->src,
        .dst = args->dst,
        .src_end = bytes,
        .dst_end = bytes,
        .moved_bytes = bytes,
        .landed_bytes = bytes / comm->nranks + 1,
        .launch = uli_allreduce_launch};
}

uint64_t
uli_collective_of_kind(enum uli_reduction kind)
{
    static const uint64_t operations[] = {
        [ULI_ALLREDUCE] = ULI_COLLECTIVE_ALLREDUCE,
        [ULI_ALLGATHER] = ULI_COLLECTIVE_ALLGATHER,
        [ULI_BROADCAST] = ULI_COLLECTIVE_BROADCAST};
    return operations[kind];
}

ulyx_status_t
uli_reduce_gpu(ulyx_comm_t *comm, const struct uli_reduce_args *args,
    ulyx_status_t outcome)
{
    struct uli_channel_gpu *channel;
    struct uli_channel_call call;
    ULI_TRY(uli_channel_gpu_take(comm, outcome, args->stream, &channel));
    struct uli_collective_args to_kernel = channel->args;
    uint64_t *record = to_kernel.base.record;
    record[ULI_COLLECTIVE_CALL] = uli_collective_of_kind(args->kind) << 32;
    record[ULI_COLLECTIVE_COUNT] = (uint64_t)args->count;
    record[ULI_COLLECTIVE_DTYPE] = (uint64_t)args->dtype;
    record[ULI_COLLECTIVE_ROOT] = (uint64_t)args->root;
    to_kernel.together = 1;
    if (args->kind == ULI_ALLREDUCE)
        set_sum(comm, args, &call);
    else
        set_messages(comm, args, &call, &to_kernel);
    return uli_channel_gpu_run(channel, &call, &to_kernel, args->stream);
}
