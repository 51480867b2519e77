/* SPDX-License-Identifier: Apache-2.0
 *
 * What the device has noted of calls, read by the host and put into words; and
 * whether it is still at work. All of it looks at pinned memory or asks an
 * event: nothing waits.
 */
#include <stdio.h>
#include "base/status.h"
#include "collectives/device/calls_gpu.h"
#include "collectives/device/collective/channel_gpu.h"
#include "collectives/device/mapped/plan_gpu.h"
#include "comm/device/gpu.h"

/* ---- what is final ------------------------------------------------------- */

void
uli_plan_gpu_look(struct uli_plan_gpu *gpu)
{
    uint64_t word = uli_gpu_noted(&gpu->report->failed);
    if (word == 0 || !gpu->state.plan)
        return;
    struct uli_gpu_noted_cause cause = uli_gpu_cause(word);
    (void)uli_comm_fail(gpu->state.plan->comm, (ulyx_status_t)-cause.status,
        cause.peer, "reshuffle, call %u: rank %d has not %s within %g s",
        cause.call, cause.peer,
        cause.phase == ULI_GPU_AWAITS_READY ? "come to it" : "ended its part",
        gpu->state.plan->timeout_s);
}

static void
plans_look(ulyx_comm_t *comm)
{
    struct uli_gpu *device = comm->gpu;
    pthread_mutex_lock(&device->plans_lock);
    for (struct uli_list *n = device->plans.next; n != &device->plans;
         n = n->next)
        uli_plan_gpu_look(ULI_CONTAINER_OF(n, struct uli_plan_gpu, node));
    if (device->channel)
        uli_channel_gpu_look(device->channel);
    pthread_mutex_unlock(&device->plans_lock);
}

/* ---- what concerns one call ---------------------------------------------- */

static ulyx_status_t
cause_is_refusal(const struct uli_gpu_noted_cause *cause)
{
    if (cause->status == ULI_GPU_HAS_LEFT)
        return uli_error(ULYX_ERR_PEER_REFUSED,
            "reshuffle, call %u: rank %d has destroyed its plan", cause->call,
            cause->peer);
    return uli_error(ULYX_ERR_PEER_REFUSED,
        "reshuffle, call %u: rank %d refused: %s", cause->call, cause->peer,
        uli_status_text((ulyx_status_t)-cause->status));
}

static ulyx_status_t
cause_disagrees(const struct uli_gpu_noted_cause *cause, int32_t rank)
{
    if (cause->status & ULI_GPU_OTHER_OPERATION)
        return uli_error(ULYX_ERR_MISMATCH,
            "reshuffle, call %u: rank %d executes %s, rank %d another "
            "operation",
            cause->call, cause->peer,
            uli_direction_name(cause->status & ~ULI_GPU_OTHER_OPERATION), rank);
    return uli_error(ULYX_ERR_MISMATCH,
        "reshuffle, call %u: the document tables of rank %d and rank %d differ",
        cause->call, cause->peer, rank);
}

ulyx_status_t
uli_gpu_outcome_error(uint64_t word, int32_t rank)
{
    struct uli_gpu_noted_cause cause = uli_gpu_cause(word);
    if (cause.phase == ULI_GPU_REFUSED)
        return cause_is_refusal(&cause);
    if (cause.phase == ULI_GPU_DISAGREES)
        return cause_disagrees(&cause, rank);
    if (cause.phase == ULI_GPU_STALE)
        return uli_error(ULYX_ERR_MISMATCH,
            "reshuffle, call %u: captured before the last update of the "
            "document tables: messages have the sizes of then, capture it "
            "again",
            cause.call);
    return uli_error(ULYX_ERR_PEER_REFUSED,
        "reshuffle, call %u: a tensor of rank %d lies in a window that is not "
        "attached any more",
        cause.call, cause.peer);
}

uint64_t
uli_plan_gpu_noted(const struct uli_plan_gpu *gpu)
{
    return uli_gpu_noted(&gpu->report->outcome);
}

ulyx_status_t
uli_plan_gpu_outcome(ulyx_plan_t *plan, uint64_t word)
{
    struct uli_plan_gpu *gpu = uli_plan_gpu_of(plan);
    if (word == gpu->outcome_seen)
        return ULYX_SUCCESS;
    gpu->outcome_seen = word;
    return uli_gpu_outcome_error(word, plan->comm->rank);
}

/* ---- at work? ------------------------------------------------------------ */

bool
uli_plan_gpu_in_flight(const struct uli_plan_gpu *gpu)
{
    /* Copies go on in a stream whose kernels have left. */
    if (uli_gpu_noted(&gpu->report->entered) !=
        uli_gpu_noted(&gpu->report->left))
        return true;
    return uli_gpu_calls_in_flight(gpu->state.plan->comm, gpu->ops, gpu->device,
        gpu->ended, &gpu->enqueued, gpu->report);
}

static bool
plans_in_flight(ulyx_comm_t *comm)
{
    struct uli_gpu *device = comm->gpu;
    pthread_mutex_lock(&device->plans_lock);
    bool busy = device->channel && uli_channel_gpu_in_flight(device->channel);
    for (struct uli_list *n = device->plans.next; n != &device->plans && !busy;
         n = n->next)
        busy = uli_plan_gpu_in_flight(
            ULI_CONTAINER_OF(n, struct uli_plan_gpu, node));
    pthread_mutex_unlock(&device->plans_lock);
    return busy;
}

const struct uli_gpu_calls uli_plans_gpu_calls = {plans_in_flight, plans_look};
