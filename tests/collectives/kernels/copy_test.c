/* SPDX-License-Identifier: Apache-2.0
 *
 * Boxes against a byte-by-byte oracle: random extents, strides of either sign
 * in any order, offsets, random spans, every kernel of this machine, with and
 * without streaming. Gaps and guards must keep their poison. With --bench the
 * same program times the kernels instead (copy_bench.c).
 */
#include "support/test.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "collectives/kernels/copy_choice.h"
#include "collectives/kernels/copy_bench.h"
#include "collectives/kernels/copy_cases.h"
#include "support/buffers.h"

/* ---- buffers ------------------------------------------------------------- */

struct sides {
    struct test_buffer dst, src;
    unsigned char *expected, *src_copy;
};

static void
sides_init(struct sides *sides, const struct case_box *drawn)
{
    size_t dst_bytes = (size_t)drawn->dst_bytes;
    size_t src_bytes = (size_t)drawn->src_bytes;
    test_buffer_init(
        &sides->dst, dst_bytes, (size_t)test_random_in(&case_rng, 0, 63));
    test_buffer_init(
        &sides->src, src_bytes, (size_t)test_random_in(&case_rng, 0, 63));
    for (size_t i = 0; i < src_bytes; i++)
        sides->src.data[i] = (unsigned char)test_random_next(&case_rng);
    sides->expected = malloc(dst_bytes);
    sides->src_copy = malloc(src_bytes);
    assert_true(sides->expected && sides->src_copy);
    memset(sides->expected, 0xFF, dst_bytes);
    memcpy(sides->src_copy, sides->src.data, src_bytes);
}

static void
sides_check(struct sides *sides)
{
    assert_memory_equal(sides->dst.data, sides->expected, sides->dst.bytes);
    assert_memory_equal(sides->src.data, sides->src_copy, sides->src.bytes);
    assert_true(test_buffer_guards_ok(&sides->dst));
    assert_true(test_buffer_guards_ok(&sides->src));
    memset(sides->dst.data, 0xFF, sides->dst.bytes);
}

static void
sides_free(struct sides *sides)
{
    test_buffer_free(&sides->dst);
    test_buffer_free(&sides->src);
    free(sides->expected);
    free(sides->src_copy);
}

/* ---- tests --------------------------------------------------------------- */

static const struct uli_copy_way streamed = {ULI_HINT_L2, 4, 16, true};

static void
check_copy(void)
{
    for (int64_t draw = test_draws(150); draw > 0; draw--) {
        struct case_box drawn = case_draw();
        struct sides sides;
        sides_init(&sides, &drawn);
        case_oracle(&drawn.box, sides.expected, sides.src.data);
        for (int stream = 0; stream < 2; stream++) {
            int64_t begin = 0, end = case_runs(&drawn.normal);
            struct uli_copy_way way = case_way();
            way.stream = stream;
            while (begin < end)
                uli_box_copy(&drawn.normal, case_cut(&begin, end),
                    sides.dst.data, sides.src.data, &way);
            sides_check(&sides);
            /* a box need not be normalized */
            uli_box_copy(&drawn.box,
                (struct uli_box_span){0, case_runs(&drawn.box)}, sides.dst.data,
                sides.src.data, &way);
            sides_check(&sides);
        }
        sides_free(&sides);
    }
}

static void
box_copy_random_boxes_equals_oracle(void **state)
{
    (void)state;
    case_rng.state = test_seed(1);
    case_each_kernel(check_copy);
}

static void
check_pack(void)
{
    for (int64_t draw = test_draws(100); draw > 0; draw--) {
        struct case_box drawn = case_draw();
        const struct uli_box *box = &drawn.normal;
        struct sides sides;
        sides_init(&sides, &drawn);
        case_oracle(&drawn.box, sides.expected, sides.src.data);
        int64_t begin = 0, end = case_runs(box);
        while (begin < end) {
            struct uli_box_span span = case_cut(&begin, end);
            struct test_buffer packed;
            int64_t bytes = (span.end - span.begin) * box->run_bytes;
            test_buffer_init(&packed, (size_t)bytes,
                (size_t)test_random_in(&case_rng, 0, 63));
            struct uli_copy_way way = case_way();
            uli_box_pack(box, span, packed.data, sides.src.data, &way);
            for (int64_t n = span.begin; n < span.end; n++) {
                int64_t to, from;
                case_locate(box, n, &to, &from);
                assert_memory_equal(
                    packed.data + (n - span.begin) * box->run_bytes,
                    sides.src.data + from, (size_t)box->run_bytes);
            }
            assert_true(test_buffer_guards_ok(&packed));
            uli_box_unpack(box, span, sides.dst.data, packed.data, &way);
            test_buffer_free(&packed);
        }
        sides_check(&sides);
        sides_free(&sides);
    }
}

