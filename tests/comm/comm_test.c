/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators whose ranks are threads of this process, and one thread that
 * drives many ranks through groups.
 */
#include "support/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bootstrap/bootstrap.h"
#include "comm/comm.h"
#include "support/ranks.h"
#include "ulyx/comm.h"

enum { RANKS = 5 };

static void
make_local(int nranks, double timeout_s, ulyx_comm_t **comms)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;

    params.timeout_s = timeout_s;
    params.name = "test";
    assert_status(ulyx_comm_create_local(nranks, &params, comms), ULYX_SUCCESS);
}

static void
destroy_all(int nranks, ulyx_comm_t **comms)
{
    for (int r = 0; r < nranks; r++)
        assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
}

static void
local_queries_give_rank_and_size(void **state)
{
    ulyx_comm_t *comms[RANKS];
    int32_t value;
    int64_t bytes;

    (void)state;
    make_local(RANKS, 10, comms);
    for (int r = 0; r < RANKS; r++) {
        assert_status(ulyx_comm_get_rank(comms[r], &value), ULYX_SUCCESS);
        assert_int_equal(value, r);
        assert_status(ulyx_comm_get_nranks(comms[r], &value), ULYX_SUCCESS);
        assert_int_equal(value, RANKS);
        assert_status(ulyx_comm_get_memory(comms[r], &bytes), ULYX_SUCCESS);
        assert_true(bytes > 0);
    }
    destroy_all(RANKS, comms);
}

/* ULYX_TIMEOUT=0 without a parameter: creation in both ways, and a call. */
static void
timeout_setting_of_zero_is_the_default(void **state)
{
    ulyx_unique_id_t id;
    ulyx_comm_t *comms[2];

    (void)state;
    setenv("ULYX_TIMEOUT", "0", 1);
    make_local(1, 0, &comms[0]);
    assert_status(ulyx_unique_id_create(&id), ULYX_SUCCESS);
    assert_status(ulyx_comm_create(&id, 1, 0, NULL, &comms[1]), ULYX_SUCCESS);
    unsetenv("ULYX_TIMEOUT");
    for (int i = 0; i < 2; i++) {
        assert_true(comms[i]->timeout_s == 600);
        assert_status(ulyx_comm_barrier(comms[i]), ULYX_SUCCESS);
    }
    destroy_all(2, comms);
}

static int
barrier_body(int rank, int nranks, void *context)
{
    ulyx_comm_t **comms = context;

    (void)nranks;
    for (int i = 0; i < 200; i++)
        if (!ranks_expect(ulyx_comm_barrier(comms[rank]) == ULYX_SUCCESS))
            return 1;
    return 0;
}

static void
barrier_threads_pass_together(void **state)
{
    ulyx_comm_t *comms[RANKS];

    (void)state;
    make_local(RANKS, 20, comms);
    assert_int_equal(ranks_run_threads(RANKS, barrier_body, comms, 30), 0);
    destroy_all(RANKS, comms);
}

static void
group_one_thread_drives_all_ranks(void **state)
{
    ulyx_comm_t *comms[RANKS], *halves[RANKS];
    int32_t value;

    (void)state;
    make_local(RANKS, 20, comms);
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++) {
        assert_status(ulyx_comm_barrier(comms[r]), ULYX_SUCCESS);
        assert_status(ulyx_comm_split(
                          comms[r], r == 4 ? -1 : r % 2, -r, NULL, &halves[r]),
            ULYX_SUCCESS);
    }
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
    assert_null(halves[4]);
    for (int r = 0; r < 4; r++) {
        assert_status(ulyx_comm_get_nranks(halves[r], &value), ULYX_SUCCESS);
        assert_int_equal(value, 2);
        /* keys are negative ranks: the higher old rank comes first */
        assert_status(ulyx_comm_get_rank(halves[r], &value), ULYX_SUCCESS);
        assert_int_equal(value, r < 2 ? 1 : 0);
        assert_status(ulyx_comm_destroy(halves[r]), ULYX_SUCCESS);
    }
    destroy_all(RANKS, comms);
}

static void
group_end_without_start_is_refused(void **state)
{
    (void)state;
    assert_status(ulyx_group_end(), ULYX_ERR_INVALID_ARGUMENT);
}

static int
disagree_body(int rank, int nranks, void *context)
{
    ulyx_comm_t **comms = context, *child = NULL;
    ulyx_status_t status;

    (void)nranks;
    status = rank == 2 ? ulyx_comm_split(comms[rank], 0, 0, NULL, &child)
                       : ulyx_comm_barrier(comms[rank]);
    if (!ranks_expect(status == ULYX_ERR_MISMATCH) ||
        !ranks_expect(strstr(ulyx_last_error(), "rank 2 called split")) ||
        !ranks_expect(child == NULL))
        return 1;
    return !ranks_expect(ulyx_comm_barrier(comms[rank]) == ULYX_SUCCESS);
}

