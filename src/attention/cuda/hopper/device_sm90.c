/* SPDX-License-Identifier: Apache-2.0
 *
 * The row of the Hopper kernels: compute capability 9.0 and 16-bit elements.
 * The smallest family with room for the call is used. Tensors that TMA cannot
 * read go to the portable kernels; call->why_portable has the reason.
 */
#include "attention/cuda/device_call.h"
#include "attention/cuda/hopper/forward_sm90.h"
#include "attention/kernels/kernels.h"
#include "base/log.h"
#include "base/status.h"

static const struct uli_sm90_family *const families[] = {
#ifdef ULYX_CUDA_FULL
    &uli_sm90_d64,
    &uli_sm90_d96,
#endif
    &uli_sm90_d128,
#ifdef ULYX_CUDA_FULL
    &uli_sm90_d192,
    &uli_sm90_d256,
#endif
};

static const struct uli_sm90_family *
family_of(const struct uli_attn_problem *problem)
{
    bool whole = problem->dim_qk % 8 == 0 && problem->dim_v % 8 == 0;
    for (size_t n = 0; whole && n < sizeof(families) / sizeof(families[0]); n++)
        if (problem->dim_qk <= families[n]->dim_qk &&
            problem->dim_v <= families[n]->dim_v)
            return families[n];
    return NULL;
}

static bool
sm90_usable(void)
{
    int32_t sms, capability;
    return uli_gpu_attn_device(&sms, &capability) == 0 && capability == 90;
}

static const char *
sm90_refuses(const struct uli_attn_problem *problem)
{
    if (problem->dtype != ULYX_DTYPE_BF16 && problem->dtype != ULYX_DTYPE_F16)
        return "it takes bf16 and fp16";
    return family_of(problem) ? NULL : "its head dimensions";
}

/* Room for either kernel, because the tensors are not known here. */
static int64_t
sm90_workspace(const struct uli_attn_problem *problem,
    ulyx_attention_pass_t pass, int threads)
{
    const struct uli_sm90_family *family = family_of(problem);
    int64_t portable = uli_attn_cuda_kernel.workspace(problem, pass, threads);
    if (!family || portable < 0)
        return -1;
    int64_t own = uli_gpu_attn_call_bytes(problem, family->tile_rows);
    return own < 0 ? -1 : uli_max(own, portable);
}

static struct uli_gpu_attn_piece
piece_at(const void *view, int64_t n)
{
    return uli_gpu_attn_piece_at(view, n);
}

static struct uli_sm90_source
source_of(
    const struct uli_attn_view *view, const struct uli_gpu_attn_tensor *tensor)
{
    bool packed = view->packed_rows >= 0;
    return (struct uli_sm90_source){.tensor = tensor,
        .piece_at = view->pieces ? piece_at : NULL,
        .pieces = view,
        .rows = packed ? view->packed_rows : view->rows,
        .heads = packed ? 1 : view->heads,
        .batch = packed ? 1 : view->batch,
        .columns = view->columns};
}

static int
sm90_enqueue(struct uli_attn_call *call, const struct uli_sm90_family *family,
    const struct uli_sm90_source sources[3],
    const struct uli_gpu_attn_args *args)
{
    struct uli_sm90_params params;
    int32_t blocks;
    int error = uli_sm90_params_init(args, sources, family, &params);
    if (!error)
        error = uli_gpu_attn_begin(call, args, family->prepare, &blocks);
    return error ? error : family->launch(&params, blocks, call->stream);
}

void
uli_gpu_attn_sm90(
    struct uli_attn_call *call, const struct uli_sm90_family *family)
{
    struct uli_gpu_attn_args args;
    ulyx_status_t status = uli_gpu_attn_call_describe(call, &args);
    if (status != ULYX_SUCCESS) {
        atomic_store(&call->failed, status);
        return;
    }
    const struct uli_sm90_source sources[3] = {
        source_of(&call->views[ULI_ATTN_Q], &args.q),
        source_of(&call->views[ULI_ATTN_K], &args.k),
        source_of(&call->views[ULI_ATTN_V], &args.v)};
    call->why_portable = uli_sm90_refuses(&args, sources);
    if (call->why_portable) {
        ULI_TRACE(ULI_LOG_ATTN, -1, "attention: portable kernels, not %s: %s",
            family->name, call->why_portable);
        uli_gpu_attn_portable(call, &args);
        return;
    }
    status = uli_gpu_attn_forward_put(
        call, family->tile_rows, family->tile_keys, &args);
    if (status != ULYX_SUCCESS) {
        atomic_store(&call->failed, status);
        return;
    }
    int error = sm90_enqueue(call, family, sources, &args);
    if (error)
        uli_gpu_attn_launch_failed(call, family->name, error);
}

static void
sm90_forward(struct uli_attn_call *call)
{
    uli_gpu_attn_sm90(call, family_of(&call->problem));
}

const struct uli_attn_kernel uli_attn_sm90_kernel = {
    .name = "sm90",
    .what =
        "wgmma and TMA on device memory, fp32 sums; tensors that TMA cannot "
        "read go to mma",
    .usable = sm90_usable,
    .refuses = sm90_refuses,
    .workspace = sm90_workspace,
    .forward = sm90_forward,
};
