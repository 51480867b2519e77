/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernel that moves plain messages between all ranks: alltoall, alltoallv,
 * allgather and broadcast. collective_gpu.h has the protocol.
 *
 * Every warp first moves its tiles of each message that can go straight to its
 * place: those of the peers, from the next higher rank on, then those of this
 * rank's message to itself. Then each warp that has a queue moves what goes
 * through receive buffers, in rounds: in round q rank r sends to rank r + q and
 * receives from rank r - q until both messages have ended. Ranks cannot wait in
 * a circle: a rank of the lowest round waits only for ranks that are in that
 * round or have ended it.
 *
 * Cost: every byte is read once and written once; through a receive buffer,
 * twice. Three words per pair, and two words per chunk.
 */
#include "collectives/device/collective/collective_recv_buffer.h"
#include "collectives/device/collective/collective_move.h"

/* ---- straight ------------------------------------------------------------ */

/* Moves the warp's tiles of a message. Warp q has the first tile of message
 * number q, so that all warps have tiles where messages are short. */
static __device__ void
warp_moves_message(
    unsigned char *dst, const unsigned char *src, int64_t bytes, int32_t q)
{
    uint32_t warps = blockDim.x / WARP, workers = warps * gridDim.x;
    uint32_t worker = blockIdx.x * warps + threadIdx.x / WARP;
    const int64_t each = ULI_COLLECTIVE_TILE;
    int64_t first = (worker + workers - (uint32_t)q % workers) % workers;
    for (int64_t at = first * each; at < bytes; at += workers * each) {
        int64_t left = bytes - at;
        warp_copies(dst + at, src + at, left < each ? left : each);
    }
}

/* Moves what can go straight between this rank and a peer: pushes the message
 * to the peer if its destination lies in a window, and pulls the message from
 * the peer if only its source does. False: leave the call. */
static __device__ bool
warp_moves_pair(
    const struct call &c, const uli_collective_args &a, int32_t p, int32_t q)
{
    if (a.send_bytes[p] && in_window(c, p, ULI_COLLECTIVE_DST)) {
        unsigned char *to = place_of(c, p, ULI_COLLECTIVE_DST);
        if (!to)
            return false;
        warp_moves_message(to, a.src + a.src_offset[p], a.send_bytes[p], q);
    }
    bool pulls = a.base.record[ULI_COLLECTIVE_DST] == ULI_GPU_NO_WINDOW;
    if (a.receive_bytes[p] && pulls && in_window(c, p, ULI_COLLECTIVE_SRC)) {
        const unsigned char *from = place_of(c, p, ULI_COLLECTIVE_SRC);
        if (!from)
            return false;
        warp_moves_message(a.dst + a.dst_offset[p], from, a.receive_bytes[p], q);
    }
    return true;
}

/* Moves the warp's tiles of all messages that can go straight. False: leave the
 * call. */
static __device__ bool
warp_moves_straight(const struct call &c, const uli_collective_args &a)
{
    if (a.together) {
        enum peer_state all = warp_pairs_all(c, a);
        if (all != PEER_USE)
            return all != PEER_LEAVE;
    }
    int32_t me = a.base.rank;
    for (int32_t q = 1; q < a.base.nranks; q++) {
        int32_t p = (me + q) % a.base.nranks;
        enum peer_state state = warp_pairs(c, a, p);
        if (state == PEER_LEAVE ||
            (state == PEER_USE && !warp_moves_pair(c, a, p, q)))
            return false;
    }
    warp_moves_message(a.dst + a.dst_offset[me], a.src + a.src_offset[me],
        a.send_bytes[me], 0);
    return true;
}

/* ---- by receive buffers -------------------------------------------------- */

/* The chunks of a message that go by one queue: at `at`, at + step, ..., below
 * `bytes`. */
struct flow {
    int64_t at, step, bytes;
};

static __device__ struct flow
flow_of(const uli_collective_args &a, int32_t queue, bool any, int64_t bytes)
{
    struct flow flow = {
        queue * a.chunk_bytes, a.queues * a.chunk_bytes, any ? bytes : 0};
    return flow;
}

static __device__ int64_t
flow_length(const uli_collective_args &a, const struct flow &flow)
{
    int64_t left = flow.bytes - flow.at;
    return left < a.chunk_bytes ? left : a.chunk_bytes;
}

static __device__ bool
sends_by_recv_buffer(const struct call &c, const uli_collective_args &a, int32_t p)
{
    return a.send_bytes[p] && !in_window(c, p, ULI_COLLECTIVE_DST) &&
           a.base.record[ULI_COLLECTIVE_SRC] == ULI_GPU_NO_WINDOW;
}

static __device__ bool
receives_by_recv_buffer(
    const struct call &c, const uli_collective_args &a, int32_t p)
{
    return a.receive_bytes[p] && !in_window(c, p, ULI_COLLECTIVE_SRC) &&
           a.base.record[ULI_COLLECTIVE_DST] == ULI_GPU_NO_WINDOW;
}

