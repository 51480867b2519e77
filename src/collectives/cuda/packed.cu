/* SPDX-License-Identifier: Apache-2.0
 *
 * The two launches of the packed exchange; packed_gpu.h has the scheme. Their
 * order against the batch between them is the stream's, so neither waits for
 * anything: a peer that does not come holds up the batch, and whoever watches
 * over report->begun and ended aborts that.
 *
 * Cost: every byte that travels is read and written twice at each end.
 */
#include "collectives/cuda/packed_gpu.h"
#include "collectives/cuda/exchange_work.h"

__global__ void
__launch_bounds__(EXCHANGE_THREADS, 2)
    pack_kernel(const __grid_constant__ uli_gpu_args args)
{
    struct call c = begin_call(args);
    if (block_stopped(c))
        return;
    if (blockIdx.x == 0) {
        if (threadIdx.x == 0)
            ptx_st_relaxed_sys_u64(&args.report->begun, c.n);
        block_posts(c, false);
    }
    warp_works<false>(c, 0, args.nfirst, 0, args.nfirst_tiles);
}

/* One block, the last. */
static __device__ void
close_call(const struct call &c)
{
    for (int32_t p = (int32_t)threadIdx.x; p < c.args->nranks;
         p += (int32_t)blockDim.x)
        if (p != c.args->rank && c.args->peers[p].shares)
            judge(c, p);
    __syncthreads();
    advance(c);
}

template <bool SUMS>
__global__ void
__launch_bounds__(EXCHANGE_THREADS, SUMS ? 1 : 2)
    unpack_kernel(const __grid_constant__ uli_gpu_args args)
{
    struct call c = begin_call(args);
    if (block_stopped(c))
        return;
    warp_works<SUMS>(
        c, args.nfirst, args.nitems, args.nfirst_tiles, args.ntiles);
    __syncthreads();
    if (is_last_block(c))
        close_call(c);
}

/* ---- host ---------------------------------------------------------------- */

static struct uli_launch
launch_of(int32_t blocks, int32_t threads, void *stream)
{
    return {dim3((unsigned)blocks), dim3((unsigned)threads), 0,
        (cudaStream_t)stream};
}

int
uli_packed_pack_launch(const struct uli_gpu_args *args, int32_t blocks,
    int32_t threads, void *stream)
{
    return uli_kernel_launch(
        launch_of(blocks, threads, stream), pack_kernel, *args);
}

int
uli_packed_unpack_launch(const struct uli_gpu_args *args, int32_t blocks,
    int32_t threads, void *stream)
{
    return uli_kernel_launch(launch_of(blocks, threads, stream),
        args->sums ? unpack_kernel<true> : unpack_kernel<false>, *args);
}

int
uli_packed_prepare(void)
{
    cudaError_t error = uli_kernel_prepare(pack_kernel, 0);
    if (error == cudaSuccess)
        error = uli_kernel_prepare(unpack_kernel<false>, 0);
    if (error == cudaSuccess)
        error = uli_kernel_prepare(unpack_kernel<true>, 0);
    return error;
}
