/* SPDX-License-Identifier: Apache-2.0
 *
 * What the portable forward kernels do with a row: scores transformed, the end
 * of its softmax, its lse. Device code.
 */
#ifndef ULI_ATTENTION_CUDA_PORTABLE_FORWARD_ROW_H
#define ULI_ATTENTION_CUDA_PORTABLE_FORWARD_ROW_H

#include "attention/cuda/forward_work.h"

#define FORWARD_LOG2_E 1.4426950408889634
#define FORWARD_LN_2   0.6931471805599453

/* ALiBi of a row and key j0 + n, less ALiBi of the row's nearest visible key,
 * is -slope * (|at - n| + plus). It is exact for keys close to the nearest key,
 * also at distances beyond 2^24: of a far row the part beyond 2^20 is an
 * integer. */
struct forward_alibi {
    float at, plus;
};

static __device__ __forceinline__ struct forward_alibi
alibi_of(const struct forward_mask &mask, int n, int64_t j0)
{
    int64_t begin = forward_begin(mask, n), end = forward_end(mask, n);
    if (begin >= end)
        return {0, 0};
    int64_t at = mask.at + n, e = at - j0;
    int64_t near = mask_min(mask_max(e, -(1 << 20)), 1 << 20);
    int64_t beyond = e > near ? e - near : near - e;
    int64_t nearest = mask_max(mask_max(begin - at, at - (end - 1)), 0);
    return {(float)near, (float)(beyond - nearest)};
}

/* Scales and caps s, and subtracts ALiBi. d: the key's distance less that of
 * the nearest key, as above. */
static __device__ __forceinline__ float
score_transformed(const struct uli_gpu_attn_args &args, float s, float slope, float d)
{
    s *= args.scale;
    if (args.cap > 0)
        s = tanhf(s * args.cap_inverse) * args.cap;
    return slope != 0 ? s - slope * d : s;
}

/* The end of a row, from its largest stored score (max) and the sum of its
 * weights (sum): the factor for out, lse and the largest score. shift: slope *
 * distance of the nearest key. */
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
shift_of(const struct forward_work *work, int n)
{
    const struct uli_gpu_attn_tile &tile = work->tile;
    int64_t begin = forward_begin(work->mask, n);
    int64_t end = forward_end(work->mask, n);
    if (work->slope == 0 || begin >= end)
        return 0;
    return work->slope * (double)mask_nearest(tile.off, tile.i + n, begin, end);
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
