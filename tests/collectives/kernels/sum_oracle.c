/* SPDX-License-Identifier: Apache-2.0
 *
 * The slow oracle of sums: see sum_oracle.h.
 */
#include "collectives/kernels/sum_oracle.h"

#include <math.h>
#include <string.h>
#include "ulyx/types.h"

/* The sizes of a binary floating-point format. */
struct format {
    int bytes, exponent_bits, fraction_bits;
};

static struct format
format_of(int32_t dtype)
{
    switch (dtype) {
    case ULYX_DTYPE_F64:
        return (struct format){8, 11, 52};
    case ULYX_DTYPE_F32:
        return (struct format){4, 8, 23};
    case ULYX_DTYPE_BF16:
        return (struct format){2, 8, 7};
    default:
        return (struct format){2, 5, 10};
    }
}

static uint64_t
load_bits(const void *p, int bytes)
{
    uint64_t bits = 0;
    for (int i = 0; i < bytes; i++)
        bits |= (uint64_t)((const unsigned char *)p)[i] << (8 * i);
    return bits;
}

static void
store_bits(uint64_t bits, void *p, int bytes)
{
    for (int i = 0; i < bytes; i++)
        ((unsigned char *)p)[i] = (unsigned char)(bits >> (8 * i));
}

double
oracle_decode(int32_t dtype, const void *p)
{
    struct format f = format_of(dtype);
    uint64_t bits = load_bits(p, f.bytes);
    int top = (1 << f.exponent_bits) - 1, bias = top / 2;
    int exponent = (int)(bits >> f.fraction_bits) & top;
    uint64_t fraction = bits & (((uint64_t)1 << f.fraction_bits) - 1);
    double sign = bits >> (f.bytes * 8 - 1) ? -1.0 : 1.0;
    if (exponent == top)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    if (exponent == 0)
        return sign * ldexp((double)fraction, 1 - bias - f.fraction_bits);
    fraction |= (uint64_t)1 << f.fraction_bits;
    return sign * ldexp((double)fraction, exponent - bias - f.fraction_bits);
}

/* Returns the exponent and fraction fields of a magnitude; a magnitude that is
 * too large becomes infinity. Both fields are one integer, so a fraction that
 * rounds up to the next power of two carries into the exponent. */
static uint64_t
magnitude_bits(struct format f, double magnitude)
{
    int top = (1 << f.exponent_bits) - 1, bias = top / 2;
    if (isinf(magnitude))
        return (uint64_t)top << f.fraction_bits;
    if (magnitude == 0)
        return 0;
    int exponent;
    frexp(magnitude, &exponent); /* magnitude = [0.5, 1) * 2^exponent */
    int field = exponent - 1 + bias;
    if (field < 1)
        field = 1;
    double units = ldexp(magnitude, f.fraction_bits + bias - field);
    uint64_t fraction = (uint64_t)nearbyint(units);
    uint64_t bits = ((uint64_t)(field - 1) << f.fraction_bits) + fraction;
    uint64_t infinity = (uint64_t)top << f.fraction_bits;
    return bits > infinity ? infinity : bits;
}

void
oracle_encode(int32_t dtype, double value, void *p)
{
    struct format f = format_of(dtype);
    if (isnan(value)) {
        /* exponent all ones and the top fraction bit */
        uint64_t ones = ((uint64_t)1 << (f.exponent_bits + 1)) - 1;
        store_bits(ones << (f.fraction_bits - 1), p, f.bytes);
        return;
    }
    uint64_t bits = magnitude_bits(f, fabs(value));
    if (signbit(value))
        bits |= (uint64_t)1 << (f.bytes * 8 - 1);
    store_bits(bits, p, f.bytes);
}

double
oracle_add(double a, double b, bool wide)
{
    /* Both are floats unless wide. A double has enough digits: their sum as a
     * double, rounded to float, equals the exact sum rounded to float. */
    double sum = a + b;
    unsigned char as_float[4];
    if (wide)
        return sum;
    oracle_encode(ULYX_DTYPE_F32, sum, as_float);
    return oracle_decode(ULYX_DTYPE_F32, as_float);
}
