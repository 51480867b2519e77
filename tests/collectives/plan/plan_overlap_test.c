/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether two tensors share a byte, against a map of all bytes of both, for
 * random grids: single runs, interleaved tensors, one tensor inside a gap of
 * the other.
 */
#include <stdio.h>
#include <string.h>
#include "collectives/plan/plan.h"
#include "support/random.h"
#include "support/test.h"

enum { BYTES = 4096 };

/* Draws dimensions that nest like those of a tensor, in any order. */
static void
draw_grid(struct test_random *random, struct uli_grid *grid_p)
{
    int order = (int)test_random_in(random, 0, 2);
    memset(grid_p, 0, sizeof(*grid_p));
    grid_p->run_bytes = test_random_in(random, 1, 24);
    int64_t hull = grid_p->run_bytes;
    for (int i = 0; i < 3; i++) {
        int d = (order + i) % 3;
        grid_p->counts[d] = test_random_in(random, 1, 4);
        if (test_random_in(random, 0, 9) == 0)
            grid_p->counts[d] = 0;
        grid_p->strides[d] =
            hull + test_random_in(random, 0, 1) * test_random_in(random, 0, 16);
        if (grid_p->counts[d] > 1)
            hull += (grid_p->counts[d] - 1) * grid_p->strides[d];
        if (grid_p->counts[d] == 1 && test_random_in(random, 0, 1))
            grid_p->strides[d] = 0; /* a single index ignores its stride */
    }
}

static void
bytes_mark(const struct uli_grid *grid, int64_t base, unsigned char bit,
    unsigned char *bytes)
{
    for (int64_t i = 0; i < grid->counts[0]; i++)
        for (int64_t j = 0; j < grid->counts[1]; j++)
            for (int64_t k = 0; k < grid->counts[2]; k++) {
                int64_t at = base + grid->first + i * grid->strides[0] +
                             j * grid->strides[1] + k * grid->strides[2];
                for (int64_t n = 0; n < grid->run_bytes; n++)
                    bytes[at + n] |= bit;
            }
}

static bool
share_a_byte(const struct uli_grid grids[2], const int64_t base[2])
{
    unsigned char bytes[2 * BYTES] = {0};
    bytes_mark(&grids[0], base[0], 1, bytes);
    bytes_mark(&grids[1], base[1], 2, bytes);
    for (int64_t n = 0; n < 2 * BYTES; n++)
        if (bytes[n] == 3)
            return true;
    return false;
}

static void
tensors_overlap_where_they_share_a_byte(void **state)
{
    (void)state;
    struct test_random random = {test_seed(20261128)};
    int64_t draws = test_draws(20000), overlapping = 0;
    for (int64_t n = 0; n < draws; n++) {
        struct uli_grid grids[2];
        draw_grid(&random, &grids[0]);
        draw_grid(&random, &grids[1]);
        int64_t reach = uli_grid_extent(&grids[0]) + 8;
        int64_t base[2] = {0, test_random_in(&random, 0, reach)};
        assert_true(base[1] + uli_grid_extent(&grids[1]) < 2 * BYTES);
        bool expected = share_a_byte(grids, base);
        overlapping += expected;
        assert_int_equal(uli_grid_overlap(&grids[0], (uintptr_t)base[0],
                             &grids[1], (uintptr_t)base[1]),
            expected);
        assert_int_equal(uli_grid_overlap(&grids[1], (uintptr_t)base[1],
                             &grids[0], (uintptr_t)base[0]),
            expected);
    }
    assert_true(overlapping > draws / 10 && overlapping < draws * 9 / 10);
}

/* A single long run encloses a tensor of several runs; the search must end. */
static void
one_run_holds_a_tensor(void **state)
{
    (void)state;
    struct uli_grid run = {.counts = {1, 1, 1}, .run_bytes = 1000};
    struct uli_grid rows = {
        .counts = {1, 4, 2}, .strides = {64, 16, 8}, .run_bytes = 8};
    assert_true(uli_grid_overlap(&run, 0, &rows, 100));
    assert_true(uli_grid_overlap(&rows, 100, &run, 0));
    assert_false(uli_grid_overlap(&rows, 1000, &run, 0));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(tensors_overlap_where_they_share_a_byte),
    cmocka_unit_test(one_run_holds_a_tensor),
};

ULI_TEST_MAIN("PlanOverlap", tests)
