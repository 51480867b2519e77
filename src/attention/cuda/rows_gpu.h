/* SPDX-License-Identifier: Apache-2.0
 *
 * Where rows lie, on the device, and waiting for them: the twin of view.c.
 */
#ifndef ULI_ATTENTION_CUDA_ROWS_GPU_H
#define ULI_ATTENTION_CUDA_ROWS_GPU_H

#include <math.h>
#include "attention/cuda/mask_range.h"
#include "device/cuda/ptx.h"
#include "ulyx/types.h"

/* Adjacent rows: data + n * stride, n < rows. data NULL: not in this call. */
struct row_span {
    unsigned char *data;
    int64_t stride, rows;
};

/* The last piece that begins at or before a row. */
static __device__ __forceinline__ int32_t
piece_of(const struct uli_gpu_attn_tensor &tensor, int64_t row)
{
    int32_t low = 0, high = tensor.npieces;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (tensor.pieces[middle].row_begin <= row)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Rows [row, end) of a head and batch item, as many as lie evenly. */
static __device__ __forceinline__ struct row_span
strided_span(const struct uli_gpu_attn_tensor &tensor, int64_t head,
    int64_t batch, int64_t row, int64_t end)
{
    if (!tensor.pieces)
        return {tensor.base + batch * tensor.batch_stride +
                    head * tensor.head_stride + row * tensor.row_stride,
            tensor.row_stride, end - row};
    const struct uli_gpu_attn_piece &piece =
        tensor.pieces[piece_of(tensor, row)];
    return {piece.base + batch * piece.batch_stride + head * piece.head_stride +
                (row - piece.row_begin) * piece.row_stride,
        piece.row_stride, mask_min(end, piece.row_begin + piece.rows) - row};
}

/* Rows [n, end) of a tile of queries, counted from the tile's first row. */
static __device__ __forceinline__ struct row_span
q_span(const struct uli_gpu_attn_args &args,
    const struct uli_gpu_attn_tensor &tensor,
    const struct uli_gpu_attn_tile &tile, int64_t head, int64_t n, int64_t end)
{
    if (args.q_segments)
        return {tensor.base + (tile.packed + n) * tensor.row_stride,
            tensor.row_stride, end - n};
    return strided_span(tensor, head, tile.batch, tile.row + n, tile.row + end);
}

/* The first key segment that is not before (head, batch, row). */
static __device__ __forceinline__ int64_t
k_segment_of(const struct uli_gpu_attn_args &args, int64_t head, int64_t batch,
    int64_t row)
{
    int64_t low = 0, high = args.nk_segments;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        const struct uli_gpu_attn_segment &s = args.k_segments[middle];
        bool after = s.head != head     ? s.head > head
                     : s.batch != batch ? s.batch > batch
                                        : s.row_end > row;
        if (after)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

/* Key rows [row, end) of a kv head and batch item. */
static __device__ __forceinline__ struct row_span
k_span(const struct uli_gpu_attn_args &args,
    const struct uli_gpu_attn_tensor &tensor, int64_t head, int64_t batch,
    int64_t row, int64_t end)
{
    if (!args.k_segments)
        return strided_span(tensor, head, batch, row, end);
    struct row_span absent = {NULL, tensor.row_stride, end - row};
    int64_t n = k_segment_of(args, head, batch, row);
    if (n == args.nk_segments)
        return absent;
    const struct uli_gpu_attn_segment &s = args.k_segments[n];
    if (s.head != head || s.batch != batch || s.row_begin >= end)
        return absent;
    if (s.row_begin > row) {
        absent.rows = s.row_begin - row;
        return absent;
    }
    return {tensor.base + (s.row + row - s.row_begin) * tensor.row_stride,
        tensor.row_stride, mask_min(end, s.row_end) - row};
}

static __device__ __forceinline__ int64_t
kv_head_of(const struct uli_gpu_attn_args &args, int64_t head)
{
    return args.kv_map ? args.kv_map[head]
                       : head * args.heads_kv / args.heads_q;
}

/* Entry of sinks or slopes of a head, `none` where there are none. */
static __device__ __forceinline__ double
head_param(const struct uli_gpu_attn_args &args, const void *params,
    int64_t head, double none)
{
    if (!params)
        return none;
    int64_t n = args.head_ids ? args.head_ids[head] : args.head_offset + head;
    return args.param_f64 ? ((const double *)params)[n]
                          : (double)((const float *)params)[n];
}

/* One thread: raises the head's largest score, in which the sink has no part. */
static __device__ __forceinline__ void
raise_max(const struct uli_gpu_attn_args &args, int64_t head, float value)
{
    uint32_t *word = (uint32_t *)&args.max_logit[head];
    uint32_t old = ptx_ld_relaxed_gpu_u32(word);
    while (value > __uint_as_float(old)) {
        uint32_t found =
            ptx_atom_cas_relaxed_gpu_u32(word, old, __float_as_uint(value));
        if (found == old)
            return;
        old = found;
    }
}

/* ---- flags --------------------------------------------------------------- */

/* In shared memory: which of the first 64 pieces of q, k and v have arrived,
 * and when the kernel began. */
struct row_flags {
    uint64_t come[3];
    uint64_t start_ns;
};

static __device__ __forceinline__ bool
call_failed(const struct uli_gpu_attn_args &args)
{
    return ptx_ld_relaxed_gpu_u64(&args.state->failed) != 0;
}

static __device__ __forceinline__ bool
call_poisoned(const struct uli_gpu_attn_args &args)
{
    return args.poison && ptx_ld_relaxed_sys_u64(args.poison) != 0;
}

static __device__ __forceinline__ bool
call_stopped(const struct uli_gpu_attn_args &args)
{
    return call_failed(args) || call_poisoned(args);
}

/* The poison lies in host memory, and a read of it takes a microsecond or more.
 * So a block of forward that has taken many pairs reads the poison for one
 * pair in POISON_PAIRS. Backward counts no pairs, and reads the poison for
 * every pair. */
enum { POISON_PAIRS = 16 };

/* One thread: takes the next (tile, head) of the call; taken: pairs that the
 * block has taken before. False: there is no more to do, or the call has
 * failed. */
static __device__ __forceinline__ bool
pair_take(const struct uli_gpu_attn_args &args, int64_t *tile_p,
    int64_t *head_p, uint32_t taken = 0)
{
    int64_t ntiles = args.state->ntiles;
    if (call_failed(args) || (taken % POISON_PAIRS == 0 && call_poisoned(args)))
        return false;
    int64_t n = (int64_t)ptx_atom_add_relaxed_gpu_u64(&args.state->next, 1);
    if (n >= uli_gpu_attn_pairs(&args, ntiles))
        return false;
    uli_gpu_attn_pair(&args, ntiles, n, tile_p, head_p);
    if (*head_p < 0)
        *head_p = args.tiles[*tile_p].head;
    return true;
}

/* The tile of a pair. */
static __device__ __forceinline__ struct uli_gpu_attn_tile
tile_taken(const struct uli_gpu_attn_args &args, int64_t tile)
{
    return args.unlisted ? uli_gpu_attn_unlisted(&args, tile)
                         : args.tiles[tile];
}

static __device__ __noinline__ bool
piece_comes(const struct uli_gpu_attn_args &args,
    const struct uli_gpu_attn_piece &piece, int32_t which, int32_t index,
    uint64_t start_ns)
{
    for (int polls = 0; ptx_ld_acquire_sys_u64(piece.flag) < piece.flag_value;
         polls++) {
        if (call_stopped(args))
            return false;
        if (ptx_globaltimer_ns() - start_ns > args.timeout_ns) {
            uint64_t cause = ULI_GPU_ATTN_CAUSE(
                -ULYX_ERR_TIMEOUT, ULI_GPU_ATTN_FLAG_Q + which, index);
            ptx_atom_cas_relaxed_gpu_u64(&args.state->failed, 0, cause);
            if (args.cause)
                ptx_atom_cas_relaxed_sys_u64(args.cause, 0, cause);
            return false;
        }
        if (polls > 64)
            ptx_nanosleep(100);
    }
    return true;
}

/* All threads of the block: waits for the pieces that hold rows [row, end) of
 * q, k or v (which 0, 1, 2). False, for all: the call has failed. */
static __device__ __noinline__ bool
block_awaits(const struct uli_gpu_attn_args &args, struct row_flags *flags,
    int32_t which, int64_t row, int64_t end)
{
    const struct uli_gpu_attn_tensor &tensor = which == 0   ? args.q
                                               : which == 1 ? args.k
                                                            : args.v;
    bool ok = true, missing = false;
    int32_t first = piece_of(tensor, row), last = piece_of(tensor, end - 1);
    for (int32_t p = first; p <= last && !missing; p++)
        missing = p >= 64 || !(flags->come[which] >> p & 1);
    if (!__syncthreads_or(missing))
        return true;
    if (threadIdx.x == 0) {
        uint64_t come = flags->come[which];
        for (int32_t p = first; p <= last && ok; p++) {
            const struct uli_gpu_attn_piece &piece = tensor.pieces[p];
            if (piece.flag && piece.rows)
                ok = piece_comes(args, piece, which, p, flags->start_ns);
            if (ok && p < 64)
                come |= UINT64_C(1) << p;
        }
        flags->come[which] = come;
    }
    return __syncthreads_and(ok) != 0;
}

/* The last block of a pass that has not failed sets the flags of an output's
 * pieces; it has met all other blocks at a counter with acquire and release. */
static __device__ __forceinline__ void
signal_pieces(const struct uli_gpu_attn_tensor &tensor)
{
    for (int32_t p = (int32_t)threadIdx.x; tensor.pieces && p < tensor.npieces;
         p += (int32_t)blockDim.x)
        if (tensor.pieces[p].flag)
            ptx_st_release_sys_u64(
                tensor.pieces[p].flag, tensor.pieces[p].flag_value);
}

/* All threads, once their block has no more to do. */
static __device__ __forceinline__ void
block_ends(const struct uli_gpu_attn_args &args)
{
    bool last = false;
    __syncthreads();
    if (threadIdx.x == 0)
        last = ptx_atom_add_acq_rel_gpu_u64(&args.state->blocks, 1) ==
               gridDim.x - 1;
    if (!__syncthreads_or(last) || call_stopped(args))
        return;
    signal_pieces(args.out);
    signal_pieces(args.lse);
}

#endif