enum { MAY_SEND = 1, MAY_RECEIVE = 2, MUST_LEAVE = 4 };

/* Waits until the warp may send or receive a chunk. Returns what the warp may
 * do, the same in all lanes. */
static __device__ int
warp_looks(const struct call &c, const struct queue &to, bool sends,
    const struct queue &from, bool receives, int32_t peer)
{
    int may = 0;
    if (threadIdx.x % WARP == 0)
        for (int polls = 0; !may; polls++) {
            if (sends && queue_has_room(to))
                may |= MAY_SEND;
            if (receives && queue_has_chunk(from))
                may |= MAY_RECEIVE;
            if (!may && !may_wait(c, polls, peer))
                may = MUST_LEAVE;
        }
    return warp_first(may);
}

/* Sends and receives all chunks of one round of one queue. False: leave the
 * call. */
static __device__ bool
queue_passes(const struct call &c, const uli_collective_args &a, int32_t number,
    int32_t to_rank, struct flow out, int32_t from_rank, struct flow in)
{
    struct queue to = queue_of(a, to_rank, number);
    struct queue from = queue_of(a, from_rank, number);
    const unsigned char *src = a.src + a.src_offset[to_rank];
    unsigned char *dst = a.dst + a.dst_offset[from_rank];
    while (out.at < out.bytes || in.at < in.bytes) {
        bool receives = in.at < in.bytes;
        int may = warp_looks(c, to, out.at < out.bytes, from, receives,
            receives ? from_rank : to_rank);
        if (may & MUST_LEAVE)
            return false;
        if (may & MAY_SEND) {
            warp_copies(queue_out(to), src + out.at, flow_length(a, out));
            queue_has_put(to);
            out.at += out.step;
        }
        if (may & MAY_RECEIVE) {
            warp_copies(dst + in.at, queue_in(from), flow_length(a, in));
            queue_has_taken(from);
            in.at += in.step;
        }
    }
    if (to_rank == from_rank)
        to.received = from.received;
    queue_keeps(to);
    if (to_rank != from_rank)
        queue_keeps(from);
    return true;
}

static __device__ bool
warp_moves_buffered(const struct call &c, const uli_collective_args &a)
{
    int32_t number =
        (int32_t)(blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP);
    if (number >= a.queues || (a.together && warp_pairs_all(c, a) != PEER_USE))
        return true;
    for (int32_t q = 1; q < a.base.nranks; q++) {
        int32_t to = (a.base.rank + q) % a.base.nranks;
        int32_t from = (a.base.rank + a.base.nranks - q) % a.base.nranks;
        enum peer_state sends = warp_pairs(c, a, to);
        enum peer_state receives = warp_pairs(c, a, from);
        if (sends == PEER_LEAVE || receives == PEER_LEAVE)
            return false;
        struct flow out = flow_of(a, number,
            sends == PEER_USE && sends_by_recv_buffer(c, a, to), a.send_bytes[to]);
        struct flow in = flow_of(a, number,
            receives == PEER_USE && receives_by_recv_buffer(c, a, from),
            a.receive_bytes[from]);
        if ((out.at < out.bytes || in.at < in.bytes) &&
            !queue_passes(c, a, number, to, out, from, in))
            return false;
    }
    return true;
}

/* ---- the kernel ---------------------------------------------------------- */

__global__ void
__launch_bounds__(ULI_COLLECTIVE_THREADS, 1)
    alltoall_kernel(const __grid_constant__ uli_collective_args args)
{
    struct call c = begin_call(args.base);
    bool ok = true;
    if (!collective_begins(c, args))
        return;
    if (args.base.steps & ULI_GPU_MOVE)
        ok = warp_moves_straight(c, args);
    if (ok && args.base.steps & ULI_GPU_CLOSE)
        ok = warp_moves_buffered(c, args);
    collective_ends(c, args, ok);
}

/* ---- host ---------------------------------------------------------------- */

int
uli_alltoall_launch(const struct uli_collective_args *args, int32_t blocks,
    int32_t threads, void *stream)
{
    struct uli_launch_config launch = {dim3((unsigned)blocks), dim3((unsigned)threads),
        0, (cudaStream_t)stream};
    return uli_kernel_launch(launch, alltoall_kernel, *args);
}

int
uli_alltoall_prepare(int32_t *blocks_per_sm_p)
{
    int fit = 0;
    cudaError_t error = uli_kernel_prepare(alltoall_kernel, 0);
    if (error == cudaSuccess)
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
            &fit, (const void *)alltoall_kernel, ULI_COLLECTIVE_THREADS, 0);
    if (error == cudaSuccess)
        *blocks_per_sm_p = fit;
    return error;
}
