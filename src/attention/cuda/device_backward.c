/* SPDX-License-Identifier: Apache-2.0
 *
 * Backward on device memory by the portable kernels; see backward_gpu.h.
 */
#include "attention/cuda/backward_gpu.h"
#include "attention/cuda/device_call.h"
#include "base/status.h"

enum { DELTA_BLOCKS = 8 }; /* of the delta kernel, per multiprocessor */

static const struct uli_gpu_attn_backward *const families[] = {
#ifdef ULYX_CUDA_FULL
    &uli_gpu_attn_backward_mma64,
#endif
    &uli_gpu_attn_backward_mma128,
#ifdef ULYX_CUDA_FULL
    &uli_gpu_attn_backward_mma192,
    &uli_gpu_attn_backward_mma256,
#endif
    &uli_gpu_attn_backward_plain128,
    &uli_gpu_attn_backward_plain256,
    &uli_gpu_attn_backward_plain256_small,
    &uli_gpu_attn_backward_plain512,
};

static bool
family_takes(const struct uli_gpu_attn_backward *family,
    const struct uli_attn_problem *problem)
{
    return problem->dim_qk <= family->dim_qk &&
           problem->dim_v <= family->dim_v &&
           (problem->dtype != ULYX_DTYPE_F32 || family->any_dtype);
}

enum { LAST_FAMILY = sizeof(families) / sizeof(families[0]) - 1 };

/* The first family from n on that takes the problem. The last family takes
 * every problem that forward does not refuse. */
static int
family_from(int n, const struct uli_attn_problem *problem)
{
    while (n < LAST_FAMILY && !family_takes(families[n], problem))
        n++;
    return n;
}

/* The stationary rows of a tile, for which the workspace is laid out. All
 * families that can take the same problem have equal numbers of them. */
static int32_t
tile_rows_of(const struct uli_attn_problem *problem)
{
    return families[family_from(0, problem)]->tile_rows;
}

/* The family of a call, and how its kernels fit the current device: [0] queries
 * stationary, [1] keys stationary. */
struct backward_kernels {
    const struct uli_gpu_attn_backward *family;
    struct uli_gpu_attn_fit fits[2];
};

static int
kernels_fit(const struct uli_gpu_attn_backward_args *args,
    struct backward_kernels *kernels)
{
    int error = kernels->family->fit(args, false, &kernels->fits[0]);
    return error ? error : kernels->family->fit(args, true, &kernels->fits[1]);
}

/* The first family that takes the problem and whose kernels fit the device.
 * args must be complete except for the number of streaming tiles, because a
 * family's kernels depend on args. returns a cudaError_t; where no family fits,
 * that of the last one that takes the problem. */
static int
choose_kernels(const struct uli_attn_problem *problem,
    struct uli_gpu_attn_backward_args *args, struct backward_kernels *kernels)
{
    int n = family_from(0, problem), error;
    for (;; n = family_from(n + 1, problem)) {
        kernels->family = families[n];
        error = kernels_fit(args, kernels);
        if (!error || n == LAST_FAMILY)
            break;
    }
    args->by_query.tile_keys = kernels->family->tile_flow;
    args->by_key.tile_keys = kernels->family->tile_flow;
    return error;
}

void
uli_gpu_attn_exchange(const struct uli_gpu_attn_args *by_query,
    struct uli_gpu_attn_args *by_key_p)
{
    struct uli_gpu_attn_args a = *by_query;
    a.len_q = by_query->len_k;
    a.len_k = by_query->len_q;
    a.heads_q = a.head_group = by_query->heads_kv;
    a.heads_kv = by_query->heads_q;
    a.left = by_query->right;
    a.right = by_query->left;
    a.diagonal =
        by_query->diagonal == INT64_MIN ? INT64_MAX : -by_query->diagonal;
    a.docs_q = by_query->docs_k;
    a.docs_k = by_query->docs_q;
    a.q_segments = by_query->k_segments;
    a.k_segments = by_query->q_segments;
    a.nq_segments = by_query->nk_segments;
    a.nk_segments = by_query->nq_segments;
    a.kv_map = NULL;
    *by_key_p = a;
}

