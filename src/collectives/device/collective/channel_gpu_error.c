/* SPDX-License-Identifier: Apache-2.0
 *
 * What the device has stored about collectives: the host reads it and returns
 * it as errors. All functions read pinned memory or query an event: none waits.
 */
#include "base/status.h"
#include "collectives/device/calls_gpu.h"
#include "collectives/device/collective/channel_gpu.h"

const char *
uli_collective_name(uint64_t operation)
{
    static const char *const names[ULI_COLLECTIVES] = {"a collective",
        "alltoall", "alltoallv", "allreduce", "allgather", "broadcast"};
    return names[operation < ULI_COLLECTIVES ? operation : 0];
}

/* ---- what is final ------------------------------------------------------- */

void
uli_channel_gpu_look(struct uli_channel_gpu *channel)
{
    const struct uli_collective_report *report = channel->report;
    uint64_t word = uli_gpu_noted(&report->base.failed);
    if (word == 0)
        return;
    struct uli_gpu_noted_cause cause = uli_gpu_cause(word);
    const char *name = uli_collective_name(uli_gpu_noted(&report->operation));
    if (cause.phase == ULI_GPU_LOST)
        (void)uli_comm_fail(channel->comm, ULYX_ERR_INVALID_ARGUMENT,
            cause.peer,
            "%s, call %u: memory of rank %d lies in a window that is not "
            "attached any more",
            name, cause.call, cause.peer);
    else
        uli_gpu_fail_late(
            channel->comm, &cause, name, channel->comm->timeout_s);
}

/* ---- what concerns one call ---------------------------------------------- */

static ulyx_status_t
cause_refused(const struct uli_gpu_noted_cause *cause)
{
    if (cause->status == ULI_GPU_HAS_LEFT)
        return uli_error(ULYX_ERR_PEER_REFUSED,
            "collectives, call %u: rank %d has destroyed its communicator",
            cause->call, cause->peer);
    return uli_error(ULYX_ERR_PEER_REFUSED,
        "collectives, call %u: rank %d refused: %s", cause->call, cause->peer,
        uli_status_text((ulyx_status_t)-cause->status));
}

/* The error of a pair that disagrees, with the first difference of its two
 * records. */
static ulyx_status_t
channel_gpu_differs(const struct uli_channel_gpu *channel,
    const struct uli_gpu_noted_cause *cause)
{
    static const char
        *const names[ULI_COLLECTIVE_WORDS - ULI_COLLECTIVE_COUNT] = {
            "count", "dtype", "root"};
    const struct uli_collective_report *report = channel->report;
    const uint64_t *ours = report->ours, *theirs = report->theirs;
    const char *name = uli_collective_name(ours[ULI_COLLECTIVE_CALL] >> 32);
    int32_t me = channel->comm->rank, p = cause->peer;
    for (int i = ULI_COLLECTIVE_COUNT; i < ULI_COLLECTIVE_WORDS; i++)
        if (ours[i] != theirs[i])
            return uli_error(ULYX_ERR_MISMATCH,
                "%s, call %u: %s is %lld on rank %d and %lld on rank %d", name,
                cause->call, names[i - ULI_COLLECTIVE_COUNT],
                (long long)ours[i], me, (long long)theirs[i], p);
    return uli_error(ULYX_ERR_MISMATCH,
        "%s, call %u: rank %d sends %lld bytes to rank %d, which expects %lld; "
        "rank %d expects %lld of the %lld bytes that rank %d sends",
        name, cause->call, p, (long long)theirs[ULI_COLLECTIVE_SENDS], me,
        (long long)ours[ULI_COLLECTIVE_RECEIVES], p,
        (long long)theirs[ULI_COLLECTIVE_RECEIVES],
        (long long)ours[ULI_COLLECTIVE_SENDS], me);
}

static ulyx_status_t
channel_gpu_disagrees(const struct uli_channel_gpu *channel,
    const struct uli_gpu_noted_cause *cause)
{
    const struct uli_collective_report *report = channel->report;
    int32_t me = channel->comm->rank;
    bool reported = (uint32_t)uli_gpu_noted(&report->reported) == cause->call;
    if (cause->status & ULI_GPU_OTHER_OPERATION)
        return uli_error(ULYX_ERR_MISMATCH,
            "collectives, call %u: rank %d calls %s, rank %d %s", cause->call,
            cause->peer,
            uli_collective_name(
                (uint64_t)(cause->status & ~ULI_GPU_OTHER_OPERATION)),
            me,
            reported
                ? uli_collective_name(report->ours[ULI_COLLECTIVE_CALL] >> 32)
                 : "another");
    if (reported)
        return channel_gpu_differs(channel, cause);
    return uli_error(ULYX_ERR_MISMATCH,
        "collectives, call %u: rank %d and rank %d give different sizes",
        cause->call, cause->peer, me);
}

ulyx_status_t
uli_channel_gpu_outcome(struct uli_channel_gpu *channel, uint64_t word)
{
    if (word == channel->outcome_seen)
        return ULYX_SUCCESS;
    channel->outcome_seen = word;
    struct uli_gpu_noted_cause cause = uli_gpu_cause(word);
    return cause.phase == ULI_GPU_REFUSED
               ? cause_refused(&cause)
               : channel_gpu_disagrees(channel, &cause);
}

/* ---- at work? ------------------------------------------------------------ */

bool
uli_channel_gpu_in_flight(const struct uli_channel_gpu *channel)
{
    return uli_gpu_calls_in_flight(channel->comm, channel->ops, channel->device,
        channel->ended, &channel->enqueued, &channel->report->base);
}
