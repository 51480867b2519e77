/* SPDX-License-Identifier: Apache-2.0
 *
 * The sum kernels that run everywhere, and the only ones with double
 * accumulators. Each is one loop over elements without any product, so nothing
 * can be contracted.
 */
#include <string.h>
#include "collectives/kernels/copy_kernel.h"
#include "collectives/kernels/sum_convert.h"

/* acc_t accumulators, elem_t in memory; load_NAME and add_NAME differ only in
 * how an element reaches the accumulator. */
#define DEFINE_ACCUMULATE(name, assign, acc_t, elem_t, convert)                \
    static void name(void *acc, const unsigned char *src, int64_t src_stride,  \
        int64_t run, int64_t nruns)                                            \
    {                                                                          \
        acc_t *to = acc;                                                       \
        for (int64_t r = 0; r < nruns; r++, to += run, src += src_stride) {    \
            for (int64_t i = 0; i < run; i++) {                                \
                elem_t stored;                                                 \
                memcpy(&stored, src + i * (int64_t)sizeof(stored),             \
                    sizeof(stored));                                           \
                to[i] assign convert(stored);                                  \
            }                                                                  \
        }                                                                      \
    }

#define DEFINE_READ(name, acc_t, elem_t, convert)                              \
    DEFINE_ACCUMULATE(load_##name, =, acc_t, elem_t, convert)                  \
    DEFINE_ACCUMULATE(add_##name, +=, acc_t, elem_t, convert)

#define DEFINE_WRITE(name, acc_t, elem_t, convert)                             \
    static void store_##name(unsigned char *dst, int64_t dst_stride,           \
        const void *acc, int64_t run, int64_t nruns)                           \
    {                                                                          \
        const acc_t *from = acc;                                               \
        for (int64_t r = 0; r < nruns; r++, from += run, dst += dst_stride) {  \
            for (int64_t i = 0; i < run; i++) {                                \
                elem_t stored = convert(from[i]);                              \
                memcpy(dst + i * (int64_t)sizeof(stored), &stored,             \
                    sizeof(stored));                                           \
            }                                                                  \
        }                                                                      \
    }

static inline double
f64_of_bf16(uint16_t stored)
{
    return sum_f32_of_bf16(stored);
}

static inline double
f64_of_f16(uint16_t stored)
{
    return sum_f32_of_f16(stored);
}

static inline uint16_t
bf16_of_f64(double value)
{
    return sum_bf16_of_f32(sum_f32_odd_of_f64(value));
}

static inline uint16_t
f16_of_f64(double value)
{
    return sum_f16_of_f32(sum_f32_odd_of_f64(value));
}

static inline uint32_t
f32_of_f64(double value)
{
    return sum_canonical_f32((float)value);
}

DEFINE_READ(f32_f32, float, float, )
DEFINE_READ(f32_bf16, float, uint16_t, sum_f32_of_bf16)
DEFINE_READ(f32_f16, float, uint16_t, sum_f32_of_f16)
DEFINE_READ(f64_f64, double, double, )
DEFINE_READ(f64_f32, double, float, (double))
DEFINE_READ(f64_bf16, double, uint16_t, f64_of_bf16)
DEFINE_READ(f64_f16, double, uint16_t, f64_of_f16)
DEFINE_WRITE(f32_f32, float, uint32_t, sum_canonical_f32)
DEFINE_WRITE(f32_bf16, float, uint16_t, sum_bf16_of_f32)
DEFINE_WRITE(f32_f16, float, uint16_t, sum_f16_of_f32)
DEFINE_WRITE(f64_f64, double, uint64_t, sum_canonical_f64)
DEFINE_WRITE(f64_f32, double, uint32_t, f32_of_f64)
DEFINE_WRITE(f64_bf16, double, uint16_t, bf16_of_f64)
DEFINE_WRITE(f64_f16, double, uint16_t, f16_of_f64)

/* F64 in memory always has double accumulators. */
const struct uli_sum_kernel uli_sum_portable_f32 = {
    .load = {NULL, load_f32_f32, load_f32_bf16, load_f32_f16},
    .add = {NULL, add_f32_f32, add_f32_bf16, add_f32_f16},
    .store = {NULL, store_f32_f32, store_f32_bf16, store_f32_f16},
};

const struct uli_sum_kernel uli_sum_portable_f64 = {
    .load = {load_f64_f64, load_f64_f32, load_f64_bf16, load_f64_f16},
    .add = {add_f64_f64, add_f64_f32, add_f64_bf16, add_f64_f16},
    .store = {store_f64_f64, store_f64_f32, store_f64_bf16, store_f64_f16},
};
