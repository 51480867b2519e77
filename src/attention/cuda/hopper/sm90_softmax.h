/* SPDX-License-Identifier: Apache-2.0
 *
 * The online softmax of a consumer warpgroup, in registers.
 *
 * Accumulator i of thread t (warp w, lane l) is row 16 w + l / 4 + 8 h of the
 * warpgroup's 64, h = (i / 2) & 1, and column 8 (i / 4) + 2 (l % 4) + (i & 1):
 * a thread has two rows and four lanes share each. The eight values of 16
 * adjacent columns are, rounded in pairs, the A fragment of the product with v.
 *
 * One arithmetic for all bodies: a row that sees a tile whole gets the same
 * bits whether its neighbours need a mask or not, and a tile of which a row
 * sees nothing adds p = 0 under a factor of 1.
 */
#ifndef ULI_ATTENTION_CUDA_HOPPER_SM90_SOFTMAX_H
#define ULI_ATTENTION_CUDA_HOPPER_SM90_SOFTMAX_H

#include "attention/cuda/hopper/sm90_family.h"

#if PTX_SM90
/* A thread's two rows. */
struct sm90_rows_state {
    float max[2], sum[2]; /* sum: of this thread's columns only */
    float alpha[2];       /* the factor for the output so far */
};

/* 1 - 2 / (1 + e^2y): to 1e-7, where tanh.approx has 5e-4. */
static __device__ __forceinline__ float
sm90_tanh(float y)
{
    float e = ptx_ex2(y * 2.8853900817779268f);
    return 1.0f - 2.0f * ptx_rcp(1.0f + e);
}

/* Computes cap(scale * s) - slope * distance, in place. Distances are counted
 * from the row's nearest key and split where they exceed 2^20, so that they are
 * exact for keys close to it. */
template <int R>
static __device__ __forceinline__ void
sm90_transform(float (&s)[R], const struct uli_gpu_attn_args &args, float slope,
    const struct sm90_alibi *alibi, int64_t j0)
{
    int l = (int)ptx_thread() % 32;
    float at[2] = {0, 0}, plus[2] = {0, 0};
#pragma unroll
    for (int h = 0; h < 2 && slope != 0; h++) {
        const struct sm90_alibi a = alibi[l / 4 + 8 * h];
        int64_t e = a.around - j0, limit = 1 << 20;
        int64_t near = mask_max(mask_min(e, limit), -limit);
        int64_t beyond = e > near ? e - near : near - e;
        at[h] = (float)(near - 2 * (l % 4)); /* of the thread's first column */
        plus[h] = (float)(beyond - a.nearest);
    }
#pragma unroll
    for (int i = 0; i < R; i++)
        s[i] *= args.scale;
    if (args.cap > 0)
#pragma unroll
        for (int i = 0; i < R; i++)
            s[i] = args.cap * sm90_tanh(s[i] * args.cap_inverse);
    if (slope != 0)
#pragma unroll
        for (int i = 0; i < R; i++) {
            float column = (float)(8 * (i / 4) + (i & 1));
            float d = fabsf(at[i / 2 & 1] - column) + plus[i / 2 & 1];
            s[i] = __fmaf_rn(-slope, d, s[i]);
        }
}

/* Of a row's R / 2 values in a thread, which lie at columns 8 (n / 2) + first +
 * (n & 1) of the tile: how many are before a column. */
template <int R>
static __device__ __forceinline__ int
sm90_before(int64_t column, int first)
{
    int c = (int)mask_max(mask_min(column, 2 * R), 0) - first;
    int whole = c >> 3, rest = c & 7;
    return c <= 0 ? 0 : 2 * whole + (rest < 2 ? rest : 2);
}

/* Bits [0, n), n at most 32. */
static __device__ __forceinline__ uint32_t
sm90_bits(int n)
{
    return n >= 32 ? 0xffffffffu : n <= 0 ? 0 : (1u << n) - 1;
}

/* Sets scores of keys that a row does not see to -inf. row: the thread's first
 * of the item; j0: the tile's first key. A row's visible values follow one
 * another, so they are bits of a word: two instructions per value, where bounds
 * need three. */
template <int R>
static __device__ __forceinline__ void
sm90_mask(float (&s)[R], const struct sm90_item *item, int row, int64_t j0)
{
    static_assert(R <= 64, "a word for each row");
    int first = 2 * ((int)ptx_thread() % 4);
    uint32_t seen[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int64_t from = item->low + row + 8 * h - j0;
        int64_t to = mask_min(item->high + row + 8 * h, item->k_rows) - j0;
        seen[h] = sm90_bits(sm90_before<R>(to, first)) &
                  ~sm90_bits(sm90_before<R>(from, first));
    }
#pragma unroll
    for (int i = 0; i < R; i++) {
        int n = 2 * (i / 4) + (i & 1);
        s[i] = seen[i / 2 & 1] >> n & 1 ? s[i] : -INFINITY;
    }
}

