/* SPDX-License-Identifier: Apache-2.0
 *
 * alltoall and alltoallv on device memory. The messages become arguments of the
 * kernel, which the launch copies, so a captured call keeps its sizes.
 */
#include "collectives/device/collective/alltoall_gpu.h"

#include "base/size.h"
#include "base/status.h"

void
uli_alltoall_extent_add(
    int64_t at, int64_t bytes, int64_t *begin_p, int64_t *end_p)
{
    if (!bytes)
        return;
    *begin_p = *begin_p < *end_p ? uli_min(*begin_p, at) : at;
    *end_p = uli_max(*end_p, at + bytes);
}

void
uli_alltoall_gpu_messages(const ulyx_comm_t *comm,
    const struct uli_alltoall_args *args, struct uli_channel_call *call_p,
    struct uli_collective_args *args_p)
{
    *call_p = (struct uli_channel_call){
        .src = args->src, .dst = args->dst, .launch = uli_alltoall_launch};
    for (int32_t p = 0; p < comm->nranks; p++) {
        int64_t sends = uli_alltoall_sends(args, p);
        int64_t receives = uli_alltoall_receives(args, p);
        args_p->send_bytes[p] = sends;
        args_p->receive_bytes[p] = receives;
        args_p->src_offset[p] = uli_alltoall_src_at(args, p);
        args_p->dst_offset[p] = uli_alltoall_dst_at(args, p);
        uli_alltoall_extent_add(args_p->src_offset[p], sends,
            &call_p->src_begin, &call_p->src_end);
        uli_alltoall_extent_add(args_p->dst_offset[p], receives,
            &call_p->dst_begin, &call_p->dst_end);
        call_p->moved_bytes =
            uli_sat_add(call_p->moved_bytes, uli_max(sends, receives));
        if (p != comm->rank)
            call_p->landed_bytes =
                uli_max(call_p->landed_bytes, uli_max(sends, receives));
    }
}

ulyx_status_t
uli_alltoall_gpu(ulyx_comm_t *comm, const struct uli_alltoall_args *args,
    ulyx_status_t outcome)
{
    struct uli_channel_gpu *channel;
    struct uli_channel_call call;
    if (outcome == ULYX_SUCCESS)
        outcome = uli_alltoall_check(comm, args);
    ULI_TRY(uli_channel_gpu_take(comm, outcome, args->stream, &channel));
    struct uli_collective_args to_kernel = channel->args;
    uint64_t operation =
        args->even ? ULI_COLLECTIVE_ALLTOALL : ULI_COLLECTIVE_ALLTOALLV;
    to_kernel.base.record[ULI_COLLECTIVE_CALL] = operation << 32;
    uli_alltoall_gpu_messages(comm, args, &call, &to_kernel);
    return uli_channel_gpu_run(channel, &call, &to_kernel, args->stream);
}
