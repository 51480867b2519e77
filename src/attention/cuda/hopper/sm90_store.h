/* SPDX-License-Identifier: Apache-2.0
 *
 * Stores a consumer's results: the output, through the warpgroup's rows of Q,
 * which are not needed any more, in 16-byte stores of whole rows; lse; the
 * largest score. Every row of the tile is written, also a row that sees no key.
 */
#ifndef ULI_ATTENTION_CUDA_HOPPER_SM90_STORE_H
#define ULI_ATTENTION_CUDA_HOPPER_SM90_STORE_H

#include "attention/cuda/hopper/sm90_softmax.h"
#include "attention/cuda/rows_gpu.h"

#if PTX_SM90
/* Address of row n of the item in out or lse. */
static __device__ __forceinline__ unsigned char *
sm90_result_row(const struct uli_gpu_attn_args &args,
    const struct uli_gpu_attn_tensor &t, const struct sm90_item *item, int n)
{
    if (args.q_segments)
        return t.base + (item->packed + n) * t.row_stride;
    int64_t row = item->row + n;
    return strided_span(t, item->head, item->batch, row, row + 1).data;
}

/* Ends a row, in fp32 where the head allows it. */
static __device__ __forceinline__ struct sm90_final
sm90_final_of(const struct uli_gpu_attn_args &args,
    const struct sm90_item *item, const struct sm90_alibi &alibi, float max,
    float sum)
{
    if (item->slope == 0 && item->sink == -INFINITY)
        return sm90_finish_plain(args.exact, max, sum);
    double shift = item->slope != 0 && max != -INFINITY
                       ? (double)item->slope * (double)alibi.nearest
                       : 0;
    return sm90_finish(args, item->sink, max, sum, shift);
}

/* Stores lse and the largest score of the thread's two rows, the first of which
 * is `row` of the item, and gives their factors. */
template <class F>
static __device__ __forceinline__ void
sm90_statistics(const struct uli_gpu_attn_args &args,
    const struct sm90_item *item, const unsigned char *shared, int row,
    const struct sm90_rows_state &rows, float (&factor)[2])
{
    const struct sm90_alibi *alibi =
        (const struct sm90_alibi *)(shared + F::ALIBI_AT);
    float top = -INFINITY;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int n = row + 8 * h;
        float sum = sm90_quad_sum(rows.sum[h]);
        struct sm90_final f =
            sm90_final_of(args, item, alibi[n], rows.max[h], sum);
        factor[h] = f.factor;
        if (n < item->rows && ptx_thread() % 4 == 0 &&
            (args.lse.base || args.lse.pieces))
            *(float *)sm90_result_row(args, args.lse, item, n) = f.lse;
        top = n < item->rows ? fmaxf(top, f.max) : top;
    }
    if (!args.max_logit)
        return;
#pragma unroll
    for (int n = 4; n < 32; n *= 2)
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, n));
    if (ptx_thread() % 32 == 0)
        raise_max(args, item->head, top);
}

/* Stores the warp's 16 rows in its panels: 16 columns as four 8 x 8 matrices. A
 * negative factor is a row without keys: 0 whatever its sums hold. */
template <class F>
static __device__ __forceinline__ void
sm90_stage(uint32_t panels, int row, const float (&o)[F::DV / 2],
    const float (&factor)[2])
{
    uint32_t l = ptx_thread() % 32, at = row + l % 8 + 8 * (l / 8 & 1);
#pragma unroll
    for (int g = 0; g < F::DV / 16; g++) {
        uint32_t column = 16 * g + 8 * (l / 16), r[4];
#pragma unroll
        for (int j = 0; j < 4; j++) {
            float f = factor[j & 1], a = o[8 * g + 2 * j],
                  b = o[8 * g + 2 * j + 1];
            r[j] = f < 0 ? 0
                         : sm90_pack<F::BF16>(
                               __fmaf_rn(a, f, 0.0f), __fmaf_rn(b, f, 0.0f));
        }
        ptx_stmatrix(panels + column / 64 * F::M * 128 + at * 128 +
                         ((column % 64 * 2) ^ (at & 7) << 4),
            r);
    }
}

template <class F>
static __device__ __forceinline__ void
sm90_store(const struct uli_gpu_attn_args &args, const struct sm90_item *item,
    unsigned char *shared, uint32_t q, const float (&o)[F::DV / 2],
    const float (&factor)[2])
{
    int group = (int)ptx_thread() / 128 - 1, l = (int)ptx_thread() % 32;
    int row = 64 * group + (int)ptx_thread() % 128 / 32 * 16;
    /* the other warps' products read these panels, too */
    ptx_bar_sync(8 + group, 128);
    sm90_stage<F>(ptx_smem_addr(shared) + q, row, o, factor);
    __syncwarp();
    for (int n = row + l / 8; n < row + 16; n += 4) {
        if (n >= item->rows)
            break;
        unsigned char *to = sm90_result_row(args, args.out, item, n);
#pragma unroll
        for (int p = 0; p < F::PANELS_V; p++) {
            int c = 8 * p + l % 8;
            if (8 * c < args.dim_v)
                ptx_st_v4(to + 16 * c,
                    *(const uint4 *)(shared + q + p * F::M * 128 + n * 128 +
                                     ((l % 8 ^ (n & 7)) << 4)));
        }
    }
}
#endif

#endif
