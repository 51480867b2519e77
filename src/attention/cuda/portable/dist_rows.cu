/* SPDX-License-Identifier: Apache-2.0
 *
 * See dist_rows_gpu.h.
 *
 * delta: a thread has a row of a head and adds the row's products one by one in
 * double, in the order of columns, like a backward pass without delta: so the
 * bits do not depend on where delta is computed.
 */
#include "attention/cuda/dist_rows_gpu.h"

#include <math.h>
#include "device/cuda/kernel.h"
#include "device/cuda/ptx.h"
#include "ulyx/types.h"

enum { DELTA_THREADS = 128, DELTA_BLOCKS_MAX = 1024 };

static __device__ __forceinline__ double
element_at(int32_t dtype, const unsigned char *row, int c)
{
    if (dtype == ULYX_DTYPE_F32)
        return ((const float *)row)[c];
    uint16_t bits = ((const uint16_t *)row)[c];
    return dtype == ULYX_DTYPE_BF16 ? ptx_bf16_to_float(bits)
                                    : ptx_f16_to_float(bits);
}

/* A row of out with zeros only has seen no key, and its dout may be
 * anything. */
static __device__ __forceinline__ float
delta_of_row(const struct uli_gpu_delta_args &args, const unsigned char *dout,
    const unsigned char *out)
{
    double sum = 0;
    bool zero = true;
    for (int c = 0; c < args.dim; c++) {
        double value = element_at(args.dtype, out, c);
        sum += element_at(args.dtype, dout, c) * value;
        zero = zero && value == 0;
    }
    return zero && isnan(sum) ? 0 : (float)sum;
}

static __device__ __forceinline__ int64_t
row_offset(const int64_t (&strides)[3], int64_t batch, int64_t row, int64_t head)
{
    return batch * strides[0] + row * strides[1] + head * strides[2];
}

__global__ void
__launch_bounds__(DELTA_THREADS, 1)
    dist_delta_kernel(const __grid_constant__ struct uli_gpu_delta_args args)
{
    int64_t count = args.batch * args.rows * args.heads;
    int64_t step = (int64_t)gridDim.x * DELTA_THREADS;
    for (int64_t n = (int64_t)blockIdx.x * DELTA_THREADS + threadIdx.x;
         n < count; n += step) {
        int64_t head = n % args.heads, row = n / args.heads % args.rows;
        int64_t batch = n / args.heads / args.rows;
        auto at = [&](const struct uli_gpu_strided &tensor) {
            return tensor.base + row_offset(tensor.strides, batch, row, head);
        };
        float delta = delta_of_row(args, at(args.dout), at(args.out));
        if (args.dlse.base)
            delta -= *(const float *)at(args.dlse);
        *(float *)(args.delta +
                   row_offset(args.delta_strides, batch, row, head)) = delta;
    }
}

__global__ void
__launch_bounds__(32, 1) dist_check_kernel(
    const __grid_constant__ struct uli_gpu_dist_check_args args)
{
    uint64_t cause = ULI_GPU_DIST_FINE;
    if (threadIdx.x)
        return;
    if (args.saved && args.saved[2] != args.expected[2])
        cause = ULI_GPU_DIST_SAVED_HAS_OTHER_TABLES;
    if (args.saved && (args.saved[0] != args.expected[0] ||
                          args.saved[1] != args.expected[1]))
        cause = ULI_GPU_DIST_SAVED_IS_OTHER;
    if (*args.tables != 0 && *args.tables != args.expected[2])
        cause = ULI_GPU_DIST_STALE;
    if (cause != ULI_GPU_DIST_FINE)
        ptx_atom_cas_relaxed_sys_u64(args.cause, 0, cause);
}

/* ---- host ---------------------------------------------------------------- */

extern "C" int
uli_gpu_dist_load(void)
{
    cudaError_t error = uli_kernel_prepare(dist_delta_kernel, 0);
    return error == cudaSuccess ? uli_kernel_prepare(dist_check_kernel, 0)
                                : error;
}

extern "C" int
uli_gpu_dist_delta(const struct uli_gpu_delta_args *args, void *stream)
{
    int64_t count = args->batch * args->rows * args->heads;
    int64_t blocks = (count + DELTA_THREADS - 1) / DELTA_THREADS;
    if (count <= 0)
        return cudaSuccess;
    if (blocks > DELTA_BLOCKS_MAX)
        blocks = DELTA_BLOCKS_MAX;
    struct uli_launch_config launch = {dim3((unsigned)blocks),
        dim3(DELTA_THREADS), 0, (cudaStream_t)stream};
    return uli_kernel_launch(launch, dist_delta_kernel, *args);
}

extern "C" int
uli_gpu_dist_check(
    const struct uli_gpu_dist_check_args *args, void *stream)
{
    struct uli_launch_config launch = {
        dim3(1), dim3(32), 0, (cudaStream_t)stream};
    return uli_kernel_launch(launch, dist_check_kernel, *args);
}
