/* SPDX-License-Identifier: Apache-2.0
 *
 * Loads of the producer warpgroup: a tile of rows to panels in shared memory.
 *
 * Nearly every tile is a few boxes of TMA, issued by one thread. The box of the
 * last values of a document also loads rows of the next document, which must be
 * zeros here (a p of 0 times a NaN is NaN): when the box has arrived, the
 * group's 128 threads clear these rows. A tile that spans pieces or segments is
 * no box: the threads gather it. So each full barrier counts four arrivals, one
 * of each warp, whoever moved the data.
 *
 * The producer has 56 or 32 registers, so values are read again from parameters
 * and shared memory rather than kept.
 */
#ifndef ULI_ATTENTION_CUDA_HOPPER_SM90_LOAD_H
#define ULI_ATTENTION_CUDA_HOPPER_SM90_LOAD_H

#include "attention/cuda/rows_gpu.h"
#include "attention/cuda/hopper/sm90_family.h"

#if PTX_SM90
enum sm90_which { SM90_Q, SM90_K, SM90_V };

/* Rows [row, row + count) of the item's head and batch item. Further rows of
 * the tile are zeros for V, else anything. */
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

/* Where a box begins. good: the tile can be loaded by a box; tail: the box also
 * loads rows beyond those of the tile, which must be cleared. */
