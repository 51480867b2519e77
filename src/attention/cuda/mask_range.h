/* SPDX-License-Identifier: Apache-2.0
 *
 * Which keys a row sees (base/mask.h), in the form that kernels use. Rows i and
 * keys count from their document.
 */
#ifndef ULI_ATTENTION_CUDA_MASK_RANGE_H
#define ULI_ATTENTION_CUDA_MASK_RANGE_H

#include "attention/cuda/attention_gpu.h"
#include "base/mask.h"
#include "device/cuda/kernel.h"

typedef uli_mask_wide mask_wide;

#define MASK_UNBOUNDED ULYX_UNBOUNDED

static __device__ __host__ __forceinline__ int64_t
mask_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static __device__ __forceinline__ int64_t
mask_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static __device__ __forceinline__ int64_t
mask_sat(mask_wide sum)
{
    return uli_mask_held(sum, INT64_MIN, INT64_MAX);
}

/* The mask of a document, for mask_begin and mask_end, which do not look at its
 * rows. */
static __device__ __forceinline__ struct uli_mask
mask_of(const struct uli_gpu_attn_args &args, int64_t off, int64_t k_rows)
{
    struct uli_mask mask = {};
    mask.left = args.left;
    mask.right = args.right;
    mask.off = off;
    mask.k_rows = k_rows;
    return mask;
}

/* First key that row i sees, and one past the last; equal where none. */
static __device__ __forceinline__ int64_t
mask_begin(const struct uli_gpu_attn_args &args, int64_t off, int64_t k_rows,
    int64_t i)
{
    const struct uli_mask mask = mask_of(args, off, k_rows);
    return uli_mask_begin(&mask, i);
}

static __device__ __forceinline__ int64_t
mask_end(const struct uli_gpu_attn_args &args, int64_t off, int64_t k_rows,
    int64_t i)
{
    const struct uli_mask mask = mask_of(args, off, k_rows);
    return uli_mask_end(&mask, i);
}

/* Key tiles [*first_p, *end_p) of `keys` keys that a tile's rows see; both
 * bounds of a row grow with the row. */
static __device__ __forceinline__ void
mask_tiles(const struct uli_gpu_attn_args &args,
    const struct uli_gpu_attn_tile &tile, int64_t keys, int64_t *first_p,
    int64_t *end_p)
{
    int64_t last = tile.i + tile.rows - 1;
    int64_t low = mask_begin(args, tile.off, tile.k_rows, tile.i);
    int64_t high = mask_end(args, tile.off, tile.k_rows, last);
    *first_p = low / keys;
    *end_p = low < high ? (high + keys - 1) / keys : *first_p;
}

/* Distance of the nearest key that row i sees; begin < end are its keys. */
static __device__ __forceinline__ int64_t
mask_nearest(int64_t off, int64_t i, int64_t begin, int64_t end)
{
    mask_wide at = (mask_wide)i + off;
    if (at < begin)
        return mask_sat(begin - at);
    return at >= end ? mask_sat(at - (end - 1)) : 0;
}

#endif
