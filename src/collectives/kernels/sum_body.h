/* SPDX-License-Identifier: Apache-2.0
 *
 * The loops of the sum kernels with float accumulators, for one instruction
 * set: whole vectors, then the rest of a run. Included once by a file that
 * defines
 *
 *   V, vec                      elements of a vector, and its type
 *   load_acc, store_acc, add_acc          vectors of accumulators
 *   read_T(src), write_T(dst, value)      a vector of elements of type T
 *   load_rest_T(to, src, left), add_rest_T(to, src, left),
 *   store_rest_T(dst, from, left)         as above, of 0 < left < V elements
 *
 * for T = f32, bf16, f16, and SUM_KERNEL, the name of the table.
 */
#define DEFINE_SUM(type, elem_bytes)                                           \
    static void load_##type(void *acc, const unsigned char *src,               \
        int64_t src_stride, int64_t run, int64_t nruns)                        \
    {                                                                          \
        float *to = acc;                                                       \
        for (int64_t r = 0; r < nruns; r++, to += run, src += src_stride) {    \
            int64_t i = 0;                                                     \
            for (; i + V <= run; i += V)                                       \
                store_acc(to + i, read_##type(src + i * (elem_bytes)));        \
            if (i < run)                                                       \
                load_rest_##type(to + i, src + i * (elem_bytes), run - i);     \
        }                                                                      \
    }                                                                          \
    static void add_##type(void *acc, const unsigned char *src,                \
        int64_t src_stride, int64_t run, int64_t nruns)                        \
    {                                                                          \
        float *to = acc;                                                       \
        for (int64_t r = 0; r < nruns; r++, to += run, src += src_stride) {    \
            int64_t i = 0;                                                     \
            for (; i + V <= run; i += V)                                       \
                store_acc(to + i, add_acc(load_acc(to + i),                    \
                                      read_##type(src + i * (elem_bytes))));   \
            if (i < run)                                                       \
                add_rest_##type(to + i, src + i * (elem_bytes), run - i);      \
        }                                                                      \
    }                                                                          \
    static void store_##type(unsigned char *dst, int64_t dst_stride,           \
        const void *acc, int64_t run, int64_t nruns)                           \
    {                                                                          \
        const float *from = acc;                                               \
        for (int64_t r = 0; r < nruns; r++, from += run, dst += dst_stride) {  \
            int64_t i = 0;                                                     \
            for (; i + V <= run; i += V)                                       \
                write_##type(dst + i * (elem_bytes), load_acc(from + i));      \
            if (i < run)                                                       \
                store_rest_##type(dst + i * (elem_bytes), from + i, run - i);  \
        }                                                                      \
    }

DEFINE_SUM(f32, 4)
DEFINE_SUM(bf16, 2)
DEFINE_SUM(f16, 2)

const struct uli_sum_kernel SUM_KERNEL = {
    .load = {NULL, load_f32, load_bf16, load_f16},
    .add = {NULL, add_f32, add_bf16, add_f16},
    .store = {NULL, store_f32, store_bf16, store_f16},
};
