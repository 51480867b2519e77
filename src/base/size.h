/* SPDX-License-Identifier: Apache-2.0
 *
 * Checked 64-bit arithmetic for sizes: false means that the result would not
 * fit (*out is then unspecified). All operands are signed; the caller checks
 * for negative ones where these are wrong.
 */
#ifndef ULI_BASE_SIZE_H
#define ULI_BASE_SIZE_H

#include <stdbool.h>
#include <stdint.h>

static inline bool
uli_size_add(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool
uli_size_mul(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* out = a * b + c */
static inline bool
uli_size_mul_add(int64_t a, int64_t b, int64_t c, int64_t *out)
{
    return uli_size_mul(a, b, out) && uli_size_add(*out, c, out);
}

/* a + b, a - b and, for numbers that are not negative, a * b, saturated at the
 * ends of the range. */
static inline int64_t
uli_sat_add(int64_t a, int64_t b)
{
    int64_t sum;
    if (!__builtin_add_overflow(a, b, &sum))
        return sum;
    return a < 0 ? INT64_MIN : INT64_MAX;
}

static inline int64_t
uli_sat_sub(int64_t a, int64_t b)
{
    int64_t difference;
    if (!__builtin_sub_overflow(a, b, &difference))
        return difference;
    return a < 0 ? INT64_MIN : INT64_MAX;
}

static inline int64_t
uli_sat_mul(int64_t a, int64_t b)
{
    int64_t product;
    return uli_size_mul(a, b, &product) ? product : INT64_MAX;
}

static inline int64_t
uli_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t
uli_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* a >= 0, unit > 0, the result must fit */
static inline int64_t
uli_round_up(int64_t a, int64_t unit)
{
    return (a + unit - 1) / unit * unit;
}

#endif
