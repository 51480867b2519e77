/* SPDX-License-Identifier: Apache-2.0
 *
 * Single elements and rows of any float dtype as doubles: for the reference,
 * delta and statistics. Fast kernels have conversions of their own.
 */
#ifndef ULI_ATTENTION_ELEMENT_H
#define ULI_ATTENTION_ELEMENT_H

#include <stdint.h>
#include <string.h>
#include "ulyx/types.h"

static inline float
uli_float_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

static inline uint32_t
uli_bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static inline float
uli_float_of_bf16(uint16_t half)
{
    return uli_float_of_bits((uint32_t)half << 16);
}

/* The exponent is rebased by a product, so that subnormals are right too;
 * infinity and NaN get their exponent back. */
static inline float
uli_float_of_f16(uint16_t half)
{
    uint32_t magnitude = (uint32_t)(half & 0x7fff) << 13;
    uint32_t special = (half & 0x7c00) == 0x7c00 ? 0x7f800000u : 0;
    float value = uli_float_of_bits(magnitude) * 0x1p112f;
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    return uli_float_of_bits(uli_bits_of_float(value) | special | sign);
}

/* Nearest, ties to even; NaN stays NaN. */
static inline uint16_t
uli_bf16_of_float(float value)
{
    uint32_t bits = uli_bits_of_float(value);
    uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    uint32_t quiet = (bits >> 16) | 0x40;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

/* Nearest, ties to even. Normal results are rounded in the integer; below 2^-14
 * the step is 2^-24, the last place of a float near 1/2. Without branches, so
 * that loops over rows are vectorised. */
static inline uint16_t
uli_f16_of_float(float value)
{
    uint32_t bits = uli_bits_of_float(value);
    uint32_t magnitude = bits & 0x7fffffff;
    uint32_t small =
        uli_bits_of_float(uli_float_of_bits(magnitude) + 0.5f) - 0x3f000000;
    uint32_t normal =
        (magnitude + 0xfff + ((magnitude >> 13) & 1) - 0x38000000) >> 13;
    uint32_t result = magnitude < 0x38800000 ? small : normal;
    result = magnitude >= 0x477ff000 ? 0x7c00 : result; /* 65520 and more */
    result = magnitude > 0x7f800000 ? 0x7e00 : result;
    return (uint16_t)(result | ((bits >> 16) & 0x8000));
}

static inline double
uli_element_load(const void *data, ulyx_dtype_t dtype, int64_t index)
{
    switch (dtype) {
    case ULYX_DTYPE_F64:
        return ((const double *)data)[index];
    case ULYX_DTYPE_F32:
        return ((const float *)data)[index];
    case ULYX_DTYPE_BF16:
        return uli_float_of_bf16(((const uint16_t *)data)[index]);
    default:
        return uli_float_of_f16(((const uint16_t *)data)[index]);
    }
}

static inline void
uli_element_store(void *data, ulyx_dtype_t dtype, int64_t index, double value)
{
    switch (dtype) {
    case ULYX_DTYPE_F64:
        ((double *)data)[index] = value;
        break;
    case ULYX_DTYPE_F32:
        ((float *)data)[index] = (float)value;
        break;
    case ULYX_DTYPE_BF16:
        ((uint16_t *)data)[index] = uli_bf16_of_float((float)value);
        break;
    default:
        ((uint16_t *)data)[index] = uli_f16_of_float((float)value);
        break;
    }
}

static inline void
uli_row_load(
    const void *data, ulyx_dtype_t dtype, int64_t count, double *values_p)
{
    for (int64_t c = 0; c < count; c++)
        values_p[c] = uli_element_load(data, dtype, c);
}

static inline void
uli_row_store(
    void *data, ulyx_dtype_t dtype, int64_t count, const double *values)
{
    for (int64_t c = 0; c < count; c++)
        uli_element_store(data, dtype, c, values[c]);
}

#endif