static void
box_pack_unpack_round_trip_in_loop_order(void **state)
{
    (void)state;
    case_rng.state = test_seed(2);
    case_each_kernel(check_pack);
}

static void
box_zero_clears_the_destination_only(void **state)
{
    (void)state;
    case_rng.state = test_seed(3);
    for (int64_t draw = test_draws(100); draw > 0; draw--) {
        struct case_box drawn = case_draw();
        struct sides sides;
        sides_init(&sides, &drawn);
        case_oracle(&drawn.box, sides.expected, NULL);
        int64_t begin = 0, end = case_runs(&drawn.normal);
        while (begin < end)
            uli_box_zero(&drawn.normal, case_cut(&begin, end), sides.dst.data);
        sides_check(&sides);
        sides_free(&sides);
    }
}

/* Streaming needs an aligned middle of each run: every pair of
 * misalignments. */
static void
check_alignments(void)
{
    static unsigned char src[4096], dst[4096], expected[4096];
    for (size_t i = 0; i < sizeof(src); i++)
        src[i] = (unsigned char)test_random_next(&case_rng);
    for (int64_t at = 0; at < 64 * 64; at++) {
        struct uli_box box = {
            .extent = {1, 1, 3},
            .run_bytes = 64 + at % 7 * 33 + at % 64,
            .dst_stride = {0, 0, 700},
            .src_stride = {0, 0, 650},
            .dst_offset = at % 64,
            .src_offset = at / 64,
        };
        memset(dst, 0xFF, sizeof(dst));
        memset(expected, 0xFF, sizeof(expected));
        case_oracle(&box, expected, src);
        uli_box_copy(&box, (struct uli_box_span){0, 3}, dst, src, &streamed);
        assert_memory_equal(dst, expected, sizeof(dst));
    }
}

static void
box_copy_streams_at_any_alignment(void **state)
{
    (void)state;
    case_rng.state = test_seed(4);
    case_each_kernel(check_alignments);
}

static void
assert_canonical(const struct uli_box *box)
{
    for (int i = 0; i < 3; i++) {
        if (box->extent[i] == 1) {
            assert_true(i == 0 || box->extent[i - 1] == 1);
            continue;
        }
        assert_false(box->dst_stride[i] == box->run_bytes &&
                     box->src_stride[i] == box->run_bytes);
        if (i == 0 || box->extent[i - 1] == 1)
            continue;
        assert_true(llabs(box->dst_stride[i - 1]) >= llabs(box->dst_stride[i]));
        for (int outer = 0; outer < 3; outer++)
            assert_false(
                outer != i && box->extent[outer] > 1 &&
                box->dst_stride[outer] == box->dst_stride[i] * box->extent[i] &&
                box->src_stride[outer] == box->src_stride[i] * box->extent[i]);
    }
}

static void
box_normalize_random_boxes_is_canonical(void **state)
{
    (void)state;
    case_rng.state = test_seed(5);
    for (int64_t draw = test_draws(3000); draw > 0; draw--) {
        struct case_box drawn = case_draw();
        assert_canonical(&drawn.normal);
        assert_int_equal(
            uli_box_bytes(&drawn.normal), uli_box_bytes(&drawn.box));
        struct uli_box again = drawn.normal;
        uli_box_normalize(&again);
        assert_memory_equal(&again, &drawn.normal, sizeof(again));
    }
}

/* One element per row ([s][h] <-> [h][s] of one head): a single long run. */
static void
box_normalize_adjacent_everywhere_becomes_one_run(void **state)
{
    (void)state;
    struct uli_box box = {
        .extent = {3, 7, 11},
        .run_bytes = 4,
        .dst_stride = {4, 12, 84},
        .src_stride = {4, 12, 84},
        .dst_offset = 5,
        .src_offset = 6,
    };
    uli_box_normalize(&box);
    assert_int_equal(box.run_bytes, 3 * 7 * 11 * 4);
    assert_int_equal(case_runs(&box), 1);
    assert_int_equal(box.dst_offset, 5);
    assert_int_equal(box.src_offset, 6);
}