static bool
key_sizes(
    const struct uli_attn_problem *problem, struct uli_gpu_attn_sizes *sizes_p)
{
    bool packed = problem->k_runs.segments != NULL;
    int64_t rows = problem->batch * problem->len_k;
    if (packed && !uli_size_mul(rows, problem->heads_kv, &rows))
        return false;
    return uli_gpu_attn_sizes(problem->batch, rows, problem->heads_kv,
        problem->has_docs ? problem->max_docs : 0,
        packed ? problem->k_runs.count : -1, tile_rows_of(problem), sizes_p);
}

/* Places in the workspace: the parts of the pass with queries stationary, those
 * of the pass with keys stationary, delta as float [batch][heads_q][len_q].
 * With segments there is no delta: the size of the workspace must not depend
 * on what segments hold, so each tile computes the delta of the rows that it
 * reads. */
struct backward_places {
    struct uli_gpu_attn_sizes keys;
    int64_t keys_at, delta_at, bytes;
};

static bool
backward_places_of(
    const struct uli_attn_problem *problem, struct backward_places *places_p)
{
    struct backward_places *p = places_p;
    int64_t delta = 0;
    p->keys_at = uli_gpu_attn_call_bytes(problem, tile_rows_of(problem));
    bool ok = p->keys_at >= 0 && key_sizes(problem, &p->keys) &&
              uli_size_add(p->keys_at, p->keys.bytes, &p->delta_at);
    if (!problem->q_runs.segments)
        ok = ok && uli_size_mul(4 * problem->batch, problem->heads_q, &delta) &&
             uli_size_mul(delta, problem->len_q, &delta);
    return ok && uli_size_add(p->delta_at, delta, &p->bytes);
}

int64_t
uli_gpu_attn_backward_bytes(const struct uli_attn_problem *problem)
{
    struct backward_places places;
    return backward_places_of(problem, &places) ? places.bytes : -1;
}

static const enum uli_attn_tensor gradients[] = {ULI_ATTN_DOUT, ULI_ATTN_DELTA,
    ULI_ATTN_DLSE, ULI_ATTN_DQ, ULI_ATTN_DK, ULI_ATTN_DV};
#define GRADIENTS 6

static struct uli_gpu_attn_tensor *
gradient_of(struct uli_gpu_attn_backward_args *args, int n)
{
    struct uli_gpu_attn_tensor *const tensors[GRADIENTS] = {&args->dout,
        &args->delta, &args->dlse, &args->dq, &args->dk, &args->dv};
    return tensors[n];
}

/* Arguments that need neither tables nor the workspace. */
static ulyx_status_t
backward_describe(
    const struct uli_attn_call *call, struct uli_gpu_attn_backward_args *args)
{
    ULI_TRY(uli_gpu_attn_call_describe(call, &args->by_query));
    for (int n = 0; n < GRADIENTS; n++)
        ULI_TRY(uli_gpu_attn_tensor_describe(
            &call->views[gradients[n]], gradient_of(args, n)));
    args->dq_dtype = call->views[ULI_ATTN_DQ].dtype;
    args->dk_dtype = call->views[ULI_ATTN_DK].dtype;
    args->dv_dtype = call->views[ULI_ATTN_DV].dtype;
    args->accumulate = call->accumulate;
    args->delta_less_dlse = call->delta_less_dlse;
    args->scale = (float)call->problem.scale;
    args->d_sink = call->d_sink;
    args->heads_global = call->problem.heads_global;
    return ULYX_SUCCESS;
}

static ulyx_status_t
backward_put(const struct uli_attn_call *call,
    struct uli_gpu_attn_backward_args *args, struct backward_places *places_p)
{
    int32_t rows = tile_rows_of(&call->problem);
    ULI_TRY(uli_gpu_attn_call_put(call, rows, 0, &args->by_query));
    for (int n = 0; n < GRADIENTS; n++)
        ULI_TRY(uli_gpu_attn_tensor_put(
            call, rows, gradients[n], gradient_of(args, n)));
    uli_gpu_attn_exchange(&args->by_query, &args->by_key);
    if (!backward_places_of(&call->problem, places_p))
        return uli_error(
            ULYX_ERR_OVERFLOW, "attention: the workspace does not fit 64 bits");
    uli_gpu_attn_place(
        &args->by_key, &places_p->keys, call->workspace + places_p->keys_at);
    return ULYX_SUCCESS;
}

