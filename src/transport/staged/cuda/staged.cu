/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel of staging; staged_gpu.h has the protocol. Part u of a launch
 * belongs to message u mod nmessages and queue u / nmessages, so that small
 * messages, which have one part each, go to different warps.
 *
 * Cost: a byte that is sent is read from device memory and stored to host
 * memory; a byte that is received is loaded from host memory and stored to
 * device memory. A warp has 4 KiB in flight each way.
 */
#include "transport/staged/cuda/staged_gpu.h"
#include "device/cuda/kernel.h"
#include "device/cuda/ptx.h"
#include "device/cuda/warp.h"

enum {
    EAGER_TURNS = 64, /* a warp pauses after as many turns in vain; the pause
                       * doubles after as many more */
    PAUSE_NS = 200, /* the first pause */
    LONGEST_PAUSE_NS = 25600,
};

enum turn { TURN_WAITS, TURN_MOVES, TURN_ENDS, TURN_FAILS };

struct run {
    const uli_staged_args *args;
    uint64_t n, start_ns;
};

/* A part of a message: bytes [0, bytes) at data, through a queue. */
struct part {
    uli_staged_queue *queue;
    unsigned char *data;
    int64_t bytes;
    int64_t size; /* of the whole message */
    int32_t peer;
    bool send;
};

/* ---- copies -------------------------------------------------------------- */

template <typename T>
static __device__ void
copy_vectors(unsigned char *dst, const unsigned char *src, int64_t bytes)
{
    const int64_t size = sizeof(T), count = bytes / size;
    warp_copies_as<T>(dst, src, count);
    int64_t rest = count * size + threadIdx.x % WARP; /* fewer than WARP
                                                       * bytes */
    if (rest < bytes)
        dst[rest] = src[rest];
}

/* One warp. */
static __device__ void
staged_copy(unsigned char *dst, const unsigned char *src, int64_t bytes)
{
    uint64_t bits = (uint64_t)(uintptr_t)dst | (uint64_t)(uintptr_t)src;
    if (bits % 16 == 0)
        copy_vectors<uint4>(dst, src, bytes);
    else if (bits % 8 == 0)
        copy_vectors<uint64_t>(dst, src, bytes);
    else if (bits % 4 == 0)
        copy_vectors<uint32_t>(dst, src, bytes);
    else
        copy_vectors<uint8_t>(dst, src, bytes);
}

/* ---- the end of a run ---------------------------------------------------- */

/* One thread. */
static __device__ void
run_fail(const struct run &r, int phase, int32_t peer)
{
    uint64_t cause = ULI_STAGED_CAUSE(phase, peer, r.n);
    if (ptx_atom_cas_relaxed_gpu_u64(&r.args->state->failed, 0, cause) == 0)
        ptx_st_release_sys_u64(&r.args->report->failed, cause);
}

/* For one thread: whether the run has failed or must stop. */
static __device__ bool
run_stopped(const struct run &r)
{
    if (ptx_ld_relaxed_gpu_u64(&r.args->state->failed))
        return true;
    if (!ptx_ld_relaxed_sys_u64(&r.args->report->abort) &&
        !(r.args->poison && ptx_ld_relaxed_sys_u64(r.args->poison)))
        return false;
    run_fail(r, ULI_STAGED_STOPPED, 0);
    return true;
}

/* ---- parts --------------------------------------------------------------- */

static __device__ struct part
part_of(const struct run &r, int32_t u)
{
    const uli_staged_args *args = r.args;
    const uli_staged_message &message = args->messages[u % args->nmessages];
    int32_t l = u / args->nmessages;
    int64_t each = (message.bytes + args->nqueues - 1) / args->nqueues;
    if (each < ULI_STAGED_PART_MIN)
        each = ULI_STAGED_PART_MIN;
    each = (each + ULI_STAGED_ALIGN - 1) / ULI_STAGED_ALIGN * ULI_STAGED_ALIGN;
    int64_t begin = each * l, left = message.bytes - begin;
    return {args->queues + (int64_t)message.peer * args->nqueues + l,
        message.data + begin, left < each ? left : each, message.bytes, message.peer,
        message.send != 0};
}

