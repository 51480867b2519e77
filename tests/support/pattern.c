/* SPDX-License-Identifier: Apache-2.0
 *
 * See pattern.h.
 */
#include "support/pattern.h"

#include <string.h>

static uint64_t
hash_mix(uint64_t hash, int64_t value)
{
    hash = (hash ^ (uint64_t)value) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 29);
}

static uint64_t
hash_of(const struct pattern *p, int64_t element)
{
    uint64_t hash = hash_mix(UINT64_C(0x243F6A8885A308D3), p->salt);
    hash = hash_mix(hash_mix(hash_mix(hash, p->rank), p->tensor), p->batch);
    hash = hash_mix(hash_mix(hash_mix(hash, p->row), p->head), element);
    return hash_mix(hash, 0);
}

/* Sign and mantissa from the hash, exponent from a small range. */
static uint64_t
float_bits(uint64_t hash, int exponent_bits, int mantissa_bits)
{
    uint64_t bias = (UINT64_C(1) << (exponent_bits - 1)) - 1;
    uint64_t exponent = bias - 4 + (hash >> 56) % 8;
    uint64_t mantissa = hash & ((UINT64_C(1) << mantissa_bits) - 1);
    uint64_t sign = hash >> 55 & 1;
    return sign << (exponent_bits + mantissa_bits) | exponent << mantissa_bits |
           mantissa;
}

void
pattern_write(const struct pattern *pattern, int64_t element,
    ulyx_dtype_t dtype, int64_t bytes, void *at)
{
    uint64_t hash = hash_of(pattern, element);
    unsigned char *out = at;
    switch (dtype) {
    case ULYX_DTYPE_F64:
        hash = float_bits(hash, 11, 52);
        break;
    case ULYX_DTYPE_F32:
        hash = float_bits(hash, 8, 23);
        break;
    case ULYX_DTYPE_BF16:
        hash = float_bits(hash, 8, 7);
        break;
    case ULYX_DTYPE_F16:
        hash = float_bits(hash, 5, 10);
        break;
    default:
        break;
    }
    for (int64_t i = 0; i < bytes; i++) {
        if (i && i % 8 == 0)
            hash = hash_mix(hash, i);
        out[i] = (unsigned char)(hash >> (i % 8 * 8));
    }
}
