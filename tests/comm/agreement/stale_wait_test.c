/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank is stopped when it has just begun to attach or to detach, which needs
 * another rank for a moment only. The others name the stopped rank, for which
 * they wait. If they followed its wait to the rank that it needed, they would
 * name a rank that has answered since.
 */
#include "support/test.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include "comm/comm.h"
#include "comm/meet.h"
#include "comm/memory/mem.h"
#include "comm/record/stand.h"
#include "comm/remote/nodes_scene.h"
#include "comm/service/service.h"
#include "support/ranks.h"

/* The absent rank, which makes no call, is the first rank that the victim
 * needs. */
enum { RANKS = 4, VICTIM = 0, LIMIT_S = 60 };
#define CREATE_S 20.0
#define SHORT_S  1.2

struct scene {
    pid_t pids[RANKS];
    struct meet *meet;
    int absent;
    bool detaches;
    _Atomic int ended;
};

/* ---- the victim ---------------------------------------------------------- */

static bool armed; /* the victim stops in the next wait for a rank */

ulyx_status_t __real_uli_service_deliver(struct uli_stand *stand,
    uint32_t window, const struct uli_tr_handle *handle,
    uli_deadline_t deadline);
ulyx_status_t __wrap_uli_service_deliver(struct uli_stand *stand,
    uint32_t window, const struct uli_tr_handle *handle,
    uli_deadline_t deadline);
ulyx_status_t __real_uli_service_withdraw(
    struct uli_stand *stand, uint32_t window, uli_deadline_t deadline);
ulyx_status_t __wrap_uli_service_withdraw(
    struct uli_stand *stand, uint32_t window, uli_deadline_t deadline);
ulyx_status_t __real_uli_comm_wait(ulyx_comm_t *comm,
    bool (*ready)(void *context), void *context, uli_deadline_t deadline);
ulyx_status_t __wrap_uli_comm_wait(ulyx_comm_t *comm,
    bool (*ready)(void *context), void *context, uli_deadline_t deadline);

static void
stop_once(void)
{
    if (armed)
        raise(SIGSTOP);
    armed = false;
}

ulyx_status_t
__wrap_uli_service_deliver(struct uli_stand *stand, uint32_t window,
    const struct uli_tr_handle *handle, uli_deadline_t deadline)
{
    if (stand->comm->nnodes == 1)
        stop_once();
    return __real_uli_service_deliver(stand, window, handle, deadline);
}

ulyx_status_t
__wrap_uli_service_withdraw(
    struct uli_stand *stand, uint32_t window, uli_deadline_t deadline)
{
    if (stand->comm->nnodes == 1)
        stop_once();
    return __real_uli_service_withdraw(stand, window, deadline);
}

/* The wait for answers of other nodes: stops after it has checked for them
 * once. */
ulyx_status_t
__wrap_uli_comm_wait(ulyx_comm_t *comm, bool (*ready)(void *context),
    void *context, uli_deadline_t deadline)
{
    if (armed && !ready(context))
        stop_once();
    return __real_uli_comm_wait(comm, ready, context, deadline);
}

static bool
victim_call(const struct scene *s, ulyx_comm_t *comm, ulyx_mem_t *mem)
{
    armed = !s->detaches;
    bool right = ranks_expect(ulyx_mem_attach(comm, mem) == ULYX_SUCCESS);
    armed = s->detaches;
    return right & ranks_expect(ulyx_mem_detach(comm, mem) == ULYX_SUCCESS);
}

/* ---- all ranks ----------------------------------------------------------- */

static bool
text_names_who_is_not_there(const struct scene *s)
{
    const char *text = ulyx_last_error();
    bool right = true;
    for (int r = 0; r < RANKS; r++)
        right &= ranks_listed(text, "waiting for rank", r) ==
                 (r == VICTIM || r == s->absent);
    if (!right)
        fprintf(stderr, "%s\n", text);
    return ranks_expect(right);
}

static int
stale_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    ulyx_comm_t *comm = NULL;
    ulyx_mem_t *mem = NULL;
    void *address;
    bool right =
        ranks_expect(meet_comm(s->meet, rank, CREATE_S, &comm) == ULYX_SUCCESS);
    right &= ranks_expect(
        ulyx_mem_alloc(4096, NULL, &mem, &address) == ULYX_SUCCESS);
    right &= ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS);
    if (rank == VICTIM) {
        right &= victim_call(s, comm, mem);
    } else if (rank != s->absent) {
        right &= ranks_expect(ranks_await_stopped(ranks_pid(s->pids, VICTIM)));
        comm->timeout_s = SHORT_S;
        right &= ranks_expect(ulyx_comm_barrier(comm) == ULYX_ERR_TIMEOUT) &&
                 text_names_who_is_not_there(s);
        if (atomic_fetch_add(&s->ended, 1) == nranks - 3)
            kill(ranks_pid(s->pids, VICTIM), SIGCONT);
    }
    while (atomic_load(&s->ended) < nranks - 2)
        usleep(1000);
    right &= ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
    return !(right & ranks_expect(ulyx_mem_free(mem) == ULYX_SUCCESS));
}

static void
scene_run(int absent, bool detaches)
{
    struct scene *s = ranks_shared(sizeof(*s));
    s->absent = absent;
    s->detaches = detaches;
    s->meet = meet_new(RANKS);
    assert_int_equal(ranks_run_processes_victim(
                         RANKS, stale_body, s, LIMIT_S, VICTIM, s->pids),
        0);
    meet_free(s->meet);
    ranks_shared_free(s, sizeof(*s));
}

static void
rank_stopped_as_it_attaches_is_named(void **state)
{
    (void)state;
    scene_run(1, false);
}

static void
rank_stopped_as_it_detaches_is_named(void **state)
{
    (void)state;
    scene_run(1, true);
}

#ifdef WITH_UCX
static void
rank_stopped_while_it_notifies_other_nodes_is_named(void **state)
{
    (void)state;
    setenv("ULYX_KEEPALIVE", "1", 1);
    scene_set_nodes(2);
    scene_run(2, false);
    scene_run(2, true);
    scene_set_nodes(0);
    unsetenv("ULYX_KEEPALIVE");
}
#endif

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rank_stopped_as_it_attaches_is_named),
    cmocka_unit_test(rank_stopped_as_it_detaches_is_named),
#ifdef WITH_UCX
    cmocka_unit_test(rank_stopped_while_it_notifies_other_nodes_is_named),
#endif
};

ULI_TEST_MAIN("StaleWait", tests)
