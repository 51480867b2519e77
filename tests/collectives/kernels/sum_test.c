/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums against sum_oracle.c, bit for bit, on every kernel of this machine:
 * random rectangles, groups and types with values that cancel, overflow,
 * underflow, tie and are NaN; the staged form against the same bits;
 * conversions of all 16-bit patterns and of values around every rounding
 * boundary. With --bench the same program times the sums instead (sum_bench.c).
 */
#include "support/test.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "base/dtype.h"
#include "collectives/kernels/copy.h"
#include "collectives/kernels/copy_cases.h"
#include "collectives/kernels/sum_bench.h"
#include "collectives/kernels/sum_oracle.h"
#include "support/buffers.h"

enum { MAX_SOURCES = 7 };

static const int32_t dtypes[] = {
    ULYX_DTYPE_F64, ULYX_DTYPE_F32, ULYX_DTYPE_BF16, ULYX_DTYPE_F16};

/* ---- a random sum -------------------------------------------------------- */

struct drawn {
    struct uli_sum sum;
    int32_t group[MAX_SOURCES];
    int64_t src_offset[MAX_SOURCES], src_stride[MAX_SOURCES][3];
    struct test_buffer dst, src[MAX_SOURCES];
    const void *base[MAX_SOURCES];
    unsigned char *expected;
};

/* Draws values that are mostly of similar size, so that sums cancel and tie,
 * and some raw bit patterns. */
static void
draw_element(int32_t dtype, unsigned char *p)
{
    int64_t size = uli_dtype_size(dtype);
    switch (test_random_in(&case_rng, 0, 19)) {
    case 0: {
        uint64_t bits = test_random_next(&case_rng);
        memcpy(p, &bits, (size_t)size);
        break;
    }
    case 1: {
        static const double special[] = {INFINITY, -INFINITY, NAN, 0.0, -0.0,
            1e-40, -5e-8, 65504, 65519, 3.3e38, -3.39e38, 1e-310};
        oracle_encode(dtype, special[test_random_in(&case_rng, 0, 11)], p);
        break;
    }
    default:
        oracle_encode(dtype,
            ldexp((double)test_random_in(&case_rng, -600, 600),
                (int)test_random_in(&case_rng, -12, 2)),
            p);
    }
}

/* Draws nested strides with gaps, in bytes. Returns the bytes that the side
 * spans. */
static int64_t
draw_strides(
    const struct uli_sum *sum, int64_t elem, int64_t stride[3], int64_t *offset)
{
    bool gaps = test_random_in(&case_rng, 0, 1),
         swap = test_random_in(&case_rng, 0, 1);
    int64_t span = sum->run * elem;
    *offset = test_random_in(&case_rng, 0, 9);
    for (int i = 0; i < 3; i++) {
        int dim = swap ? i : 2 - i;
        span += gaps ? test_random_in(&case_rng, 0, 9) : 0;
        stride[dim] = span;
        span *= sum->extent[dim];
    }
    return span + 10;
}

static void
draw_sum(struct drawn *drawn)
{
    struct uli_sum *sum = &drawn->sum;
    sum->dtype = dtypes[test_random_in(&case_rng, 0, 3)];
    sum->partial_dtype = dtypes[test_random_in(&case_rng, 0, 3)];
    sum->nsources = (int32_t)test_random_in(&case_rng, 1, MAX_SOURCES);
    for (int i = 0; i < 3; i++)
        sum->extent[i] = test_random_in(&case_rng, 1, 4);
    sum->run = test_random_in(&case_rng, 0, 9)
                   ? test_random_in(&case_rng, 1, 70)
                   : test_random_in(&case_rng, 900, 2200);
    sum->group = drawn->group;
    sum->src_offset = drawn->src_offset;
    sum->src_stride = (const int64_t(*)[3])drawn->src_stride;
    int64_t bytes = draw_strides(
        sum, uli_dtype_size(sum->dtype), sum->dst_stride, &sum->dst_offset);
    test_buffer_init(
        &drawn->dst, (size_t)bytes, (size_t)test_random_in(&case_rng, 0, 63));
    drawn->expected = malloc((size_t)bytes);
    assert_non_null(drawn->expected);
    memset(drawn->expected, 0xFF, (size_t)bytes);
    int32_t group = (int32_t)test_random_in(&case_rng, 0, 3);
    int64_t elem = uli_dtype_size(sum->partial_dtype);
    for (int32_t s = 0; s < sum->nsources; s++) {
        group += (int32_t)test_random_in(&case_rng, 0, 1) * 2;
        drawn->group[s] = group;
        bytes = draw_strides(
            sum, elem, drawn->src_stride[s], &drawn->src_offset[s]);
        test_buffer_init(&drawn->src[s], (size_t)bytes,
            (size_t)test_random_in(&case_rng, 0, 63));
        drawn->base[s] = drawn->src[s].data;
    }
}

