/* SPDX-License-Identifier: Apache-2.0
 *
 * Forward by the warps' matrix products (mma.sync m16n8k16), compute capability
 * 8.0 and later, 16-bit elements. Included by one .cu file a head dimension.
 *
 * A block takes (tile, head) pairs until there are no more. Each warp owns
 * 16 MT rows of the tile; its scores, p and sums never leave registers:
 *   s[row][key]  = sum_c q[row][c] * k[key][c]     q from shared memory, or
 *                                                  registers where c < 65
 *   o[row][c]   += sum_key p[row][key] * v[key][c] p packed from s as it lies
 * Keys come in tiles of KEYS from the document's first key on, in ascending
 * order, k and v in turn through a ring of three slots: while one is worked on
 * the next has come or comes, and the one after it is on its way (cp.async).
 *
 * Fragments, lane l, g = l / 4, u = l % 4:
 *   s[mt][n][2 h + e]: row 16 mt + g + 8 h, key  8 n + 2 u + e
 *   o[mt][n][2 h + e]: the same row,        column 8 n + 2 u + e
 *   p[mt][n] as A operand of keys 16 n ..: s[mt][2 n], then s[mt][2 n + 1]
 *
 * Bits: a hidden key has p = 0 exactly and changes no maximum, so a row's sums
 * do not depend on which rows share its tile, warp or block. Differences from
 * the maximum are taken before they are scaled: the largest p is 1.
 *
 * Shared memory: q[ROWS][DIM], ring[3][KEYS][DIM], begins[ROWS], ends[ROWS],
 * the work. o leaves by way of the warp's own rows of q.
 */
#ifndef ULI_ATTENTION_CUDA_FORWARD_MMA_H
#define ULI_ATTENTION_CUDA_FORWARD_MMA_H

#include "attention/cuda/forward_gpu.h"
#include "attention/cuda/forward_tiles.h"

/* DIM: columns of q and k, VDIM <= DIM: of v and out, both padded to a multiple
 * of 64; MT: 16-row tiles a warp; WARPS a block. */
template <int DIM_, int VDIM_, int MT_, int WARPS_> struct mma_shape {
    static const int DIM = DIM_, VDIM = VDIM_, MT = MT_, WARPS = WARPS_;
    static const int KEYS = 64, THREADS = 32 * WARPS, ROWS = 16 * MT * WARPS;
    static const int SLOT = KEYS * DIM * 2;
    static const int RING_AT = ROWS * DIM * 2;
    static const int BEGINS_AT = RING_AT + 3 * SLOT;
    static const int ENDS_AT = BEGINS_AT + 8 * ROWS;
    static const int WORK_AT = ENDS_AT + 8 * ROWS;
    static const int SHARED = WORK_AT + (int)sizeof(struct forward_work);
    static const bool Q_HELD = DIM <= 64;
    static_assert(VDIM <= DIM && DIM % 64 == 0 && VDIM % 64 == 0, "padded");
    static_assert(SHARED <= 163 * 1024, "fits a block of 8.0");
};

/* A warp's lane and its addresses. */
template <typename S> struct mma_warp {
    const uli_gpu_attn_args &args;
    unsigned char *shared;
    const struct forward_work *work;
    uint32_t q_at; /* lane's row of the first A matrix of q */
    uint32_t k_at; /* lane's row of a B matrix, from its slot */
    uint32_t v_at;
    int first; /* row of the tile */
};

template <bool BF16>
static __device__ __forceinline__ void
mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    if (BF16)
        ptx_mma_bf16(d, a, b0, b1);
    else
        ptx_mma_f16(d, a, b0, b1);
}

template <bool BF16>
static __device__ __forceinline__ uint32_t
pack(float low, float high)
{
    return BF16 ? ptx_pack_bf16(low, high) : ptx_pack_f16(low, high);
}

template <typename S> struct mma_queries {
    uint32_t at[S::Q_HELD ? S::MT : 1][S::Q_HELD ? S::DIM / 16 : 1][4];
};

