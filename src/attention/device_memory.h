/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls whose tensors lie in device memory: what such a call may be. Kernels
 * enqueue and return; what they find out later is told in call->cause.
 */
#ifndef ULI_ATTENTION_DEVICE_MEMORY_H
#define ULI_ATTENTION_DEVICE_MEMORY_H

#include "attention/problem.h"

/* Before a kernel is chosen: is there a device for the pass at all?
 * returns SUCCESS; UNSUPPORTED: no kernels in this build, no driver, no device,
 * no backward; INVALID_ARGUMENT: no such memory kind. */
ulyx_status_t uli_attn_device_usable(
    ulyx_memory_kind_t memory, ulyx_attention_pass_t pass);

/* After all has been translated, workspace included: every array that kernels
 * touch is memory of the calling thread's current device, or of one that it
 * may reach; what only the host's passes do is refused.
 * returns SUCCESS, INVALID_ARGUMENT, UNSUPPORTED or the driver's error. */
ulyx_status_t uli_attn_device_check(const struct uli_attn_call *call);

#endif
