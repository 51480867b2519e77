/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels that add the tensors of all ranks, one kernel per dtype. The
 * elements are cut into one part per rank. The owner of a part loads that part
 * of every rank's tensor in rank order, adds in registers, rounds once and
 * stores the sum at every rank. The bits are those of
 * collectives/channel/reduce.c, wherever the parts begin.
 *
 * Where all ranks' tensors lie in windows, nothing is copied on the way: the
 * owner pulls shares and pushes sums. Otherwise all bytes go through receive
 * buffers, one tile per queue at a time: each rank puts its shares into the
 * owners' receive buffers, and the owner adds there and puts the sums into the
 * receive buffers of all ranks. All ranks read the same records, so they choose
 * alike. src may be dst: with windows, the owner reads a part before it writes
 * the part; with receive buffers, a tile is read whole before any of it is
 * written.
 *
 * Cost: each rank sends and receives 2 (P - 1) / P of its bytes; by receive
 * buffers two chunks per pair and tile, and every byte is stored twice.
 */
#include "collectives/device/collective/collective_recv_buffer.h"
#include "collectives/device/collective/collective_move.h"

enum {
    VECTORS_IN_FLIGHT = 4, /* vectors of a rank that a lane loads before it
                            * adds */
    PART_ELEMENTS = 16,    /* parts begin at multiples of this: at least 16
                            * bytes */
    PLACES = (ULI_COLLECTIVE_RANKS + WARP - 1) / WARP, /* of a lane */
};

/* Parts of a range of elements: rank p has part_length(p) elements from
 * part_at(p) on. */
struct parts {
    int64_t count, each;
};

static __device__ struct parts
parts_of(int64_t count, int32_t nranks)
{
    int64_t each = (count + nranks - 1) / nranks;
    each = (each + PART_ELEMENTS - 1) / PART_ELEMENTS * PART_ELEMENTS;
    struct parts parts = {count, each};
    return parts;
}

static __device__ int64_t
part_at(const struct parts &parts, int32_t p)
{
    int64_t at = p * parts.each;
    return at < parts.count ? at : parts.count;
}

static __device__ int64_t
part_length(const struct parts &parts, int32_t p)
{
    int64_t left = parts.count - part_at(parts, p);
    return left < parts.each ? left : parts.each;
}

/* ---- where shares and sums lie ------------------------------------------- */

/* The place of a part that begins `offset` bytes into the tensors. queue: the
 * part is in the next chunks of this queue of the receive buffers; -1: the part
 * is in windows. */
struct reach {
    int64_t offset;
    int32_t queue;
};

static __device__ const unsigned char *
share_at(const struct call &c, const uli_collective_args &a,
    const struct reach &r, int32_t p)
{
    if (p == a.base.rank)
        return a.src + r.offset;
    if (r.queue >= 0)
        return queue_in(queue_of(a, p, r.queue));
    const unsigned char *base = place_of(c, p, ULI_COLLECTIVE_SRC);
    return base ? base + r.offset : nullptr;
}

static __device__ unsigned char *
sum_at(const struct call &c, const uli_collective_args &a,
    const struct reach &r, int32_t p)
{
    if (p == a.base.rank)
        return a.dst + r.offset;
    if (r.queue >= 0)
        return queue_out(queue_of(a, p, r.queue));
    unsigned char *base = place_of(c, p, ULI_COLLECTIVE_DST);
    return base ? base + r.offset : nullptr;
}

/* Where the shares and the sums of one part begin at each rank: lane l of the
 * warp has the places at ranks l, l + 32 and l + 64. */
struct places {
    uint64_t from[PLACES], to[PLACES];
};

/* One warp: fills the places. *bits_p: the low 32 bits of all places, or-ed.
 * False: a place cannot be reached. */
static __device__ bool
places_fill(const struct call &c, const uli_collective_args &a,
    const struct reach &r, struct places &places, uint32_t *bits_p)
{
    uint32_t bits = 0;
    bool known = true;
#pragma unroll
    for (int i = 0; i < PLACES; i++) {
        int32_t p = i * WARP + (int32_t)(threadIdx.x % WARP);
        places.from[i] = places.to[i] = 0;
        if (p >= a.base.nranks)
            continue;
        places.from[i] = (uint64_t)(uintptr_t)share_at(c, a, r, p);
        places.to[i] = (uint64_t)(uintptr_t)sum_at(c, a, r, p);
        known = known && places.from[i] && places.to[i];
        bits |= (uint32_t)(places.from[i] | places.to[i]);
    }
    for (int lanes = WARP / 2; lanes > 0; lanes /= 2)
        bits |= __shfl_xor_sync(0xFFFFFFFFu, bits, lanes);
    *bits_p = bits;
    return __all_sync(0xFFFFFFFFu, known) != 0;
}

