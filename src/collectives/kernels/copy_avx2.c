/* SPDX-License-Identifier: Apache-2.0
 *
 * The copy kernel for AVX2: a cache line is two vectors; a part of a line is
 * copied as two overlapping parts of the same power of two.
 */
#ifdef __x86_64__
#include <immintrin.h>
#include "base/system/cpu.h"
#include "collectives/kernels/copy_kernel.h"
#include "collectives/kernels/copy_small.h"

enum { LINE_BYTES = 64 };

typedef struct {
    __m256i low, high;
} line_t;

static inline line_t
line_load(const unsigned char *src)
{
    return (line_t){_mm256_loadu_si256((const __m256i *)src),
        _mm256_loadu_si256((const __m256i *)(src + 32))};
}

static inline void
line_store(unsigned char *dst, line_t line)
{
    _mm256_storeu_si256((__m256i *)dst, line.low);
    _mm256_storeu_si256((__m256i *)(dst + 32), line.high);
}

static inline void
line_stream(unsigned char *dst, line_t line)
{
    _mm256_stream_si256((__m256i *)dst, line.low);
    _mm256_stream_si256((__m256i *)(dst + 32), line.high);
}

/* part <= bytes <= 2 * part. */
static inline __attribute__((always_inline)) void
copy_ends(
    unsigned char *dst, const unsigned char *src, int64_t bytes, int64_t part)
{
    unsigned char first[32], last[32];
    memcpy(first, src, (size_t)part);
    memcpy(last, src + bytes - part, (size_t)part);
    memcpy(dst, first, (size_t)part);
    memcpy(dst + bytes - part, last, (size_t)part);
}

static inline void
part_copy(unsigned char *dst, const unsigned char *src, int64_t bytes)
{
    if (bytes >= 32)
        copy_ends(dst, src, bytes, 32);
    else if (bytes >= 16)
        copy_ends(dst, src, bytes, 16);
    else if (bytes >= 8)
        copy_ends(dst, src, bytes, 8);
    else if (bytes >= 4)
        copy_ends(dst, src, bytes, 4);
    else if (bytes >= 2)
        copy_ends(dst, src, bytes, 2);
    else
        *dst = *src;
}

#include "collectives/kernels/copy_wide.h"
#include "collectives/kernels/copy_wide_fan.h"

static bool
copy_avx2_usable(void)
{
    return __builtin_cpu_supports("avx2") && uli_cpu_has_f16c();
}

static void
copy_avx2_fence(void)
{
    _mm_sfence();
}

const struct uli_copy_kernel uli_copy_avx2 = {
    .usable = copy_avx2_usable,
    .copy = wide_copy,
    .fan = wide_fan,
    .sum_f32 = &uli_sum_avx2_f32,
    .sum_f64 = &uli_sum_portable_f64,
    .fence = copy_avx2_fence,
};
#endif
