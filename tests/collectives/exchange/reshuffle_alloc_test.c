/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls allocate nothing, whatever strides they pass: this program's malloc
 * counts the allocations of the calling threads.
 */
#include "collectives/exchange/reshuffle_fixture.h"

#include <stdlib.h>
#include "support/test.h"

/* ---- malloc -------------------------------------------------------------- */

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);

static __thread int64_t allocations;

void *
malloc(size_t bytes)
{
    allocations++;
    return __libc_malloc(bytes);
}

void *
calloc(size_t number, size_t bytes)
{
    allocations++;
    return __libc_calloc(number, bytes);
}

void *
realloc(void *memory, size_t bytes)
{
    allocations++;
    return __libc_realloc(memory, bytes);
}

/* ---- calls --------------------------------------------------------------- */

static int
create_body(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    (void)nranks;
    return !ranks_expect(world_create(&f->w, rank) == ULYX_SUCCESS);
}

static int
run_body(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    struct world *w = &f->w;
    bool good = true;
    (void)nranks;
    for (int i = 0; good && i < w->norder; i++) {
        int64_t before = allocations;
        good =
            ranks_expect(world_execute(w, rank, w->order[i]) == ULYX_SUCCESS);
        good &= ranks_expect(allocations == before);
    }
    return !good;
}

static void
calls_allocate_nothing(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_F32);
        struct test_random random = {11};
        fixture_run(f, create_body);
        for (int round = 0; round < 3; round++) {
            world_move(&f->w, &random, round);
            world_fill(&f->w);
            fixture_run(f, run_body);
            assert_true(world_check(&f->w));
        }
        for (int32_t r = 0; r < RANKS; r++)
            assert_status(ulyx_plan_destroy(f->w.plans[r]), ULYX_SUCCESS);
        fixture_free(f);
    }
}

static void
counting_works(void **state)
{
    int64_t before = allocations;
    (void)state;
    void *volatile memory = malloc(64);
    free(memory);
    assert_true(allocations == before + 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(counting_works),
    cmocka_unit_test(calls_allocate_nothing),
};

ULI_TEST_MAIN("ReshuffleAlloc", tests)