/* Called by all lanes: the place at rank p. */
PTX_FN unsigned char *
place_at(const uint64_t (&held)[PLACES], int32_t p)
{
    uint64_t mine = held[0];
#pragma unroll
    for (int i = 1; i < PLACES; i++)
        mine = p / WARP == i ? held[i] : mine;
    mine = __shfl_sync(0xFFFFFFFFu, mine, p % WARP);
    return (unsigned char *)(uintptr_t)mine;
}

/* ---- adding -------------------------------------------------------------- */

/* Adds vectors n, n + 32, ... (VECTORS_IN_FLIGHT of them, V elements each) of
 * all ranks, in rank order. The vectors are counted from `skip` bytes after the
 * places. */
template <int DTYPE, typename ACC, int V>
static __device__ void
add_vectors(const struct places &places, int32_t nranks, int64_t skip,
    int64_t n, int64_t count,
    elements<V * element_bytes<DTYPE>::value> (&sums)[VECTORS_IN_FLIGHT])
{
    constexpr int BYTES = V * element_bytes<DTYPE>::value;
    ACC total[VECTORS_IN_FLIGHT][V];
    for (int32_t p = 0; p < nranks; p++) {
        const unsigned char *from = place_at(places.from, p) + skip;
        elements<BYTES> held[VECTORS_IN_FLIGHT] = {};
#pragma unroll
        for (int u = 0; u < VECTORS_IN_FLIGHT; u++)
            if (n + u * WARP < count)
                load_elements(held[u], from + (n + u * WARP) * BYTES);
#pragma unroll
        for (int u = 0; u < VECTORS_IN_FLIGHT; u++)
#pragma unroll
            for (int i = 0; i < V; i++) {
                ACC value = element_decode<DTYPE, ACC>(held[u], i);
                total[u][i] = p == 0 ? value : total[u][i] + value;
            }
    }
#pragma unroll
    for (int u = 0; u < VECTORS_IN_FLIGHT; u++)
        round_elements<DTYPE>(sums[u], total[u]);
}

/* One warp: adds `count` vectors and stores the sums at all ranks. All lanes
 * take the same number of turns, because place_at needs all of them. */
template <int DTYPE, typename ACC, int V>
static __device__ void
warp_adds_vectors(const struct places &places, const uli_collective_args &a,
    int64_t skip, int64_t count)
{
    constexpr int BYTES = V * element_bytes<DTYPE>::value;
    for (int64_t first = 0; first < count; first += WARP * VECTORS_IN_FLIGHT) {
        elements<BYTES> sums[VECTORS_IN_FLIGHT];
        int64_t n = first + threadIdx.x % WARP;
        add_vectors<DTYPE, ACC, V>(
            places, a.base.nranks, skip, n, count, sums);
        for (int32_t q = 0; q < a.base.nranks; q++) {
            int32_t p = (a.base.rank + q) % a.base.nranks;
            unsigned char *to = place_at(places.to, p) + skip;
#pragma unroll
            for (int u = 0; u < VECTORS_IN_FLIGHT; u++)
                if (n + u * WARP < count)
                    store_elements(to + (n + u * WARP) * BYTES, sums[u]);
        }
    }
}

/* One warp: adds `count` elements of a part and stores the sums. False: leave
 * the call. */
template <int DTYPE, typename ACC>
static __device__ bool
warp_adds(const struct call &c, const uli_collective_args &a,
    const struct reach &r, int64_t count)
{
    constexpr int SIZE = element_bytes<DTYPE>::value, V = 16 / SIZE;
    struct places places;
    uint32_t bits;
    if (!places_fill(c, a, r, places, &bits))
        return false;
    int64_t whole = bits % 16 ? 0 : count / V;
    if (whole)
        warp_adds_vectors<DTYPE, ACC, V>(places, a, 0, whole);
    if (count > whole * V)
        warp_adds_vectors<DTYPE, ACC, 1>(
            places, a, whole * 16, count - whole * V);
    return true;
}