static void
mismatch_names_calls_and_leaves_comm_usable(void **state)
{
    ulyx_comm_t *comms[RANKS];

    (void)state;
    make_local(RANKS, 20, comms);
    assert_int_equal(ranks_run_threads(RANKS, disagree_body, comms, 30), 0);
    destroy_all(RANKS, comms);
}

static int
absent_body(int rank, int nranks, void *context)
{
    ulyx_comm_t **comms = context;
    ulyx_status_t status;

    (void)nranks;
    if (rank == 1 || rank == 3)
        return 0;
    status = ulyx_comm_barrier(comms[rank]);
    if (!ranks_expect(status == ULYX_ERR_TIMEOUT) ||
        !ranks_expect(strstr(ulyx_last_error(), "1, 3") != NULL))
        return 1;
    return !ranks_expect(ulyx_comm_barrier(comms[rank]) == ULYX_ERR_TIMEOUT);
}

static void
timeout_names_the_missing_ranks(void **state)
{
    ulyx_comm_t *comms[RANKS];

    (void)state;
    make_local(RANKS, 0.2, comms);
    assert_int_equal(ranks_run_threads(RANKS, absent_body, comms, 30), 0);
    destroy_all(RANKS, comms);
}

static int
abort_body(int rank, int nranks, void *context)
{
    ulyx_comm_t **comms = context, *smaller;
    ulyx_status_t status;
    int32_t value = 0;

    if (rank == 4) {
        usleep(20000);
        ranks_expect(ulyx_comm_abort(comms[rank]) == ULYX_SUCCESS);
        status = ulyx_comm_barrier(comms[rank]);
    } else {
        status = ulyx_comm_barrier(comms[rank]);
    }
    if (!ranks_expect(status == ULYX_ERR_ABORTED) ||
        !ranks_expect(strstr(ulyx_last_error(), "rank 4") != NULL))
        return 1;
    /* All ranks still live, so a shrink of the failed communicator has all of
     * them. */
    status = ulyx_comm_shrink(comms[rank], NULL, &smaller);
    if (!ranks_expect(status == ULYX_SUCCESS))
        return 1;
    ulyx_comm_get_nranks(smaller, &value);
    ranks_expect(value == nranks);
    status = ulyx_comm_barrier(smaller);
    ranks_expect(ulyx_comm_destroy(smaller) == ULYX_SUCCESS);
    return !ranks_expect(status == ULYX_SUCCESS && value == nranks);
}

static void
abort_reaches_all_and_shrink_recovers(void **state)
{
    ulyx_comm_t *comms[RANKS];

    (void)state;
    make_local(RANKS, 20, comms);
    assert_int_equal(ranks_run_threads(RANKS, abort_body, comms, 30), 0);
    destroy_all(RANKS, comms);
}

static int
shrink_absent_body(int rank, int nranks, void *context)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t **comms = context, *smaller;
    int32_t size = 0, place = -1;

    (void)nranks;
    if (rank == 2)
        return 0;
    params.timeout_s = 0.5;
    if (!ranks_expect(
            ulyx_comm_shrink(comms[rank], &params, &smaller) == ULYX_SUCCESS))
        return 1;
    ulyx_comm_get_nranks(smaller, &size);
    ulyx_comm_get_rank(smaller, &place);
    ulyx_comm_destroy(smaller);
    return !ranks_expect(
        size == RANKS - 1 && place == (rank > 2 ? rank - 1 : rank));
}

static void
shrink_leaves_out_who_does_not_come(void **state)
{
    ulyx_comm_t *comms[RANKS];

    (void)state;
    make_local(RANKS, 20, comms);
    assert_int_equal(
        ranks_run_threads(RANKS, shrink_absent_body, comms, 30), 0);
    destroy_all(RANKS, comms);
}

static int
left_body(int rank, int nranks, void *context)
{
    ulyx_comm_t **comms = context;
    ulyx_status_t status;

    (void)nranks;
    if (rank == 0)
        return !ranks_expect(ulyx_comm_destroy(comms[0]) == ULYX_SUCCESS);
    status = ulyx_comm_barrier(comms[rank]);
    return !ranks_expect(status == ULYX_ERR_RANK_LOST &&
                         strstr(ulyx_last_error(), "rank 0") != NULL);
}

static void
destroyed_handle_ends_the_peers_waits(void **state)
{
    ulyx_comm_t *comms[RANKS];

    (void)state;
    make_local(RANKS, 20, comms);
    assert_int_equal(ranks_run_threads(RANKS, left_body, comms, 10), 0);
    destroy_all(RANKS - 1, comms + 1);
}