static int64_t
index_dot(const int64_t index[3], const int64_t stride[3])
{
    return index[0] * stride[0] + index[1] * stride[1] + index[2] * stride[2];
}

/* Computes the expected value of one element: group by group, in the
 * accumulator's precision. */
static void
oracle_element(struct drawn *drawn, const int64_t index[3], int64_t e)
{
    const struct uli_sum *sum = &drawn->sum;
    bool wide = uli_sum_acc_bytes(sum->dtype, sum->partial_dtype) == 8;
    double total = 0, partial = 0;
    bool first_group = true;
    for (int32_t s = 0; s < sum->nsources; s++) {
        double value = oracle_decode(
            sum->partial_dtype, drawn->src[s].data + drawn->src_offset[s] +
                                    index_dot(index, drawn->src_stride[s]) +
                                    e * uli_dtype_size(sum->partial_dtype));
        bool begins = s == 0 || drawn->group[s] != drawn->group[s - 1];
        bool ends =
            s + 1 == sum->nsources || drawn->group[s + 1] != drawn->group[s];
        partial = begins ? value : oracle_add(partial, value, wide);
        if (!ends)
            continue;
        total = first_group ? partial : oracle_add(total, partial, wide);
        first_group = false;
    }
    oracle_encode(sum->dtype, total,
        drawn->expected + sum->dst_offset + index_dot(index, sum->dst_stride) +
            e * uli_dtype_size(sum->dtype));
}

static void
fill_sum(struct drawn *drawn)
{
    const struct uli_sum *sum = &drawn->sum;
    int64_t runs = sum->extent[0] * sum->extent[1] * sum->extent[2];
    int64_t elem = uli_dtype_size(sum->partial_dtype);
    for (int64_t n = 0; n < runs; n++) {
        int64_t index[3] = {n / sum->extent[2] / sum->extent[1],
            n / sum->extent[2] % sum->extent[1], n % sum->extent[2]};
        for (int64_t e = 0; e < sum->run; e++) {
            for (int32_t s = 0; s < sum->nsources; s++)
                draw_element(sum->partial_dtype,
                    drawn->src[s].data + drawn->src_offset[s] +
                        index_dot(index, drawn->src_stride[s]) + e * elem);
            oracle_element(drawn, index, e);
        }
    }
}

static void
check_and_free(struct drawn *drawn)
{
    assert_memory_equal(drawn->dst.data, drawn->expected, drawn->dst.bytes);
    assert_true(test_buffer_guards_ok(&drawn->dst));
    for (int32_t s = 0; s < drawn->sum.nsources; s++) {
        assert_true(test_buffer_guards_ok(&drawn->src[s]));
        test_buffer_free(&drawn->src[s]);
    }
    test_buffer_free(&drawn->dst);
    free(drawn->expected);
}

/* ---- tests --------------------------------------------------------------- */

static void
check_run(void)
{
    for (int64_t draw = test_draws(250); draw > 0; draw--) {
        struct drawn drawn;
        draw_sum(&drawn);
        fill_sum(&drawn);
        const int64_t *extent = drawn.sum.extent;
        int64_t begin = 0, end = extent[0] * extent[1] * extent[2];
        while (begin < end)
            uli_sum_run(
                &drawn.sum, case_cut(&begin, end), drawn.dst.data, drawn.base);
        check_and_free(&drawn);
    }
}

static void
sum_run_random_sums_equal_oracle_bits(void **state)
{
    (void)state;
    case_rng.state = test_seed(11);
    case_each_kernel(check_run);
}

/* Copies the elements of a span one after another, as a ring does. */
static int64_t
gather_elements(const struct drawn *drawn, struct uli_box_span span, int32_t s,
    unsigned char *packed)
{
    const struct uli_sum *sum = &drawn->sum;
    int64_t bytes = sum->run * uli_dtype_size(sum->partial_dtype);
    for (int64_t n = span.begin; n < span.end; n++) {
        int64_t index[3] = {n / sum->extent[2] / sum->extent[1],
            n / sum->extent[2] % sum->extent[1], n % sum->extent[2]};
        memcpy(packed + (n - span.begin) * bytes,
            drawn->src[s].data + drawn->src_offset[s] +
                index_dot(index, drawn->src_stride[s]),
            (size_t)bytes);
    }
    return (span.end - span.begin) * sum->run;
}

