/* SPDX-License-Identifier: Apache-2.0
 *
 * The work lists of copy engines, without a device: moves cut into pieces that
 * fill slots round by round, and boxes as strided copies, in host memory.
 */
#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "collectives/device/engine/engine_table.h"
#include "collectives/layout/layout_cases.h"
#include "support/random.h"
#include "support/test.h"

/* ---- pieces -------------------------------------------------------------- */

/* What the walk over one destination has found so far. */
struct seen {
    const struct uli_engine_walk *walk;
    int32_t dst, *round;
    int64_t *end; /* the end of the last piece in each source's slot */
    int64_t elements;
    bool good;
};

static int64_t
elements_of(const int64_t count[4])
{
    return count[0] * count[1] * count[2] * count[3];
}

/* The pieces of each source follow one another in its slot, and no piece
 * exceeds the slot. A piece without a remote source has round -1 and no
 * slot. */
static bool
item_check(void *context, const struct uli_engine_copy_item *piece)
{
    struct seen *seen = context;
    const struct uli_move *move = piece->move;
    int64_t bytes = elements_of(piece->count) * piece->element_bytes;
    bool lands = false;
    seen->elements += elements_of(piece->count);
    for (int32_t s = 0; s < move->nsources; s++) {
        int32_t p = move->sources[s].rank;
        if (p == seen->dst)
            continue;
        lands = true;
        if (piece->round < seen->round[p])
            seen->good = false;
        if (piece->round > seen->round[p])
            seen->end[p] = 0;
        seen->round[p] = piece->round;
        seen->good = seen->good && piece->at[p] >= seen->end[p] &&
                     piece->at[p] % ULI_GPU_SLOT_ALIGN == 0 &&
                     piece->at[p] + bytes <= seen->walk->chunk_bytes;
        seen->end[p] = piece->at[p] + bytes;
    }
    seen->good = seen->good && lands == (piece->round >= 0);
    return seen->good;
}

static bool
count_elements(void *context, const struct uli_move *move)
{
    struct seen *seen = context;
    const struct uli_shape *shape = uli_layout_shape(seen->walk->layout);
    seen->elements -= move->batches * move->rows * move->heads *
                      shape->tensors[move->tensor].dim;
    return true;
}

static void
check_destination(struct uli_engine_walk *walk, int32_t dst)
{
    const struct uli_shape *shape = uli_layout_shape(walk->layout);
    size_t n = (size_t)shape->nranks;
    struct seen seen = {.walk = walk,
        .dst = dst,
        .round = calloc(n, sizeof(int32_t)),
        .end = calloc(n, sizeof(int64_t)),
        .good = true};
    assert_non_null(seen.round);
    assert_non_null(seen.end);
    uli_engine_each_copy(walk, dst, item_check, &seen);
    assert_true(seen.good);
    for (int32_t p = 0; p < shape->nranks; p++)
        assert_true(uli_engine_rounds(walk, p) <= seen.round[p] + 1);
    for (int32_t t = 0; t < shape->ntensors; t++)
        uli_layout_each_move(walk->layout, walk->direction, t, dst, -1,
            walk->places, count_elements, &seen);
    assert_int_equal(seen.elements, 0);
    free(seen.round);
    free(seen.end);
}

static void
pieces_are_the_moves_and_fill_slots_in_order(void **state)
{
    static const int64_t chunks[] = {4096, 4608, 65536};
    struct test_random random = {test_seed(90)};
    (void)state;
    for (int64_t i = 0, draws = test_draws(60); i < draws; i++) {
        struct oracle_case c;
        struct uli_layout *layout = NULL;
        struct uli_engine_walk walk;
        memset(&c, 0, sizeof(c));
        case_random(&c, &random, 6, i % 3 == 0);
        if (case_create(&c, &layout) != ULYX_SUCCESS)
            continue;
        assert_status(uli_engine_walk_create(
                          layout, chunks[test_random_in(&random, 0, 2)], &walk),
            ULYX_SUCCESS);
        for (int o = 0; o < ULYX_DIRECTIONS; o++) {
            walk.direction = o;
            for (int32_t d = 0; d < c.shape.nranks; d++)
                if (uli_layout_direction_exists(layout, o))
                    check_destination(&walk, d);
        }
        uli_engine_walk_free(&walk);
        uli_layout_destroy(layout);
    }
}

/* ---- copies -------------------------------------------------------------- */

enum { FIELD_BYTES = 1 << 16 };
static int64_t calls;

