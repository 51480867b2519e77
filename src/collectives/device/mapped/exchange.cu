/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels of the exchange on device memory: one that moves bytes into and
 * out of the peers' tensors, and one for small calls, which moves bytes through
 * slots at the peers. Each is built with and without sums, because sums take
 * many registers. exchange_gpu.h has the protocol.
 *
 * Cost: every byte is read once and written once, through a slot twice; shares
 * of sums are read once. Per peer two fences at system scope and two acquires,
 * one each for READY and for DONE; by slots one fence and one acquire for both.
 */
#include "collectives/device/mapped/exchange_work.h"

/* One thread of the launch that opens the call reports to the host that the
 * call has begun. It does so after the posts, because the fence of the posts
 * would wait until this store has reached the host. */
static __device__ void
note_begin(const struct call &c)
{
    if (c.args->report && threadIdx.x == 0)
        ptx_st_relaxed_sys_u64(&c.args->report->begun, c.n);
}

/* The table's counts: those of the last update, else those of creation. */
static __device__ struct uli_gpu_head
head_of(const uli_gpu_args &args)
{
    struct uli_gpu_head head = {args.nitems, args.nfirst, args.ntiles,
        args.nfirst_tiles, args.tile_bytes, 0};
    return args.head ? *args.head : head;
}

template <bool SUMS>
__global__ void
__launch_bounds__(EXCHANGE_THREADS, SUMS ? 1 : 2)
    exchange_kernel(const __grid_constant__ uli_gpu_args args)
{
    struct call c = begin_call(args);
    struct uli_gpu_head head = head_of(args); /* loads while the poison loads */
    bool ok = true;
    if (block_stopped(c))
        return;
    if (args.steps == ULI_GPU_LEAVE) {
        block_leaves(c);
        return;
    }
    if (args.steps & ULI_GPU_OPEN && blockIdx.x == 0) {
        block_posts(c, false);
        note_begin(c);
    }
    if (args.steps == ULI_GPU_OPEN) {
        block_awaits(c, ULI_GPU_AWAITS_READY);
        return;
    }
    if (args.steps & ULI_GPU_MOVE)
        ok = warp_works<SUMS>(c, 0, (int32_t)head.nitems, 0, head.ntiles);
    ok = __syncthreads_and(ok) != 0;
    if (ok && args.steps & ULI_GPU_CLOSE && is_last_block(c) && block_closes(c))
        call_advance(c);
}

template <bool SUMS>
__global__ void
__launch_bounds__(EXCHANGE_THREADS, SUMS ? 1 : 2)
    exchange_small_kernel(const __grid_constant__ uli_gpu_args args)
{
    struct call c = begin_call(args);
    struct uli_gpu_head head = head_of(args);
    if (block_stopped(c))
        return;
    warp_works<false>(c, 0, (int32_t)head.nfirst, 0, head.nfirst_tiles);
    __syncthreads();
    block_posts(c, true);
    note_begin(c);
    if (!block_awaits(c, ULI_GPU_AWAITS_DONE))
        return;
    for (int32_t p = (int32_t)threadIdx.x; p < args.nranks;
         p += (int32_t)blockDim.x)
        if (p != args.rank && args.peers[p].shares)
            call_check(c, p);
    head = head_of(args); /* loaded again, so that no wait holds registers */
    warp_works<SUMS>(c, (int32_t)head.nfirst, (int32_t)head.nitems,
        head.nfirst_tiles, head.ntiles);
    __syncthreads(); /* all warps have checked and moved */
    call_advance(c);
}

/* ---- host ---------------------------------------------------------------- */

static void (*kernel_of(bool small, bool sums))(const uli_gpu_args)
{
    if (small)
        return sums ? exchange_small_kernel<true>
                    : exchange_small_kernel<false>;
    return sums ? exchange_kernel<true> : exchange_kernel<false>;
}

int
uli_gpu_exchange_launch(const struct uli_gpu_args *args, int32_t blocks,
    int32_t threads, void *stream)
{
    bool small = args->slots && args->steps == ULI_GPU_ALL;
    bool sums = args->sums && args->steps & ULI_GPU_MOVE;
    struct uli_launch_config launch = {dim3(small ? 1 : (unsigned)blocks),
        dim3((unsigned)threads), 0, (cudaStream_t)stream};
    return uli_kernel_launch(launch, kernel_of(small, sums), *args);
}

int
uli_gpu_multiprocessors(int32_t *count_p)
{
    int device = 0, count = 0;
    cudaError_t error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(
            &count, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        *count_p = count;
    return error;
}

int
uli_gpu_exchange_prepare(int32_t threads, bool sums, int32_t *blocks_per_sm_p)
{
    int least = INT32_MAX;
    for (int i = 0; i < 4; i++) {
        bool adds = i & 2;
        auto kernel = kernel_of(i & 1, adds);
        int fit = 0;
        cudaError_t error = uli_kernel_prepare(kernel, 0);
        if (error == cudaSuccess)
            error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                &fit, (const void *)kernel, threads, 0);
        if (error != cudaSuccess)
            return error;
        least = adds == sums && fit < least ? fit : least;
    }
    *blocks_per_sm_p = least;
    return cudaSuccess;
}
