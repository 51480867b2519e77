/* SPDX-License-Identifier: Apache-2.0
 *
 * Fan-outs against the byte-by-byte oracle of each part: random numbers of
 * parts, orders and gaps within the source rows, runs of whole lines and
 * others, aligned and unaligned destinations, random spans, every kernel of
 * this machine, every way. Gaps and guards must keep their poison.
 */
#include "support/test.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include "collectives/kernels/copy_cases.h"
#include "support/buffers.h"

enum { LINE = 64, SOURCE_MAX = 600000 };

/* ---- random fan-outs ----------------------------------------------------- */

struct fan {
    int32_t count;
    struct uli_box boxes[ULI_FAN_PARTS];
    struct test_buffer dst[ULI_FAN_PARTS], src;
    unsigned char *expected[ULI_FAN_PARTS];
};

static int64_t
draw_run_bytes(void)
{
    switch (test_random_in(&case_rng, 0, 3)) {
    case 0:
        return test_random_in(&case_rng, 1, 300);
    case 1:
        return LINE * test_random_in(&case_rng, 60, 300);
    default:
        return LINE << test_random_in(&case_rng, 0, 7);
    }
}

/* Draws the place of each part's run in a source row, in any order and with
 * gaps of `gap` bytes. Returns the bytes of a row. */
static int64_t
draw_places(struct fan *fan, int64_t run_bytes, int64_t gap)
{
    for (int32_t n = 0; n < fan->count; n++) {
        int32_t other = (int32_t)test_random_in(&case_rng, 0, n);
        fan->boxes[n].src_offset = fan->boxes[other].src_offset;
        fan->boxes[other].src_offset = n * (run_bytes + gap);
    }
    return fan->count * (run_bytes + gap);
}

/* Rows of a part in its destination: with or without gaps, forwards or
 * backwards, whole planes one after another. */
static int64_t
draw_dst(struct uli_box *box, int64_t grain)
{
    int64_t span = box->run_bytes;
    box->dst_offset = grain * test_random_in(&case_rng, 0, 2);
    for (int i = 2; i >= 0; i--) {
        span += grain * test_random_in(&case_rng, 0, 1);
        box->dst_stride[i] = span;
        span *= box->extent[i];
    }
    if (test_random_in(&case_rng, 0, 3) == 0) {
        box->dst_offset += box->dst_stride[2] * (box->extent[2] - 1);
        box->dst_stride[2] = -box->dst_stride[2];
    }
    return span + 4 * grain;
}

static void
fan_draw(struct fan *fan)
{
    int64_t extent[3], run_bytes, row_bytes, rows;
    bool whole = test_random_in(&case_rng, 0, 3) != 0;
    int64_t grain = whole ? LINE : 13;
    do {
        fan->count = (int32_t)test_random_in(&case_rng, 1, ULI_FAN_PARTS);
        run_bytes = draw_run_bytes();
        for (int i = 0; i < 3; i++)
            extent[i] = test_random_in(&case_rng, 1, i == 2 ? 100 : 3);
        row_bytes = draw_places(
            fan, run_bytes, grain * test_random_in(&case_rng, 0, 1));
        rows = extent[0] * extent[1] * extent[2];
    } while (rows * row_bytes > SOURCE_MAX);
    test_buffer_init(&fan->src, (size_t)(rows * row_bytes),
        whole ? 0 : (size_t)test_random_in(&case_rng, 0, 63));
    for (size_t i = 0; i < fan->src.bytes; i++)
        fan->src.data[i] = (unsigned char)test_random_next(&case_rng);
    for (int32_t n = 0; n < fan->count; n++) {
        struct uli_box *box = &fan->boxes[n];
        memcpy(box->extent, extent, sizeof(extent));
        box->run_bytes = run_bytes;
        box->src_stride[2] = row_bytes;
        box->src_stride[1] = extent[2] * row_bytes;
        box->src_stride[0] = extent[1] * extent[2] * row_bytes;
        int64_t bytes = draw_dst(box, grain);
        test_buffer_init(&fan->dst[n], (size_t)bytes,
            whole ? 0 : (size_t)test_random_in(&case_rng, 0, 63));
        fan->expected[n] = malloc((size_t)bytes);
        assert_non_null(fan->expected[n]);
        memset(fan->expected[n], 0xFF, (size_t)bytes);
        case_oracle(box, fan->expected[n], fan->src.data);
    }
}

static void
fan_check(struct fan *fan)
{
    for (int32_t n = 0; n < fan->count; n++) {
        assert_memory_equal(
            fan->dst[n].data, fan->expected[n], fan->dst[n].bytes);
        assert_true(test_buffer_guards_ok(&fan->dst[n]));
        memset(fan->dst[n].data, 0xFF, fan->dst[n].bytes);
    }
}

static void
fan_free(struct fan *fan)
{
    for (int32_t n = 0; n < fan->count; n++) {
        test_buffer_free(&fan->dst[n]);
        free(fan->expected[n]);
    }
    test_buffer_free(&fan->src);
}

