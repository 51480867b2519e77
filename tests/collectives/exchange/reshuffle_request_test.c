/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations in two steps: one at a time per plan, by one thread for many
 * ranks, in groups, and by the library's thread.
 */
#include "collectives/exchange/reshuffle_fixture.h"

#include <pthread.h>
#include "support/test.h"

/* ---- one call at a time -------------------------------------------------- */

static int
busy_body(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    struct world *w = &f->w;
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    ulyx_request_t *request, *other;
    (void)nranks;
    bool good = ranks_expect(world_create(w, rank) == ULYX_SUCCESS);
    world_pointers(w, rank, 0, src, dst);
    for (int call = 0; good && call < 4; call++) {
        good = ranks_expect(ulyx_reshuffle_start(w->plans[rank], 0, src, dst, 0,
                                &request) == ULYX_SUCCESS);
        good &= ranks_expect(ulyx_reshuffle_start(w->plans[rank], 0, src, dst,
                                 0, &other) == ULYX_ERR_BUSY);
        good &=
            ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_ERR_BUSY);
        good &= ranks_expect(ulyx_request_wait(request) == ULYX_SUCCESS);
        good &= ranks_expect(world_check_rank(w, 0, rank));
        good &= ranks_expect(
            ulyx_request_test(request) == ULYX_ERR_INVALID_ARGUMENT);
    }
    good &= ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS);
    return !good;
}

static void
second_call_is_busy(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_BF16);
        fixture_run(f, busy_body);
        fixture_free(f);
    }
}

struct thief {
    ulyx_request_t *request;
    ulyx_status_t test, wait;
};

static void *
thief_main(void *context)
{
    struct thief *thief = context;
    thief->test = ulyx_request_test(thief->request);
    thief->wait = ulyx_request_wait(thief->request);
    return NULL;
}

static int
owner_body(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    struct world *w = &f->w;
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    struct thief thief;
    pthread_t thread;
    (void)nranks;
    bool good = ranks_expect(world_create(w, rank) == ULYX_SUCCESS);
    world_pointers(w, rank, 0, src, dst);
    good &= ranks_expect(ulyx_reshuffle_start(w->plans[rank], 0, src, dst, 0,
                             &thief.request) == ULYX_SUCCESS);
    pthread_create(&thread, NULL, thief_main, &thief);
    pthread_join(thread, NULL);
    good &= ranks_expect(thief.test == ULYX_ERR_INVALID_ARGUMENT);
    good &= ranks_expect(thief.wait == ULYX_ERR_INVALID_ARGUMENT);
    good &= ranks_expect(ulyx_request_wait(thief.request) == ULYX_SUCCESS);
    good &= ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS);
    return !good;
}

static void
operations_belong_to_their_thread(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(&modes[0], ULYX_DTYPE_BF16);
    fixture_run(f, owner_body);
    fixture_free(f);
}

/* ---- one thread, many ranks ---------------------------------------------- */

static void
create_all_in_group(struct world *w)
{
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int32_t r = 0; r < RANKS; r++)
        assert_status(world_create(w, r), ULYX_SUCCESS);
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
}

static void
destroy_all(struct world *w)
{
    for (int32_t r = 0; r < RANKS; r++)
        assert_status(ulyx_plan_destroy(w->plans[r]), ULYX_SUCCESS);
}

/* The second half of the calls passes other strides than those of creation. */
static void
move_at_half(struct world *w, int call)
{
    struct test_random random = {9};
    if (call != ULYX_DIRECTIONS)
        return;
    world_move(w, &random, 2);
    world_fill(w);
}

static ulyx_status_t
start_rank(struct world *w, int32_t r, int op, ulyx_request_t **request_p)
{
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    struct world_strides strides;
    world_pointers(w, r, op, src, dst);
    world_call_strides(w, r, op, &strides);
    return ulyx_reshuffle_start_strided(
        w->plans[r], op, src, strides.src_p, dst, strides.dst_p, 0, request_p);
}

static void
one_thread_drives_all_ranks(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_F32);
        struct world *w = &f->w;
        create_all_in_group(w);
        for (int call = 0; call < 2 * ULYX_DIRECTIONS; call++) {
            int op = call % ULYX_DIRECTIONS;
            move_at_half(w, call);
            assert_status(ulyx_group_start(), ULYX_SUCCESS);
            for (int32_t r = 0; r < RANKS; r++)
                assert_status(world_execute(w, r, op), ULYX_SUCCESS);
            assert_status(world_execute(w, 0, op), ULYX_ERR_BUSY);
            assert_status(ulyx_group_end(), ULYX_SUCCESS);
            for (int32_t r = 0; r < RANKS; r++)
                assert_true(world_check_rank(w, op, r));
        }
        destroy_all(w);
        fixture_free(f);
    }
}

static void
a_wait_progresses_the_other_operations(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_F32);
        struct world *w = &f->w;
        create_all_in_group(w);
        for (int call = 0; call < 8; call++) {
            ulyx_request_t *requests[RANKS];
            int op = call % ULYX_DIRECTIONS;
            move_at_half(w, call);
            for (int32_t r = 0; r < RANKS; r++)
                assert_status(start_rank(w, r, op, &requests[r]), ULYX_SUCCESS);
            for (int32_t r = 0; r < RANKS; r++)
                assert_status(
                    ulyx_request_wait(requests[(r * 3 + call) % RANKS]),
                    ULYX_SUCCESS);
            for (int32_t r = 0; r < RANKS; r++)
                assert_true(world_check_rank(w, op, r));
        }
        destroy_all(w);
        fixture_free(f);
    }
}

static void
the_library_thread_copies(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_F32);
        struct world *w = &f->w;
        w->flags = ULYX_PLAN_PROGRESS_THREAD;
        create_all_in_group(w);
        for (int call = 0; call < 2 * ULYX_DIRECTIONS; call++) {
            int op = call % ULYX_DIRECTIONS;
            ulyx_request_t *requests[RANKS];
            move_at_half(w, call);
            for (int32_t r = 0; r < RANKS; r++)
                assert_status(start_rank(w, r, op, &requests[r]), ULYX_SUCCESS);
            for (int32_t r = 0; r < RANKS - 1; r++)
                assert_status(ulyx_request_wait(requests[r]), ULYX_SUCCESS);
            ulyx_status_t status;
            while ((status = ulyx_request_test(requests[RANKS - 1])) ==
                   ULYX_IN_PROGRESS)
                pause_ms(1);
            assert_int_equal(status, ULYX_SUCCESS);
            for (int32_t r = 0; r < RANKS; r++)
                assert_true(world_check_rank(w, op, r));
        }
        destroy_all(w);
        fixture_free(f);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(second_call_is_busy),
    cmocka_unit_test(operations_belong_to_their_thread),
    cmocka_unit_test(one_thread_drives_all_ranks),
    cmocka_unit_test(a_wait_progresses_the_other_operations),
    cmocka_unit_test(the_library_thread_copies),
};

ULI_TEST_MAIN("ReshuffleRequest", tests)
