/* SPDX-License-Identifier: Apache-2.0
 *
 * The row of the portable GPU kernels: picks a family by dtype and head
 * dimensions, enqueues prepare and the pass. Nothing is waited for; what goes
 * wrong on the device is found in the state and in call->cause.
 */
#include "attention/cuda/device_call.h"
#include "attention/kernels/kernels.h"
#include "base/status.h"

static bool
device_usable(void)
{
    int32_t sms;
    return uli_gpu_attn_device(&sms) == 0;
}

static const char *
device_refuses(const struct uli_attn_problem *problem)
{
    const char *why;
    uli_gpu_attn_family(problem, &why);
    return why;
}

static int64_t
device_workspace(const struct uli_attn_problem *problem,
    ulyx_attention_pass_t pass, int threads)
{
    const char *why;
    const struct uli_gpu_attn_forward *family =
        uli_gpu_attn_family(problem, &why);
    (void)pass;
    (void)threads;
    return family ? uli_gpu_attn_call_bytes(problem, family) : -1;
}

/* Blocks of the pass: all that the device holds at once, or one on each of
 * max_sms multiprocessors: then no more of them can be in use. */
static int
blocks_of(const struct uli_attn_call *call,
    const struct uli_gpu_attn_forward *family, int32_t *blocks_p)
{
    int32_t sms, per_sm;
    int error = uli_gpu_attn_device(&sms);
    if (!error)
        error = family->prepare(&per_sm);
    if (error)
        return error;
    *blocks_p = sms * per_sm;
    if (call->max_sms > 0 && call->max_sms < sms)
        *blocks_p = call->max_sms;
    return 0;
}

static void
device_forward(struct uli_attn_call *call)
{
    const char *why;
    const struct uli_gpu_attn_forward *family =
        uli_gpu_attn_family(&call->problem, &why);
    struct uli_gpu_attn_args args;
    int32_t blocks;
    ulyx_status_t status = uli_gpu_attn_call_args(call, family, &args);
    if (status != ULYX_SUCCESS) {
        atomic_store(&call->failed, status);
        return;
    }
    int error = blocks_of(call, family, &blocks);
    if (!error)
        error = uli_gpu_attn_prepare_launch(&args, call->stream);
    if (!error)
        error = family->launch(&args, blocks, call->stream);
    if (error)
        atomic_store(&call->failed,
            uli_error(ULYX_ERR_INTERNAL, "attention %s: CUDA error %d",
                family->name, error));
}

const struct uli_attn_kernel uli_attn_cuda_kernel = {
    .name = "mma",
    .what = "warps' matrix products on device memory, fp32 sums",
    .usable = device_usable,
    .refuses = device_refuses,
    .workspace = device_workspace,
    .forward = device_forward,
};
