/* SPDX-License-Identifier: Apache-2.0
 *
 * The checks of calls whose tensors lie in device memory. Kernels are enqueued;
 * a later failure of theirs is in call->cause.
 */
#ifndef ULI_ATTENTION_DEVICE_MEMORY_H
#define ULI_ATTENTION_DEVICE_MEMORY_H

#include "attention/problem.h"

/* Before a kernel is chosen: is there a device at all?
 * returns SUCCESS; UNSUPPORTED: no kernels in this build, no driver, no device;
 * INVALID_ARGUMENT: no such memory kind. */
ulyx_status_t uli_attn_device_usable(ulyx_memory_kind_t memory);

/* After everything has been translated, workspace included: checks that every
 * array that kernels touch is memory of the calling thread's current device, or
 * managed memory, and refuses what only the host's passes support.
 * returns SUCCESS, INVALID_ARGUMENT, UNSUPPORTED or the driver's error. */
ulyx_status_t uli_attn_device_check(const struct uli_attn_call *call);

#endif