/* ---- windows ------------------------------------------------------------- */

static __device__ bool
all_in_windows(const struct call &c, const uli_collective_args &a)
{
    const uint64_t *own = a.base.record;
    bool all =
        a.base.nranks == 1 || (own[ULI_COLLECTIVE_SRC] != ULI_GPU_NO_WINDOW &&
                                  own[ULI_COLLECTIVE_DST] != ULI_GPU_NO_WINDOW);
    for (int32_t p = 0; p < a.base.nranks; p++)
        all = all &&
              (p == a.base.rank || (in_window(c, p, ULI_COLLECTIVE_SRC) &&
                                       in_window(c, p, ULI_COLLECTIVE_DST)));
    return all;
}

/* Adds the warp's tiles of this rank's part, where all tensors lie in windows.
 * False: leave the call. */
template <int DTYPE, typename ACC>
static __device__ bool
warp_adds_straight(const struct call &c, const uli_collective_args &a)
{
    const int64_t size = element_bytes<DTYPE>::value;
    const int64_t tile = ULI_COLLECTIVE_TILE / size;
    struct parts parts =
        parts_of((int64_t)a.base.record[ULI_COLLECTIVE_COUNT], a.base.nranks);
    int64_t begin = part_at(parts, a.base.rank);
    int64_t length = part_length(parts, a.base.rank);
    int64_t warps = blockDim.x / WARP, workers = warps * gridDim.x;
    int64_t worker = blockIdx.x * warps + threadIdx.x / WARP;
    for (int64_t at = worker * tile; at < length; at += workers * tile) {
        struct reach r = {(begin + at) * size, -1};
        int64_t left = length - at;
        if (!warp_adds<DTYPE, ACC>(c, a, r, left < tile ? left : tile))
            return false;
    }
    return true;
}

/* ---- receive buffers ----------------------------------------------------- */

/* Waits until all peers have room for the next chunk of a queue (room), or have
 * put their next chunk. Each lane waits for some of the peers. */
static __device__ bool
queues_await(const struct call &c, const uli_collective_args &a, int32_t number,
    bool room)
{
    bool here = true;
    for (int32_t p = (int32_t)(threadIdx.x % WARP); here && p < a.base.nranks;
         p += WARP) {
        if (p == a.base.rank)
            continue;
        struct queue queue = queue_of(a, p, number);
        for (int polls = 0;
             here && !(room ? queue_has_room(queue) : queue_has_chunk(queue));
             polls++)
            here = may_wait(c, polls, p);
    }
    here = __all_sync(0xFFFFFFFFu, here) != 0;
    __syncwarp(); /* a vote orders no memory */
    return here;
}

/* Moves every peer's part of a tile that begins `first` bytes into the tensors.
 * put: from src into the peer's receive buffer; else from the receive buffer
 * here to dst. */
static __device__ void
queues_move(const uli_collective_args &a, int32_t number, int64_t first,
    const struct parts &parts, int64_t size, bool put)
{
    for (int32_t q = 1; q < a.base.nranks; q++) {
        int32_t p = (a.base.rank + q) % a.base.nranks;
        struct queue queue = queue_of(a, p, number);
        int64_t at = first + part_at(parts, p) * size;
        int64_t bytes = part_length(parts, p) * size;
        if (put) {
            warp_copies(queue_out(queue), a.src + at, bytes);
            queue_has_put(queue);
        } else {
            warp_copies(a.dst + at, queue_in(queue), bytes);
            queue_has_taken(queue);
        }
        queue_keeps(queue);
    }
}

/* Announces to all peers that their shares have been added and the sums put. */
static __device__ void
queues_have_added(const uli_collective_args &a, int32_t number)
{
    for (int32_t q = 1; q < a.base.nranks; q++) {
        struct queue queue =
            queue_of(a, (a.base.rank + q) % a.base.nranks, number);
        queue_has_put(queue);
        queue_has_taken(queue);
        queue_keeps(queue);
    }
}

