/* SPDX-License-Identifier: Apache-2.0
 *
 * Sum kernels for AVX2 and F16C: 8 float accumulators per step; the end of a
 * run one by one with sum_convert.h, with the same bits as the vectors.
 */
#ifdef __x86_64__
#include <immintrin.h>
#include "collectives/kernels/copy_kernel.h"
#include "collectives/kernels/sum_convert.h"

enum { V = 8 };
typedef __m256 vec;

static inline vec
load_acc(const float *from)
{
    return _mm256_loadu_ps(from);
}

static inline void
store_acc(float *to, vec value)
{
    _mm256_storeu_ps(to, value);
}

static inline vec
add_acc(vec a, vec b)
{
    return _mm256_add_ps(a, b);
}

static inline vec
read_f32(const unsigned char *src)
{
    return _mm256_loadu_ps((const float *)src);
}

static inline vec
read_bf16(const unsigned char *src)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)src));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline vec
read_f16(const unsigned char *src)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)src));
}

static inline float
read_one_f32(const unsigned char *src)
{
    float value;
    memcpy(&value, src, sizeof(value));
    return value;
}

static inline float
read_one_bf16(const unsigned char *src)
{
    uint16_t stored;
    memcpy(&stored, src, sizeof(stored));
    return sum_f32_of_bf16(stored);
}

static inline float
read_one_f16(const unsigned char *src)
{
    uint16_t stored;
    memcpy(&stored, src, sizeof(stored));
    return sum_f32_of_f16(stored);
}

static inline void
write_f32(unsigned char *dst, vec value)
{
    __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
    __m256 quiet = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FC00000));
    _mm256_storeu_ps((float *)dst, _mm256_blendv_ps(value, quiet, nan));
}

static inline void
write_bf16(unsigned char *dst, vec value)
{
    __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
    __m256i bits = _mm256_castps_si256(value);
    __m256i odd =
        _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    bits = _mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF));
    bits = _mm256_srli_epi32(_mm256_add_epi32(bits, odd), 16);
    bits = _mm256_blendv_epi8(
        bits, _mm256_set1_epi32(0x7FC0), _mm256_castps_si256(nan));
    __m128i packed = _mm_packus_epi32(
        _mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
    _mm_storeu_si128((__m128i *)dst, packed);
}

static inline void
write_f16(unsigned char *dst, vec value)
{
    __m256i nan =
        _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    __m128i mask = _mm_packs_epi32(
        _mm256_castsi256_si128(nan), _mm256_extracti128_si256(nan, 1));
    __m128i half =
        _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    half = _mm_blendv_epi8(half, _mm_set1_epi16(0x7E00), mask);
    _mm_storeu_si128((__m128i *)dst, half);
}

static inline void
write_one_f32(unsigned char *dst, float value)
{
    uint32_t stored = sum_canonical_f32(value);
    memcpy(dst, &stored, sizeof(stored));
}

static inline void
write_one_bf16(unsigned char *dst, float value)
{
    uint16_t stored = sum_bf16_of_f32(value);
    memcpy(dst, &stored, sizeof(stored));
}

static inline void
write_one_f16(unsigned char *dst, float value)
{
    uint16_t stored = sum_f16_of_f32(value);
    memcpy(dst, &stored, sizeof(stored));
}

/* The rest of a run, one by one. */
#define DEFINE_REST(type, elem_bytes)                                          \
    static inline void load_rest_##type(                                       \
        float *to, const unsigned char *src, int64_t left)                     \
    {                                                                          \
        for (int64_t i = 0; i < left; i++)                                     \
            to[i] = read_one_##type(src + i * (elem_bytes));                   \
    }                                                                          \
    static inline void add_rest_##type(                                        \
        float *to, const unsigned char *src, int64_t left)                     \
    {                                                                          \
        for (int64_t i = 0; i < left; i++)                                     \
            to[i] += read_one_##type(src + i * (elem_bytes));                  \
    }                                                                          \
    static inline void store_rest_##type(                                      \
        unsigned char *dst, const float *from, int64_t left)                   \
    {                                                                          \
        for (int64_t i = 0; i < left; i++)                                     \
            write_one_##type(dst + i * (elem_bytes), from[i]);                 \
    }

DEFINE_REST(f32, 4)
DEFINE_REST(bf16, 2)
DEFINE_REST(f16, 2)

#define SUM_KERNEL uli_sum_avx2_f32
#include "collectives/kernels/sum_body.h"
#endif
