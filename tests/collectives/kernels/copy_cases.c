/* SPDX-License-Identifier: Apache-2.0
 *
 * Random boxes and the slow oracle: see copy_cases.h.
 */
#include "support/test.h"

#include <stdlib.h>
#include "collectives/kernels/copy_cases.h"

struct test_random case_rng;

static int64_t
draw_extent(void)
{
    switch (test_random_in(&case_rng, 0, 3)) {
    case 0:
        return 1;
    case 1:
        return test_random_in(&case_rng, 2, 4);
    case 2:
        return test_random_in(&case_rng, 1, 20);
    default:
        return test_random_in(&case_rng, 1, 300);
    }
}

static int64_t
draw_run(void)
{
    static const int64_t usual[] = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512};
    switch (test_random_in(&case_rng, 0, 3)) {
    case 0:
        return usual[test_random_in(&case_rng, 0, 9)];
    case 1:
        return test_random_in(&case_rng, 1, 70);
    case 2:
        return test_random_in(&case_rng, 60, 400);
    default:
        return test_random_in(&case_rng, 1, 9000);
    }
}

/* Nested strides in a random order, with or without gaps, with random signs;
 * sets the offset of the first run.
 * returns the bytes that the side spans. */
static int64_t
draw_side(const struct uli_box *box, int64_t stride[3], int64_t *offset)
{
    int order[3] = {0, 1, 2};
    for (int i = 2; i > 0; i--) {
        int other = (int)test_random_in(&case_rng, 0, i), held = order[i];
        order[i] = order[other];
        order[other] = held;
    }
    bool gaps = test_random_in(&case_rng, 0, 1);
    bool signs = test_random_in(&case_rng, 0, 3) == 0;
    int64_t span = box->run_bytes;
    *offset = test_random_in(&case_rng, 0, 80);
    for (int i = 0; i < 3; i++) {
        int dim = order[i];
        span += gaps ? test_random_in(&case_rng, 0, 40) : 0;
        stride[dim] = span;
        span *= box->extent[dim];
    }
    for (int i = 0; signs && i < 3; i++) {
        if (test_random_in(&case_rng, 0, 1)) {
            *offset += stride[i] * (box->extent[i] - 1);
            stride[i] = -stride[i];
        }
    }
    return span + 80;
}

struct case_box
case_draw(void)
{
    struct case_box drawn = {0};
    struct uli_box *box = &drawn.box;
    do {
        for (int i = 0; i < 3; i++)
            box->extent[i] = draw_extent();
        box->run_bytes = draw_run();
    } while (uli_box_bytes(box) > 400000);
    drawn.dst_bytes = draw_side(box, box->dst_stride, &box->dst_offset);
    drawn.src_bytes = draw_side(box, box->src_stride, &box->src_offset);
    drawn.normal = *box;
    uli_box_normalize(&drawn.normal);
    return drawn;
}

int64_t
case_runs(const struct uli_box *box)
{
    return box->extent[0] * box->extent[1] * box->extent[2];
}

void
case_locate(const struct uli_box *box, int64_t n, int64_t *dst, int64_t *src)
{
    int64_t k = n % box->extent[2], j = n / box->extent[2] % box->extent[1];
    int64_t i = n / box->extent[2] / box->extent[1];
    *dst = box->dst_offset + i * box->dst_stride[0] + j * box->dst_stride[1] +
           k * box->dst_stride[2];
    *src = box->src_offset + i * box->src_stride[0] + j * box->src_stride[1] +
           k * box->src_stride[2];
}

void
case_oracle(
    const struct uli_box *box, unsigned char *dst, const unsigned char *src)
{
    for (int64_t n = 0; n < case_runs(box); n++) {
        int64_t to, from;
        case_locate(box, n, &to, &from);
        for (int64_t byte = 0; byte < box->run_bytes; byte++)
            dst[to + byte] = src ? src[from + byte] : 0;
    }
}

struct uli_box_span
case_cut(int64_t *begin, int64_t end)
{
    struct uli_box_span span = {*begin, end};
    if (test_random_in(&case_rng, 0, 2))
        span.end = test_random_in(&case_rng, *begin, end);
    *begin = span.end;
    return span;
}

struct uli_copy_way
case_way(void)
{
    return (struct uli_copy_way){
        (enum uli_copy_hint)test_random_in(&case_rng, 0, ULI_HINTS - 1),
        1 << test_random_in(&case_rng, 0, 3),
        (int32_t)test_random_in(&case_rng, 0, 40),
        test_random_in(&case_rng, 0, 1)};
}

void
case_each_kernel(void (*body)(void))
{
    int32_t count;
    const char *const *names = uli_copy_kernel_names(&count);
    assert_true(count >= 1);
    for (int32_t i = 0; i < count; i++) {
        assert_true(uli_copy_kernel_select(names[i]));
        body();
    }
    assert_true(uli_copy_kernel_select(NULL));
}
