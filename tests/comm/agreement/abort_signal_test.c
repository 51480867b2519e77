/* SPDX-License-Identifier: Apache-2.0
 *
 * An abort out of a signal handler, at any point of a call on the same
 * communicator by the same thread: the abort does not wait for the interrupted
 * code, and the peers receive it.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/time.h>
#include "comm/comm.h"
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 2, ROUNDS = 300 };

static ulyx_comm_t *target;
static atomic_int handled;

static void
on_alarm(int number)
{
    (void)number;
    ulyx_comm_abort(target);
    atomic_fetch_add(&handled, 1);
}

static void
set_timer(int64_t us)
{
    struct itimerval timer = {{0, us}, {0, us}};
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void
catch_alarm(void)
{
    struct sigaction action = {.sa_handler = on_alarm, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
}

/* In a process of its own, whose time limit reveals a deadlock. */
static int
call_through_aborts(int rank, int nranks, void *context)
{
    ulyx_status_t status;
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    (void)rank, (void)nranks, (void)context;
    params.timeout_s = 5;
    if (!ranks_expect(ulyx_comm_create_local(1, &params, &target) == 0))
        return 1;
    catch_alarm();
    set_timer(100);
    while (atomic_load(&handled) < 2000) {
        ulyx_comm_get_async_error(target, &status);
        (void)ulyx_comm_barrier(target);
    }
    set_timer(0);
    return !ranks_expect(ulyx_comm_barrier(target) == ULYX_ERR_ABORTED &&
                         strcmp(ulyx_last_error(), "rank 0 aborted") == 0 &&
                         ulyx_comm_destroy(target) == ULYX_SUCCESS);
}

static void
handler_never_waits_for_the_call_it_interrupts(void **state)
{
    (void)state;
    assert_int_equal(ranks_run_processes(1, call_through_aborts, NULL, 60), 0);
}

/* ---- the first failure, whichever thread claims it ----------------------- */

static void *
wait_for_abort(void *comm)
{
    ulyx_status_t status;
    do
        status = ulyx_comm_barrier(comm);
    while (status == ULYX_SUCCESS);
    bool named = strncmp(ulyx_last_error(), "rank 0 ", 7) == 0 &&
                 strstr(ulyx_last_error(), "aborted");
    return status == ULYX_ERR_ABORTED && named ? comm : NULL;
}

/* A signal interrupts rank 0 in its barriers, some 200 us after each begins. */
static bool
abort_once(void)
{
    ulyx_comm_t *comms[RANKS];
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    pthread_t other;
    void *received;
    sigset_t alarm;
    params.timeout_s = 20;
    if (ulyx_comm_create_local(RANKS, &params, comms))
        return false;
    target = comms[0];
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, NULL); /* blocked in the other thread */
    pthread_create(&other, NULL, wait_for_abort, comms[1]);
    pthread_sigmask(SIG_UNBLOCK, &alarm, NULL);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {0, 200}}, NULL);
    bool mine = wait_for_abort(comms[0]) != NULL;
    pthread_join(other, &received);
    for (int r = 0; r < RANKS; r++)
        mine = ulyx_comm_destroy(comms[r]) == ULYX_SUCCESS && mine;
    return mine && received;
}

static int
abort_in_barriers(int rank, int nranks, void *context)
{
    (void)rank, (void)nranks, (void)context;
    catch_alarm();
    for (int i = 0; i < ROUNDS; i++)
        if (!ranks_expect(abort_once()))
            return 1;
    return 0;
}

static void
all_ranks_name_who_aborted(void **state)
{
    (void)state;
    assert_int_equal(ranks_run_processes(1, abort_in_barriers, NULL, 60), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(handler_never_waits_for_the_call_it_interrupts),
    cmocka_unit_test(all_ranks_name_who_aborted),
};

ULI_TEST_MAIN("AbortSignal", tests)