/* The elements of a source arrive in chunks of any size. */
static void
accumulate_in_chunks(const struct uli_sum *sum, unsigned char *acc,
    const unsigned char *packed, int64_t count, bool first)
{
    int64_t elem = uli_dtype_size(sum->partial_dtype);
    int64_t acc_bytes = uli_sum_acc_bytes(sum->dtype, sum->partial_dtype);
    for (int64_t done = 0; done < count;) {
        int64_t some = test_random_in(&case_rng, 1, count - done);
        uli_sum_accumulate(sum->dtype, sum->partial_dtype,
            acc + done * acc_bytes, packed + done * elem, some, first);
        done += some;
    }
}

static void
stage_span(
    struct drawn *drawn, struct uli_box_span span, unsigned char *memory[3])
{
    const struct uli_sum *sum = &drawn->sum;
    unsigned char *packed = memory[0], *partial = memory[1];
    unsigned char *total = memory[2];
    for (int32_t s = 0; s < sum->nsources; s++) {
        bool begins = s == 0 || drawn->group[s] != drawn->group[s - 1];
        bool ends =
            s + 1 == sum->nsources || drawn->group[s + 1] != drawn->group[s];
        int64_t count = gather_elements(drawn, span, s, packed);
        accumulate_in_chunks(sum, partial, packed, count, begins);
        if (ends)
            uli_sum_merge(sum->dtype, sum->partial_dtype, total, partial, count,
                drawn->group[s] == drawn->group[0]);
    }
    uli_sum_store(sum, span, drawn->dst.data, total);
}

static void
check_staged(void)
{
    for (int64_t draw = test_draws(120); draw > 0; draw--) {
        struct drawn drawn;
        draw_sum(&drawn);
        fill_sum(&drawn);
        const int64_t *extent = drawn.sum.extent;
        int64_t begin = 0, end = extent[0] * extent[1] * extent[2];
        unsigned char *memory[3];
        for (int i = 0; i < 3; i++) {
            memory[i] = malloc((size_t)(end * drawn.sum.run * 8));
            assert_non_null(memory[i]);
        }
        while (begin < end)
            stage_span(&drawn, case_cut(&begin, end), memory);
        for (int i = 0; i < 3; i++)
            free(memory[i]);
        check_and_free(&drawn);
    }
}

static void
sum_staged_form_equals_oracle_bits(void **state)
{
    (void)state;
    case_rng.state = test_seed(12);
    case_each_kernel(check_staged);
}

/* Sums a single source of `count` elements, from one type to another. */
static void
check_conversion(int32_t dtype, int32_t partial_dtype, const unsigned char *src,
    int64_t count)
{
    int64_t elem = uli_dtype_size(dtype);
    int64_t partial_elem = uli_dtype_size(partial_dtype);
    const int64_t zero = 0, strides[1][3] = {{0, 0, 0}};
    const int32_t group = 0;
    struct uli_sum sum = {
        .extent = {1, 1, 1},
        .run = count,
        .dtype = dtype,
        .partial_dtype = partial_dtype,
        .nsources = 1,
        .group = &group,
        .src_offset = &zero,
        .src_stride = strides,
    };
    unsigned char *dst = malloc((size_t)(count * elem));
    assert_non_null(dst);
    const void *base = src;
    uli_sum_run(&sum, (struct uli_box_span){0, 1}, dst, &base);
    for (int64_t i = 0; i < count; i++) {
        unsigned char expected[8];
        oracle_encode(dtype,
            oracle_decode(partial_dtype, src + i * partial_elem), expected);
        assert_memory_equal(dst + i * elem, expected, (size_t)elem);
    }
    free(dst);
}

static void
check_all_halves(void)
{
    static uint16_t patterns[65536];
    for (int i = 0; i < 65536; i++)
        patterns[i] = (uint16_t)i;
    for (int to = 0; to < 4; to++) {
        for (int from = 2; from < 4; from++)
            check_conversion(dtypes[to], dtypes[from],
                (const unsigned char *)patterns, 65536);
    }
}

static void
sum_converts_every_16_bit_pattern(void **state)
{
    (void)state;
    case_each_kernel(check_all_halves);
}

/* Every upper half of a float with lower halves at and beside the ties of both
 * 16-bit types (bit 15 for bf16, bit 12 for f16). */
