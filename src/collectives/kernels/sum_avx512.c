/* SPDX-License-Identifier: Apache-2.0
 *
 * Sum kernels for AVX-512: 16 float accumulators per step, the end of a run
 * masked. The conversions equal those of sum_convert.h bit for bit.
 */
#ifdef __x86_64__
#include <immintrin.h>
#include "collectives/kernels/copy_kernel.h"

enum { V = 16 };
typedef __m512 vec;

static inline vec
load_acc(const float *from)
{
    return _mm512_loadu_ps(from);
}

static inline void
store_acc(float *to, vec value)
{
    _mm512_storeu_ps(to, value);
}

static inline vec
add_acc(vec a, vec b)
{
    return _mm512_add_ps(a, b);
}

#define ALL ((__mmask16)-1)

/* 0 < left < V. */
static inline __mmask16
mask_of(int64_t left)
{
    return (__mmask16)((1u << left) - 1);
}

static inline vec
read_masked_f32(__mmask16 mask, const unsigned char *src)
{
    return _mm512_maskz_loadu_ps(mask, src);
}

static inline vec
read_masked_bf16(__mmask16 mask, const unsigned char *src)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, src));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline vec
read_masked_f16(__mmask16 mask, const unsigned char *src)
{
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, src));
}

static inline void
write_masked_f32(unsigned char *dst, __mmask16 mask, vec value)
{
    __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    __m512i bits =
        _mm512_mask_set1_epi32(_mm512_castps_si512(value), nan, 0x7FC00000);
    _mm512_mask_storeu_epi32(dst, mask, bits);
}

static inline void
write_masked_bf16(unsigned char *dst, __mmask16 mask, vec value)
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
write_masked_f16(unsigned char *dst, __mmask16 mask, vec value)
{
    __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    __m256i half =
        _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    half = _mm256_mask_set1_epi16(half, nan, 0x7E00);
    _mm256_mask_storeu_epi16(dst, mask, half);
}

/* Only the rest of a run is masked. Whole vectors are stored without a mask,
 * because a load waits for an earlier masked store to the same place, and
 * accumulators are loaded soon after each store. */
#define DEFINE_ENDS(type)                                                      \
    static inline vec read_##type(const unsigned char *src)                    \
    {                                                                          \
        return read_masked_##type(ALL, src);                                   \
    }                                                                          \
    static inline void write_##type(unsigned char *dst, vec value)             \
    {                                                                          \
        write_masked_##type(dst, ALL, value);                                  \
    }                                                                          \
    static inline void load_rest_##type(                                       \
        float *to, const unsigned char *src, int64_t left)                     \
    {                                                                          \
        __mmask16 mask = mask_of(left);                                        \
        _mm512_mask_storeu_ps(to, mask, read_masked_##type(mask, src));        \
    }                                                                          \
    static inline void add_rest_##type(                                        \
        float *to, const unsigned char *src, int64_t left)                     \
    {                                                                          \
        __mmask16 mask = mask_of(left);                                        \
        vec sum = _mm512_add_ps(                                               \
            _mm512_maskz_loadu_ps(mask, to), read_masked_##type(mask, src));   \
        _mm512_mask_storeu_ps(to, mask, sum);                                  \
    }                                                                          \
    static inline void store_rest_##type(                                      \
        unsigned char *dst, const float *from, int64_t left)                   \
    {                                                                          \
        __mmask16 mask = mask_of(left);                                        \
        write_masked_##type(dst, mask, _mm512_maskz_loadu_ps(mask, from));     \
    }

DEFINE_ENDS(f32)
DEFINE_ENDS(bf16)
DEFINE_ENDS(f16)

#define SUM_KERNEL uli_sum_avx512_f32
#include "collectives/kernels/sum_body.h"
#endif
