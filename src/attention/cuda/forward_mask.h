/* SPDX-License-Identifier: Apache-2.0
 *
 * Which keys the rows of a tile see, in numbers that fit the inner loops. Both
 * bounds of a row grow by one with the row until they are cut to the document:
 *   row n sees keys [begin + n, end + n) of [0, keys)
 * so no table of rows is needed. Device code.
 */
#ifndef ULI_ATTENTION_CUDA_FORWARD_MASK_H
#define ULI_ATTENTION_CUDA_FORWARD_MASK_H

#include "attention/cuda/mask_range.h"

/* Bounds are held within +-2^62: that is beyond any key, and the sum of a bound
 * and a row still fits 64 bits. */
#define FORWARD_FAR (INT64_C(1) << 62)

struct forward_mask {
    int64_t begin, end; /* of row 0, before the cut */
    int64_t keys;       /* of the document */
    int64_t at;         /* key on whose diagonal row 0 lies */
};

static __device__ __forceinline__ int64_t
mask_far(mask_wide sum)
{
    return sum > FORWARD_FAR    ? FORWARD_FAR
           : sum < -FORWARD_FAR ? -FORWARD_FAR
                                : (int64_t)sum;
}

static __device__ __forceinline__ struct forward_mask
forward_mask_of(
    const struct uli_gpu_attn_args &args, const struct uli_gpu_attn_tile &tile)
{
    mask_wide at = (mask_wide)tile.i + tile.off;
    struct forward_mask mask = {
        -FORWARD_FAR, FORWARD_FAR, tile.k_rows, mask_far(at)};
    if (args.left != MASK_UNBOUNDED)
        mask.begin = mask_far(at - args.left);
    if (args.right != MASK_UNBOUNDED)
        mask.end = mask_far(at + 1 + args.right);
    return mask;
}

/* First key that row n sees, and one past the last; equal where none. */
static __device__ __forceinline__ int64_t
forward_begin(const struct forward_mask &mask, int n)
{
    return mask_min(mask_max(mask.begin + n, 0), mask.keys);
}

static __device__ __forceinline__ int64_t
forward_end(const struct forward_mask &mask, int n)
{
    int64_t end = mask_min(mask_max(mask.end + n, 0), mask.keys);
    return mask_max(end, forward_begin(mask, n));
}

/* The mask with keys counted from key j, in ints, for a tile that begins at j:
 * row n sees keys [begin + n, end + n) below `keys`. */
struct forward_sight {
    int begin, end, keys;
};

static __device__ __forceinline__ struct forward_sight
forward_sight_of(const struct forward_mask &mask, int64_t j)
{
    const int64_t NEAR = 1 << 20;
    return {(int)mask_min(mask_max(mask.begin - j, -NEAR), NEAR),
        (int)mask_min(mask_max(mask.end - j, -NEAR), NEAR),
        (int)mask_min(mask.keys - j, NEAR)};
}

/* What rows [first, last] see of the KEYS keys from j on. */
enum forward_part { SEES_NONE, SEES_PART, SEES_ALL };

template <int KEYS>
static __device__ __forceinline__ enum forward_part
forward_part_of(const struct forward_sight &sight, int first, int last)
{
    if (sight.begin + first >= KEYS || sight.end + last <= 0)
        return SEES_NONE;
    return sight.begin + last <= 0 && sight.end + first >= KEYS &&
                   sight.keys >= KEYS
               ? SEES_ALL
               : SEES_PART;
}

#endif