template <typename S>
static __device__ __forceinline__ void
hold_queries(const mma_warp<S> &w, mma_queries<S> &held)
{
    if constexpr (S::Q_HELD)
#pragma unroll
        for (int mt = 0; mt < S::MT; mt++)
#pragma unroll
            for (int c = 0; c < S::DIM / 16; c++)
                ptx_ldmatrix(held.at[mt][c],
                    tile_along(w.q_at + mt * 16 * S::DIM * 2, c));
}

/* s of the key tile in a slot. */
template <typename S, bool BF16>
static __device__ __forceinline__ void
scores(const mma_warp<S> &w, const mma_queries<S> &held, uint32_t slot,
    float (&s)[S::MT][S::KEYS / 8][4])
{
#pragma unroll
    for (int mt = 0; mt < S::MT; mt++)
#pragma unroll
        for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                s[mt][n][e] = 0;
#pragma unroll
    for (int c = 0; c < S::DIM / 16; c++) {
        uint32_t a[S::MT][4];
#pragma unroll
        for (int mt = 0; mt < S::MT; mt++) {
            if (!S::Q_HELD)
                ptx_ldmatrix(
                    a[mt], tile_along(w.q_at + mt * 16 * S::DIM * 2, c));
#pragma unroll
            for (int e = 0; e < 4 && S::Q_HELD; e++)
                a[mt][e] = held.at[S::Q_HELD ? mt : 0][S::Q_HELD ? c : 0][e];
        }
#pragma unroll
        for (int n = 0; n < S::KEYS / 16; n++) {
            uint32_t b[4];
            ptx_ldmatrix(b, tile_along(slot + w.k_at + n * 16 * S::DIM * 2, c));
#pragma unroll
            for (int mt = 0; mt < S::MT; mt++) {
                mma<BF16>(s[mt][2 * n], a[mt], b[0], b[1]);
                mma<BF16>(s[mt][2 * n + 1], a[mt], b[2], b[3]);
            }
        }
    }
}

/* o += p v of the tile in a slot. */
template <typename S, bool BF16>
static __device__ __forceinline__ void
add_values(const mma_warp<S> &w, uint32_t slot,
    const uint32_t (&p)[S::MT][S::KEYS / 16][4],
    float (&o)[S::MT][S::VDIM / 8][4])
{
#pragma unroll
    for (int k = 0; k < S::KEYS / 16; k++)
#pragma unroll
        for (int c = 0; c < S::VDIM / 16; c++) {
            uint32_t b[4];
            ptx_ldmatrix_trans(
                b, tile_along(slot + w.v_at + k * 16 * S::DIM * 2, c));
#pragma unroll
            for (int mt = 0; mt < S::MT; mt++) {
                mma<BF16>(o[mt][2 * c], p[mt][k], b[0], b[1]);
                mma<BF16>(o[mt][2 * c + 1], p[mt][k], b[2], b[3]);
            }
        }
}

/* The lane's row of the tile in m-tile mt, half h. */
template <typename S>
static __device__ __forceinline__ int
row_of(const mma_warp<S> &w, int mt, int h)
{
    return w.first + 16 * mt + 8 * h + (int)threadIdx.x % 32 / 4;
}

template <typename S>
static __device__ __forceinline__ const int64_t *
bounds_of(const mma_warp<S> &w, bool ends)
{
    return (const int64_t *)(w.shared + (ends ? S::ENDS_AT : S::BEGINS_AT));
}

/* Stored scores of the tile at key j: scaled, capped, less ALiBi. */
template <typename S>
static __device__ __forceinline__ void
transform(const mma_warp<S> &w, int64_t j, float (&s)[S::MT][S::KEYS / 8][4])
{
    float slope = w.work->slope;
#pragma unroll
    for (int mt = 0; mt < S::MT; mt++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = row_of(w, mt, h);
            struct forward_alibi alibi = {0, 0};
            if (slope != 0)
                alibi = alibi_of(w.work->tile.i + row, w.work->tile.off, j,
                    bounds_of(w, false)[row], bounds_of(w, true)[row]);
            alibi.at -= (float)(threadIdx.x % 4 * 2);
#pragma unroll
            for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float &value = s[mt][n][2 * h + e];
                    float d = fabsf(alibi.at - (float)(8 * n + e)) + alibi.plus;
                    value = transformed(w.args, value, slope, d);
                }
        }
}

