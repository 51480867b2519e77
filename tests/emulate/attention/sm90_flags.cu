/* SPDX-License-Identifier: Apache-2.0
 *
 * Sets flags, or writes pieces and sets their flags, one after another with pauses, as a peer does
 * that sends pieces.
 */
#include "sm90_case.h"
#include "device/cuda/ptx.h"

__global__ void
sm90_flags_kernel(struct sm90_flags flags, int64_t count, uint64_t value)
{
    for (int64_t n = count - 1; n >= 0; n--)
        for (int t = 0; t < 3; t++) {
            ptx_nanosleep(3000);
            ptx_st_release_sys_u64(flags.of[t] + n, value);
        }
}

int
sm90_flags_set(const struct sm90_flags *flags, int64_t count, uint64_t value,
    size_t shared_bytes, void *stream)
{
    struct uli_launch_config launch = {
        dim3(1), dim3(1), shared_bytes, (cudaStream_t)stream, 0};
    cudaError_t error = uli_kernel_prepare(sm90_flags_kernel, shared_bytes);
    if (error != cudaSuccess)
        return error;
    return uli_kernel_launch(launch, sm90_flags_kernel, *flags, count, value);
}

/* Runs as one block. */
__global__ void
sm90_arrive_kernel(const __grid_constant__ sm90_arrivals arrivals,
    int64_t count, uint64_t value)
{
    for (int64_t n = count - 1; n >= 0; n--)
        for (int t = 0; t < 3; t++) {
            const struct sm90_arrival &a = arrivals.of[t][n];
            ptx_nanosleep(3000);
            for (int64_t b = 0; b < a.batch; b++) {
                uint16_t *to = (uint16_t *)(a.to + b * a.stride);
                const uint16_t *from =
                    (const uint16_t *)(a.from + b * a.stride);
                for (int64_t at = threadIdx.x; at < a.bytes / 2;
                     at += blockDim.x)
                    to[at] = from[at];
            }
            __syncthreads();
            if (threadIdx.x == 0)
                ptx_st_release_sys_u64(a.flag, value);
        }
}

int
sm90_arrive(const struct sm90_arrivals *arrivals, int64_t count, uint64_t value,
    void *stream)
{
    struct uli_launch_config launch = {dim3(1), dim3(64), 0, (cudaStream_t)stream, 0};
    return uli_kernel_launch(
        launch, sm90_arrive_kernel, *arrivals, count, value);
}
