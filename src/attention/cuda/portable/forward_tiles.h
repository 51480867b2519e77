/* SPDX-License-Identifier: Apache-2.0
 *
 * Moves rows to shared memory, for ldmatrix, and results back. A tile in shared
 * memory is [row][COLUMNS] of 16-bit elements. The eight rows of a matrix lie
 * in different banks. Where COLUMNS is a multiple of 64, chunks of 16 bytes are
 * permuted: chunk c of row r is at c ^ (r & 7). Else rows are 16 bytes longer,
 * an odd number of chunks. Device code.
 */
#ifndef ULI_ATTENTION_CUDA_PORTABLE_FORWARD_TILES_H
#define ULI_ATTENTION_CUDA_PORTABLE_FORWARD_TILES_H

#include "attention/cuda/forward_work.h"

/* Bytes from row to row. */
template <int COLUMNS> struct tile_rows {
    static const bool PERMUTED = COLUMNS % 64 == 0;
    static const int PITCH = COLUMNS * 2 + (PERMUTED ? 0 : 16);
    static_assert(PERMUTED || COLUMNS / 8 % 2 == 0, "rows 4 banks apart");
};

template <int COLUMNS>
static __device__ __forceinline__ uint32_t
tile_at(int row, int chunk)
{
    int place = tile_rows<COLUMNS>::PERMUTED ? chunk ^ (row & 7) : chunk;
    return (uint32_t)(row * tile_rows<COLUMNS>::PITCH + (place << 4));
}

/* A lane's address of a matrix of 16-byte rows, moved along the rows by n times
 * 32 bytes: equal to tile_at(row, chunk + 2 n), with less arithmetic. */
template <int COLUMNS>
static __device__ __forceinline__ uint32_t
tile_along(uint32_t address, int n)
{
    if (!tile_rows<COLUMNS>::PERMUTED)
        return address + (uint32_t)n * 32;
    return (address ^ (uint32_t)(n & 3) << 5) + (uint32_t)(n >> 2) * 128;
}

/* The place of chunk n of a row, from that of chunk 0. */
template <int COLUMNS>
static __device__ __forceinline__ uint32_t
tile_chunk(uint32_t place, int n)
{
    if (!tile_rows<COLUMNS>::PERMUTED)
        return place + (uint32_t)n * 16;
    return (place ^ (uint32_t)(n & 7) << 4) + (uint32_t)(n >> 3) * 128;
}

/* Loads eight elements that are aligned to their own size only. */
static __device__ __forceinline__ uint4
load_eight(const unsigned char *from)
{
    const uint16_t *halves = (const uint16_t *)from;
    uint32_t words[4];
#pragma unroll
    for (int n = 0; n < 4; n++)
        words[n] = halves[2 * n] | (uint32_t)halves[2 * n + 1] << 16;
    return make_uint4(words[0], words[1], words[2], words[3]);
}

/* Copies rows [0, ROWS) of a tile from one span; zeros past the span's `rows`
 * and past `columns`. A thread copies one chunk of each panel of 64 columns, of
 * every few rows: a multiple of 8, so that its places are a constant apart. */
template <int COLUMNS, int ROWS, int THREADS>
static __device__ __forceinline__ void
copy_even(uint32_t tile, const struct row_span &span, int columns)
{
    const int STEP = THREADS / 8, PANELS = (COLUMNS + 63) / 64;
    static_assert(STEP % 8 == 0 && ROWS % STEP == 0, "whole steps");
    /* computed anew each time: places that are held would cost registers */
    int thread = (int)ptx_opaque(threadIdx.x);
    int first = thread / 8, chunk = thread % 8;
    int rows = (int)mask_min(span.rows, ROWS);
    uint32_t to = tile + tile_at<COLUMNS>(first, chunk);
    const unsigned char *from = span.data + first * span.stride + chunk * 16;
#pragma unroll
    for (int n = 0; n < ROWS / STEP; n++, from += STEP * span.stride)
#pragma unroll
        for (int c = 0; c < PANELS; c++) {
            bool there =
                first + n * STEP < rows && (chunk + 8 * c) * 8 < columns;
            uint32_t place = n * STEP * tile_rows<COLUMNS>::PITCH + c * 128;
            if (c * 64 + 64 > COLUMNS && chunk * 8 >= COLUMNS - c * 64)
                continue;
            ptx_cp_async_16_zfill(
                to + place, there ? from + c * 128 : span.data, there ? 16 : 0);
        }
}

/* Copies rows [first, first + span.rows) of a tile, with any alignment; zeros
 * if the span is absent. */