/* -inf for keys of the tile at key j that a row does not see. */
template <typename S>
static __device__ __forceinline__ void
hide(const mma_warp<S> &w, int64_t j, float (&s)[S::MT][S::KEYS / 8][4])
{
#pragma unroll
    for (int mt = 0; mt < S::MT; mt++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = row_of(w, mt, h), own = (int)threadIdx.x % 4 * 2;
            int64_t low = bounds_of(w, false)[row] - j;
            int64_t high = bounds_of(w, true)[row] - j;
            int from = (int)mask_min(mask_max(low, 0), S::KEYS) - own;
            int to = (int)mask_min(mask_max(high, 0), S::KEYS) - own;
#pragma unroll
            for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++)
                    if (8 * n + e < from || 8 * n + e >= to)
                        s[mt][n][2 * h + e] = -HUGE_VALF;
        }
}

/* Running maximum and lane's sum of each of its rows. */
template <typename S> struct mma_rows {
    float max[S::MT][2], sum[S::MT][2];
};

/* s to p, packed; o and the sums to the new maximum. */
template <typename S, bool BF16>
static __device__ __forceinline__ void
softmax(float factor, float (&s)[S::MT][S::KEYS / 8][4], mma_rows<S> &rows,
    uint32_t (&p)[S::MT][S::KEYS / 16][4], float (&o)[S::MT][S::VDIM / 8][4])
{
#pragma unroll
    for (int mt = 0; mt < S::MT; mt++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = rows.max[mt][h];
#pragma unroll
            for (int n = 0; n < S::KEYS / 8; n++)
                top = fmaxf(top, fmaxf(s[mt][n][2 * h], s[mt][n][2 * h + 1]));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
            float used = top == -HUGE_VALF ? 0 : top;
            float alpha = ptx_ex2((rows.max[mt][h] - used) * factor);
            rows.max[mt][h] = top;
            float sum = 0;
#pragma unroll
            for (int n = 0; n < S::KEYS / 8; n++) {
                float a = ptx_ex2((s[mt][n][2 * h] - used) * factor);
                float b = ptx_ex2((s[mt][n][2 * h + 1] - used) * factor);
                sum += a + b;
                p[mt][n / 2][n % 2 * 2 + h] = pack<BF16>(a, b);
            }
            rows.sum[mt][h] = rows.sum[mt][h] * alpha + sum;
#pragma unroll
            for (int n = 0; n < S::VDIM / 8; n++) {
                o[mt][n][2 * h] *= alpha;
                o[mt][n][2 * h + 1] *= alpha;
            }
        }
}

/* What the warp's rows see of keys [j, j + KEYS): nothing, all, or a part. */
enum mma_sight { SEES_NONE, SEES_PART, SEES_ALL };

template <typename S>
static __device__ __forceinline__ enum mma_sight
sight_of(const mma_warp<S> &w, int64_t j)
{
    int last = w.first + 16 * S::MT - 1;
    const int64_t *begins = bounds_of(w, false), *ends = bounds_of(w, true);
    if (w.first >= w.work->tile.rows || ends[last] <= j ||
        begins[w.first] >= j + S::KEYS)
        return SEES_NONE;
    return begins[last] <= j && ends[w.first] >= j + S::KEYS ? SEES_ALL
                                                             : SEES_PART;
}

