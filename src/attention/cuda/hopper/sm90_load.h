/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads of the producer warpgroup: a tile of rows to panels in shared memory.
 *
 * Nearly every tile is a few boxes of TMA, issued by one thread. A tile that no
 * box describes is gathered by the group's 128 threads instead: one that spans
 * pieces or segments, and the last values of a document that other documents
 * follow, whose rows must be zeros here (a p of 0 times their NaN is NaN). So
 * each full barrier counts four arrivals, one a warp, whoever moved the data.
 *
 * The producer has 40 registers, or 32: what is known is read again, from
 * parameters and shared memory, rather than kept.
 */
#ifndef ULI_ATTENTION_CUDA_HOPPER_SM90_LOAD_H
#define ULI_ATTENTION_CUDA_HOPPER_SM90_LOAD_H

#include "attention/cuda/rows_gpu.h"
#include "attention/cuda/hopper/sm90_family.h"

#if PTX_SM90
enum sm90_which { SM90_Q, SM90_K, SM90_V };

/* Rows [row, row + count) of the item's head and batch item; what follows them
 * in the tile is zeros for V, else anything. */
struct sm90_rows {
    int64_t row;
    int32_t count;
};

template <int WHICH>
static __device__ __forceinline__ int32_t
sm90_head(const struct sm90_item *item)
{
    return WHICH == SM90_Q ? item->head : item->kv;
}

template <int WHICH>
static __device__ __forceinline__ int32_t
sm90_batch(const struct sm90_item *item)
{
    return WHICH == SM90_Q ? item->batch : item->k_batch;
}

/* Where a box begins; good is false where none will do. */
struct sm90_box {
    int32_t row, piece;
    bool good;
};

template <int WHICH>
static __device__ __forceinline__ const struct uli_gpu_attn_tensor &
sm90_tensor(const struct uli_sm90_params &p)
{
    return WHICH == SM90_Q ? p.args.q : WHICH == SM90_K ? p.args.k : p.args.v;
}

template <int WHICH>
static __device__ __forceinline__ int32_t
sm90_kind(const struct uli_sm90_params &p)
{
    return WHICH == SM90_Q ? p.q_kind : WHICH == SM90_K ? p.k_kind : p.v_kind;
}

/* A box may reach beyond the rows wanted where nobody cares, or where it is
 * clipped there: the rows end with the extent. */
template <int WHICH>
static __device__ __forceinline__ struct sm90_box
sm90_box_of(const struct uli_sm90_params &p, const struct sm90_item *item,
    const struct sm90_rows &r, int height)
{
    const struct uli_gpu_attn_args &args = p.args;
    bool whole = WHICH != SM90_V || r.count == height;
    if (WHICH == SM90_Q && args.q_segments)
        return {(int32_t)item->packed, 0, true};
    if (WHICH != SM90_Q && args.k_segments) {
        int64_t n = k_segment_of(
            args, sm90_head<WHICH>(item), sm90_batch<WHICH>(item), r.row);
        if (n == args.nk_segments)
            return {0, 0, false};
        const struct uli_gpu_attn_segment &s = args.k_segments[n];
        return {(int32_t)(s.row + r.row - s.row_begin), 0,
            whole && s.head == sm90_head<WHICH>(item) &&
                s.batch == sm90_batch<WHICH>(item) && s.row_begin <= r.row &&
                r.row + r.count <= s.row_end};
    }
    if (sm90_kind<WHICH>(p) == ULI_SM90_ONE)
        return {(int32_t)r.row, 0, whole || r.row + r.count == args.len_k};
    const struct uli_gpu_attn_tensor &t = sm90_tensor<WHICH>(p);
    int32_t n = piece_of(t, r.row);
    const struct uli_gpu_attn_piece &piece = t.pieces[n];
    int64_t end = r.row + r.count - piece.row_begin;
    return {(int32_t)(r.row - piece.row_begin), n,
        end <= piece.rows && (whole || end == piece.rows)};
}

/* The warp's first thread waits for the pieces of the rows, then lets TMA see
 * what their flags say. ready: bits of pieces that have come. A piece that does
 * not come fails the call, whose results nobody then looks at. */
