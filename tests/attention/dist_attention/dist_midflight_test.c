/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank dies or stops at any moment of its calls. Within the deadline the
 * others get an error with its number, and they can leave. Ranks are processes
 * that run forward and backward without a pause; a thread of the victim ends
 * the victim after a random time.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "attention/dist_attention/dist_small.h"
#include "comm/meet.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"

enum { VICTIM = 2, MEET_S = 20, STOP_TIMEOUT_S = 1, MOST_CALLS = 1 << 20 };

/* The state of one draw, in memory that the ranks share. */
struct scene {
    struct meet *meet;
    pid_t pids[RANKS];
    int signal;
    int32_t groups, split, save;
    int64_t delay_us;
    _Atomic int victim_calls, reported;
};

static void *
kill_thread(void *context)
{
    const struct scene *s = context;
    struct timespec nap = {0, s->delay_us * 1000};
    nanosleep(&nap, NULL);
    kill(getpid(), s->signal);
    return NULL;
}

/* Makes calls until one fails; returns its status. */
static ulyx_status_t
call_for_ever(struct own *o, _Atomic int *calls)
{
    ulyx_status_t status = ULYX_SUCCESS;
    for (int i = 0; i < MOST_CALLS && status == ULYX_SUCCESS; i++) {
        status = ulyx_dist_attention_forward(o->dist, &o->f, NULL);
        if (status == ULYX_SUCCESS)
            status = ulyx_dist_attention_backward(o->dist, &o->b, NULL);
        if (calls)
            atomic_fetch_add(calls, 1);
    }
    return status;
}

static bool
names_victim(const char *text)
{
    if (ranks_listed(text, "rank", VICTIM))
        return true;
    fprintf(stderr, "no rank %d in \"%s\"\n", VICTIM, text);
    return false;
}

static bool
survivor_check(struct scene *s, struct own *o)
{
    bool killed = s->signal == SIGKILL;
    ulyx_status_t status = call_for_ever(o, NULL);
    bool good = ranks_expect(
        status == (killed ? ULYX_ERR_RANK_LOST : ULYX_ERR_TIMEOUT));
    good &= ranks_expect(names_victim(ulyx_last_error()));
    /* The error is kept, so another call returns at once. */
    good &= ranks_expect(
        ulyx_dist_attention_forward(o->dist, &o->f, NULL) != ULYX_SUCCESS);
    if (atomic_fetch_add(&s->reported, 1) == RANKS - 2 && !killed)
        kill(ranks_pid(s->pids, VICTIM), SIGKILL);
    return good;
}

static int
midflight_rank(int rank, int nranks, void *context)
{
    struct scene *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    ulyx_comm_t *comm;
    struct own o;
    (void)nranks;
    small_params(&p, &part);
    p.head_groups = s->groups;
    p.work_split = s->split;
    p.save = s->save;
    if (s->signal == SIGSTOP)
        p.timeout_s = STOP_TIMEOUT_S;
    if (!ranks_expect(!meet_comm(s->meet, rank, MEET_S, &comm)) ||
        !own_open(&o, comm, &p))
        return 1;
    own_fill(&o, rank);
    o.b.q = o.f.q, o.b.k = o.f.k, o.b.v = o.f.v;
    if (!ranks_expect(meet_barrier(s->meet, rank)))
        return 1;
    if (rank == VICTIM) {
        pthread_t thread;
        pthread_create(&thread, NULL, kill_thread, s);
        call_for_ever(&o, &s->victim_calls);
        pthread_join(thread, NULL);
        return 1;
    }
    bool good = survivor_check(s, &o);
    good &= own_close(&o);
    return !(good & ranks_expect(!ulyx_comm_destroy(comm)));
}

static void
run_draws(uint64_t seed, int64_t draws, int signal)
{
    struct test_random random = {test_seed(seed)};
    int64_t calls = 0;
    for (int64_t i = 0; i < draws; i++) {
        struct scene *s = ranks_shared(sizeof(*s));
        s->meet = meet_new(RANKS);
        s->signal = signal;
        s->groups = (int32_t)test_random_in(&random, 1, 2);
        s->split = (int32_t)test_random_in(&random, 0, 1);
        s->save =
            (int32_t)test_random_in(&random, ULYX_SAVE_HEADS, ULYX_SAVE_NONE);
        s->delay_us = test_random_in(&random, 0, 60000);
        int failed = ranks_run_processes_victim(
            RANKS, midflight_rank, s, LIMIT_S, VICTIM, s->pids);
        calls += atomic_load(&s->victim_calls);
        meet_free(s->meet);
        ranks_shared_free(s, sizeof(*s));
        if (failed)
            fail_msg("draw %lld: %d ranks failed", (long long)i, failed);
    }
    printf("%lld pairs of calls before the last ones\n", (long long)calls);
}

static void
a_death_in_a_call_is_named(void **state)
{
    (void)state;
    run_draws(5, test_draws(6), SIGKILL);
}

static void
a_stop_in_a_call_is_named_within_the_deadline(void **state)
{
    (void)state;
    run_draws(6, test_draws(2), SIGSTOP);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_death_in_a_call_is_named),
    cmocka_unit_test(a_stop_in_a_call_is_named_within_the_deadline),
};

ULI_TEST_MAIN("DistMidflight", tests)