static bool
waits_for_flags(const struct uli_gpu_attn_backward_args *args)
{
    const struct uli_gpu_attn_args *a = &args->by_query;
    return a->q.flags || a->k.flags || a->v.flags || a->out.flags ||
           a->lse.flags || args->dout.flags || args->delta.flags ||
           args->dlse.flags;
}

/* Enqueues a pass on `sms` multiprocessors. */
static int
pass_enqueue(const struct uli_attn_call *call,
    const struct backward_kernels *kernels,
    const struct uli_gpu_attn_backward_args *args, int32_t sms, bool keys)
{
    const struct uli_gpu_attn_fit *fit = &kernels->fits[keys];
    int32_t blocks = uli_gpu_attn_blocks(
        sms, fit->blocks_per_sm, call->max_sms, false, call->device_ranks);
    return kernels->family->launch(args, keys, fit, blocks, call->stream);
}

/* Where delta is not given: enqueues the delta kernel, and sets the arguments
 * so that later kernels read its delta. */
static int
delta_enqueue(const struct uli_attn_call *call,
    struct uli_gpu_attn_backward_args *args, int64_t delta_at, int32_t sms)
{
    const struct uli_attn_problem *problem = &call->problem;
    if (call->views[ULI_ATTN_DELTA].given || problem->q_runs.segments)
        return 0;
    const struct uli_gpu_attn_tensor to = {.base = call->workspace + delta_at,
        .batch_stride = 4 * problem->heads_q * problem->len_q,
        .row_stride = 4,
        .head_stride = 4 * problem->len_q,
        .align = 4};
    int32_t blocks = uli_gpu_attn_blocks(
        sms, DELTA_BLOCKS, call->max_sms, false, call->device_ranks);
    int error = uli_gpu_attn_backward_delta(args, &to, blocks, call->stream);
    args->delta = to;
    args->dlse = (struct uli_gpu_attn_tensor){0};
    args->delta_less_dlse = true;
    return error;
}

/* The lists of both passes are made before the kernel that waits for flags,
 * because a flag that does not arrive fails both passes. The passes themselves
 * wait for no flag. */
static int
backward_enqueue(const struct uli_attn_call *call,
    const struct backward_kernels *kernels,
    struct uli_gpu_attn_backward_args *args, int64_t delta_at)
{
    int32_t sms;
    int error = uli_gpu_attn_sms(call, &sms);
    if (!error)
        error = uli_gpu_attn_prepare_launch(&args->by_query, call->stream);
    if (!error)
        error = uli_gpu_attn_prepare_launch(&args->by_key, call->stream);
    if (!error && waits_for_flags(args))
        error = uli_gpu_attn_backward_await(args, call->stream);
    if (!error)
        error = delta_enqueue(call, args, delta_at, sms);
    if (!error)
        error = pass_enqueue(call, kernels, args, sms, false);
    if (!error)
        error = pass_enqueue(call, kernels, args, sms, true);
    if (!error && args->d_sink && args->heads_global > 0)
        error = uli_gpu_attn_backward_sinks(args, call->stream);
    return error;
}

void
uli_gpu_attn_backward(struct uli_attn_call *call)
{
    struct uli_gpu_attn_backward_args args = {.scale = 1};
    struct backward_places places;
    struct backward_kernels kernels;
    ulyx_status_t status = backward_describe(call, &args);
    if (status == ULYX_SUCCESS)
        status = backward_put(call, &args, &places);
    if (status != ULYX_SUCCESS) {
        atomic_store(&call->failed, status);
        return;
    }
    int error = choose_kernels(&call->problem, &args, &kernels);
    if (!error)
        error = backward_enqueue(call, &kernels, &args, places.delta_at);
    if (error)
        uli_gpu_attn_launch_failed(call, kernels.family->name, error);
}
