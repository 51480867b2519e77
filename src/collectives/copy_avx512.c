/* SPDX-License-Identifier: Apache-2.0
 *
 * The copy kernel for AVX-512: a vector is a cache line, and a masked one
 * ends a run of any length. Streaming stores whole lines only: the bytes
 * before the first line boundary and after the last are stored ordinarily.
 */
#ifdef __x86_64__
#include <immintrin.h>
#include "collectives/copy_kernel.h"
#include "collectives/copy_small.h"

enum { V = 64 };

static inline __m512i
load(const unsigned char *src)
{
    return _mm512_loadu_si512(src);
}

/* bytes < V */
static inline void
copy_part(unsigned char *dst, const unsigned char *src, int64_t bytes)
{
    __mmask64 mask = ((__mmask64)1 << bytes) - 1;
    _mm512_mask_storeu_epi8(dst, mask, _mm512_maskz_loadu_epi8(mask, src));
}

static inline void
copy_run(unsigned char *dst, const unsigned char *src, int64_t bytes)
{
    int64_t i = 0;
    for (; i + 4 * V <= bytes; i += 4 * V) {
        __m512i a = load(src + i), b = load(src + i + V);
        __m512i c = load(src + i + 2 * V), d = load(src + i + 3 * V);
        _mm512_storeu_si512(dst + i, a);
        _mm512_storeu_si512(dst + i + V, b);
        _mm512_storeu_si512(dst + i + 2 * V, c);
        _mm512_storeu_si512(dst + i + 3 * V, d);
    }
    for (; i + V <= bytes; i += V)
        _mm512_storeu_si512(dst + i, load(src + i));
    if (i < bytes)
        copy_part(dst + i, src + i, bytes - i);
}

/* bytes >= V */
static inline void
stream_run(unsigned char *dst, const unsigned char *src, int64_t bytes)
{
    int64_t i = -(int64_t)((uintptr_t)dst & (V - 1)) & (V - 1);
    if (i)
        copy_part(dst, src, i);
    for (; i + 2 * V <= bytes; i += 2 * V) {
        __m512i a = load(src + i), b = load(src + i + V);
        _mm512_stream_si512((__m512i *)(dst + i), a);
        _mm512_stream_si512((__m512i *)(dst + i + V), b);
    }
    for (; i + V <= bytes; i += V)
        _mm512_stream_si512((__m512i *)(dst + i), load(src + i));
    if (i < bytes)
        copy_part(dst + i, src + i, bytes - i);
}

static void
copy(const struct uli_copy_plane *plane, bool stream)
{
    int64_t bytes = plane->run_bytes;
    if (bytes < V && copy_small(plane))
        return;
    stream = stream && bytes >= V;
    for (int64_t j = 0; j < plane->extent[0]; j++) {
        unsigned char *dst = plane->dst + j * plane->dst_stride[0];
        const unsigned char *src = plane->src + j * plane->src_stride[0];
        for (int64_t k = 0; k < plane->extent[1]; k++) {
            if (stream)
                stream_run(dst, src, bytes);
            else
                copy_run(dst, src, bytes);
            dst += plane->dst_stride[1];
            src += plane->src_stride[1];
        }
    }
}

static bool
usable(void)
{
    return uli_copy_avx2.usable() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl");
}

static void
fence(void)
{
    _mm_sfence();
}

const struct uli_copy_kernel uli_copy_avx512 = {
    .usable = usable,
    .copy = copy,
    .fence = fence,
    .sum_f32 = &uli_sum_avx512_f32,
    .sum_f64 = &uli_sum_portable_f64,
    .streams = true,
};
#endif
