/* SPDX-License-Identifier: Apache-2.0
 *
 * Thousands of communicators and plans: after many of them a process holds what
 * it held after a few. ULYX_TEST_DRAWS=34 makes it ten thousand.
 */
#include <stdio.h>
#include <unistd.h>
#include "soak/jobs.h"
#include "soak/scene.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 4, ROWS = 40, MARGIN_BYTES = 3 << 20 };

/* Allocators keep some freed memory; those of sanitizers keep much, so there
 * the check is left out. */
static bool
resident_is_flat(const struct holdings *early, const struct holdings *late)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    (void)early, (void)late;
    return true;
#else
    return late->rss_bytes - early->rss_bytes < MARGIN_BYTES;
#endif
}

static bool
stays_flat(const struct holdings *early, const struct holdings *late)
{
    bool flat = resident_is_flat(early, late) &&
                late->descriptors <= early->descriptors &&
                late->mappings <= early->mappings &&
                late->threads <= early->threads;
    holdings_print(flat ? "early" : "GREW: early", early);
    holdings_print("late", late);
    return flat;
}

/* ---- all ranks from one thread ------------------------------------------- */

/* Creates a communicator of RANKS ranks, splits it into halves, and destroys
 * all. */
static void
one_life(void)
{
    ulyx_comm_t *comms[RANKS], *halves[RANKS];
    assert_status(ulyx_comm_create_local(RANKS, NULL, comms), ULYX_SUCCESS);
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++)
        assert_status(ulyx_comm_split(comms[r], r % 2, 0, NULL, &halves[r]), 0);
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++) {
        assert_status(ulyx_comm_destroy(halves[r]), ULYX_SUCCESS);
        assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
    }
}

static void
handles_of_one_thread(void **state)
{
    (void)state;
    int64_t draws = test_draws(300);
    struct holdings early = {0}, late;
    for (int64_t i = 0; i < draws; i++) {
        if (i == draws / 3)
            early = holdings_now();
        one_life();
    }
    late = holdings_now();
    assert_true(stays_flat(&early, &late));
}

/* ---- threads as ranks ---------------------------------------------------- */

struct threads {
    ulyx_comm_t *comms[RANKS];
    int draw;
};

static int
thread_body(int rank, int nranks, void *context)
{
    struct threads *t = context;
    struct scene s;
    ulyx_direction_t direction =
        t->draw % 2 ? ULYX_SEQ_TO_HEAD : ULYX_SEQ_TO_HEAD_ADJOINT;
    (void)nranks;
    if (!ranks_expect(
            scene_open(t->comms[rank], (enum scene_path)(t->draw % SCENE_PATHS),
                ROWS, &s) == ULYX_SUCCESS))
        return 1;
    bool good = ranks_expect(scene_execute(&s, direction) == ULYX_SUCCESS) &&
                ranks_expect(scene_check(&s, direction));
    good &= ranks_expect(scene_close(&s, 10));
    return !(good && ranks_expect(ulyx_comm_destroy(t->comms[rank]) == 0));
}

static void
threads_as_ranks(void **state)
{
    (void)state;
    int64_t draws = test_draws(300);
    struct holdings early = {0}, late;
    for (int64_t i = 0; i < draws; i++) {
        struct threads t = {.draw = (int)i};
        if (i == draws / 3)
            early = holdings_now();
        assert_status(
            ulyx_comm_create_local(RANKS, NULL, t.comms), ULYX_SUCCESS);
        assert_int_equal(ranks_run_threads(RANKS, thread_body, &t, 60), 0);
    }
    late = holdings_now();
    assert_true(stays_flat(&early, &late));
}

/* ---- processes ----------------------------------------------------------- */

struct churn_processes {
    struct job job;
    int draws;
};

static bool
process_life(struct churn_processes *p, int n, int rank, int nranks)
{
    ulyx_comm_t *comm;
    struct scene s;
    if (!ranks_expect(job_meet(&p->job, n, nranks, rank, JOB_TIMEOUT_S,
                          &comm) == ULYX_SUCCESS))
        return false;
    if (!ranks_expect(scene_open(comm, (enum scene_path)(n % SCENE_PATHS), ROWS,
                          &s) == ULYX_SUCCESS))
        return false;
    bool good =
        ranks_expect(scene_execute(&s, ULYX_SEQ_TO_HEAD) == ULYX_SUCCESS) &&
        ranks_expect(scene_check(&s, ULYX_SEQ_TO_HEAD));
    good &= ranks_expect(scene_close(&s, 10));
    return good && ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
}

static int
process_body(int rank, int nranks, void *context)
{
    struct churn_processes *p = context;
    struct holdings early = {0}, late;
    for (int n = 0; n < p->draws; n++) {
        if (n == p->draws / 3) {
            usleep(100000); /* the thread of the last meeting's root ends */
            early = holdings_now();
        }
        if (!process_life(p, n, rank, nranks)) {
            fprintf(
                stderr, "rank %d: life %d: %s\n", rank, n, ulyx_last_error());
            return 1;
        }
    }
    if (!ranks_expect(holdings_back(&early, 5)))
        return 1;
    late = holdings_now();
    return !ranks_expect(resident_is_flat(&early, &late));
}

static void
processes_as_ranks(void **state)
{
    (void)state;
    struct churn_processes *p = ranks_shared(sizeof(*p));
    p->draws = (int)test_draws(40);
    int failed = ranks_run_processes(3, process_body, p, 170);
    ranks_shared_free(p, sizeof(*p));
    assert_int_equal(failed, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(handles_of_one_thread),
    cmocka_unit_test(threads_as_ranks),
    cmocka_unit_test(processes_as_ranks),
};
ULI_TEST_MAIN("SoakChurn", tests)
