/* SPDX-License-Identifier: Apache-2.0
 *
 * Which keys a row sees, on the device: the twin of problem.h's
 * uli_attn_visible_begin and _end. Rows i and keys count from their document.
 */
#ifndef ULI_ATTENTION_CUDA_MASK_RANGE_H
#define ULI_ATTENTION_CUDA_MASK_RANGE_H

#include "attention/cuda/attention_gpu.h"
#include "device/cuda/kernel.h"

__extension__ typedef __int128 mask_wide;

/* ULYX_UNBOUNDED; types.h is for C callers. */
#define MASK_UNBOUNDED INT64_MAX

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
    return sum > INT64_MAX   ? INT64_MAX
           : sum < INT64_MIN ? INT64_MIN
                             : (int64_t)sum;
}

/* First key that row i sees, and one past the last; equal where none. */
static __device__ __forceinline__ int64_t
mask_begin(const struct uli_gpu_attn_args &args, int64_t off, int64_t k_rows,
    int64_t i)
{
    if (args.left == MASK_UNBOUNDED)
        return 0;
    mask_wide sum = (mask_wide)i + off - args.left;
    return sum < 0 ? 0 : sum > k_rows ? k_rows : (int64_t)sum;
}

static __device__ __forceinline__ int64_t
mask_end(const struct uli_gpu_attn_args &args, int64_t off, int64_t k_rows,
    int64_t i)
{
    int64_t end = k_rows;
    if (args.right != MASK_UNBOUNDED) {
        mask_wide sum = (mask_wide)i + 1 + off + args.right;
        end = sum < 0 ? 0 : sum > k_rows ? k_rows : (int64_t)sum;
    }
    return mask_max(end, mask_begin(args, off, k_rows, i));
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