template <int WHICH>
static __device__ __forceinline__ void
sm90_wait_pieces(const struct uli_gpu_attn_args &args,
    const struct uli_gpu_attn_tensor &t, const struct sm90_rows &r,
    uint64_t *ready, uint64_t start_ns)
{
    int64_t end = r.row + r.count;
    if (ptx_thread() % 32)
        return;
    for (int32_t n = piece_of(t, r.row);
         n < t.npieces && t.pieces[n].row_begin < end; n++) {
        if (n < 64 && *ready >> n & 1)
            continue;
        if (t.pieces[n].flag && t.pieces[n].rows)
            piece_comes(args, t.pieces[n], WHICH, n, start_ns);
        ptx_fence_proxy_async_global();
        *ready |= n < 64 ? UINT64_C(1) << n : 0;
    }
}

/* Row by row, 16 bytes per thread; beyond the rows and columns zeros. */
template <int WHICH>
static __device__ __forceinline__ void
sm90_gather(const struct uli_sm90_params &p, const struct sm90_item *item,
    const struct sm90_rows &r, unsigned char *tile, int height, int panels)
{
    const struct uli_gpu_attn_tensor &t = sm90_tensor<WHICH>(p);
    int pieces = 8 * panels;
    int columns = WHICH == SM90_V ? p.args.dim_v : p.args.dim_qk;
#pragma unroll 1
    for (int n = (int)ptx_thread(); n < height * pieces; n += 128) {
        int row = n / pieces, c = n % pieces;
        uint4 value = make_uint4(0, 0, 0, 0);
        if (row < r.count && 8 * c < columns) {
            int64_t at = r.row + row;
            const unsigned char *from =
                WHICH == SM90_Q && p.args.q_segments
                    ? t.base + (item->packed + row) * t.row_stride
                : WHICH == SM90_Q ? strided_span(t, sm90_head<WHICH>(item),
                                        sm90_batch<WHICH>(item), at, at + 1)
                                        .data
                                  : k_span(p.args, t, sm90_head<WHICH>(item),
                                        sm90_batch<WHICH>(item), at, at + 1)
                                        .data;
            if (from)
                value = ptx_ld_v4(from + 16 * c);
        }
        *(uint4 *)(tile + (c / 8 * height + row) * 128 +
                   ((16 * (c % 8)) ^ (row & 7) << 4)) = value;
    }
    ptx_fence_proxy_async_shared();
}

/* What the producer's warps keep in shared memory. */
struct sm90_producer {
    uint64_t ready[4][3], start_ns[4];
};

/* Fills a stage; each producer warp calls it and arrives once at `full`. */
template <int WHICH, int HEIGHT, int PANELS>
static __device__ __forceinline__ void
sm90_load(const struct uli_sm90_params &p, const struct sm90_item *item,
    struct sm90_producer *kept, const struct sm90_rows &r, unsigned char *tile,
    uint32_t full)
{
    const struct uli_gpu_attn_tensor &t = sm90_tensor<WHICH>(p);
    const struct uli_sm90_maps &maps = WHICH == SM90_Q   ? p.q
                                       : WHICH == SM90_K ? p.k
                                                         : p.v;
    struct sm90_box box = sm90_box_of<WHICH>(p, item, r, HEIGHT);
    uint32_t warp = ptx_thread() / 32;
    if (t.flags && (warp == 0 || !box.good)) {
        sm90_wait_pieces<WHICH>(
            p.args, t, r, &kept->ready[warp][WHICH], kept->start_ns[warp]);
        __syncwarp();
    }
    if (!box.good)
        sm90_gather<WHICH>(p, item, r, tile, HEIGHT, PANELS);
    __syncwarp();
    if (ptx_thread() % 32)
        return;
    if (!box.good || warp) {
        ptx_mbarrier_arrive(full);
        return;
    }
    bool packed = (WHICH == SM90_Q ? p.args.q_segments : p.args.k_segments);
    const CUtensorMap *map =
        &maps.map[sm90_kind<WHICH>(p) == ULI_SM90_EACH ? box.piece : 0];
    ptx_mbarrier_arrive_expect_tx(full, PANELS * HEIGHT * 128);
#pragma unroll
    for (int n = 0; n < PANELS; n++)
        ptx_tma_load(ptx_smem_addr(tile) + n * HEIGHT * 128, map, full, 64 * n,
            packed ? 0 : sm90_head<WHICH>(item), box.row,
            packed ? 0 : sm90_batch<WHICH>(item),
            sm90_kind<WHICH>(p) == ULI_SM90_EVEN ? box.piece : 0);
}
#endif

#endif