/* Whether the parts can be copied together, which they are then. */
static bool
fan_run(struct fan *fan, const struct uli_copy_way *way)
{
    struct uli_fan_part parts[ULI_FAN_PARTS];
    int64_t begin = 0, end = case_runs(&fan->boxes[0]);
    for (int32_t n = 0; n < fan->count; n++) {
        parts[n] = (struct uli_fan_part){&fan->boxes[n], fan->dst[n].data};
        if (!uli_boxes_fan(&fan->boxes[0], &fan->boxes[n]))
            return false;
    }
    if (!uli_parts_fan(parts, fan->count, way->stream))
        return false;
    while (begin < end)
        uli_boxes_copy(
            parts, fan->count, case_cut(&begin, end), fan->src.data, way);
    return true;
}

/* ---- tests --------------------------------------------------------------- */

static void
check_random_fans(void)
{
    int64_t together[2] = {0, 0};
    for (int64_t draw = test_draws(90); draw > 0; draw--) {
        struct fan fan = {0};
        fan_draw(&fan);
        for (int stream = 0; stream < 2; stream++) {
            struct uli_copy_way way = case_way();
            way.stream = stream;
            if (!fan_run(&fan, &way))
                continue;
            fan_check(&fan);
            together[stream]++;
        }
        fan_free(&fan);
    }
    assert_true(together[0] > 0 && together[1] > 0);
}

static void
boxes_copy_random_fans_equal_oracle(void **state)
{
    (void)state;
    case_rng.state = test_seed(11);
    case_each_kernel(check_random_fans);
}

/* Is the fan copied together, in several units of each of 8 lanes? */
static bool
fan_is_large(const struct fan *fan)
{
    enum { PAGE = 4096, LANES = 8 };
    int64_t run = fan->boxes[0].run_bytes, rows = fan->boxes[0].extent[2];
    return fan->count > 1 && run % LINE == 0 && run <= PAGE && rows > 1 &&
           rows * fan->count * run > 2 * LANES * PAGE;
}

/* Each copy loop, over whole fans. */
static void
check_each_way(void)
{
    struct fan fan = {.count = 0};
    do {
        fan_free(&fan);
        fan = (struct fan){0};
        fan_draw(&fan);
    } while (!fan_is_large(&fan));
    for (int32_t n = 0; n < 2 * ULI_HINTS * 4; n++) {
        const struct uli_copy_way way = {
            (enum uli_copy_hint)(n / 8), 1 << (n / 2 % 4), 16, n % 2};
        struct uli_fan_part parts[ULI_FAN_PARTS];
        const struct uli_box_span all = {0, case_runs(&fan.boxes[0])};
        for (int32_t i = 0; i < fan.count; i++)
            parts[i] = (struct uli_fan_part){&fan.boxes[i], fan.dst[i].data};
        uli_boxes_copy(parts, fan.count, all, fan.src.data, &way);
        fan_check(&fan);
    }
    fan_free(&fan);
}

static void
boxes_copy_every_way_gives_the_same_bytes(void **state)
{
    (void)state;
    case_rng.state = test_seed(12);
    case_each_kernel(check_each_way);
}

/* Boxes of one token's heads fan out; boxes of other tokens, of fewer tokens,
 * of runs of another length or of one row only do not. */
static void
only_boxes_of_the_same_rows_fan_out(void **state)
{
    (void)state;
    const struct uli_box box = {.extent = {1, 2, 10},
        .run_bytes = 512,
        .dst_stride = {0, 5120, 512},
        .src_stride = {0, 40960, 2048}};
    struct uli_box other = box;
    other.src_offset = 1536;
    other.dst_stride[1] = 99;
    other.dst_stride[2] = 7;
    other.src_stride[0] = 5;
    assert_true(uli_boxes_fan(&box, &other));
    other.src_offset = 2048;
    assert_false(uli_boxes_fan(&box, &other));
    other = box;
    other.extent[2] = 9;
    assert_false(uli_boxes_fan(&box, &other));
    other = box;
    other.run_bytes = 256;
    assert_false(uli_boxes_fan(&box, &other));
    other = box;
    other.src_stride[1] = 30000;
    assert_false(uli_boxes_fan(&box, &other));
    other = box;
    other.run_bytes = 1000; /* no whole lines */
    assert_false(uli_boxes_fan(&other, &other));
    other.run_bytes = 64 << 10;
    other.src_stride[2] = 256 << 10;
    other.src_stride[1] = 4 << 20;
    assert_false(uli_boxes_fan(&other, &other));
    other.run_bytes = 16 << 10;
    assert_true(uli_boxes_fan(&other, &other));
    other.src_stride[1] = 64 << 10; /* rows of the outer loop are nearer */
    assert_false(uli_boxes_fan(&other, &other));
    struct uli_box one = box;
    one.extent[2] = 1;
    assert_false(uli_boxes_fan(&one, &one));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(boxes_copy_random_fans_equal_oracle),
    cmocka_unit_test(boxes_copy_every_way_gives_the_same_bytes),
    cmocka_unit_test(only_boxes_of_the_same_rows_fan_out),
};

ULI_TEST_MAIN("CopyFan", tests)
