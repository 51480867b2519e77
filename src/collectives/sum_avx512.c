/* SPDX-License-Identifier: Apache-2.0
 *
 * Sum kernels for AVX-512: 16 float accumulators a step, the end of a run
 * masked. The same conversions as sum_convert.h, bit for bit.
 */
#ifdef __x86_64__
#include <immintrin.h>
#include "collectives/copy_kernel.h"

enum { V = 16 };

#define ALL ((__mmask16)-1)

/* 0 < left < V */
static inline __mmask16
mask_of(int64_t left)
{
    return (__mmask16)((1u << left) - 1);
}

static inline __m512
read_f32(__mmask16 mask, const unsigned char *src)
{
    return _mm512_maskz_loadu_ps(mask, src);
}

static inline __m512
read_bf16(__mmask16 mask, const unsigned char *src)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, src));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline __m512
read_f16(__mmask16 mask, const unsigned char *src)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, src));
}

static inline void
write_f32(unsigned char *dst, __mmask16 mask, __m512 value)
{
    __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    __m512i bits =
        _mm512_mask_set1_epi32(_mm512_castps_si512(value), nan, 0x7FC00000);
    _mm512_mask_storeu_epi32(dst, mask, bits);
}

static inline void
write_bf16(unsigned char *dst, __mmask16 mask, __m512 value)
{
    __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    __m512i bits = _mm512_castps_si512(value);
    __m512i odd =
        _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    bits = _mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF));
    bits = _mm512_srli_epi32(_mm512_add_epi32(bits, odd), 16);
    bits = _mm512_mask_set1_epi32(bits, nan, 0x7FC0);
    _mm256_mask_storeu_epi16(dst, mask, _mm512_cvtepi32_epi16(bits));
}

static inline void
write_f16(unsigned char *dst, __mmask16 mask, __m512 value)
{
    __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    __m256i half =
        _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    half = _mm256_mask_set1_epi16(half, nan, 0x7E00);
    _mm256_mask_storeu_epi16(dst, mask, half);
}

/* load_, add_ and store_TYPE from the two conversions of a type. Whole vectors
 * first, and a masked one for what is left: a load waits for an earlier masked
 * store to the same place, and accumulators are loaded again and again. */
#define DEFINE_SUM(type, elem_bytes)                                           \
    static void load_##type(void *acc, const unsigned char *src,               \
        int64_t src_stride, int64_t run, int64_t nruns)                        \
    {                                                                          \
        float *to = acc;                                                       \
        for (int64_t r = 0; r < nruns; r++, to += run, src += src_stride) {    \
            int64_t i = 0;                                                     \
            for (; i + V <= run; i += V)                                       \
                _mm512_storeu_ps(                                              \
                    to + i, read_##type(ALL, src + i * (elem_bytes)));         \
            if (i == run)                                                      \
                continue;                                                      \
            __mmask16 mask = mask_of(run - i);                                 \
            __m512 value = read_##type(mask, src + i * (elem_bytes));          \
            _mm512_mask_storeu_ps(to + i, mask, value);                        \
        }                                                                      \
    }                                                                          \
    static void add_##type(void *acc, const unsigned char *src,                \
        int64_t src_stride, int64_t run, int64_t nruns)                        \
    {                                                                          \
        float *to = acc;                                                       \
        for (int64_t r = 0; r < nruns; r++, to += run, src += src_stride) {    \
            int64_t i = 0;                                                     \
            for (; i + V <= run; i += V) {                                     \
                __m512 value = read_##type(ALL, src + i * (elem_bytes));       \
                value = _mm512_add_ps(_mm512_loadu_ps(to + i), value);         \
                _mm512_storeu_ps(to + i, value);                               \
            }                                                                  \
            if (i == run)                                                      \
                continue;                                                      \
            __mmask16 mask = mask_of(run - i);                                 \
            __m512 value = read_##type(mask, src + i * (elem_bytes));          \
            value = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, to + i), value); \
            _mm512_mask_storeu_ps(to + i, mask, value);                        \
        }                                                                      \
    }                                                                          \
    static void store_##type(unsigned char *dst, int64_t dst_stride,           \
        const void *acc, int64_t run, int64_t nruns)                           \
    {                                                                          \
        const float *from = acc;                                               \
        for (int64_t r = 0; r < nruns; r++, from += run, dst += dst_stride) {  \
            int64_t i = 0;                                                     \
            for (; i + V <= run; i += V)                                       \
                write_##type(                                                  \
                    dst + i * (elem_bytes), ALL, _mm512_loadu_ps(from + i));   \
            if (i == run)                                                      \
                continue;                                                      \
            __mmask16 mask = mask_of(run - i);                                 \
            write_##type(dst + i * (elem_bytes), mask,                         \
                _mm512_maskz_loadu_ps(mask, from + i));                        \
        }                                                                      \
    }

DEFINE_SUM(f32, 4)
DEFINE_SUM(bf16, 2)
DEFINE_SUM(f16, 2)

const struct uli_sum_kernel uli_sum_avx512_f32 = {
    .load = {NULL, load_f32, load_bf16, load_f16},
    .add = {NULL, add_f32, add_bf16, add_f16},
    .store = {NULL, store_f32, store_bf16, store_f16},
};
#endif