static void
box_normalize_empty_box_has_no_runs(void **state)
{
    (void)state;
    for (int empty = 0; empty < 4; empty++) {
        struct uli_box box = {.extent = {2, 3, 4}, .run_bytes = 5};
        if (empty < 3)
            box.extent[empty] = 0;
        else
            box.run_bytes = 0;
        unsigned char byte = 7;
        uli_box_normalize(&box);
        assert_int_equal(case_runs(&box), 0);
        uli_box_copy(
            &box, (struct uli_box_span){0, 0}, &byte, &byte, &streamed);
        uli_box_zero(&box, (struct uli_box_span){0, 0}, &byte);
        assert_int_equal(byte, 7);
    }
}

/* Offsets and strides beyond 32 bits, in address space that is reserved but
 * hardly touched: three rows 3 GiB apart on either side. */
static void
check_far_strides(void)
{
    int64_t far = (int64_t)3 << 30, bytes = 3 * far;
    void *memory = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_true(memory != MAP_FAILED);
    unsigned char *dst = memory, row[900];
    struct uli_box box = {
        .extent = {1, 1, 3},
        .run_bytes = sizeof(row),
        .dst_stride = {0, 0, far},
        .src_stride = {0, 0, far},
        .dst_offset = 100,
        .src_offset = 8192,
    };
    for (int64_t k = 0; k < 3; k++) {
        memset(row, (int)k + 1, sizeof(row));
        memcpy(dst + 8192 + k * far, row, sizeof(row));
    }
    uli_box_copy(&box, (struct uli_box_span){0, 3}, memory, memory, &streamed);
    for (int64_t k = 0; k < 3; k++) {
        assert_memory_equal(
            dst + 100 + k * far, dst + 8192 + k * far, sizeof(row));
        assert_int_equal(dst[100 + k * far], k + 1);
    }
    munmap(memory, (size_t)bytes);
}

static void
box_copy_takes_strides_beyond_32_bits(void **state)
{
    (void)state;
    case_each_kernel(check_far_strides);
}

static void
kernel_select_unknown_name_is_refused(void **state)
{
    (void)state;
    int32_t count;
    assert_string_equal(uli_copy_kernel_names(&count)[0], "portable");
    assert_false(uli_copy_kernel_select("fastest"));
    assert_true(uli_copy_kernel_select(NULL));
}

/* Every copy loop of every kernel, over rows strided like heads of tokens and
 * rows one after another, of whole lines and of part lines, and one long
 * run. */
static void
check_ways(void)
{
    enum { ROWS = 37, PITCH = 1111, LONG = 20 * 4096 + 77 };
    static unsigned char src[LONG + 64], expected[LONG + 64], dst[LONG + 64];
    const struct uli_box boxes[] = {{.extent = {1, 1, ROWS},
                                        .run_bytes = 512,
                                        .dst_stride = {0, 0, 512},
                                        .src_stride = {0, 0, 1024}},
        {.extent = {1, 1, ROWS},
            .run_bytes = 512,
            .dst_stride = {0, 0, 1024},
            .src_stride = {0, 0, 512}},
        {.extent = {1, 1, ROWS},
            .run_bytes = 333,
            .dst_stride = {0, 0, PITCH},
            .src_stride = {0, 0, PITCH}},
        {.extent = {1, 1, 1}, .run_bytes = LONG, .dst_offset = 5}};
    for (size_t i = 0; i < sizeof(src); i++)
        src[i] = (unsigned char)(i * 7 + i / 251);
    for (size_t b = 0; b < sizeof(boxes) / sizeof(boxes[0]); b++) {
        memset(expected, 0, sizeof(expected));
        case_oracle(&boxes[b], expected, src);
        for (int32_t n = 0; n < 2 * ULI_HINTS * 4; n++) {
            const struct uli_copy_way way = {
                (enum uli_copy_hint)(n / 8), 1 << (n / 2 % 4), 16, n % 2};
            memset(dst, 0, sizeof(dst));
            uli_box_copy(&boxes[b],
                (struct uli_box_span){0, case_runs(&boxes[b])}, dst, src, &way);
            assert_memory_equal(dst, expected, sizeof(dst));
        }
    }
}

static void
box_copy_every_way_gives_the_same_bytes(void **state)
{
    (void)state;
    case_each_kernel(check_ways);
}

/* Stores never stream with the portable kernel, for runs that fill no line, or
 * for short runs that begin inside a line. */
