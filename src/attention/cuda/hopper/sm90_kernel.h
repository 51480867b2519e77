/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel of a family, and its launch. Blocks are persistent: each takes
 * items until the call's counter has passed the last.
 */
#ifndef ULI_ATTENTION_CUDA_HOPPER_SM90_KERNEL_H
#define ULI_ATTENTION_CUDA_HOPPER_SM90_KERNEL_H

#include "attention/cuda/hopper/sm90_consume.h"
#include "attention/cuda/hopper/sm90_produce.h"

template <class F>
__global__ void
__launch_bounds__(F::THREADS, 1)
    sm90_forward(const __grid_constant__ struct uli_sm90_params params)
{
#if PTX_SM90
    ULI_SHARED(shared);
    if (threadIdx.x == 0)
        sm90_bars_init<F>(ptx_smem_addr(shared) + F::BARS_AT);
    __syncthreads();
    if (threadIdx.x < 128) {
        ptx_setmaxnreg_dec<F::PRODUCER_REGS>();
        sm90_produce<F>(params, shared);
    } else {
        ptx_setmaxnreg_inc<F::CONSUMER_REGS>();
        sm90_consume<F>(params, shared);
    }
    block_ends(params.args);
#endif
}

/* Both dtypes' kernels, F for bf16 and G for fp16. One block fills a
 * multiprocessor's shared memory. */
template <class F, class G>
static int
sm90_prepare(int *blocks_p)
{
    *blocks_p = 1;
    cudaError_t error = uli_kernel_prepare(sm90_forward<F>, F::SHARED_BYTES);
    if (error == cudaSuccess)
        error = uli_kernel_prepare(sm90_forward<G>, G::SHARED_BYTES);
    return error;
}

template <class F, class G>
static int
sm90_launch(const struct uli_sm90_params *params, int blocks, void *stream)
{
    struct uli_launch_config launch = {dim3((unsigned)blocks), dim3(F::THREADS),
        F::SHARED_BYTES, (cudaStream_t)stream, 0};
    if (params->args.dtype == ULYX_DTYPE_BF16)
        return uli_kernel_launch(launch, sm90_forward<F>, *params);
    return uli_kernel_launch(launch, sm90_forward<G>, *params);
}

#ifndef ULYX_SM90_VARIANT
#define ULYX_SM90_VARIANT 0
#endif

/* Defines a family's row, of the build's variant. */
#define SM90_FAMILY(symbol, text, qk, v, keys, consumers, stages, q_buffers)   \
    typedef sm90_family<qk, v, keys, consumers, stages, q_buffers, true,       \
        ULYX_SM90_VARIANT>                                                     \
        symbol##_bf16;                                                         \
    typedef sm90_family<qk, v, keys, consumers, stages, q_buffers, false,      \
        ULYX_SM90_VARIANT>                                                     \
        symbol##_f16;                                                          \
    extern "C" const struct uli_sm90_family symbol = {text, qk, v,             \
        symbol##_bf16::M, keys, sm90_prepare<symbol##_bf16, symbol##_f16>,     \
        sm90_launch<symbol##_bf16, symbol##_f16>};

#endif