/* Rows of o, scaled, rounded, to the warp's rows of q and out; lse, maximum. */
template <typename S, bool BF16>
static __device__ __forceinline__ void
finish(
    const mma_warp<S> &w, mma_rows<S> &rows, float (&o)[S::MT][S::VDIM / 8][4])
{
    int lane = (int)threadIdx.x % 32;
    float most = -HUGE_VALF;
    __syncwarp();
#pragma unroll
    for (int mt = 0; mt < S::MT; mt++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            int row = row_of(w, mt, h);
            float sum = rows.sum[mt][h];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            double shift = shift_of(
                w.work, row, bounds_of(w, false)[row], bounds_of(w, true)[row]);
            struct forward_final final =
                final_of(w.args, w.work->sink, rows.max[mt][h], sum, shift);
            bool empty = rows.max[mt][h] == -HUGE_VALF && sum == 0;
            if (row < w.work->tile.rows) {
                most = fmaxf(most, final.max);
                if (lane % 4 == 0)
                    store_lse(w.args, w.work, row, final.lse);
            }
            uint32_t place = ptx_opaque(tile_at<S::DIM>(row, 0));
#pragma unroll
            for (int n = 0; n < S::VDIM / 8; n++) {
                /* + 0: an underflow's -0 is a 0 */
                float a = o[mt][n][2 * h] * final.factor + 0.0f;
                float b = o[mt][n][2 * h + 1] * final.factor + 0.0f;
                *(uint32_t *)(w.shared + tile_chunk(place, n) + lane % 4 * 4) =
                    empty ? 0 : pack<BF16>(a, b);
            }
        }
    __syncwarp();
    store_rows<S::DIM, 16 * S::MT>(w.args, w.work, w.shared, w.first);
    if (!w.args.max_logit)
        return;
    for (int step = 16; step; step /= 2)
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
    if (lane == 0)
        raise_max(w.args, w.work->head, most);
}

/* Loads of step t of the ring: keys in even steps, values in odd ones. */
template <typename S>
static __device__ __forceinline__ void
load_step(const mma_warp<S> &w, bool values, int tile, uint32_t slot)
{
    int64_t at = w.work->first + tile;
    if (at < w.work->end)
        load_keys<S::DIM, S::KEYS, S::THREADS>(w.args,
            values ? w.args.v : w.args.k, w.work, at * S::KEYS,
            w.shared + S::RING_AT + slot * S::SLOT,
            values ? w.args.dim_v : w.args.dim_qk);
    ptx_cp_async_commit();
}

template <typename S, bool BF16, bool TRANSFORMED>
static __device__ __forceinline__ void
tile_softmax(const mma_warp<S> &w, int64_t j, enum mma_sight sight,
    float (&s)[S::MT][S::KEYS / 8][4], mma_rows<S> &rows,
    uint32_t (&p)[S::MT][S::KEYS / 16][4], float (&o)[S::MT][S::VDIM / 8][4])
{
    if (TRANSFORMED)
        transform(w, j, s);
    if (sight == SEES_PART)
        hide(w, j, s);
    softmax<S, BF16>(w.args.factor, s, rows, p, o);
}

