/* SPDX-License-Identifier: Apache-2.0
 *
 * See collective_messages_gpu.h. A thread adds the vectors that are a whole
 * number of grids apart; a vector is 16 bytes where all places permit it, else
 * one element.
 *
 * Cost: each share is read once, each sum stored once.
 */
#include "collectives/device/collective/collective_messages_gpu.h"
#include "collectives/device/mapped/exchange_sum.h"
#include "device/cuda/kernel.h"

/* ---- marks --------------------------------------------------------------- */

__global__ void
mark_kernel(const __grid_constant__ uli_messages_mark mark)
{
    uint64_t n = mark.state->call + 1;
    if (!mark.ends) {
        ptx_st_relaxed_sys_u64(&mark.report->call, mark.call);
        ptx_st_release_sys_u64(&mark.report->begun, n);
        return;
    }
    mark.state->call = n;
    ptx_st_release_sys_u64(&mark.report->ended, n);
}

/* ---- sums ---------------------------------------------------------------- */

static __device__ const unsigned char *
share_of_rank(const uli_messages_sum &sum, int32_t p)
{
    return p == sum.rank ? sum.own : sum.shares + p * sum.share_bytes;
}

/* Adds `count` vectors of V elements, from byte `at` of all shares on. */
template <int DTYPE, typename ACC, int V>
static __device__ void
thread_adds(const uli_messages_sum &sum, int64_t at, int64_t count)
{
    constexpr int BYTES = V * element_bytes<DTYPE>::value;
    int64_t threads = (int64_t)gridDim.x * blockDim.x;
    for (int64_t n = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; n < count;
         n += threads) {
        ACC total[V] = {};
#pragma unroll 4
        for (int32_t p = 0; p < sum.nranks; p++) {
            elements<BYTES> e = {};
            load_elements(e, share_of_rank(sum, p) + at + n * BYTES);
#pragma unroll
            for (int i = 0; i < V; i++) {
                ACC value = element_decode<DTYPE, ACC>(e, i);
                total[i] = p == 0 ? value : total[i] + value;
            }
        }
        round_and_store<DTYPE>(sum.dst + at + n * BYTES, total);
    }
}

template <int DTYPE, typename ACC>
__global__ void
__launch_bounds__(ULI_MESSAGES_SUM_THREADS, 2)
    sum_kernel(const __grid_constant__ uli_messages_sum sum)
{
    constexpr int V = 16 / element_bytes<DTYPE>::value;
    uint64_t bits = (uint64_t)(uintptr_t)sum.own |
                    (uint64_t)(uintptr_t)sum.dst |
                    (uint64_t)(uintptr_t)sum.shares;
    int64_t whole = bits % 16 ? 0 : sum.count / V;
    thread_adds<DTYPE, ACC, V>(sum, 0, whole);
    thread_adds<DTYPE, ACC, 1>(sum, whole * 16, sum.count - whole * V);
}

/* ---- host ---------------------------------------------------------------- */

typedef void (*sum_fn)(const uli_messages_sum);

static sum_fn
kernel_of(int32_t dtype)
{
    switch (dtype) {
    case ULYX_DTYPE_F64:
        return sum_kernel<ULYX_DTYPE_F64, double>;
    case ULYX_DTYPE_F32:
        return sum_kernel<ULYX_DTYPE_F32, float>;
    case ULYX_DTYPE_BF16:
        return sum_kernel<ULYX_DTYPE_BF16, float>;
    default:
        return sum_kernel<ULYX_DTYPE_F16, float>;
    }
}

int
uli_messages_mark_launch(const struct uli_messages_mark *mark, void *stream)
{
    return uli_kernel_launch(
        {dim3(1), dim3(1), 0, (cudaStream_t)stream}, mark_kernel, *mark);
}

int
uli_messages_sum_launch(
    const struct uli_messages_sum *sum, int32_t blocks, void *stream)
{
    int64_t needed = (sum->count - 1) / ULI_MESSAGES_SUM_THREADS + 1;
    unsigned grid = (unsigned)(needed < blocks ? needed : blocks);
    return uli_kernel_launch({dim3(grid), dim3(ULI_MESSAGES_SUM_THREADS), 0,
                                 (cudaStream_t)stream},
        kernel_of(sum->dtype), *sum);
}

int
uli_messages_collective_prepare(void)
{
    const int32_t dtypes[] = {
        ULYX_DTYPE_F64, ULYX_DTYPE_F32, ULYX_DTYPE_BF16, ULYX_DTYPE_F16};
    cudaError_t error = uli_kernel_prepare(mark_kernel, 0);
    for (int i = 0; i < 4 && error == cudaSuccess; i++)
        error = uli_kernel_prepare(kernel_of(dtypes[i]), 0);
    return error;
}
