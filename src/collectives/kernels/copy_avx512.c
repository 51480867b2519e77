/* SPDX-License-Identifier: Apache-2.0
 *
 * The copy kernel for AVX-512: a vector is a cache line, and a masked vector
 * copies a part of a line.
 */
#ifdef __x86_64__
#include <immintrin.h>
#include "collectives/kernels/copy_kernel.h"
#include "collectives/kernels/copy_small.h"

enum { LINE_BYTES = 64 };

typedef __m512i line_t;

static inline line_t
line_load(const unsigned char *src)
{
    return _mm512_loadu_si512(src);
}

static inline void
line_store(unsigned char *dst, line_t line)
{
    _mm512_storeu_si512(dst, line);
}

static inline void
line_stream(unsigned char *dst, line_t line)
{
    _mm512_stream_si512((__m512i *)dst, line);
}

static inline void
part_copy(unsigned char *dst, const unsigned char *src, int64_t bytes)
{
    __mmask64 mask = ((__mmask64)1 << bytes) - 1;
    _mm512_mask_storeu_epi8(dst, mask, _mm512_maskz_loadu_epi8(mask, src));
}

#include "collectives/kernels/copy_wide.h"
#include "collectives/kernels/copy_wide_fan.h"

static bool
copy_avx512_usable(void)
{
    return uli_copy_avx2.usable() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}

static void
copy_avx512_fence(void)
{
    _mm_sfence();
}

const struct uli_copy_kernel uli_copy_avx512 = {
    .usable = copy_avx512_usable,
    .copy = wide_copy,
    .fan = wide_fan,
    .sum_f32 = &uli_sum_avx512_f32,
    .sum_f64 = &uli_sum_portable_f64,
    .fence = copy_avx512_fence,
};
#endif
