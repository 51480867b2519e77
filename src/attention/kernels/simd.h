/* SPDX-License-Identifier: Apache-2.0
 *
 * Vectors of LANES floats in the compilers' own vector types. A file that
 * defines only LANES and PAIRED gets portable C; a file that defines SIMD_
 * macros before this header gets their instructions, and only such files have
 * intrinsics.
 *   LANES        floats in a vector: 4, 8 or 16
 *   PAIRED       1: units hold two bf16, SIMD_DOT multiplies pairs
 *   SIMD_MAX(a, b)      larger; b where either is NaN
 *   SIMD_DOT(c, a, b)   c + a * b, or the pairs' dot product
 *   SIMD_ROUND(a)       to the nearest whole
 *   SIMD_SCALE(x, a, n) a * 2^n, or 0 where x < -126
 *   SIMD_F16(from)      LANES fp16 in memory as floats
 *   SIMD_PAIR(a, b)     units of bf16 (a low, b high), nearest even
 */
#ifndef ULI_ATTENTION_SIMD_H
#define ULI_ATTENTION_SIMD_H

#include <stdint.h>
#include <string.h>

typedef float vf __attribute__((vector_size(LANES * 4)));
typedef int32_t vi __attribute__((vector_size(LANES * 4)));
typedef uint32_t vu __attribute__((vector_size(LANES * 4)));

#define INLINE static inline __attribute__((always_inline, unused))

#if LANES == 4
#define EACH(x)                                                                \
    {                                                                          \
        x, x, x, x                                                             \
    }
#define COUNTED                                                                \
    {                                                                          \
        0, 1, 2, 3                                                             \
    }
#elif LANES == 8
#define EACH(x)                                                                \
    {                                                                          \
        x, x, x, x, x, x, x, x                                                 \
    }
#define COUNTED                                                                \
    {                                                                          \
        0, 1, 2, 3, 4, 5, 6, 7                                                 \
    }
#else
#define EACH(x)                                                                \
    {                                                                          \
        x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x                         \
    }
#define COUNTED                                                                \
    {                                                                          \
        0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15                   \
    }
#endif

INLINE vf
v_load(const float *from)
{
    vf v;
    memcpy(&v, from, sizeof(v));
    return v;
}

INLINE void
v_store(float *to, vf v)
{
    memcpy(to, &v, sizeof(v));
}

INLINE vf
v_set(float x)
{
    vf v = EACH(x);
    return v;
}

INLINE vi
v_seti(int32_t x)
{
    vi v = EACH(x);
    return v;
}

/* mask: lanes are 0 or -1 */
INLINE vf
v_select(vi mask, vf yes, vf no)
{
    return (vf)(((vi)yes & mask) | ((vi)no & ~mask));
}

INLINE vf
v_max(vf a, vf b)
{
#ifdef SIMD_MAX
    return SIMD_MAX(a, b);
#else
    return v_select(a > b, a, b);
#endif
}

INLINE vf
v_abs(vf a)
{
    return (vf)((vi)a & v_seti(0x7fffffff));
}

/* Powers of two of `count` vectors (1 to 4) in place: 2^x for x <= 127; 0 below
 * -126.5 or sooner (no subnormals), NaN for NaN. The relative error is under
 * 2e-7 (in paired kernels, where results round to bf16, under 3e-7). x splits
 * into a whole n (by adding and subtracting 1.5 * 2^23) and r in [-1/2, 1/2].
 * Vectors pass each step side by side: the steps of one vector depend on each
 * other, and a CPU that looks only some 40 instructions ahead (Zen) finds no
 * other work between them. */
INLINE void
v_exp2_each(vf *x, const int count)
{
#if PAIRED
    static const float terms[] = {0x1.5bba0ep-10f, 0x1.3cea88p-7f,
        0x1.c6b752p-5f, 0x1.ebf9bcp-3f, 0x1.62e42ap-1f, 1.0f};
#else
    static const float terms[] = {0x1.41fbbap-13f, 0x1.5f3e54p-10f,
        0x1.3b2d4cp-7f, 0x1.c6aee8p-5f, 0x1.ebfbdcp-3f, 0x1.62e430p-1f, 1.0f};
#endif
    vf whole[4], r[4], p[4];
    for (int i = 0; i < count; i++) {
#ifdef SIMD_SCALE
        whole[i] = SIMD_ROUND(x[i]);
        r[i] = x[i] - whole[i];
#else
        const vf magic = v_set(0x1.8p23f);
        x[i] = v_max(v_set(-127.0f), x[i]);
        whole[i] = x[i] + magic;
        r[i] = x[i] - (whole[i] - magic);
#endif
        p[i] = v_set(terms[0]);
    }
    for (int n = 1; n < (int)(sizeof(terms) / sizeof(terms[0])); n++)
        for (int i = 0; i < count; i++)
            p[i] = p[i] * r[i] + v_set(terms[n]);
    for (int i = 0; i < count; i++) {
#ifdef SIMD_SCALE
        x[i] = SIMD_SCALE(x[i], p[i], whole[i]);
#else
        /* the low bits of whole are n; n + 127 becomes an exponent */
        vi power = (vi)(((vu)whole[i] + (vu)v_seti(127)) << 23);
        x[i] = p[i] * (vf)power;
#endif
    }
}

INLINE vf
v_exp2(vf x)
{
    v_exp2_each(&x, 1);
    return x;
}

/* tanh: a polynomial in x^2 below 0.625, else by 2^x. The relative error is
 * under 3e-7. */
INLINE vf
v_tanh(vf x)
{
    vf a = v_abs(x), z = x * x;
    vf p = v_set(-0x1.76abe4p-8f);
    p = p * z + v_set(0x1.5256cap-6f);
    p = p * z + v_set(-0x1.b84446p-5f);
    p = p * z + v_set(0x1.110768p-3f);
    p = p * z + v_set(-0x1.555534p-2f);
    vf small = x + x * z * p;
    vf bounded = v_select(a > v_set(20.0f), v_set(20.0f), a);
    vf e = v_exp2(bounded * v_set(2.88539008f));
    vf large = v_set(1.0f) - v_set(2.0f) / (e + v_set(1.0f));
    large = (vf)((vi)large | ((vi)x & v_seti(INT32_MIN)));
    return v_select(a < v_set(0.625f), small, large);
}

#ifndef SIMD_DOT
#define SIMD_DOT(c, a, b) ((c) + (a) * (b))
#endif

#endif
