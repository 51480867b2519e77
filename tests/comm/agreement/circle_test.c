/* SPDX-License-Identifier: Apache-2.0
 *
 * Circles of ranks that wait for each other: the search is compared with a slow
 * search that tries every step, on random tables.
 */
#include "comm/agreement/circle.h"

#include <stdlib.h>
#include <string.h>
#include "support/random.h"
#include "support/test.h"

enum { MOST = 12 };

/* Returns whether a waits for b in vain; the rule is written out in full. */
static bool
waits_in_vain(const struct uli_circle_row *rows, int32_t nranks, int a, int b)
{
    const struct uli_call_key *x = &rows[a].standing.key;
    const struct uli_call_key *y = &rows[b].standing.key;
    bool same =
        x->call == y->call && x->plan == y->plan && x->number == y->number;
    return a != b && rows[a].standing.awaited == b && rows[a].away &&
           rows[b].standing.awaited >= 0 && b < nranks && !same;
}

/* Returns the length of the shortest circle through the rank, or 0. reach[a][b]
 * is the fewest steps from a to b. */
static int
circle_reference(const struct uli_circle_row *rows, int32_t nranks, int rank)
{
    int reach[MOST][MOST];
    for (int a = 0; a < nranks; a++)
        for (int b = 0; b < nranks; b++)
            reach[a][b] = waits_in_vain(rows, nranks, a, b) ? 1 : 1000;
    for (int k = 0; k < nranks; k++)
        for (int a = 0; a < nranks; a++)
            for (int b = 0; b < nranks; b++)
                if (reach[a][k] + reach[k][b] < reach[a][b])
                    reach[a][b] = reach[a][k] + reach[k][b];
    return reach[rank][rank] < 1000 ? reach[rank][rank] : 0;
}

static void
rows_draw(
    struct test_random *random, struct uli_circle_row *rows, int32_t nranks)
{
    memset(rows, 0, MOST * sizeof(*rows));
    for (int r = 0; r < nranks; r++) {
        /* Some values are out of range on both sides, as other ranks may write
         * them. */
        rows[r].standing.awaited = (int32_t)test_random_in(random, -1, nranks);
        rows[r].standing.key.call = (uint32_t)test_random_in(random, 1, 2);
        rows[r].standing.key.plan = (uint64_t)test_random_in(random, 0, 1);
        rows[r].standing.key.number = (uint64_t)test_random_in(random, 1, 2);
        rows[r].away = test_random_in(random, 0, 9) > 0;
    }
}

static void
random_tables_agree_with_the_reference(void **state)
{
    struct uli_circle_row rows[MOST];
    struct test_random random = {test_seed(17)};
    int64_t draws = test_draws(20000), found = 0;
    (void)state;
    for (int64_t i = 0; i < draws; i++) {
        int32_t nranks = (int32_t)test_random_in(&random, 1, MOST);
        rows_draw(&random, rows, nranks);
        for (int r = 0; r < nranks; r++) {
            int length = uli_circle_length(rows, nranks, r);
            assert_int_equal(length, circle_reference(rows, nranks, r));
            found += length > 0;
        }
    }
    assert_true(found > draws / 20);
}

/* a -> b -> a, in the calls of two plans. */
static void
pair_fill(struct uli_circle_row rows[2])
{
    memset(rows, 0, 2 * sizeof(*rows));
    for (int r = 0; r < 2; r++) {
        rows[r].away = true;
        rows[r].standing.awaited = 1 - r;
        rows[r].standing.key.call = 1;
        rows[r].standing.key.plan = (uint64_t)r;
        rows[r].standing.key.number = 1;
    }
}

static void
each_condition_is_needed(void **state)
{
    struct uli_circle_row rows[2];
    (void)state;
    pair_fill(rows);
    assert_int_equal(uli_circle_length(rows, 2, 0), 2);
    rows[1].away = false; /* rank 1 has begun the call */
    assert_int_equal(uli_circle_length(rows, 2, 0), 0);
    pair_fill(rows);
    rows[1].standing.awaited = -1; /* rank 1 is outside the library */
    assert_int_equal(uli_circle_length(rows, 2, 0), 0);
    pair_fill(rows);
    rows[1].standing.key.plan = 0; /* rank 1 is in the same call */
    assert_int_equal(uli_circle_length(rows, 2, 0), 0);
    rows[1].standing.key.number = 2; /* another call of the same plan */
    assert_int_equal(uli_circle_length(rows, 2, 0), 2);
    pair_fill(rows);
    rows[0].standing.awaited = 0; /* rank 0 waits for itself */
    assert_int_equal(uli_circle_length(rows, 2, 0), 0);
    rows[0].standing.awaited = INT32_MAX;
    assert_int_equal(uli_circle_length(rows, 2, 0), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_tables_agree_with_the_reference),
    cmocka_unit_test(each_condition_is_needed),
};

ULI_TEST_MAIN("Circle", tests)
