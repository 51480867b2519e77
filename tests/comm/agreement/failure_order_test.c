/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank that leaves because its communicator has failed is not the cause: its
 * peers have the poison before any call at that rank can return the failure,
 * and a peer that finds the rank gone reads the poison. The test forces the
 * orders that only a race would produce, by replacing the calls between which
 * the race lies.
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "comm/comm.h"
#include "comm/device/gpu.h"
#include "support/ranks.h"
#include "support/test.h"
#include "ulyx/collective.h"

enum { RANKS = 3, LEAVER = 1, DEAD = 2, BYTES = 1000 };

static ulyx_comm_t *comms[RANKS];

static void
open_comms(void)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.timeout_s = 20;
    assert_status(ulyx_comm_create_local(RANKS, &params, comms), ULYX_SUCCESS);
}

/* ---- the failing rank ---------------------------------------------------- */

static int settled, notified;

void __real_uli_gpu_set_poison(ulyx_comm_t *comm, uint64_t poison);
void __wrap_uli_gpu_set_poison(ulyx_comm_t *comm, uint64_t poison);

/* Replaces the library's function; runs as soon as calls can return the
 * failure. */
void
__wrap_uli_gpu_set_poison(ulyx_comm_t *comm, uint64_t poison)
{
    settled++;
    for (int32_t p = 0; p < RANKS; p++)
        notified += p != comm->rank &&
                    atomic_load(&comm->peers[p].control->poison) == poison;
    __real_uli_gpu_set_poison(comm, poison);
}

static void
peers_are_poisoned_before_a_failure_is_visible(void **state)
{
    (void)state;
    for (int aborts = 0; aborts < 2; aborts++) {
        open_comms();
        settled = notified = 0;
        if (aborts)
            uli_comm_abort(comms[0]);
        else
            uli_comm_rank_died(comms[0], DEAD, "has ended");
        assert_int_equal(settled, 1);
        assert_int_equal(notified, RANKS - 1);
        for (int r = 0; r < RANKS; r++)
            assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
    }
}

/* ---- a peer that finds it gone ------------------------------------------- */

enum { CHECKS = 8 };

static int armed; /* n: in the n-th check from now on; 0: has happened */

ulyx_status_t __real_uli_comm_check(ulyx_comm_t *comm);
ulyx_status_t __wrap_uli_comm_check(ulyx_comm_t *comm);

/* Right after rank 0's armed-th successful check, the leaver finds another rank
 * dead and leaves. */
ulyx_status_t
__wrap_uli_comm_check(ulyx_comm_t *comm)
{
    ulyx_status_t status = __real_uli_comm_check(comm);
    if (!armed || comm != comms[0] || --armed)
        return status;
    uli_comm_rank_died(comms[LEAVER], DEAD, "has ended");
    assert_status(ulyx_comm_destroy(comms[LEAVER]), ULYX_SUCCESS);
    return status;
}

static void
close_rest(void)
{
    for (int r = 0; r < RANKS; r++)
        if (r != LEAVER)
            assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
}

static void
assert_cause(ulyx_status_t status)
{
    print_message("%s\n", ulyx_last_error());
    assert_int_equal(armed, 0);
    assert_int_equal(status, ULYX_ERR_RANK_LOST);
    assert_non_null(strstr(ulyx_last_error(), "rank 2 ("));
    assert_non_null(strstr(ulyx_last_error(), ") was found dead by a peer"));
    assert_null(strstr(ulyx_last_error(), "rank 1"));
}

static void
agreement_has_the_cause_that_a_leaving_rank_sent(void **state)
{
    (void)state;
    for (int n = 1; n <= CHECKS; n++) {
        open_comms();
        armed = n;
        assert_cause(ulyx_comm_barrier(comms[0]));
        close_rest();
    }
}

static char source[RANKS][RANKS * BYTES], target[RANKS][RANKS * BYTES];

static int
exchange_once(int rank, int nranks, void *context)
{
    (void)nranks, (void)context;
    return ulyx_alltoall(
               comms[rank], source[rank], target[rank], BYTES, NULL) != 0;
}

/* The first call opens the channels. */
static void
exchange_has_the_cause_that_a_leaving_rank_sent(void **state)
{
    (void)state;
    for (int n = 1; n <= CHECKS; n++) {
        open_comms();
        assert_int_equal(ranks_run_threads(RANKS, exchange_once, NULL, 30), 0);
        armed = n;
        assert_cause(
            ulyx_alltoall(comms[0], source[0], target[0], BYTES, NULL));
        close_rest();
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(peers_are_poisoned_before_a_failure_is_visible),
    cmocka_unit_test(agreement_has_the_cause_that_a_leaving_rank_sent),
    cmocka_unit_test(exchange_has_the_cause_that_a_leaving_rank_sent),
};

ULI_TEST_MAIN("FailureOrder", tests)
