/* SPDX-License-Identifier: Apache-2.0
 *
 * One collective by messages: the agreement of the hosts, then the steps that
 * go to the caller's stream. channel_messages.h has the rules.
 */
#include "collectives/device/collective/channel_messages.h"

#include "base/status.h"
#include "collectives/device/calls_gpu.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"

/* ---- before the agreement ------------------------------------------------ */

ulyx_status_t
uli_channel_messages_check(const struct uli_channel_messages *channel,
    const char *name, const void *pointer, int64_t begin, int64_t end)
{
    if (begin >= end)
        return ULYX_SUCCESS;
    return uli_gpu_check_memory(channel->ops, channel->device, name,
        (const char *)pointer + begin, end - begin);
}

/* Refuses a stream that would make ranks that share a device in a process take
 * turns: staging waits for the peer's kernel. */
static ulyx_status_t
check_stream(struct uli_channel_messages *channel)
{
    return uli_gpu_check_stream(channel->ops, channel->device,
        channel->shares_device, channel->stream, &channel->capturing);
}

/* ---- the agreement ------------------------------------------------------- */

static ulyx_status_t
check_refusals(const struct uli_channel_messages *channel)
{
    char reason[ULI_REFUSAL_TEXT_BYTES];
    for (int32_t p = 0; p < channel->comm->nranks; p++)
        if (channel->outcomes[p] != ULYX_SUCCESS)
            return uli_error(ULYX_ERR_PEER_REFUSED, "%s: rank %d refused: %s",
                uli_collective_name((uint64_t)channel->mine->operation), p,
                uli_agree_reason(channel->comm, p, reason));
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_value(const struct uli_channel_messages *channel, int32_t p,
    const char *name, int64_t first, int64_t other)
{
    if (first == other)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_MISMATCH,
        "%s: %s is %lld on rank 0 and %lld on rank %d",
        uli_collective_name((uint64_t)channel->mine->operation), name,
        (long long)first, (long long)other, p);
}

static bool
is_alltoall(int64_t operation)
{
    return operation == ULI_COLLECTIVE_ALLTOALL ||
           operation == ULI_COLLECTIVE_ALLTOALLV;
}

/* Checks what must be equal on all ranks; the error is the same on all of them.
 * The sizes of an alltoall concern two ranks only and are not checked here. */
static ulyx_status_t
check_terms(const struct uli_channel_messages *channel)
{
    const struct uli_messages_terms *first = uli_channel_messages_terms(channel, 0);
    for (int32_t p = 1; p < channel->comm->nranks; p++) {
        const struct uli_messages_terms *other = uli_channel_messages_terms(channel, p);
        if (other->operation != first->operation)
            return uli_error(ULYX_ERR_MISMATCH,
                "collectives: rank %d calls %s, rank 0 %s", p,
                uli_collective_name((uint64_t)other->operation),
                uli_collective_name((uint64_t)first->operation));
        if (is_alltoall(first->operation))
            continue;
        ULI_TRY(check_value(channel, p, "count", first->count, other->count));
        ULI_TRY(check_value(channel, p, "dtype", first->dtype, other->dtype));
        ULI_TRY(check_value(channel, p, "root", first->root, other->root));
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
channel_agree(struct uli_channel_messages *channel)
{
    ulyx_comm_t *comm = channel->comm;
    size_t words = sizeof(*channel->mine) / sizeof(int64_t);
    if (channel->mine->operation == ULI_COLLECTIVE_ALLTOALLV)
        words += 2 * (size_t)comm->nranks;
    ULI_TRY(uli_agree_gather(
        comm, &(struct uli_gather){.call = ULI_CALL_REDUCE_SETUP,
                  .mine = channel->mine,
                  .bytes = (int64_t)(words * sizeof(int64_t)),
                  .max_bytes = channel->terms_words * (int64_t)sizeof(int64_t),
                  .all_p = channel->all,
                  .status_p = channel->outcomes,
                  .deadline = uli_comm_step_deadline(comm)}));
    ULI_TRY(check_refusals(channel));
    return check_terms(channel);
}

ulyx_status_t
uli_channel_messages_agree(
    struct uli_channel_messages *channel, ulyx_status_t outcome)
{
    ulyx_comm_t *comm = channel->comm;
    bool taken = false;
    ULI_TRY(uli_comm_check(comm));
    if (outcome == ULYX_SUCCESS)
        outcome = check_stream(channel);
    if (outcome == ULYX_SUCCESS) {
        outcome = uli_comm_batch_take(comm, 0);
        taken = outcome == ULYX_SUCCESS;
    }
    ulyx_status_t status = outcome == ULYX_SUCCESS
                               ? channel_agree(channel)
                               : uli_agree_refuse(comm, ULI_CALL_REDUCE_SETUP,
                                     outcome, uli_comm_step_deadline(comm));
    if (taken && status != ULYX_SUCCESS)
        uli_comm_batch_give(comm);
    return status;
}

/* ---- steps --------------------------------------------------------------- */

static ulyx_status_t
call_mark(struct uli_channel_messages *channel, bool ends)
{
    const struct uli_messages_mark mark = {
        .state = (struct uli_gpu_state *)(void *)channel->memory,
        .report = channel->device_report,
        .call = (uint64_t)channel->mine->operation,
        .ends = ends};
    ULI_TRY(uli_cuda_enter(channel->device));
    return uli_cuda_leave(
        uli_cuda_status(uli_messages_mark_launch(&mark, channel->stream),
            "launch of a collective's mark"));
}

ulyx_status_t
uli_channel_messages_begin(struct uli_channel_messages *channel)
{
    return call_mark(channel, false);
}

void
uli_channel_messages_add(struct uli_channel_messages *channel, int32_t p,
    bool send, const void *data, int64_t bytes)
{
    if (bytes > 0)
        channel->batch[channel->nbatch++] =
            (struct uli_batch_message){.data = (void *)(uintptr_t)data,
                .bytes = bytes,
                .peer = p,
                .send = send};
}

ulyx_status_t
uli_channel_messages_send(struct uli_channel_messages *channel)
{
    ulyx_comm_t *comm = channel->comm;
    int32_t count = channel->nbatch;
    channel->nbatch = 0;
    if (count == 0)
        return ULYX_SUCCESS;
    return uli_comm_batch_ops(comm)->run(uli_comm_batch(comm), channel->batch,
        count, channel->stream, uli_deadline_in(comm->timeout_s));
}

/* A captured call has no event: only its marks show its end. */
static ulyx_status_t
note_end(struct uli_channel_messages *channel)
{
    ULI_TRY(call_mark(channel, true));
    if (channel->capturing)
        return ULYX_SUCCESS;
    ULI_TRY(channel->ops->event_record(
        channel->device, channel->ended, channel->stream));
    atomic_store(&channel->enqueued, true);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_channel_messages_end(
    struct uli_channel_messages *channel, ulyx_status_t status)
{
    ulyx_comm_t *comm = channel->comm;
    if (status == ULYX_SUCCESS)
        status = note_end(channel);
    uli_comm_batch_give(comm);
    if (status == ULYX_SUCCESS)
        return status;
    return uli_comm_fail(comm, status, -1, "%s: %s",
        uli_collective_name((uint64_t)channel->mine->operation),
        uli_error_text());
}