template <int COLUMNS, int THREADS>
static __device__ __forceinline__ void
copy_any(unsigned char *tile, int first, const struct row_span &span,
    int columns, int align)
{
    const int CHUNKS = COLUMNS / 8;
    for (int at = (int)threadIdx.x; at < (int)span.rows * CHUNKS;
         at += THREADS) {
        int row = at / CHUNKS, chunk = at % CHUNKS;
        uint4 value = make_uint4(0, 0, 0, 0);
        const unsigned char *from = span.data + row * span.stride + chunk * 16;
        if (span.data && chunk * 8 < columns)
            value = align == 16 ? ptx_ld_v4(from) : load_eight(from);
        *(uint4 *)(tile + tile_at<COLUMNS>(first + row, chunk)) = value;
    }
}

/* Loads the work's query rows to a tile of ROWS rows. */
template <int COLUMNS, int ROWS, int THREADS>
static __device__ __forceinline__ void
load_queries(const struct uli_gpu_attn_args &args,
    const struct forward_work *work, unsigned char *tile)
{
    const struct uli_gpu_attn_tile &t = work->tile;
    struct row_span span = q_span(args, args.q, t, work->head, 0, t.rows);
    if (span.rows == t.rows && args.q.align == 16) {
        copy_even<COLUMNS, ROWS, THREADS>(
            ptx_smem_addr(tile), span, args.dim_qk);
        return;
    }
    for (int n = 0; n < ROWS; n += (int)span.rows) {
        span = {NULL, 0, ROWS - n};
        if (n < t.rows)
            span = q_span(args, args.q, t, work->head, n, t.rows);
        copy_any<COLUMNS, THREADS>(tile, n, span, args.dim_qk, args.q.align);
    }
}

/* Loads keys [j, j + ROWS) of the work's document, whatever their layout. A
 * function of its own, because it would double the size of the calling loop. */
template <int COLUMNS, int ROWS, int THREADS>
static __device__ __noinline__ void
load_uneven(const struct uli_gpu_attn_args &args, bool values,
    const struct forward_work *work, int64_t j, unsigned char *tile)
{
    const struct uli_gpu_attn_tensor &tensor = values ? args.v : args.k;
    int columns = values ? args.dim_v : args.dim_qk;
    const struct uli_gpu_attn_tile &t = work->tile;
    int64_t row = t.k_begin + j, end = t.k_begin + t.k_rows;
    end = mask_min(end, row + ROWS);
    struct row_span span = k_span(args, tensor, work->kv, t.k_batch, row, end);
    if (span.data && span.rows == end - row && tensor.align == 16) {
        copy_even<COLUMNS, ROWS, THREADS>(ptx_smem_addr(tile), span, columns);
        return;
    }
    for (int n = 0; n < ROWS; n += (int)span.rows) {
        span = {NULL, 0, ROWS - n};
        if (row + n < end)
            span = k_span(args, tensor, work->kv, t.k_batch, row + n, end);
        copy_any<COLUMNS, THREADS>(tile, n, span, columns, tensor.align);
    }
}

/* Loads keys to a tile of ROWS rows; zeros past the document's end. */
template <int COLUMNS, int ROWS, int THREADS>
static __device__ __forceinline__ void
load_keys(const struct uli_gpu_attn_args &args, bool values,
    const struct forward_work *work, int64_t j, unsigned char *tile)
{
    struct row_span span = values ? work->v : work->k;
    if (!span.rows) {
        load_uneven<COLUMNS, ROWS, THREADS>(args, values, work, j, tile);
        return;
    }
    span.data += j * span.stride;
    span.rows = work->tile.k_rows - j;
    copy_even<COLUMNS, ROWS, THREADS>(
        ptx_smem_addr(tile), span, values ? args.dim_v : args.dim_qk);
}

/* One warp stores its rows [first, first + ROWS) of a tile in the output. */
template <int COLUMNS, int ROWS>
static __device__ __forceinline__ void
store_rows(const struct uli_gpu_attn_args &args,
    const struct forward_work *work, const unsigned char *tile, int first)
{
    const struct uli_gpu_attn_tile &t = work->tile;
    int end = (int)mask_min(first + ROWS, t.rows), chunks = args.dim_v / 8;
    struct row_span span;
    for (int n = first; n < end; n += (int)span.rows) {
        span = q_span(args, args.out, t, work->head, n, end);
        for (int at = (int)threadIdx.x % 32; at < (int)span.rows * chunks;
             at += 32) {
            int row = at / chunks, chunk = at % chunks;
            uint4 value =
                *(const uint4 *)(tile + tile_at<COLUMNS>(n + row, chunk));
            unsigned char *to = span.data + row * span.stride + chunk * 16;
            if (args.out.align == 16) {
                ptx_st_v4(to, value);
                continue;
            }
            const uint32_t words[4] = {value.x, value.y, value.z, value.w};
#pragma unroll
            for (int h = 0; h < 8; h++)
                ((uint16_t *)to)[h] = (uint16_t)(words[h / 2] >> h % 2 * 16);
        }
    }
}

#endif
