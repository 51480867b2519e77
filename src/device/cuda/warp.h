/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations of a whole warp: copies, and sharing the value of one thread.
 * Device code, to be included after kernel.h.
 */
#ifndef DEVICE_CUDA_WARP_H
#define DEVICE_CUDA_WARP_H

#include <stdint.h>
#include "device/cuda/ptx.h"

enum {
    WARP = 32,
    IN_FLIGHT = 8, /* vectors that a thread loads before it stores */
};

PTX_FN void
load_vector(uint4 &v, const unsigned char *p)
{
    v = ptx_ld_stream_v4(p);
}

PTX_FN void
store_vector(unsigned char *p, const uint4 &v)
{
    ptx_st_stream_v4(p, v);
}

template <typename T>
PTX_FN void
load_vector(T &v, const unsigned char *p)
{
    v = *(const T *)p;
}

template <typename T>
PTX_FN void
store_vector(unsigned char *p, const T &v)
{
    *(T *)p = v;
}

/* One warp copies count vectors of type T; src and dst are aligned to T. */
template <typename T>
static __device__ void
warp_copies_as(unsigned char *dst, const unsigned char *src, int64_t count)
{
    for (int64_t n = threadIdx.x % WARP; n < count; n += WARP * IN_FLIGHT) {
        T held[IN_FLIGHT];
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++)
            if (n + u * WARP < count)
                load_vector(held[u], src + (n + u * WARP) * (int64_t)sizeof(T));
#pragma unroll
        for (int u = 0; u < IN_FLIGHT; u++)
            if (n + u * WARP < count)
                store_vector(
                    dst + (n + u * WARP) * (int64_t)sizeof(T), held[u]);
    }
}

/* Gives all threads of a warp the first thread's value. They also see the
 * memory that the first thread has seen: that needs the __syncwarp, because a
 * shuffle alone orders no memory. */
template <typename T>
PTX_FN T
warp_first(T value)
{
    value = __shfl_sync(0xFFFFFFFFu, value, 0);
    __syncwarp();
    return value;
}

#endif