static __device__ __forceinline__ float
sm90_quad_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return fmaxf(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

static __device__ __forceinline__ float
sm90_quad_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* Turns scores into p in place, and updates maxima, sums and alpha. A row's
 * maximum is found in two chains, because every step of a chain waits for the
 * step before. */
template <int R>
static __device__ __forceinline__ void
sm90_softmax(float (&s)[R], struct sm90_rows_state &rows, float factor)
{
    float top[4] = {s[0], s[1], s[2], s[3]}, total[2] = {0, 0}, shift[2];
#pragma unroll
    for (int i = 4; i < R; i++)
        top[i & 3] = fmaxf(top[i & 3], s[i]);
#pragma unroll
    for (int h = 0; h < 2; h++) {
        float now = fmaxf(
            rows.max[h], sm90_quad_max(fmaxf(top[2 * h], top[2 * h + 1])));
        float used = now == -INFINITY ? 0 : now;
        rows.alpha[h] = ptx_ex2((rows.max[h] - used) * factor);
        rows.max[h] = now;
        shift[h] = used * factor;
    }
#pragma unroll
    for (int i = 0; i < R; i++) {
        s[i] = ptx_ex2(__fmaf_rn(s[i], factor, -shift[i / 2 & 1]));
        total[i / 2 & 1] += s[i];
    }
#pragma unroll
    for (int h = 0; h < 2; h++)
        rows.sum[h] = __fmaf_rn(rows.sum[h], rows.alpha[h], total[h]);
}

/* Scales o. If no row of the warp has a new maximum, all factors are 1, and
 * nothing is done. */
template <int R>
static __device__ __forceinline__ void
sm90_scale(float (&o)[R], const float (&factor)[2])
{
    if (!__any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f))
        return;
#pragma unroll
    for (int i = 0; i < R; i++)
        o[i] *= factor[i / 2 & 1];
}

template <bool BF16>
static __device__ __forceinline__ uint32_t
sm90_pack(float low, float high)
{
    return BF16 ? ptx_pack_bf16(low, high) : ptx_pack_f16(low, high);
}

/* p[k][j]: fragment of columns 16 k .. 16 k + 15. */
template <bool BF16, int R>
static __device__ __forceinline__ void
sm90_fragments(uint32_t (&p)[R / 8][4], const float (&s)[R])
{
#pragma unroll
    for (int i = 0; i < R / 2; i++)
        p[i / 4][i % 4] = sm90_pack<BF16>(s[2 * i], s[2 * i + 1]);
}

/* From a row's largest score and whole sum: the factor for its output (-1: the
 * row sees no key), its lse and its largest score. */
struct sm90_final {
    float factor, lse, max;
};

#define SM90_LN_2 0.6931471805599453

/* Of a head without a sink and without ALiBi: in fp32, but with the scale in
 * two words, so that the rounding of the scale does not grow with the score. */
static __device__ __forceinline__ struct sm90_final
sm90_finish_plain(double exact, float max, float sum)
{
    double scale = exact * SM90_LN_2;
    float high = (float)scale, low = (float)(scale - high);
    if (max == -INFINITY && sum == 0)
        return {-1, -INFINITY, -INFINITY};
    float rest = max * low, ln_sum = log2f(sum) * (float)SM90_LN_2;
    return {ptx_rcp(sum), __fmaf_rn(max, high, rest + ln_sum),
        __fmaf_rn(max, high, rest)};
}

/* Of any head. shift: ALiBi of the nearest key, which scores are relative to.
 */

static __device__ __forceinline__ struct sm90_final
sm90_finish(const struct uli_gpu_attn_args &args, double sink, float max,
    float sum, double shift)
{
    const double log2_e = 1.4426950408889634;
    if (max == -INFINITY && sum == 0)
        return {-1, (float)sink, -INFINITY};
    double max2 = max * args.exact, sink2 = (sink + shift) * log2_e;
    double top = sink2 > max2 ? sink2 : max2;
    float weight = ptx_ex2((float)(max2 - top));
    float total = sum * weight + ptx_ex2((float)(sink2 - top));
    return {weight * ptx_rcp(total),
        (float)((top + log2f(total)) * SM90_LN_2 - shift),
        (float)(max2 * SM90_LN_2 - shift)};
}
#endif

#endif