template <int DTYPE, typename ACC>
static __device__ bool
queues_add_tile(const struct call &c, const uli_collective_args &a,
    int32_t number, int64_t first, int64_t count)
{
    const int64_t size = element_bytes<DTYPE>::value;
    struct parts parts = parts_of(count, a.base.nranks);
    if (!queues_await(c, a, number, true))
        return false;
    queues_move(a, number, first * size, parts, size, true);
    if (!queues_await(c, a, number, false) || !queues_await(c, a, number, true))
        return false;
    struct reach r = {(first + part_at(parts, a.base.rank)) * size, number};
    if (!warp_adds<DTYPE, ACC>(c, a, r, part_length(parts, a.base.rank)))
        return false;
    queues_have_added(a, number);
    if (!queues_await(c, a, number, false))
        return false;
    queues_move(a, number, first * size, parts, size, false);
    return true;
}

/* Adds the tiles of the warp's queue, by receive buffers. False: leave the
 * call. */
template <int DTYPE, typename ACC>
static __device__ bool
warp_adds_buffered(const struct call &c, const uli_collective_args &a)
{
    int32_t number =
        (int32_t)(blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP);
    int64_t count = (int64_t)a.base.record[ULI_COLLECTIVE_COUNT];
    int64_t tile = a.chunk_bytes / element_bytes<DTYPE>::value * a.base.nranks;
    if (number >= a.queues)
        return true;
    for (int64_t at = number * tile; at < count; at += a.queues * tile) {
        int64_t left = count - at;
        if (!queues_add_tile<DTYPE, ACC>(
                c, a, number, at, left < tile ? left : tile))
            return false;
    }
    return true;
}

/* ---- the kernels --------------------------------------------------------- */

/* The warp's part of a launch. False: leave the call. */
template <int DTYPE, typename ACC>
static __device__ bool
warp_reduces(const struct call &c, const uli_collective_args &a)
{
    if (a.base.record[ULI_COLLECTIVE_COUNT] == 0)
        return true;
    enum peer_state all = warp_pairs_all(c, a);
    if (all != PEER_USE)
        return all != PEER_LEAVE;
    bool windows = all_in_windows(c, a);
    if (windows && a.base.steps & ULI_GPU_MOVE)
        return warp_adds_straight<DTYPE, ACC>(c, a);
    if (!windows && a.base.steps & ULI_GPU_CLOSE)
        return warp_adds_buffered<DTYPE, ACC>(c, a);
    return true;
}

template <int DTYPE, typename ACC>
__global__ void
__launch_bounds__(ULI_COLLECTIVE_THREADS, 1)
    allreduce_kernel(const __grid_constant__ uli_collective_args args)
{
    struct call c = begin_call(args.base);
    if (!collective_begins(c, args))
        return;
    collective_ends(c, args, warp_reduces<DTYPE, ACC>(c, args));
}

/* ---- host ---------------------------------------------------------------- */

typedef void (*allreduce_fn)(const uli_collective_args);

static allreduce_fn
kernel_of(uint64_t dtype)
{
    switch (dtype) {
    case ULYX_DTYPE_F64:
        return allreduce_kernel<ULYX_DTYPE_F64, double>;
    case ULYX_DTYPE_F32:
        return allreduce_kernel<ULYX_DTYPE_F32, float>;
    case ULYX_DTYPE_BF16:
        return allreduce_kernel<ULYX_DTYPE_BF16, float>;
    default:
        return allreduce_kernel<ULYX_DTYPE_F16, float>;
    }
}

int
uli_allreduce_launch(const struct uli_collective_args *args, int32_t blocks,
    int32_t threads, void *stream)
{
    struct uli_launch_config launch = {dim3((unsigned)blocks), dim3((unsigned)threads),
        0, (cudaStream_t)stream};
    return uli_kernel_launch(
        launch, kernel_of(args->base.record[ULI_COLLECTIVE_DTYPE]), *args);
}

int
uli_allreduce_prepare(int32_t *blocks_per_sm_p)
{
    const uint64_t dtypes[] = {
        ULYX_DTYPE_F64, ULYX_DTYPE_F32, ULYX_DTYPE_BF16, ULYX_DTYPE_F16};
    int least = 0;
    for (int i = 0; i < 4; i++) {
        allreduce_fn kernel = kernel_of(dtypes[i]);
        int fit = 0;
        cudaError_t error = uli_kernel_prepare(kernel, 0);
        if (error == cudaSuccess)
            error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                &fit, (const void *)kernel, ULI_COLLECTIVE_THREADS, 0);
        if (error != cudaSuccess)
            return error;
        least = i == 0 || fit < least ? fit : least;
    }
    *blocks_per_sm_p = least;
    return cudaSuccess;
}
