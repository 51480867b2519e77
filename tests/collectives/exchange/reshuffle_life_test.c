/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans are created and destroyed. After 250 plans the ranks hold as much
 * memory and as many descriptors as after the first 50, and hardly more
 * mappings, even if each rank destroys its plans at another time. Many plans
 * may also be in flight at once, and each rank may wait for the plans and
 * destroy them in its own order. A communicator that has plans is not
 * destroyed.
 */
#include "collectives/exchange/reshuffle_fixture.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "support/test.h"

static int64_t
count_files(void)
{
    DIR *folder = opendir("/proc/self/fd");
    int64_t count = 0;
    while (folder && readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static int64_t
count_mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "r");
    int64_t lines = 0;
    for (int c; file && (c = fgetc(file)) != EOF;)
        lines += c == '\n';
    fclose(file);
    return lines;
}

struct holdings {
    int64_t bytes, files, mappings;
};

static struct holdings
holdings_of(struct fixture *f)
{
    struct holdings h = {0, count_files(), count_mappings()};
    for (int r = 0; r < RANKS; r++) {
        int64_t bytes;
        assert_status(
            ulyx_comm_get_memory(f->ranks.comms[r], &bytes), ULYX_SUCCESS);
        h.bytes += bytes;
    }
    return h;
}

/* A plan's holdings may be released a little after the call that destroys it: a
 * memory file when the last of the ranks has released it, a connection when its
 * other end has closed. What remains after a while is a leak. */
static struct holdings
holdings_settled(struct fixture *f, int64_t files)
{
    uli_deadline_t deadline = uli_deadline_in(20);
    struct holdings h = holdings_of(f);
    while (h.files > files && !uli_deadline_over(deadline)) {
        usleep(5000);
        h = holdings_of(f);
    }
    return h;
}

/* In each round a plan is created, used twice and destroyed. Ranks may be up to
 * a round apart. */
static int
rounds_body(int rank, int nranks, void *context)
{
    struct fixture *f = context;
    bool good = true;
    (void)nranks;
    for (int i = 0; good && i < 50; i++)
        good =
            ranks_expect(world_create(&f->w, rank) == ULYX_SUCCESS) &&
            ranks_expect(world_execute(&f->w, rank, 0) == ULYX_SUCCESS) &&
            ranks_expect(world_execute(&f->w, rank, 1) == ULYX_SUCCESS) &&
            ranks_expect(ulyx_plan_destroy(f->w.plans[rank]) == ULYX_SUCCESS);
    return !good;
}

static void
plans_leave_nothing(void **state)
{
    (void)state;
    for (int m = 0; m < MODES; m++) {
        struct fixture *f = fixture_new(&modes[m], ULYX_DTYPE_BF16);
        fixture_run(f, rounds_body);
        struct holdings before = holdings_of(f);
        for (int i = 0; i < 4; i++)
            fixture_run(f, rounds_body);
        struct holdings after = holdings_settled(f, before.files);
        assert_int_equal(after.bytes, before.bytes);
        assert_true(after.files <= before.files);
        /* The C library may map memory for threads at any time: 8 mappings
         * more are no leak. A sanitizer maps so much that the count says
         * nothing. */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
        assert_true(after.mappings <= before.mappings + 8);
#endif
        fixture_free(f);
    }
}

/* Many plans exist at once, with calls in flight in different orders on the
 * ranks. */
enum { PLANS = 12 };

struct many {
    struct fixture *f;
    ulyx_plan_t *plans[RANKS][PLANS];
};

static int
many_body(int rank, int nranks, void *context)
{
    struct many *many = context;
    struct world *w = &many->f->w;
    ulyx_request_t *requests[PLANS];
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS], *waste[PLANS][ULI_TENSORS];
    bool good = true;
    (void)nranks;
    world_pointers(w, rank, 0, src, dst);
    for (int i = 0; good && i < PLANS; i++) {
        good = ranks_expect(world_create(w, rank) == ULYX_SUCCESS);
        many->plans[rank][i] = w->plans[rank];
        for (int t = 0; t < w->c.shape.ntensors; t++) {
            int64_t bytes = w->dst[0][rank][t].bytes;
            waste[i][t] = calloc(1, (size_t)bytes);
        }
    }
    for (int i = 0; good && i < PLANS; i++) {
        int k = (i + rank * 3) % PLANS;
        good = ranks_expect(ulyx_reshuffle_start(many->plans[rank][k], 0, src,
                                waste[k], 0, &requests[k]) == ULYX_SUCCESS);
    }
    for (int i = 0; good && i < PLANS; i++)
        good =
            ranks_expect(ulyx_request_wait(requests[(i * 5 + rank) % PLANS]) ==
                         ULYX_SUCCESS);
    for (int i = 0; good && i < PLANS; i++)
        good = ranks_expect(
            ulyx_plan_destroy(many->plans[rank][(i * 7 + rank) % PLANS]) ==
            ULYX_SUCCESS);
    for (int i = 0; i < PLANS; i++)
        for (int t = 0; t < w->c.shape.ntensors; t++)
            free(waste[i][t]);
    return !good;
}

static void
many_plans_in_flight_in_any_order(void **state)
{
    (void)state;
    for (int m = 1; m < 3; m++) {
        struct many many = {fixture_new(&modes[m], ULYX_DTYPE_BF16), {{0}}};
        assert_int_equal(
            ranks_run_threads(RANKS, many_body, &many, LIMIT_S), 0);
        fixture_free(many.f);
    }
}

static void
communicators_wait_for_their_plans(void **state)
{
    (void)state;
    struct fixture *f = fixture_new(&modes[0], ULYX_DTYPE_BF16);
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int32_t r = 0; r < RANKS; r++)
        assert_status(world_create(&f->w, r), ULYX_SUCCESS);
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
    assert_status(ulyx_comm_destroy(f->ranks.comms[0]), ULYX_ERR_BUSY);
    for (int32_t r = 0; r < RANKS; r++)
        assert_status(ulyx_plan_destroy(f->w.plans[r]), ULYX_SUCCESS);
    fixture_free(f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(plans_leave_nothing),
    cmocka_unit_test(many_plans_in_flight_in_any_order),
    cmocka_unit_test(communicators_wait_for_their_plans),
};

ULI_TEST_MAIN("ReshuffleLife", tests)
