/* SPDX-License-Identifier: Apache-2.0
 *
 * What plans on device memory have in common, whether their bytes go through
 * mapped memory (plan_gpu.h) or by messages (plan_messages.c).
 */
#ifndef ULI_COLLECTIVES_DEVICE_MAPPED_PLAN_DEVICE_H
#define ULI_COLLECTIVES_DEVICE_MAPPED_PLAN_DEVICE_H

#include "base/size.h"
#include "collectives/device/mapped/exchange_gpu.h"
#include "collectives/device/movers.h"

/* Errors: UNSUPPORTED: the build has no kernels, or the flags have one that is
 * for host memory only. */
ulyx_status_t uli_plan_device_check(const ulyx_plan_t *plan);
/* Refuses an update on a stream that is being captured. */
ulyx_status_t uli_plan_device_check_update(
    const ulyx_plan_t *plan, void *stream);
/* Waits for the event, at most for the plan's timeout. waits: the end of the
 * error text. Errors: TIMEOUT, the device's. */
ulyx_status_t uli_plan_device_await(
    const ulyx_plan_t *plan, void *event, const char *waits);

/* Takes the next aligned place for `count` objects of `bytes` bytes. */
static inline int64_t
uli_plan_device_take(int64_t *at, int64_t count, size_t bytes)
{
    int64_t place = *at;
    *at = uli_round_up(place + count * (int64_t)bytes, ULI_GPU_LINE);
    return place;
}

#endif
