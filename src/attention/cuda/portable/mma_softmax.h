/* SPDX-License-Identifier: Apache-2.0
 *
 * From a warp's scores to p, in registers. A hidden key has p = 0 exactly and
 * changes no maximum; differences from the maximum are taken before they are
 * scaled: the largest p is 1.
 */
#ifndef ULI_ATTENTION_CUDA_PORTABLE_MMA_SOFTMAX_H
#define ULI_ATTENTION_CUDA_PORTABLE_MMA_SOFTMAX_H

#include "attention/cuda/portable/forward_row.h"
#include "attention/cuda/portable/mma_shape.h"

/* Makes stored scores of the keys from j on: scaled, capped, less ALiBi. */
template <typename S>
static __device__ __forceinline__ void
mma_transform(const mma_warp<S> &w, int64_t j, mma_scores<S> &s)
{
    float slope = w.work->slope;
#pragma unroll
    for (int mt = 0; mt < S::MT; mt++)
#pragma unroll
        for (int h = 0; h < 2; h++) {
            struct forward_alibi alibi = {0, 0};
            if (slope != 0)
                alibi = alibi_of(w.work->mask, mma_row<S>(mt, h), j);
            alibi.at -= (float)(mma_lane() % 4 * 2);
#pragma unroll
            for (int n = 0; n < S::KEYS / 8; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    float &value = s[mt][n][2 * h + e];
                    float d = fabsf(alibi.at - (float)(8 * n + e)) + alibi.plus;
                    value = score_transformed(w.args, value, slope, d);
                }
        }
}

/* Turns s into packed p, and scales o and the sums to the new maximum. */
template <typename S, bool BF16>
static __device__ __forceinline__ void
mma_softmax(float factor, mma_scores<S> &s, mma_rows<S> &rows,
    mma_weights<S> &p, mma_output<S> &o)
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
                p[mt][n / 2][n % 2 * 2 + h] = mma_pack<BF16>(a, b);
            }
            rows.sum[mt][h] = rows.sum[mt][h] * alpha + sum;
#pragma unroll
            for (int n = 0; n < S::VDIM / 8; n++) {
                o[mt][n][2 * h] *= alpha;
                o[mt][n][2 * h + 1] *= alpha;
            }
        }
}

#endif
