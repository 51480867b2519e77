/* SPDX-License-Identifier: Apache-2.0
 *
 * 16-bit floating point, rounded to nearest even; NaNs become the canonical
 * one.
 */
#include "emulate/engine/engine.h"

union word {
    uint32_t bits;
    float f;
};

float
emu_bf16_to_float(uint16_t v)
{
    union word w = {(uint32_t)v << 16};
    return w.f;
}

uint16_t
emu_float_to_bf16(float f)
{
    union word w = {.f = f};
    if (f != f)
        return 0x7fff;
    return (uint16_t)((w.bits + 0x7fff + (w.bits >> 16 & 1)) >> 16);
}

float
emu_f16_to_float(uint16_t v)
{
    uint32_t sign = (uint32_t)(v & 0x8000) << 16, exponent = v >> 10 & 31;
    uint32_t fraction = v & 1023;
    union word w;
    if (exponent == 0) {
        w.f = (float)fraction * 0x1p-24f;
        w.bits |= sign;
        return w.f;
    }
    w.bits =
        sign | (exponent == 31 ? 255 : exponent + 112) << 23 | fraction << 13;
    return w.f;
}

uint16_t
emu_float_to_f16(float f)
{
    union word w = {.f = f};
    uint16_t sign = (uint16_t)(w.bits >> 16 & 0x8000);
    w.bits &= 0x7fffffff;
    if (w.bits > 0x7f800000)
        return 0x7fff;
    if (w.bits >= 0x477ff000) /* 65520 and above round to infinity */
        return sign | 0x7c00;
    if (w.bits < 0x38800000) { /* below 2^-14, in units of 2^-24 */
        w.f += 0.5f;
        return sign | (uint16_t)(w.bits - 0x3f000000);
    }
    w.bits += 0xfff + (w.bits >> 13 & 1);
    return sign | (uint16_t)((w.bits - 0x38000000) >> 13);
}