static void
stores_stream_only_into_whole_lines(void **state)
{
    (void)state;
    struct uli_box box = {
        .extent = {1, 1, (int64_t)1 << 24},
        .run_bytes = 256,
        .dst_stride = {0, 0, 4096},
        .src_stride = {0, 0, 256},
    };
    struct uli_box narrow = box, ragged = box, long_ragged;
    narrow.run_bytes = 32;
    ragged.dst_offset = 16;
    long_ragged = ragged;
    long_ragged.run_bytes = 4000;
    int32_t count;
    const char *const *names = uli_copy_kernel_names(&count);
    for (int32_t i = 0; i < count; i++) {
        assert_true(uli_copy_kernel_select(names[i]));
        bool streams = strcmp(names[i], "portable") != 0;
        assert_int_equal(uli_copy_streams_whole(&box), streams);
        assert_int_equal(uli_copy_streams_whole(&long_ragged), streams);
        assert_false(uli_copy_streams_whole(&narrow));
        assert_false(uli_copy_streams_whole(&ragged));
    }
    assert_true(uli_copy_kernel_select(NULL));
}

static struct uli_copy_way
way_of(const struct uli_copy_choice *choice, const struct uli_box *box,
    int64_t call_bytes)
{
    const struct uli_copy_call call = uli_copy_call_of(choice, call_bytes);
    return uli_copy_way_of(&call, box);
}

/* The choice depends on the bytes of the call and on whether the source rows
 * are contiguous. */
static void
choice_follows_the_call_and_the_source(void **state)
{
    (void)state;
    const struct uli_box apart = {.extent = {1, 1, 64},
        .run_bytes = 256,
        .dst_stride = {0, 0, 256},
        .src_stride = {0, 0, 512}};
    const struct uli_box on = {.extent = {1, 1, 64},
        .run_bytes = 256,
        .dst_stride = {0, 0, 512},
        .src_stride = {0, 0, 256}};
    struct uli_copy_choice choice = *uli_copy_defaults();
    assert_true(choice.stream_bytes > 0);
    for (int n = 0; n < ULI_COPY_SIZES * ULI_COPY_SOURCES; n++)
        choice.ways[n / ULI_COPY_SOURCES][n % ULI_COPY_SOURCES].ahead = n;
    choice.stream_bytes = ULI_COPY_LARGE_BYTES;
    assert_int_equal(way_of(&choice, &apart, 1).ahead, 0);
    assert_int_equal(way_of(&choice, &on, ULI_COPY_MEDIUM_BYTES - 1).ahead, 1);
    assert_int_equal(way_of(&choice, &apart, ULI_COPY_MEDIUM_BYTES).ahead, 3);
    assert_int_equal(way_of(&choice, &on, ULI_COPY_LARGE_BYTES).ahead, 7);
    const struct uli_copy_call large =
        uli_copy_call_of(&choice, ULI_COPY_LARGE_BYTES);
    assert_int_equal(
        uli_copy_way_from(&large, &apart, ULI_ROWS_FANNED).ahead, 8);
    assert_false(way_of(&choice, &on, ULI_COPY_LARGE_BYTES - 1).stream);
    assert_int_equal(way_of(&choice, &on, ULI_COPY_LARGE_BYTES).stream,
        uli_copy_streams_whole(&on));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(box_copy_random_boxes_equals_oracle),
    cmocka_unit_test(box_pack_unpack_round_trip_in_loop_order),
    cmocka_unit_test(box_zero_clears_the_destination_only),
    cmocka_unit_test(box_copy_streams_at_any_alignment),
    cmocka_unit_test(box_normalize_random_boxes_is_canonical),
    cmocka_unit_test(box_normalize_adjacent_everywhere_becomes_one_run),
    cmocka_unit_test(box_normalize_empty_box_has_no_runs),
    cmocka_unit_test(box_copy_takes_strides_beyond_32_bits),
    cmocka_unit_test(kernel_select_unknown_name_is_refused),
    cmocka_unit_test(box_copy_every_way_gives_the_same_bytes),
    cmocka_unit_test(stores_stream_only_into_whole_lines),
    cmocka_unit_test(choice_follows_the_call_and_the_source),
};

int
main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--bench") == 0)
        return copy_bench(argc - 2, argv + 2);
    return test_main(
        argc, argv, "Copy", tests, sizeof(tests) / sizeof(tests[0]));
}
