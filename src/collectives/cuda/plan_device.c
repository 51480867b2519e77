/* SPDX-License-Identifier: Apache-2.0
 *
 * See plan_device.h.
 */
#include "collectives/cuda/plan_device.h"

#include <time.h>
#include "base/status.h"
#include "comm/gpu.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"
#include "device/device.h"

ulyx_status_t
uli_plan_device_check(const ulyx_plan_t *plan)
{
    if (!uli_gpu_kernels_present())
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "plans on device memory: ulyx was built without CUDA");
    if (plan->flags & ULYX_PLAN_PROGRESS_THREAD)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "flags has PROGRESS_THREAD, which is for host memory only");
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_plan_device_sms(const ulyx_comm_t *comm, int32_t max_sms,
    int32_t *multiprocessors_p, int32_t *sms_p)
{
    int64_t sharers = uli_max(uli_gpu_sharers(comm), 1);
    int64_t sms = max_sms ? max_sms : comm->settings.gpu_sms;
    ULI_TRY(uli_cuda_status(
        uli_gpu_multiprocessors(multiprocessors_p), "cudaDeviceGetAttribute"));
    *sms_p = (int32_t)uli_min(sms, uli_max(*multiprocessors_p / sharers, 1));
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
    const struct timespec pause = {0, 20000};
    uli_deadline_t deadline = uli_deadline_in(plan->timeout_s);
    for (;;) {
        ulyx_status_t status = gpu->ops->event_test(gpu->device, event);
        if (status != ULYX_IN_PROGRESS)
            return status;
        if (uli_deadline_over(deadline))
            return uli_error(ULYX_ERR_TIMEOUT, "plan %s", waits);
        nanosleep(&pause, NULL);
    }
}
