/* SPDX-License-Identifier: Apache-2.0
 *
 * The row of the portable GPU kernels: picks a family by dtype and head
 * dimensions, enqueues prepare and the pass. Nothing is waited for; what goes
 * wrong on the device is found in the state and in call->cause.
 */
#include "attention/cuda/device_call.h"
#include "attention/kernels/kernels.h"
#include "base/status.h"
#include "device/cuda_driver.h"

static const struct uli_gpu_attn_forward *const families[] = {
#ifdef ULYX_CUDA_FULL
    &uli_gpu_attn_mma64,
    &uli_gpu_attn_mma96,
#endif
    &uli_gpu_attn_mma128,
#ifdef ULYX_CUDA_FULL
    &uli_gpu_attn_mma192,
    &uli_gpu_attn_mma256,
#endif
    &uli_gpu_attn_plain,
};

/* The portable family that takes the problem, or NULL and why not. */
static const struct uli_gpu_attn_forward *
find_family(const struct uli_attn_problem *problem, const char **why_p)
{
    *why_p = NULL;
    for (size_t n = 0; n < sizeof(families) / sizeof(families[0]); n++) {
        const struct uli_gpu_attn_forward *family = families[n];
        bool narrow = problem->dtype == ULYX_DTYPE_BF16 ||
                      problem->dtype == ULYX_DTYPE_F16;
        bool wide = problem->dtype == ULYX_DTYPE_F32 && family->any_dtype;
        bool whole = problem->dim_qk % 8 == 0 && problem->dim_v % 8 == 0;
        if ((narrow || wide) && whole && problem->dim_qk <= family->dim_qk &&
            problem->dim_v <= family->dim_v)
            return family;
    }
    *why_p = problem->dtype == ULYX_DTYPE_F64 ? "it does not take fp64"
                                              : "its head dimensions";
    return NULL;
}

/* Does the pass wait for flags of pieces? */
static bool
waits_for_flags(const struct uli_gpu_attn_args *args)
{
    return args->q.flags || args->k.flags || args->v.flags;
}

int32_t
uli_gpu_attn_blocks(int32_t sms, int32_t per_sm, int32_t max_sms, bool waits,
    int32_t device_ranks)
{
    int32_t blocks = sms * per_sm;
    if (max_sms > 0 && max_sms < sms)
        blocks = max_sms;
    if (waits) {
        int32_t spare = sms < 8 ? 1 : sms / 8;
        int32_t most = (sms - spare) / (device_ranks > 1 ? device_ranks : 1);
        blocks = blocks < most ? blocks : most;
    }
    return blocks > 0 ? blocks : 1;
}

static bool
device_usable(void)
{
    int32_t sms, capability;
    return uli_gpu_attn_device(&sms, &capability) == 0;
}

static const char *
device_refuses(const struct uli_attn_problem *problem)
{
    const char *why;
    find_family(problem, &why);
    return why;
}

static int64_t
device_workspace(const struct uli_attn_problem *problem,
    ulyx_attention_pass_t pass, int threads)
{
    const char *why;
    const struct uli_gpu_attn_forward *family = find_family(problem, &why);
    (void)threads;
    if (pass == ULYX_ATTENTION_PASS_BACKWARD)
        return family ? uli_gpu_attn_backward_bytes(problem) : -1;
    return family ? uli_gpu_attn_call_bytes(problem, family->tile_rows) : -1;
}

void
uli_gpu_attn_launch_failed(
    struct uli_attn_call *call, const char *family, int error)
{
    ulyx_status_t status =
        uli_cuda_no_image(error)
            ? uli_error(ULYX_ERR_UNSUPPORTED, "attention %s: %s", family,
                  ULI_CUDA_NO_IMAGE)
            : uli_error(ULYX_ERR_INTERNAL, "attention %s: CUDA error %d",
                  family, error);
    atomic_store(&call->failed, status);
}

int
uli_gpu_attn_sms(const struct uli_attn_call *call, int32_t *sms_p)
{
    int32_t capability;
    int error = uli_gpu_attn_device(sms_p, &capability);
    if (!error && call->share_sms)
        *sms_p = uli_min(*sms_p, call->share_sms);
    return error;
}

int
uli_gpu_attn_begin(const struct uli_attn_call *call,
    const struct uli_gpu_attn_args *args, int (*load)(int32_t *blocks_per_sm_p),
    int32_t *blocks_p)
{
    int32_t sms, per_sm;
    int error = uli_gpu_attn_sms(call, &sms);
    if (!error)
        error = load(&per_sm);
    if (!error)
        error = uli_gpu_attn_prepare_launch(args, call->stream);
    if (!error)
        *blocks_p = uli_gpu_attn_blocks(sms, per_sm, call->max_sms,
            waits_for_flags(args), call->device_ranks);
    return error;
}

ulyx_status_t
uli_gpu_attn_forward_put(const struct uli_attn_call *call, int32_t tile_rows,
    int32_t tile_keys, struct uli_gpu_attn_args *args)
{
    args->unlisted = !call->problem.has_docs && !call->problem.q_runs.segments;
    return uli_gpu_attn_call_put(call, tile_rows, tile_keys, args);
}

void
uli_gpu_attn_portable(
    struct uli_attn_call *call, struct uli_gpu_attn_args *args)
{
    const char *why;
    const struct uli_gpu_attn_forward *family =
        find_family(&call->problem, &why);
    ulyx_status_t status = uli_gpu_attn_forward_put(
        call, family->tile_rows, family->tile_keys, args);
    if (status != ULYX_SUCCESS) {
        atomic_store(&call->failed, status);
        return;
    }
    int32_t blocks;
    int error = uli_gpu_attn_begin(call, args, family->prepare, &blocks);
    if (!error)
        error = family->launch(args, blocks, call->stream);
    if (error)
        uli_gpu_attn_launch_failed(call, family->name, error);
}

static void
device_forward(struct uli_attn_call *call)
{
    struct uli_gpu_attn_args args;
    ulyx_status_t status = uli_gpu_attn_call_describe(call, &args);
    if (status == ULYX_SUCCESS)
        uli_gpu_attn_portable(call, &args);
    else
        atomic_store(&call->failed, status);
}

const struct uli_attn_kernel uli_attn_cuda_kernel = {
    .name = "mma",
    .what = "warps' matrix products on device memory, fp32 sums; fp32, and "
            "backward beyond dimension 256, by multiply-adds",
    .usable = device_usable,
    .refuses = device_refuses,
    .workspace = device_workspace,
    .forward = device_forward,
    .backward = uli_gpu_attn_backward,
};