template <typename S, bool BF16, bool TRANSFORMED>
static __device__ __forceinline__ void
work_on(const mma_warp<S> &w)
{
    float o[S::MT][S::VDIM / 8][4];
    mma_rows<S> rows;
    mma_queries<S> held;
    uint32_t ring = ptx_smem_addr(w.shared) + S::RING_AT;
#pragma unroll
    for (int mt = 0; mt < S::MT; mt++) {
        rows.max[mt][0] = rows.max[mt][1] = -HUGE_VALF;
        rows.sum[mt][0] = rows.sum[mt][1] = 0;
#pragma unroll
        for (int n = 0; n < S::VDIM / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                o[mt][n][e] = 0;
    }
    int tile = 0, tiles = (int)(w.work->end - w.work->first);
    if (tiles)
        load_queries<S::DIM, S::ROWS, S::THREADS>(w.args, w.work, w.shared);
    load_step<S>(w, false, tile, 0);
    load_step<S>(w, true, tile, 1);
    for (uint32_t slot = 0; tile < tiles; tile++) {
        float s[S::MT][S::KEYS / 8][4];
        uint32_t p[S::MT][S::KEYS / 16][4];
        uint32_t second = slot == 2 ? 0 : slot + 1;
        uint32_t third = second == 2 ? 0 : second + 1;
        int64_t j = (w.work->first + tile) * S::KEYS;
        enum mma_sight sight = sight_of(w, j);
        ptx_cp_async_wait<1>();
        __syncthreads(); /* keys are there; the third slot is free */
        load_step<S>(w, false, tile + 1, third);
        if (S::Q_HELD && tile == 0)
            hold_queries(w, held);
        if (sight != SEES_NONE) {
            scores<S, BF16>(w, held, ring + slot * S::SLOT, s);
            tile_softmax<S, BF16, TRANSFORMED>(w, j, sight, s, rows, p, o);
        }
        ptx_cp_async_wait<1>();
        __syncthreads(); /* values are there; the first slot is free */
        load_step<S>(w, true, tile + 1, slot);
        if (sight != SEES_NONE)
            add_values<S, BF16>(w, ring + second * S::SLOT, p, o);
        slot = third;
    }
    ptx_cp_async_wait<0>();
    if (w.first < w.work->tile.rows)
        finish<S, BF16>(w, rows, o);
}

template <typename S, bool BF16, bool TRANSFORMED>
__global__ void
__launch_bounds__(S::THREADS, S::THREADS <= 128 ? 2 : 1)
    attention_mma_kernel(const __grid_constant__ uli_gpu_attn_args args)
{
    ULI_SHARED(shared);
    struct forward_work *work = (struct forward_work *)(shared + S::WORK_AT);
    int lane = (int)threadIdx.x % 32,
        first = (int)threadIdx.x / 32 * 16 * S::MT;
    uint32_t base = ptx_smem_addr(shared);
    /* matrices of A: rows 0-7, 8-15, twice; of B keys: 0-7 twice, then 8-15 */
    mma_warp<S> w = {args, shared, work,
        base + tile_at<S::DIM>(first + lane % 16, lane / 16),
        tile_at<S::DIM>(lane % 8 + lane / 16 * 8, lane / 8 % 2),
        tile_at<S::DIM>(lane % 16, lane / 16), first};
    if (threadIdx.x == 0)
        work_begin(work);
    for (;;) {
        __syncthreads(); /* nobody looks at the last work any more */
        if (threadIdx.x == 0)
            work_take(args, work);
        __syncthreads();
        if (!work->valid || !work_awaits(args, work))
            break;
        work_bounds(args, work, (int64_t *)(shared + S::BEGINS_AT),
            (int64_t *)(shared + S::ENDS_AT), S::ROWS);
        __syncthreads();
        work_on<S, BF16, TRANSFORMED>(w);
    }
    block_ends(args);
}

/* ---- host ---------------------------------------------------------------- */

template <typename S>
static void (*mma_kernel(bool bf16, bool with_transform))(
    const uli_gpu_attn_args)
{
    if (bf16)
        return with_transform ? attention_mma_kernel<S, true, true>
                              : attention_mma_kernel<S, true, false>;
    return with_transform ? attention_mma_kernel<S, false, true>
                          : attention_mma_kernel<S, false, false>;
}

template <typename S>
static int
mma_prepare(int32_t *blocks_per_sm_p)
{
    int least = 0;
    for (int n = 0; n < 4; n++) {
        auto kernel = mma_kernel<S>(n & 1, n & 2);
        int fit = 0;
        cudaError_t error = uli_kernel_prepare(kernel, S::SHARED);
        if (error == cudaSuccess)
            error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(
                &fit, (const void *)kernel, S::THREADS, S::SHARED);
        if (error != cudaSuccess)
            return error;
        least = n == 0 || fit < least ? fit : least;
    }
    *blocks_per_sm_p = least;
    return cudaSuccess;
}

template <typename S>
static int
mma_launch(const struct uli_gpu_attn_args *args, int32_t blocks, void *stream)
{
    bool bf16 = args->dtype == ULYX_DTYPE_BF16;
    bool with_transform = args->cap > 0 || args->slopes;
    struct uli_launch launch = {dim3((unsigned)blocks), dim3(S::THREADS),
        S::SHARED, (cudaStream_t)stream};
    return uli_kernel_launch(
        launch, mma_kernel<S>(bf16, with_transform), *args);
}

/* A family's table: the .cu file names its shape. */
#define MMA_FAMILY(id, label, shape)                                           \
    static int id##_prepare(int32_t *blocks_per_sm_p)                          \
    {                                                                          \
        return mma_prepare<shape>(blocks_per_sm_p);                            \
    }                                                                          \
    static int id##_launch(                                                    \
        const struct uli_gpu_attn_args *args, int32_t blocks, void *stream)    \
    {                                                                          \
        return mma_launch<shape>(args, blocks, stream);                        \
    }                                                                          \
    extern "C" const struct uli_gpu_attn_forward uli_gpu_attn_##id = {label,   \
        shape::DIM, shape::VDIM, shape::ROWS, shape::KEYS, 0, id##_prepare,    \
        id##_launch}

#endif