/* The value of a word as the warp's first thread loads it, for all threads of
 * the warp. */
static __device__ uint64_t
warp_load_flag(const uint64_t *word)
{
    uint64_t value = 0;
    if (threadIdx.x % WARP == 0)
        value = ptx_ld_acquire_sys_u64(word);
    return warp_first(value);
}

/* Sends chunk `sent` + 1, if a slot is free. */
static __device__ enum turn
warp_sends(const struct run &r, const struct part &p)
{
    uli_staged_queue *queue = p.queue;
    uint64_t n = queue->sent + 1, slot = queue->sent % ULI_STAGED_SLOTS;
    int64_t at = queue->out_at, bytes = p.bytes - at;
    if (bytes > r.args->chunk_bytes)
        bytes = r.args->chunk_bytes;
    if (warp_load_flag(&queue->polled->consumed) + ULI_STAGED_SLOTS < n)
        return TURN_WAITS;
    staged_copy(queue->out + (int64_t)slot * r.args->chunk_bytes, p.data + at, bytes);
    bool ends = at + bytes == p.bytes;
    __syncwarp();
    if (threadIdx.x % WARP == 0) {
        ptx_st_relaxed_sys_u64(&queue->posted->bytes[slot], (uint64_t)bytes);
        ptx_st_release_sys_u64(
            &queue->posted->filled[slot], ULI_STAGED_FILLED(n, p.size));
        queue->sent = n;
        queue->out_at = ends ? 0 : at + bytes;
    }
    __syncwarp();
    return ends ? TURN_ENDS : TURN_MOVES;
}

/* Receives chunk `taken` + 1, if it has arrived. */
static __device__ enum turn
warp_takes(const struct run &r, const struct part &p)
{
    uli_staged_queue *queue = p.queue;
    uint64_t n = queue->taken + 1, slot = queue->taken % ULI_STAGED_SLOTS;
    int64_t at = queue->in_at, bytes = p.bytes - at;
    if (bytes > r.args->chunk_bytes)
        bytes = r.args->chunk_bytes;
    uint64_t filled = warp_load_flag(&queue->polled->filled[slot]);
    if (filled >> ULI_STAGED_SIZE_BITS < n)
        return TURN_WAITS;
    if (filled != ULI_STAGED_FILLED(n, p.size)) {
        if (threadIdx.x % WARP == 0)
            run_fail(r, ULI_STAGED_OTHER_SIZE, p.peer);
        return TURN_FAILS;
    }
    staged_copy(p.data + at, queue->in + (int64_t)slot * r.args->chunk_bytes, bytes);
    bool ends = at + bytes == p.bytes;
    __syncwarp();
    if (threadIdx.x % WARP == 0) {
        ptx_st_release_sys_u64(&queue->posted->consumed, n);
        queue->taken = n;
        queue->in_at = ends ? 0 : at + bytes;
    }
    __syncwarp();
    return ends ? TURN_ENDS : TURN_MOVES;
}

static __device__ enum turn
warp_turns(const struct run &r, int32_t u)
{
    struct part p = part_of(r, u);
    if (p.bytes <= 0)
        return TURN_ENDS;
    return p.send ? warp_sends(r, p) : warp_takes(r, p);
}

/* One turn of each part of the warp that is still open. Part k of the warp has
 * the number u = warp + k * warps. Returns the parts that are open afterwards,
 * one bit per part. */
static __device__ uint64_t
warp_turns_all(const struct run &r, int32_t warp, int32_t warps, uint64_t open,
    bool *moved_p)
{
    int32_t parts = r.args->nmessages * r.args->nqueues;
    uint64_t bit = 1;
    for (int32_t u = warp; u < parts; u += warps, bit <<= 1) {
        if (!(open & bit))
            continue;
        enum turn turn = warp_turns(r, u);
        if (turn == TURN_FAILS)
            return 0;
        if (turn == TURN_ENDS)
            open &= ~bit;
        *moved_p |= turn != TURN_WAITS;
    }
    return open;
}