struct sm90_box {
    int32_t row, piece;
    bool good, tail;
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

/* A box may load rows beyond those of the tile where these rows have no effect,
 * or where the box is clipped because the rows end with the extent. */
template <int WHICH>
static __device__ __forceinline__ struct sm90_box
sm90_box_of(const struct uli_sm90_params &p, const struct sm90_item *item,
    const struct sm90_rows &r, int height)
{
    const struct uli_gpu_attn_args &args = p.args;
    bool whole = WHICH != SM90_V || r.count == height;
    if (WHICH == SM90_Q && args.q_segments)
        return {(int32_t)item->packed, 0, true, false};
    if (WHICH != SM90_Q && args.k_segments) {
        int64_t n = k_segment_of(
            args, sm90_head<WHICH>(item), sm90_batch<WHICH>(item), r.row);
        if (n == args.nk_segments)
            return {0, 0, false, false};
        const struct uli_gpu_attn_segment &s = args.k_segments[n];
        return {(int32_t)(s.row + r.row - s.row_begin), 0,
            s.head == sm90_head<WHICH>(item) &&
                s.batch == sm90_batch<WHICH>(item) && s.row_begin <= r.row &&
                r.row + r.count <= s.row_end,
            !whole};
    }
    if (sm90_kind<WHICH>(p) == ULI_SM90_ONE)
        return {
            (int32_t)r.row, 0, true, !whole && r.row + r.count < args.len_k};
    const struct uli_gpu_attn_tensor &t = sm90_tensor<WHICH>(p);
    int32_t n = piece_of(t, r.row);
    const struct uli_gpu_attn_piece &piece = t.pieces[n];
    int64_t end = r.row + r.count - piece.row_begin;
    return {(int32_t)(r.row - piece.row_begin), n, end <= piece.rows,
        !whole && end < piece.rows};
}

/* The warp's first thread waits for the pieces of the rows, then makes them
 * visible to TMA. ready: bits of pieces that have arrived. A piece that does
 * not arrive fails the call, whose results are then invalid. */
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

/* Copies row by row, 16 bytes per thread, and zeros beyond the rows and
 * columns. All copies are issued before the wait for the first. */
template <int WHICH>
static __device__ __forceinline__ void
sm90_gather(const struct uli_sm90_params &p, const struct sm90_item *item,
    const struct sm90_rows &r, uint32_t tile, int height, int panels)
{
    const struct uli_gpu_attn_tensor &t = sm90_tensor<WHICH>(p);
    int pieces = 8 * panels;
    int columns = WHICH == SM90_V ? p.args.dim_v : p.args.dim_qk;
#pragma unroll 1
    for (int n = (int)ptx_thread(); n < height * pieces; n += 128) {
        int row = n / pieces, c = n % pieces;
        const unsigned char *from = NULL;
        if (row < r.count && 8 * c < columns) {
            int64_t at = r.row + row;
            from = WHICH == SM90_Q && p.args.q_segments
                       ? t.base + (item->packed + row) * t.row_stride
                   : WHICH == SM90_Q ? strided_span(t, sm90_head<WHICH>(item),
                                           sm90_batch<WHICH>(item), at, at + 1)
                                           .data
                                     : k_span(p.args, t, sm90_head<WHICH>(item),
                                           sm90_batch<WHICH>(item), at, at + 1)
                                           .data;
        }
        uint32_t to = tile + (c / 8 * height + row) * 128 +
                      ((16 * (c % 8)) ^ (row & 7) << 4);
        const void *any = p.args.tiles; /* of zeros nothing is read */
        ptx_cp_async_16_zfill(to, from ? from + 16 * c : any, from ? 16 : 0);
    }
    ptx_cp_async_commit();
    ptx_cp_async_wait<0>();
}

/* Waits for a box that arrives at the tail's barrier, then clears its rows
 * beyond those of the tile. */
static __device__ __forceinline__ void
sm90_clear_tail(struct sm90_producer *kept, unsigned char *tile, int count,
    int height, int panels)
{
    uint32_t warp = ptx_thread() / 32, lap = kept->tails[warp];
    ptx_mbarrier_wait(ptx_smem_addr(&kept->tail), lap & 1);
    for (int n = 0; n < panels; n++)
        for (int at = count * 128 + (int)ptx_thread() * 16; at < height * 128;
             at += 2048)
            *(uint4 *)(tile + n * height * 128 + at) = make_uint4(0, 0, 0, 0);
    __syncwarp();
    if (ptx_thread() % 32 == 0)
        kept->tails[warp] = lap + 1;
}

/* Rows and panels of a tile. */
template <class F, int WHICH>
static constexpr int SM90_HEIGHT = WHICH == SM90_Q ? F::M : F::N;
template <class F, int WHICH>
static constexpr int SM90_PANELS = WHICH == SM90_V ? F::PANELS_V : F::PANELS_QK;

/* One thread issues the boxes of a tile, which arrive at a barrier. */
template <class F, int WHICH>
static __device__ __forceinline__ void
sm90_issue_boxes(const struct uli_sm90_params &p, const struct sm90_item *item,
    const struct sm90_box &box, uint32_t tile, uint32_t bar)
{
    const struct uli_sm90_maps &maps = WHICH == SM90_Q   ? p.q
                                       : WHICH == SM90_K ? p.k
                                                         : p.v;
    bool packed = (WHICH == SM90_Q ? p.args.q_segments : p.args.k_segments);
    const CUtensorMap *map =
        &maps.map[sm90_kind<WHICH>(p) == ULI_SM90_EACH ? box.piece : 0];
    constexpr int panel = SM90_HEIGHT<F, WHICH> * 128;
    int head = packed ? 0 : sm90_head<WHICH>(item);
    int batch = packed ? 0 : sm90_batch<WHICH>(item);
    int piece = sm90_kind<WHICH>(p) == ULI_SM90_EVEN ? box.piece : 0;
    ptx_mbarrier_arrive_expect_tx(bar, SM90_PANELS<F, WHICH> * panel);
#pragma unroll
    for (int n = 0; n < SM90_PANELS<F, WHICH>; n++)
        if constexpr (F::HINTS)
            ptx_tma_load_hint(WHICH == SM90_Q ? ptx_policy_evict_first()
                                              : ptx_policy_evict_last(),
                tile + n * panel, map, bar, 64 * n, head, box.row, batch,
                piece);
        else
            ptx_tma_load(tile + n * panel, map, bar, 64 * n, head, box.row,
                batch, piece);
}

/* Named barrier of the producer warpgroup. */
enum { SM90_PRODUCER_BAR = 7 };

/* Fills a stage; each producer warp calls it and arrives once at `full`. */
template <class F, int WHICH>
static __device__ __forceinline__ void
sm90_load(const struct uli_sm90_params &p, const struct sm90_item *item,
    struct sm90_producer *kept, const struct sm90_rows &r, unsigned char *tile,
    uint32_t full)
{
    constexpr int HEIGHT = SM90_HEIGHT<F, WHICH>;
    constexpr int PANELS = SM90_PANELS<F, WHICH>;
    const struct uli_gpu_attn_tensor &t = sm90_tensor<WHICH>(p);
    struct sm90_box box = sm90_box_of<WHICH>(p, item, r, HEIGHT);
    uint32_t warp = ptx_thread() / 32;
    bool tail = box.good && box.tail, issues = box.good && ptx_thread() == 0;
    if (t.flags && (warp == 0 || !box.good)) {
        sm90_wait_pieces<WHICH>(
            p.args, t, r, &kept->ready[warp][WHICH], kept->start_ns[warp]);
        __syncwarp();
    }
    if (tail) /* no warp waits for the previous tail any more */
        ptx_bar_sync(SM90_PRODUCER_BAR, 128);
    if (issues)
        sm90_issue_boxes<F, WHICH>(p, item, box, ptx_smem_addr(tile),
            tail ? ptx_smem_addr(&kept->tail) : full);
    if (tail)
        sm90_clear_tail(kept, tile, r.count, HEIGHT, PANELS);
    else if (!box.good)
        sm90_gather<WHICH>(p, item, r, ptx_smem_addr(tile), HEIGHT, PANELS);
    if (tail || !box.good) /* products read what threads have written */
        ptx_fence_proxy_async_shared();
    __syncwarp();
    if (ptx_thread() % 32 == 0 && (tail || !issues))
        ptx_mbarrier_arrive(full);
}
#endif

#endif
