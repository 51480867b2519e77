/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows to shared memory, for ldmatrix, and results back. A tile in shared
 * memory is [row][COLUMNS] of 16-bit elements, COLUMNS a multiple of 64, with
 * chunks of 16 bytes permuted: chunk c of row r stands at c ^ (r & 7), so that
 * the eight rows of a matrix lie in different banks. Device code.
 */
#ifndef ULI_ATTENTION_CUDA_FORWARD_TILES_H
#define ULI_ATTENTION_CUDA_FORWARD_TILES_H

#include "attention/cuda/forward_work.h"

template <int COLUMNS>
static __device__ __forceinline__ uint32_t
tile_at(int row, int chunk)
{
    return (uint32_t)(row * COLUMNS * 2 + ((chunk ^ (row & 7)) << 4));
}

/* A lane's address of a matrix of 16-byte rows, moved along its rows by n
 * times 32 bytes: what tile_at(row, chunk + 2 n) is, without its arithmetic. */
static __device__ __forceinline__ uint32_t
tile_along(uint32_t address, int n)
{
    return (address ^ (uint32_t)(n & 3) << 5) + (uint32_t)(n >> 2) * 128;
}

/* Of chunk 0 of a row: the place of chunk n of it. */
static __device__ __forceinline__ uint32_t
tile_chunk(uint32_t place, int n)
{
    return (place ^ (uint32_t)(n & 7) << 4) + (uint32_t)(n >> 3) * 128;
}

/* Eight elements that are aligned to their size only. */
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

/* Rows [0, ROWS) of a tile from one span; zeros past its `rows` and past
 * `columns`. A thread copies one chunk of each panel of 64 columns, of every
 * few rows: a multiple of 8, so that its places are a constant apart. */
template <int COLUMNS, int ROWS, int THREADS>
static __device__ __forceinline__ void
copy_even(uint32_t tile, const struct row_span &span, int columns)
{
    const int STEP = THREADS / 8;
    static_assert(STEP % 8 == 0 && ROWS % STEP == 0, "whole steps");
    int first = (int)threadIdx.x / 8, chunk = (int)threadIdx.x % 8;
    int rows = (int)span.rows;
    uint32_t to = tile + tile_at<COLUMNS>(first, chunk);
    const unsigned char *from = span.data + first * span.stride + chunk * 16;
#pragma unroll
    for (int n = 0; n < ROWS / STEP; n++, from += STEP * span.stride)
#pragma unroll
        for (int c = 0; c < COLUMNS / 64; c++) {
            bool there =
                first + n * STEP < rows && (chunk + 8 * c) * 8 < columns;
            ptx_cp_async_16_zfill(to + n * STEP * COLUMNS * 2 + c * 128,
                there ? from + c * 128 : span.data, there ? 16 : 0);
        }
}

/* Rows [first, first + span.rows) of a tile, however they are aligned; zeros
 * where the span is absent. */
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

/* Query rows of the work to a tile of ROWS rows. */
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

/* Keys [j, j + ROWS) of the work's document, of k or v, to a tile. */
template <int COLUMNS, int ROWS, int THREADS>
static __device__ __forceinline__ void
load_keys(const struct uli_gpu_attn_args &args,
    const struct uli_gpu_attn_tensor &tensor, const struct forward_work *work,
    int64_t j, unsigned char *tile, int columns)
{
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

/* One warp: its rows [first, first + ROWS) of a tile to the output. */
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