static void
check_float_boundaries(void)
{
    static const uint32_t low[] = {0, 1, 0xFFF, 0x1000, 0x1001, 0x1FFF, 0x3000,
        0x7FFF, 0x8000, 0x8001, 0xFFFF};
    enum { NLOW = sizeof(low) / sizeof(low[0]) };
    uint32_t *values = malloc(65536 * NLOW * sizeof(*values));
    assert_non_null(values);
    for (uint32_t i = 0; i < 65536 * NLOW; i++)
        values[i] = (i / NLOW) << 16 | low[i % NLOW];
    for (int to = 1; to < 4; to++)
        check_conversion(dtypes[to], ULYX_DTYPE_F32,
            (const unsigned char *)values, 65536 * NLOW);
    free(values);
}

static void
sum_rounds_floats_to_nearest_even(void **state)
{
    (void)state;
    case_each_kernel(check_float_boundaries);
}

/* Doubles very close to the ties of the narrow type: a conversion by way of
 * float would round twice and be wrong. */
static void
check_double_boundaries(void)
{
    enum { COUNT = 60000 };
    double *values = malloc(COUNT * sizeof(*values));
    assert_non_null(values);
    for (int to = 1; to < 4; to++) {
        int digits = to == 1 ? 24 : to == 2 ? 8 : 11;
        for (int i = 0; i < COUNT; i++) {
            double tie =
                ldexp((double)test_random_in(&case_rng, 0, (2 << digits) - 1),
                    -digits);
            double hair = ldexp((double)test_random_in(&case_rng, -1, 1),
                -(int)test_random_in(&case_rng, 26, 52));
            int low = to == 3 ? -30 : -160, high = to == 3 ? 18 : 130;
            values[i] =
                ldexp(tie + hair, (int)test_random_in(&case_rng, low, high));
            values[i] =
                test_random_in(&case_rng, 0, 1) ? values[i] : -values[i];
        }
        check_conversion(
            dtypes[to], ULYX_DTYPE_F64, (const unsigned char *)values, COUNT);
    }
    free(values);
}

static void
sum_rounds_doubles_once(void **state)
{
    (void)state;
    case_rng.state = test_seed(13);
    case_each_kernel(check_double_boundaries);
}

static void
sum_acc_bytes_is_eight_where_f64_is_involved(void **state)
{
    (void)state;
    for (int a = 0; a < 4; a++) {
        for (int b = 0; b < 4; b++)
            assert_int_equal(uli_sum_acc_bytes(dtypes[a], dtypes[b]),
                a == 0 || b == 0 ? 8 : 4);
    }
}

/* Tests the oracle itself, on values that a reader can check. */
static void
oracle_encodes_values_of_a_table(void **state)
{
    (void)state;
    static const struct {
        int32_t dtype;
        double value;
        uint64_t bits;
    } known[] = {
        {ULYX_DTYPE_BF16, 1.0, 0x3F80},
        {ULYX_DTYPE_BF16, 1.00390625, 0x3F80}, /* tie to even */
        {ULYX_DTYPE_BF16, 1.01171875, 0x3F82}, /* tie to even, up */
        {ULYX_DTYPE_BF16, -3.4e38, 0xFF80},    /* overflow */
        {ULYX_DTYPE_F16, 65519.0, 0x7BFF},
        {ULYX_DTYPE_F16, 65520.0, 0x7C00},
        {ULYX_DTYPE_F16, 0x1p-25, 0x0000}, /* half the smallest */
        {ULYX_DTYPE_F16, 0x1.8p-24, 0x0002},
        {ULYX_DTYPE_F32, -0.0, 0x80000000u},
        {ULYX_DTYPE_F32, 0x1.fffffep+127, 0x7F7FFFFF},
        {ULYX_DTYPE_F64, 2.0, 0x4000000000000000u},
    };
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        uint64_t bits = 0;
        oracle_encode(known[i].dtype, known[i].value, &bits);
        assert_int_equal(bits, known[i].bits);
    }
    assert_true(oracle_add(1.0, 0x1p-24, false) == 1.0);
    assert_true(oracle_add(1.0, 0x1p-24, true) > 1.0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(oracle_encodes_values_of_a_table),
    cmocka_unit_test(sum_run_random_sums_equal_oracle_bits),
    cmocka_unit_test(sum_staged_form_equals_oracle_bits),
    cmocka_unit_test(sum_converts_every_16_bit_pattern),
    cmocka_unit_test(sum_rounds_floats_to_nearest_even),
    cmocka_unit_test(sum_rounds_doubles_once),
    cmocka_unit_test(sum_acc_bytes_is_eight_where_f64_is_involved),
};

int
main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--bench") == 0)
        return sum_bench(argc - 2, argv + 2);
    return test_main(
        argc, argv, "Sum", tests, sizeof(tests) / sizeof(tests[0]));
}
