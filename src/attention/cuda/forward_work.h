/* SPDX-License-Identifier: Apache-2.0
 *
 * What the portable forward kernels share: taking work, the bounds of a tile's
 * rows, the end of a row's softmax. Device code.
 */
#ifndef ULI_ATTENTION_CUDA_FORWARD_WORK_H
#define ULI_ATTENTION_CUDA_FORWARD_WORK_H

#include "attention/cuda/rows_gpu.h"

#define FORWARD_LOG2_E 1.4426950408889634
#define FORWARD_LN_2   0.6931471805599453

/* The (tile, head) that a block works on, in shared memory. */
struct forward_work {
    struct uli_gpu_attn_tile tile;
    int64_t head, kv;
    int64_t first, end; /* key tiles that some row sees */
    double sink;        /* -inf: none */
    float slope;        /* 0: none */
    int32_t valid;
    struct row_flags flags;
};

/* One thread: once a kernel. */
static __device__ __forceinline__ void
work_begin(struct forward_work *work)
{
    for (int n = 0; n < 3; n++)
        work->flags.come[n] = 0;
    work->flags.start_ns = ptx_globaltimer_ns();
}

/* One thread: takes the next pair; valid = 0 when there is no more to do. */
static __device__ __forceinline__ void
work_take(const struct uli_gpu_attn_args &args, struct forward_work *work)
{
    int64_t ntiles = args.state->ntiles, tile, head;
    work->valid = 0;
    if (call_stopped(args))
        return;
    int64_t n = (int64_t)ptx_atom_add_relaxed_gpu_u64(&args.state->next, 1);
    if (n >= uli_gpu_attn_pairs(&args, ntiles))
        return;
    uli_gpu_attn_pair(&args, ntiles, n, &tile, &head);
    work->tile = args.tiles[tile];
    work->head = head < 0 ? work->tile.head : head;
    work->kv = kv_head_of(args, work->head);
    mask_tiles(args, work->tile, args.tile_keys, &work->first, &work->end);
    work->sink = head_param(args, args.sinks, work->head, -HUGE_VAL);
    work->slope = (float)head_param(args, args.slopes, work->head, 0);
    work->valid = 1;
}

/* All threads: waits for the pieces that the work reads. */
static __device__ __forceinline__ bool
work_awaits(const struct uli_gpu_attn_args &args, struct forward_work *work)
{
    const struct uli_gpu_attn_tile &tile = work->tile;
    int64_t first = tile.k_begin + work->first * args.tile_keys;
    int64_t end =
        tile.k_begin + mask_min(work->end * args.tile_keys, tile.k_rows);
    if (work->first >= work->end)
        return true;
    return (!args.q.flags || block_awaits(args, &work->flags, 0, tile.row,
                                 tile.row + tile.rows)) &&
           (!args.k.flags || block_awaits(args, &work->flags, 1, first, end)) &&
           (!args.v.flags || block_awaits(args, &work->flags, 2, first, end));
}

/* Row n's visible keys, in the tile's bounds; rows past the tile's end repeat
 * the last one. Both bounds grow with n. */
static __device__ __forceinline__ void
work_bounds(const struct uli_gpu_attn_args &args,
    const struct forward_work *work, int64_t *begins, int64_t *ends, int rows)
{
    const struct uli_gpu_attn_tile &tile = work->tile;
    for (int n = (int)threadIdx.x; n < rows; n += (int)blockDim.x) {
        int64_t i = tile.i + (n < tile.rows ? n : tile.rows - 1);
        begins[n] = mask_begin(args, tile.off, tile.k_rows, i);
        ends[n] = mask_end(args, tile.off, tile.k_rows, i);
    }
}

/* ALiBi of a row against key j0 + n, less its value at the row's nearest
 * visible key: slope * (|at - n| + plus), exact past 2^24: where the row is far
 * the part beyond 2^20 is an integer. */
struct forward_alibi {
    float at, plus;
};

static __device__ __forceinline__ struct forward_alibi
alibi_of(int64_t i, int64_t off, int64_t j0, int64_t begin, int64_t end)
{
    if (begin >= end)
        return {0, 0};
    int64_t e = mask_sat((mask_wide)i + off);
    e = mask_sat((mask_wide)e - j0);
    int64_t near = mask_min(mask_max(e, -(1 << 20)), 1 << 20);
    int64_t beyond =
        mask_sat(e > near ? (mask_wide)e - near : (mask_wide)near - e);
    int64_t nearest = mask_nearest(off, i, begin, end);
    return {(float)near, (float)mask_sat((mask_wide)beyond - nearest)};
}

/* s, scaled and capped; d: distance less the nearest, as above. */
static __device__ __forceinline__ float
transformed(const struct uli_gpu_attn_args &args, float s, float slope, float d)
{
    s *= args.scale;
    if (args.cap > 0)
        s = tanhf(s * args.cap_inverse) * args.cap;
    return slope != 0 ? s - slope * d : s;
}

/* From a row's largest stored score and its sum: what out is multiplied by,
 * lse and the largest score. shift: slope * nearest distance. */
struct forward_final {
    float factor, lse, max;
};

static __device__ __forceinline__ struct forward_final
final_of(const struct uli_gpu_attn_args &args, double sink, float max,
    float sum, double shift)
{
    if (max == -HUGE_VALF && sum == 0)
        return {0, (float)sink, -HUGE_VALF};
    double max2 = max * args.exact;
    double sink2 = (sink + shift) * FORWARD_LOG2_E;
    double top = sink2 > max2 ? sink2 : max2;
    float weight = exp2f((float)(max2 - top));
    float total = sum * weight + exp2f((float)(sink2 - top));
    double lse = (top + (double)log2f(total)) * FORWARD_LN_2 - shift;
    return {weight / total, (float)lse, (float)(max2 * FORWARD_LN_2 - shift)};
}

static __device__ __forceinline__ double
shift_of(const struct forward_work *work, int n, int64_t begin, int64_t end)
{
    const struct uli_gpu_attn_tile &tile = work->tile;
    if (work->slope == 0 || begin >= end)
        return 0;
    return work->slope * (double)mask_nearest(tile.off, tile.i + n, begin, end);
}

/* One thread: raises the head's largest score, sink apart. */
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

static __device__ __forceinline__ void
store_lse(const struct uli_gpu_attn_args &args, const struct forward_work *work,
    int n, float lse)
{
    if (!args.lse.base && !args.lse.pieces)
        return;
    struct row_span to =
        q_span(args, args.lse, work->tile, work->head, n, n + 1);
    *(float *)to.data = lse;
}

#endif
