/* SPDX-License-Identifier: Apache-2.0
 *
 * The two launches of the exchange by messages; messages_gpu.h has the scheme.
 * CUDA streams and events order the launches with the batch between them, so
 * neither launch waits for anything. A peer that does not come holds up the
 * batch. The host watches report->begun and report->ended, and aborts a batch
 * that is late.
 *
 * Below, a stream is all that one rank sends another in a direction, as in
 * messages_gpu.h. A tile is a range of one stream, so it may hold many small
 * items or a part of a large one. Places, windows and tiles begin at multiples
 * of 16 bytes, so that an item which is cut between two of them stays aligned.
 *
 * Cost: every byte that travels is read and written twice at each end.
 */
#include "collectives/device/messages/messages_gpu.h"
#include "collectives/device/mapped/exchange_work.h"

/* ---- streams ------------------------------------------------------------- */

/* The bytes that the item takes in its stream. */
static __device__ int64_t
item_bytes(const uli_gpu_item &item)
{
    int64_t length =
        item.extent[0] * item.extent[1] * item.extent[2] * item.run;
    return item.kind == ULI_GPU_SUM ? length * dtype_bytes(item.partial_dtype)
                                    : length;
}

/* The first entry of the list whose item may reach beyond `at`: the last entry
 * that begins at or before `at`, else the first one. */
static __device__ int32_t
find_entry(const uli_messages_args &args, const uli_messages_list &list, int64_t at)
{
    int32_t low = list.first, end = list.first + list.count;
    while (end - low > 1) {
        int32_t middle = low + (end - low) / 2;
        if (args.call.items[args.order[middle]].first_tile <= at)
            low = middle;
        else
            end = middle;
    }
    return low;
}

/* Moves bytes [begin, end) of the item, counted from its place in the stream. A
 * function of its own, so that the many registers of a tile and those of the
 * loops around it are not live at one time. */
template <bool SUMS>
static __device__ __noinline__ void
warp_moves_part(
    const struct call &c, const uli_gpu_item &item, int64_t begin, int64_t end)
{
    bool sum = SUMS && item.kind == ULI_GPU_SUM;
    if (warp_may_move<SUMS>(c, item) != PEER_USE)
        return;
    unsigned char *dst = destination_of(c, item);
    const unsigned char *src = source_of(c, item);
    int64_t element = sum ? dtype_bytes(item.partial_dtype) : 1;
    if (!dst || (item.kind == ULI_GPU_COPY && !src))
        return;
    if (sum)
        sum_tile(c, item, dst, begin / element, end / element);
    else
        move_tile(item, dst, src, begin, end);
}

/* Moves what lies in [begin, end) of a stream. */
template <bool SUMS>
static __device__ void
warp_moves_range(const struct call &c, const uli_messages_args &args,
    const uli_messages_list &list, int64_t begin, int64_t end)
{
    int32_t last = list.first + list.count;
    for (int32_t i = find_entry(args, list, begin); i < last; i++) {
        const uli_gpu_item &item = args.call.items[args.order[i]];
        int64_t at = item.first_tile, bytes = item_bytes(item);
        if (at >= end)
            return;
        int64_t low = begin > at ? begin - at : 0;
        int64_t high = end - at < bytes ? end - at : bytes;
        if (low < high)
            warp_moves_part<SUMS>(c, item, low, high);
    }
}

/* Moves the warp's tiles: those of the peers' windows, from the next higher
 * rank on, then those of this rank's list. */
template <bool SUMS>
static __device__ void
warp_works_streams(const struct call &c, const uli_messages_args &args)
{
    uint32_t warps = blockDim.x / WARP;
    uint32_t tiles = (uint32_t)args.tiles;
    uint32_t others = tiles * (uint32_t)(args.call.nranks - 1);
    for (uint32_t t = blockIdx.x * warps + threadIdx.x / WARP;
         t < others + (uint32_t)args.own_tiles; t += warps * gridDim.x) {
        bool own = t >= others;
        uint32_t peer = own ? 0 : t / tiles + 1;
        uint32_t tile = own ? t - others : t % tiles;
        const uli_messages_list &list =
            args.lists[(args.call.rank + peer) % (uint32_t)args.call.nranks];
        int64_t begin = (own ? 0 : args.begin) + tile * args.tile_bytes;
        int64_t end = begin + args.tile_bytes;
        if (!own && end > args.end)
            end = args.end;
        if (end > list.end)
            end = list.end;
        if (begin < end)
            warp_moves_range<SUMS>(c, args, list, begin, end);
    }
}

/* ---- a call's edges ------------------------------------------------------ */

/* Whether the call was captured before the last update of the document tables.
 * The batch of such a call has the message sizes of the old tables, but the
 * items here are those of the new tables, so the call moves nothing. */
