/* SPDX-License-Identifier: Apache-2.0
 *
 * The copy kernel for AVX2: runs of at least one vector go through 32-byte
 * registers, the end of a run by one vector that overlaps its predecessor.
 * Streaming brings the destination to a 32-byte boundary with one ordinary
 * vector, then stores around the cache.
 */
#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#include "collectives/copy_kernel.h"
#include "collectives/copy_small.h"

enum { V = 32 };

static inline __m256i
load(const unsigned char *src)
{
    return _mm256_loadu_si256((const __m256i *)src);
}

static inline void
store(unsigned char *dst, __m256i value)
{
    _mm256_storeu_si256((__m256i *)dst, value);
}

/* bytes >= V */
static inline void
copy_run(unsigned char *dst, const unsigned char *src, int64_t bytes)
{
    int64_t i = 0;
    for (; i + 4 * V <= bytes; i += 4 * V) {
        __m256i a = load(src + i), b = load(src + i + V);
        __m256i c = load(src + i + 2 * V), d = load(src + i + 3 * V);
        store(dst + i, a);
        store(dst + i + V, b);
        store(dst + i + 2 * V, c);
        store(dst + i + 3 * V, d);
    }
    for (; i + V <= bytes; i += V)
        store(dst + i, load(src + i));
    if (i < bytes)
        store(dst + bytes - V, load(src + bytes - V));
}

/* bytes >= 2 * V */
static inline void
stream_run(unsigned char *dst, const unsigned char *src, int64_t bytes)
{
    int64_t i = -(int64_t)((uintptr_t)dst & (V - 1)) & (V - 1);
    if (i)
        store(dst, load(src));
    for (; i + 2 * V <= bytes; i += 2 * V) {
        __m256i a = load(src + i), b = load(src + i + V);
        _mm256_stream_si256((__m256i *)(dst + i), a);
        _mm256_stream_si256((__m256i *)(dst + i + V), b);
    }
    for (; i + V <= bytes; i += V)
        _mm256_stream_si256((__m256i *)(dst + i), load(src + i));
    if (i < bytes)
        store(dst + bytes - V, load(src + bytes - V));
}

static void
copy(const struct uli_copy_plane *plane, bool stream)
{
    int64_t bytes = plane->run_bytes;
    if (bytes <= V) {
        if (!copy_small(plane))
            copy_fixed(plane, (size_t)bytes);
        return;
    }
    for (int64_t j = 0; j < plane->extent[0]; j++) {
        unsigned char *dst = plane->dst + j * plane->dst_stride[0];
        const unsigned char *src = plane->src + j * plane->src_stride[0];
        for (int64_t k = 0; k < plane->extent[1]; k++) {
            if (stream && bytes >= 2 * V)
                stream_run(dst, src, bytes);
            else
                copy_run(dst, src, bytes);
            dst += plane->dst_stride[1];
            src += plane->src_stride[1];
        }
    }
}

/* Clang 14 does not know "f16c" by name: leaf 1, ecx. */
static bool
usable(void)
{
    unsigned a, b, c, d;
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &a, &b, &c, &d) &&
           (c & bit_F16C) != 0;
}

static void
fence(void)
{
    _mm_sfence();
}

const struct uli_copy_kernel uli_copy_avx2 = {
    .usable = usable,
    .copy = copy,
    .fence = fence,
    .sum_f32 = &uli_sum_avx2_f32,
    .sum_f64 = &uli_sum_portable_f64,
    .streams = true,
};
#endif
