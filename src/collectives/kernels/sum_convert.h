/* SPDX-License-Identifier: Apache-2.0
 *
 * One element between storage and accumulator. All roundings are to nearest
 * even; narrowing turns every NaN into the quiet positive NaN without payload
 * (the reason: copy_kernel.h).
 */
#ifndef ULI_COLLECTIVES_KERNELS_SUM_CONVERT_H
#define ULI_COLLECTIVES_KERNELS_SUM_CONVERT_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* GPU kernels use these functions too, so that their bits are equal. */
#ifdef __CUDACC__
#define SUM_FN static inline __host__ __device__
#else
#define SUM_FN static inline
#endif

SUM_FN uint32_t
sum_bits_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

SUM_FN float
sum_f32_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

/* a where the condition holds, else b. By mask, because a compiler would move
 * the arithmetic behind a branch and then not vectorise it. */
SUM_FN uint32_t
sum_select(bool condition, uint32_t a, uint32_t b)
{
    uint32_t mask = -(uint32_t)condition;
    return (a & mask) | (b & ~mask);
}

SUM_FN float
sum_f32_of_bf16(uint16_t stored)
{
    return sum_f32_of_bits((uint32_t)stored << 16);
}

SUM_FN float
sum_f32_of_f16(uint16_t stored)
{
    uint32_t sign = (uint32_t)(stored & 0x8000) << 16;
    int32_t magnitude = stored & 0x7FFF;
    /* normal: rebias the exponent by 127 - 15; all ones stays all ones */
    uint32_t bits = ((uint32_t)magnitude << 13) + (112u << 23);
    bits += sum_select(magnitude >= 0x7C00, 112u << 23, 0);
    /* subnormal: a count of 2^-24, exact in float */
    uint32_t small = sum_bits_f32((float)magnitude * 0x1p-24f);
    return sum_f32_of_bits(sign | sum_select(magnitude < 0x0400, small, bits));
}

SUM_FN uint32_t
sum_canonical_f32(float value)
{
    return value == value ? sum_bits_f32(value) : 0x7FC00000u;
}

SUM_FN uint16_t
sum_bf16_of_f32(float value)
{
    uint32_t bits = sum_bits_f32(value);
    uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    bool is_nan = (int32_t)(bits & 0x7FFFFFFF) > 0x7F800000;
    return (uint16_t)sum_select(is_nan, 0x7FC0, rounded);
}

SUM_FN uint16_t
sum_f16_of_f32(float value)
{
    uint32_t bits = sum_bits_f32(value);
    uint32_t sign = (bits >> 16) & 0x8000;
    uint32_t magnitude = bits & 0x7FFFFFFF;
    /* below 2^-14: 0.5 has 2^-24 as its last place, so adding rounds */
    uint32_t half = sum_bits_f32(0.5f);
    uint32_t small = sum_bits_f32(sum_f32_of_bits(magnitude) + 0.5f) - half;
    uint32_t odd = (magnitude >> 13) & 1;
    uint32_t normal = (magnitude - (112u << 23) + 0xFFF + odd) >> 13;
    int32_t order = (int32_t)magnitude;
    uint32_t result = sum_select(order < 0x38800000, small, normal);
    result = sum_select(order >= 0x477FF000, 0x7C00, result) | sign;
    return (uint16_t)sum_select(order > 0x7F800000, 0x7E00, result);
}

/* Double to float by rounding to odd: a second rounding, to a format of at most
 * 22 bits, then gives the same result as one rounding of the double. */
SUM_FN float
sum_f32_odd_of_f64(double value)
{
    float nearest = (float)value;
    uint32_t bits = sum_bits_f32(nearest);
    double back = nearest;
    double target = value < 0 ? -value : value;
    back = back < 0 ? -back : back;
    if (back != target && (bits & 1) == 0 && value == value)
        bits = back > target ? bits - 1 : bits + 1;
    return sum_f32_of_bits(bits);
}

SUM_FN uint64_t
sum_canonical_f64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return value == value ? bits : 0x7FF8000000000000u;
}

#endif