static void
bad_arguments_are_named(void **state)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    struct {
        ulyx_comm_params_t known;
        int64_t later;
    } newer = {ULYX_COMM_PARAMS_INIT, 1};
    ulyx_comm_t *comms[2] = {NULL, NULL};

    (void)state;
    assert_status(
        ulyx_comm_create_local(0, NULL, comms), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(
        ulyx_comm_create_local(2, NULL, NULL), ULYX_ERR_INVALID_ARGUMENT);
    params.size = 4;
    assert_status(
        ulyx_comm_create_local(2, &params, comms), ULYX_ERR_INVALID_ARGUMENT);
    params.size = sizeof(params);
    params.timeout_s = 1e9;
    assert_status(
        ulyx_comm_create_local(2, &params, comms), ULYX_ERR_INVALID_ARGUMENT);
    params.timeout_s = 0.0 / 0.0;
    assert_status(
        ulyx_comm_create_local(2, &params, comms), ULYX_ERR_INVALID_ARGUMENT);
    newer.known.size = sizeof(newer);
    assert_status(
        ulyx_comm_create_local(2, &newer.known, comms), ULYX_ERR_UNSUPPORTED);
    newer.later = 0;
    assert_null(comms[0]);
    assert_status(ulyx_comm_create_local(2, &newer.known, comms), ULYX_SUCCESS);
    destroy_all(2, comms);
    assert_status(ulyx_comm_destroy(NULL), ULYX_SUCCESS);
}

/* A meeting whose second gather never comes. */
struct half {
    struct uli_bootstrap base;
    struct uli_bootstrap *inner;
    int gathers;
    atomic_bool *over;
};

static ulyx_status_t
half_gather(struct uli_bootstrap *base, const void *mine, size_t bytes,
    void *all_p, uli_deadline_t deadline)
{
    struct half *half = (struct half *)base;

    if (half->gathers++ == 0)
        return half->inner->ops->gather(
            half->inner, mine, bytes, all_p, deadline);
    while (!atomic_load(half->over))
        usleep(1000);
    return uli_error(ULYX_ERR_ABORTED, "the test is over");
}

static const struct uli_bootstrap_ops half_ops = {.gather = half_gather};

/* Opens the meeting late and takes part in its first gather only. */
static bool
create_half(atomic_bool *over)
{
    struct half half = {.over = over};
    struct uli_settings settings;
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *comm;

    usleep(2500000);
    if (!ranks_expect(uli_settings_load(&settings) == ULYX_SUCCESS) ||
        !ranks_expect(
            uli_bootstrap_open_env(&settings, uli_bootstrap_count_env(),
                uli_deadline_in(20), &half.inner) == 0))
        return false;
    half.base = (struct uli_bootstrap){&half_ops, 0, 2, NULL};
    bool ok = ranks_expect(uli_comm_create(&half.base, 2, 0, &params,
                               uli_deadline_in(20), &comm) == ULYX_ERR_ABORTED);
    half.inner->ops->close(half.inner);
    return ok;
}

/* After the meeting the creation has only the half second that is left. Rank 0
 * of the environment, which serves the meeting, is the test's rank 1. */
static int
late_body(int rank, int nranks, void *context)
{
    atomic_bool *over = context;
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *comm;
    char text[32];
    int64_t begun_ns = uli_clock_ns();
    bool ok;

    (void)nranks;
    setenv("ULYX_RANK", rank == 0 ? "1" : "0", 1);
    setenv("ULYX_NRANKS", "2", 1);
    setenv("ULYX_LOCAL_NRANKS", "2", 1);
    snprintf(text, sizeof(text), "late-%d", (int)getppid());
    setenv("ULYX_JOB", text, 1);
    if (rank == 1)
        return !create_half(over);
    params.timeout_s = 3;
    ok = ranks_expect(
        ulyx_comm_create_from_env(&params, &comm) == ULYX_ERR_TIMEOUT);
    ok &= ranks_expect(uli_clock_ns() - begun_ns < INT64_C(5000000000));
    atomic_store(over, true);
    return !ok;
}

static void
creation_has_one_deadline(void **state)
{
    atomic_bool *over = ranks_shared(sizeof(*over));

    (void)state;
    assert_int_equal(ranks_run_processes(2, late_body, over, 30), 0);
    ranks_shared_free(over, sizeof(*over));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(local_queries_give_rank_and_size),
    cmocka_unit_test(barrier_threads_pass_together),
    cmocka_unit_test(group_one_thread_drives_all_ranks),
    cmocka_unit_test(group_end_without_start_is_refused),
    cmocka_unit_test(mismatch_names_calls_and_leaves_comm_usable),
    cmocka_unit_test(timeout_names_the_missing_ranks),
    cmocka_unit_test(abort_reaches_all_and_shrink_recovers),
    cmocka_unit_test(timeout_setting_of_zero_is_the_default),
    cmocka_unit_test(shrink_leaves_out_who_does_not_come),
    cmocka_unit_test(destroyed_handle_ends_the_peers_waits),
    cmocka_unit_test(bad_arguments_are_named),
    cmocka_unit_test(creation_has_one_deadline),
};

ULI_TEST_MAIN("Comm", tests)
