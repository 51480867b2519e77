/* SPDX-License-Identifier: Apache-2.0
 *
 * The vectors of the kernels that take pairs of bf16, in plain C.
 */
#ifndef TESTS_ATTENTION_TILES_EMULATED_PAIRS_H
#define TESTS_ATTENTION_TILES_EMULATED_PAIRS_H

#include <stdint.h>
#include <string.h>
#include "attention/element.h"

#define LANES              16
#define PAIRED             1
#define VECTORS            2
#define SIMD_PAIR(a, b)    emulated_pairs(a, b)
#define SIMD_NARROW(to, v) emulated_narrow(to, v)
#define SIMD_DOT(c, a, b)  emulated_dots(c, a, b)
#include "attention/kernels/simd.h"

static inline uint32_t
emulated_pair(float low, float high)
{
    return uli_bf16_of_float(low) | (uint32_t)uli_bf16_of_float(high) << 16;
}

INLINE vf
emulated_pairs(vf low, vf high)
{
    vu pairs;
    for (int n = 0; n < LANES; n++)
        pairs[n] = emulated_pair(low[n], high[n]);
    return (vf)pairs;
}

INLINE void
emulated_narrow(float *to, vf values)
{
    uint16_t halves[LANES];
    for (int n = 0; n < LANES; n++)
        halves[n] = uli_bf16_of_float(values[n]);
    memcpy(to, halves, sizeof(halves));
}

/* By the manual's description of VDPBF16PS: high halves first, each product and
 * sum fused. */
INLINE vf
emulated_dots(vf sum, vf a, vf b)
{
    const vu high = (vu)v_seti((int32_t)0xffff0000u);
    sum = (vf)((vu)a & high) * (vf)((vu)b & high) + sum;
    return (vf)((vu)a << 16) * (vf)((vu)b << 16) + sum;
}

#endif
