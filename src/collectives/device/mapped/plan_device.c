/* SPDX-License-Identifier: Apache-2.0
 *
 * See plan_device.h.
 */
#include "collectives/device/mapped/plan_device.h"

#include "base/status.h"
#include "collectives/device/calls_gpu.h"
#include "comm/device/gpu.h"
#include "device/device.h"

ulyx_status_t
uli_plan_device_check(const ulyx_plan_t *plan)
{
    if (!uli_device_kernels_built())
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "plans on device memory: ulyx was built without CUDA");
    if (plan->flags & ULYX_PLAN_PROGRESS_THREAD)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "flags has PROGRESS_THREAD, which is for host memory only");
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_plan_device_check_update(const ulyx_plan_t *plan, void *stream)
{
    const struct uli_gpu *gpu = plan->comm->gpu;
    bool capturing = false;
    ULI_TRY(gpu->ops->stream_capturing(gpu->device, stream, &capturing));
    return capturing ? uli_error(ULYX_ERR_INVALID_ARGUMENT,
                           "plan update: the stream is being captured")
                     : ULYX_SUCCESS;
}

ulyx_status_t
uli_plan_device_await(const ulyx_plan_t *plan, void *event, const char *waits)
{
    const struct uli_gpu *gpu = plan->comm->gpu;
    ulyx_status_t status = uli_gpu_await(
        gpu->ops, gpu->device, event, uli_deadline_in(plan->timeout_s));
    return status == ULYX_IN_PROGRESS
               ? uli_error(ULYX_ERR_TIMEOUT, "plan %s", waits)
               : status;
}
