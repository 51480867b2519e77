/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that aborts, after its deadline or during a wait, sends the rank for
 * which it waited: each other rank names that rank, on one node and across
 * nodes, and none names a rank that only waits.
 */
#include "support/test.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "comm/agreement/abort_record.h"
#include "comm/remote/nodes_scene.h"
#include "support/ranks.h"
#include "support/thread_net.h"
#include "ulyx/collective.h"

enum { RANKS = 6, LIMIT_S = 60, AWAITED_S = 20 };
#define LONG_S  50.0
#define SHORT_S 0.8

struct scene {
    int aborter, victim;
    bool alltoall;
    bool early; /* aborted by another thread while it waits */
    ulyx_comm_t *comms[MOST_RANKS];
    _Atomic int ended;
};

static char source[MOST_RANKS][MOST_RANKS], target[MOST_RANKS][MOST_RANKS];

static ulyx_status_t
rank_call(const struct scene *s, int rank)
{
    ulyx_comm_t *comm = s->comms[rank];
    return s->alltoall
               ? ulyx_alltoall(comm, source[rank], target[rank], 1, NULL)
               : ulyx_comm_barrier(comm);
}

static bool
text_names_both(const struct scene *s, const char *text)
{
    char aborter[16];
    bool right = strstr(text, " aborted; it waited for ") != NULL;
    snprintf(aborter, sizeof(aborter), "rank %d (", s->aborter);
    right &= strncmp(text, aborter, strlen(aborter)) == 0;
    for (int r = 0; r < RANKS; r++)
        right &= ranks_listed(text, "waited for rank", r) == (r == s->victim);
    if (!right)
        fprintf(stderr, "%s\n", text);
    return ranks_expect(right);
}

/* True once the aborter has recorded that it waits for the victim. Before that
 * it may wait for a rank that is only slower, and would rightly name that
 * rank. */
static bool
aborter_awaits_victim(const struct scene *s)
{
    const struct uli_recorder *recorder =
        &s->comms[s->aborter]->control->recorder;
    return uli_recorder_awaited(recorder) == s->victim &&
           !uli_recorder_doubts(recorder, s->victim);
}

/* The victim makes no call. In an early abort this thread aborts the aborter's
 * communicator, once the aborter stands still for the victim. */
static int
victim_body(struct scene *s)
{
    int64_t limit = uli_clock_ns() + (int64_t)AWAITED_S * 1000000000;
    while (s->early && !aborter_awaits_victim(s) && uli_clock_ns() < limit)
        sched_yield();
    if (s->early)
        ulyx_comm_abort(s->comms[s->aborter]);
    while (atomic_load(&s->ended) < RANKS - 1)
        usleep(1000);
    return 0;
}

static int
abort_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    ulyx_comm_t *comm = s->comms[rank];
    (void)nranks;
    bool right = ranks_expect(rank_call(s, rank) == ULYX_SUCCESS);
    if (rank == s->victim)
        return (int)!right | victim_body(s);
    bool times_out = rank == s->aborter && !s->early;
    comm->timeout_s = times_out ? SHORT_S : LONG_S;
    ulyx_status_t status = rank_call(s, rank);
    if (times_out) {
        right &= ranks_expect(status == ULYX_ERR_TIMEOUT);
        right &= ranks_expect(ulyx_comm_abort(comm) == ULYX_SUCCESS);
    } else {
        right &= ranks_expect(status == ULYX_ERR_ABORTED) &&
                 text_names_both(s, ulyx_last_error());
    }
    atomic_fetch_add(&s->ended, 1);
    return !right;
}

static void
scene_run(int per_node, int aborter, int victim, bool alltoall, bool early)
{
    struct scene s = {aborter, victim, alltoall, early, {NULL}, 0};
    print_message("%d ranks a node, rank %d aborts%s, rank %d is late%s\n",
        per_node, aborter, early ? " early" : "", victim,
        alltoall ? ", alltoall" : "");
    scene_open(RANKS, per_node, LONG_S, s.comms);
    assert_int_equal(ranks_run_threads(RANKS, abort_body, &s, LIMIT_S), 0);
    scene_close(RANKS, s.comms);
}

static void
deadline_and_abort_name_the_late_rank_everywhere(void **state)
{
    (void)state;
    for (int per_node = 2; per_node <= RANKS; per_node += 2)
        for (int alltoall = 0; alltoall < 2; alltoall++) {
            scene_run(per_node, 0, 1, alltoall, false);
            scene_run(per_node, 1, RANKS - 2, alltoall, false);
        }
}

static void
abort_out_of_a_wait_names_the_late_rank_everywhere(void **state)
{
    (void)state;
    for (int per_node = 2; per_node <= RANKS; per_node += 2)
        for (int alltoall = 0; alltoall < 2; alltoall++) {
            scene_run(per_node, 0, 1, alltoall, true);
            scene_run(per_node, 1, RANKS - 1, alltoall, true);
        }
}

/* ---- the record itself --------------------------------------------------- */

static void
comms_open(int nranks, ulyx_comm_t **comms)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.timeout_s = LONG_S;
    assert_status(ulyx_comm_create_local(nranks, &params, comms), ULYX_SUCCESS);
}

static void
comms_close(int nranks, ulyx_comm_t **comms)
{
    for (int r = 0; r < nranks; r++)
        assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
}

/* Rank 1 aborts after it has received a record; it has waited for no rank
 * itself. */
static void
second_abort_passes_on_the_first_record(void **state)
{
    const struct uli_late late = uli_late_one(ULI_LATE_MOVE, 2);
    ulyx_comm_t *comms[4];
    (void)state;
    comms_open(4, comms);
    uli_comm_fail_late(comms[0], &late, "a call");
    ulyx_comm_abort(comms[0]);
    ulyx_comm_abort(comms[1]);
    for (int r = 1; r < 4; r++) {
        assert_status(ulyx_comm_barrier(comms[r]), ULYX_ERR_ABORTED);
        assert_non_null(strstr(ulyx_last_error(), "rank 0 ("));
        assert_non_null(
            strstr(ulyx_last_error(), "aborted; it waited for rank 2 ("));
    }
    comms_close(4, comms);
}

static void
invalid_record_is_ignored(void **state)
{
    struct uli_late good = uli_late_one(ULI_LATE_MOVE, 1), received;
    ulyx_comm_t *comms[2];
    (void)state;
    good.origin = 1;
    comms_open(2, comms);
    for (int i = 0; i < 6; i++) {
        struct uli_late bad = good;
        if (i == 0)
            bad.origin = -1;
        else if (i == 1)
            bad.origin = 2;
        else if (i == 2)
            bad.runs[0].last = 2;
        else if (i == 3)
            bad.nruns = ULI_LATE_RUNS + 1;
        else if (i == 4)
            bad.phase = ULI_LATE_PHASES;
        uli_abort_receive(comms[0], &bad, sizeof(bad) - (i == 5));
        assert_false(uli_abort_read(comms[0], &received));
    }
    uli_abort_receive(comms[0], &good, sizeof(good));
    assert_true(uli_abort_read(comms[0], &received));
    assert_true(uli_abort_read(comms[1], &received));
    assert_int_equal(received.runs[0].first, 1);
    comms_close(2, comms);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(deadline_and_abort_name_the_late_rank_everywhere),
    cmocka_unit_test(abort_out_of_a_wait_names_the_late_rank_everywhere),
    cmocka_unit_test(second_abort_passes_on_the_first_record),
    cmocka_unit_test(invalid_record_is_ignored),
};

ULI_TEST_MAIN("AbortRecord", tests)