static __device__ void
pause_after(int idle)
{
    uint32_t ns = PAUSE_NS;
    for (int turns = idle / EAGER_TURNS; turns > 1 && ns < LONGEST_PAUSE_NS;
         turns--)
        ns *= 2;
    if (idle >= EAGER_TURNS)
        ptx_nanosleep(ns);
}

/* For one thread: whether the warp must leave: the run is stopped, or its
 * deadline is over. */
static __device__ bool
gives_up(const struct run &r, int32_t warp, int32_t warps, uint64_t open)
{
    int32_t first = 0;
    if (run_stopped(r))
        return true;
    if (ptx_globaltimer_ns() - r.start_ns <= r.args->timeout_ns)
        return false;
    while (!(open >> first & 1))
        first++;
    struct part p = part_of(r, warp + first * warps);
    run_fail(r, p.send ? ULI_STAGED_LATE_OUT : ULI_STAGED_LATE_IN, p.peer);
    return true;
}

/* No part moves: pauses, or returns true if the warp must leave, equal for all
 * threads of the warp. */
static __device__ bool
warp_gives_up(
    const struct run &r, int32_t warp, int32_t warps, uint64_t open, int idle)
{
    bool leave = false;
    if (threadIdx.x % WARP == 0) {
        leave = gives_up(r, warp, warps, open);
        if (!leave)
            pause_after(idle);
    }
    return __shfl_sync(0xFFFFFFFFu, (int)leave, 0) != 0;
}

static __device__ void
warp_works(const struct run &r)
{
    int32_t warps = (int32_t)(gridDim.x * blockDim.x / WARP);
    int32_t warp = (int32_t)((blockIdx.x * blockDim.x + threadIdx.x) / WARP);
    int32_t parts = r.args->nmessages * r.args->nqueues;
    int32_t mine = warp < parts ? (parts - 1 - warp) / warps + 1 : 0;
    uint64_t open =
        mine == ULI_STAGED_PARTS ? ~UINT64_C(0) : (UINT64_C(1) << mine) - 1;
    for (int idle = 0; open; idle++) {
        bool moved = false;
        open = warp_turns_all(r, warp, warps, open, &moved);
        if (moved)
            idle = 0;
        else if (open && warp_gives_up(r, warp, warps, open, idle))
            return;
    }
}

/* ---- the kernel ---------------------------------------------------------- */

__global__ void
__launch_bounds__(ULI_STAGED_THREADS, 2)
    staged_kernel(const __grid_constant__ uli_staged_args args)
{
    struct run r = {&args, args.state->run + 1, ptx_globaltimer_ns()};
    uint32_t *blocks = &args.state->blocks;
    if (blockIdx.x == 0 && threadIdx.x == 0)
        ptx_st_relaxed_sys_u64(&args.report->begun, r.n);
    if (!__syncthreads_or(threadIdx.x == 0 && run_stopped(r)))
        warp_works(r);
    __syncthreads();
    if (threadIdx.x != 0 ||
        ptx_atom_add_acq_rel_gpu_u32(blocks, 1) != gridDim.x - 1)
        return;
    *blocks = 0;
    args.state->run = r.n;
    ptx_st_release_sys_u64(&args.report->ended, r.n);
}

/* ---- host ---------------------------------------------------------------- */

int
uli_staged_launch(
    const struct uli_staged_args *args, int32_t blocks, void *stream)
{
    return uli_kernel_launch({dim3((unsigned)blocks), dim3(ULI_STAGED_THREADS),
                                 0, (cudaStream_t)stream},
        staged_kernel, *args);
}

int
uli_staged_prepare(int32_t *multiprocessors_p, int32_t *per_sm_p)
{
    int device = 0, count = 0, fit = 0;
    cudaError_t error = uli_kernel_prepare(staged_kernel, 0);
    if (error == cudaSuccess)
        error = cudaGetDevice(&device);
    if (error == cudaSuccess)
        error = cudaDeviceGetAttribute(
            &count, cudaDevAttrMultiProcessorCount, device);
    if (error == cudaSuccess)
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &fit, (const void *)staged_kernel, ULI_STAGED_THREADS, 0);
    if (error != cudaSuccess)
        return error;
    *multiprocessors_p = count;
    *per_sm_p = fit;
    return cudaSuccess;
}