static __device__ bool
is_stale(const uli_messages_args &args)
{
    return *args.hash != args.call.record[ULI_GPU_RECORD_HASH];
}

/* The first block: announces the call to the host and, in the messages of round
 * 0, to the peers. */
static __device__ void
open_call(const struct call &c, bool stale)
{
    uint64_t word = c.args->record[ULI_GPU_RECORD_CALL];
    if (threadIdx.x == 0) {
        ptx_st_relaxed_sys_u64(&c.args->report->call, word);
        ptx_st_release_sys_u64(&c.args->report->begun, c.n);
    }
    block_posts(c, false);
    __syncthreads();
    for (int32_t p = (int32_t)threadIdx.x; stale && p < c.args->nranks;
         p += (int32_t)blockDim.x)
        if (p != c.args->rank && c.args->peers[p].shares)
            c.args->peers[p].yours->records[c.n & 1][ULI_GPU_RECORD_CALL] =
                word | (uint64_t)-ULYX_ERR_MISMATCH;
}

/* One thread: stores the text of the refusal, if the call's outcome is a
 * refusal. */
static __device__ void
keep_reason(const struct call &c, struct uli_messages_reason *reason)
{
    uint64_t cause = c.args->state->outcome;
    if ((cause >> 8 & 0xFF) != ULI_GPU_REFUSED)
        return;
    const uint64_t *record = record_of(c, (int32_t)(cause >> 16 & 0xFFFF));
    ptx_st_relaxed_sys_u64(&reason->cause, 0);
    ptx_fence_acq_rel_sys();
    for (int i = 0; i < ULI_MESSAGES_REASON_WORDS; i++)
        ptx_st_relaxed_sys_u64(
            &reason->text[i], record[ULI_GPU_RECORD_SRC + i]);
    ptx_st_release_sys_u64(&reason->cause, cause);
}

/* The last block: stores the outcome and ends the call. */
static __device__ void
close_call(
    const struct call &c, bool stale, struct uli_messages_reason *reason)
{
    if (stale && threadIdx.x == 0)
        ptx_atom_cas_relaxed_gpu_u64(&c.args->state->outcome, 0,
            ULI_GPU_CAUSE(0, ULI_GPU_STALE, c.args->rank, c.n));
    __syncthreads();
    for (int32_t p = (int32_t)threadIdx.x; p < c.args->nranks;
         p += (int32_t)blockDim.x)
        if (p != c.args->rank && c.args->peers[p].shares)
            call_check(c, p);
    __syncthreads();
    if (threadIdx.x == 0)
        keep_reason(c, reason);
    call_advance(c);
}

/* ---- kernels ------------------------------------------------------------- */

__global__ void
__launch_bounds__(EXCHANGE_THREADS, 2)
    pack_kernel(const __grid_constant__ uli_messages_args args)
{
    struct call c = begin_call(args.call);
    bool stale = is_stale(args);
    if (block_stopped(c))
        return;
    if (args.steps & ULI_MESSAGES_OPEN && blockIdx.x == 0)
        open_call(c, stale);
    if (!stale)
        warp_works_streams<false>(c, args);
}

template <bool SUMS>
__global__ void
__launch_bounds__(EXCHANGE_THREADS, SUMS ? 1 : 2)
    unpack_kernel(const __grid_constant__ uli_messages_args args)
{
    struct call c = begin_call(args.call);
    bool stale = is_stale(args);
    if (block_stopped(c))
        return;
    if (!stale)
        warp_works_streams<SUMS>(c, args);
    if (!(args.steps & ULI_MESSAGES_CLOSE))
        return;
    __syncthreads();
    if (is_last_block(c))
        close_call(c, stale, args.reason);
}

/* ---- host ---------------------------------------------------------------- */

static struct uli_launch_config
launch_of(int32_t blocks, int32_t threads, void *stream)
{
    return {dim3((unsigned)blocks), dim3((unsigned)threads), 0,
        (cudaStream_t)stream};
}

int
uli_messages_pack_launch(const struct uli_messages_args *args, int32_t blocks,
    int32_t threads, void *stream)
{
    return uli_kernel_launch(
        launch_of(blocks, threads, stream), pack_kernel, *args);
}

int
uli_messages_unpack_launch(const struct uli_messages_args *args, int32_t blocks,
    int32_t threads, void *stream)
{
    return uli_kernel_launch(launch_of(blocks, threads, stream),
        args->call.sums ? unpack_kernel<true> : unpack_kernel<false>, *args);
}

int
uli_messages_prepare(void)
{
    cudaError_t error = uli_kernel_prepare(pack_kernel, 0);
    if (error == cudaSuccess)
        error = uli_kernel_prepare(unpack_kernel<false>, 0);
    if (error == cudaSuccess)
        error = uli_kernel_prepare(unpack_kernel<true>, 0);
    return error;
}