static ulyx_status_t
copies_counted(int32_t device, void *dst, const void *src,
    const struct uli_device_rect *rect, void *stream)
{
    calls++;
    if (!uli_device_rect_fits(rect))
        return ULYX_ERR_INTERNAL;
    return uli_device_host.copy_rect(device, dst, src, rect, stream);
}

/* Draws strides of a tensor whose dimensions nest in some order, with gaps. */
static void
draw_strides(struct test_random *random, const int64_t extent[3],
    int64_t run_bytes, int64_t stride[3])
{
    int order[3] = {0, 1, 2};
    int64_t bytes = run_bytes;
    if (test_random_in(random, 0, 3) == 0) {
        order[1] = 2;
        order[2] = 1;
    }
    for (int i = 2; i >= 0; i--) {
        bytes += test_random_in(random, 0, 2) * test_random_in(random, 0, 9);
        stride[order[i]] = bytes;
        bytes *= extent[order[i]];
    }
}

static struct uli_box
draw_box(struct test_random *random)
{
    struct uli_box box;
    memset(&box, 0, sizeof(box));
    for (int d = 0; d < 3; d++)
        box.extent[d] = test_random_in(random, 1, 6);
    box.run_bytes = test_random_in(random, 1, 40);
    box.dst_offset = test_random_in(random, 0, 50);
    box.src_offset = test_random_in(random, 0, 50);
    draw_strides(random, box.extent, box.run_bytes, box.dst_stride);
    draw_strides(random, box.extent, box.run_bytes, box.src_stride);
    return box;
}

static void
any_box_is_copied_byte_for_byte(void **state)
{
    static unsigned char src[FIELD_BYTES], dst[FIELD_BYTES],
        expected[FIELD_BYTES];
    struct test_random random = {test_seed(91)};
    struct uli_device_ops ops = uli_device_host;
    (void)state;
    ops.copy_rect = copies_counted;
    for (int i = 0; i < FIELD_BYTES; i++)
        src[i] = (unsigned char)test_random_next(&random);
    for (int64_t i = 0, draws = test_draws(400); i < draws; i++) {
        struct uli_box box = draw_box(&random);
        memset(dst, 7, sizeof(dst));
        memset(expected, 7, sizeof(expected));
        for (int64_t r = 0; r < box.extent[0] * box.extent[1] * box.extent[2];
             r++) {
            int64_t at[3] = {r / (box.extent[1] * box.extent[2]),
                r / box.extent[2] % box.extent[1], r % box.extent[2]};
            int64_t to = box.dst_offset, from = box.src_offset;
            for (int d = 0; d < 3; d++) {
                to += at[d] * box.dst_stride[d];
                from += at[d] * box.src_stride[d];
            }
            memcpy(expected + to, src + from, (size_t)box.run_bytes);
        }
        uli_box_normalize(&box);
        calls = 0;
        assert_status(
            uli_engine_copy(&ops, 0, &box, dst, src, NULL), ULYX_SUCCESS);
        assert_int_equal(calls, uli_engine_copy_count(&box));
        assert_memory_equal(dst, expected, FIELD_BYTES);
    }
}

/* [b, s, h, d] to and from a pair's receive buffer takes one copy; a box that
 * no strided copy expresses takes several. */
static void
regular_boxes_are_one_copy(void **state)
{
    struct uli_box rows = {.extent = {1, 1, 100},
        .run_bytes = 256,
        .dst_stride = {0, 0, 256},
        .src_stride = {0, 0, 2048}};
    struct uli_box batches = {.extent = {1, 3, 100},
        .run_bytes = 256,
        .dst_stride = {0, 25600, 256},
        .src_stride = {0, 409600, 2048}};
    (void)state;
    assert_int_equal(uli_engine_copy_count(&rows), 1);
    assert_int_equal(uli_engine_copy_count(&batches), 1);
    /* the pitch of a slice is not a whole number of rows */
    batches.src_stride[1] += 8;
    assert_int_equal(uli_engine_copy_count(&batches), 3);
    batches.extent[0] = 2;
    assert_int_equal(uli_engine_copy_count(&batches), 6);
    /* more than any pitch that a copy takes */
    rows.src_stride[2] = INT64_C(1) << 32;
    assert_int_equal(uli_engine_copy_count(&rows), 100);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(pieces_are_the_moves_and_fill_slots_in_order),
    cmocka_unit_test(any_box_is_copied_byte_for_byte),
    cmocka_unit_test(regular_boxes_are_one_copy),
};

ULI_TEST_MAIN("EngineLists", tests)
