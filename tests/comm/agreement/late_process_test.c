/* SPDX-License-Identifier: Apache-2.0
 *
 * A process is stopped after it has posted its part of a round: the others name
 * it when their deadline is over. They never name a rank that only waits
 * itself: in another call, after its own deadline, or for posts that a node's
 * first rank must pass on.
 */
#include "support/test.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "comm/agreement/rounds.h"
#include "comm/comm.h"
#include "comm/meet.h"
#include "comm/memory/mem.h"
#include "comm/remote/nodes_scene.h"
#include "support/ranks.h"
#include "ulyx/collective.h"

enum { MOST = 5, LIMIT_S = 60 };
#define CREATE_S 20.0
#define SHORT_S  1.2

enum call { BARRIER, ALLTOALL, SPLIT };

struct scene {
    pid_t pids[MOST];
    enum call call; /* the call of all ranks but the attacher */
    struct meet *meet;
    int victim;
    int attacher;         /* a rank that attaches in place of the call, or -1 */
    double attach_s;      /* the attacher's deadline */
    bool attacher_leaves; /* as soon as its deadline is over */
    /* the victim also posts its part of the next gather */
    bool victim_posts;
    _Atomic int ended;
};

/* ---- the victim ---------------------------------------------------------- */

static void
victim_post(ulyx_comm_t *comm, enum uli_call call)
{
    struct uli_agree_post post = {.call = call, .sequence = comm->sequence};
    uli_rounds_publish(
        comm, ULI_ROUNDS_AGREE, comm->agree_round + 1, &post, NULL, 0);
}

/* Acts as a rank that is stopped right after it has posted its part of a
 * barrier. If it is the first rank of a node, it has passed no posts on. */
static int
victim_main(ulyx_comm_t *comm)
{
    victim_post(comm, ULI_CALL_BARRIER);
    raise(SIGSTOP);
    return !ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
}

/* Stops in the middle of a split, between two gathers, when the rank has just
 * begun to wait for another rank. */
static bool stops_in_split;
/* the rank that gets posts before the stop, or NULL */
static ulyx_comm_t *posts_to;

ulyx_status_t __real_uli_windows_deliver_control(
    ulyx_comm_t *comm, uli_deadline_t deadline);
ulyx_status_t __wrap_uli_windows_deliver_control(
    ulyx_comm_t *comm, uli_deadline_t deadline);

ulyx_status_t
__wrap_uli_windows_deliver_control(ulyx_comm_t *comm, uli_deadline_t deadline)
{
    if (stops_in_split) {
        uli_comm_notify_meeting(comm, (comm->rank + 1) % comm->nranks);
        if (posts_to)
            victim_post(posts_to, ULI_CALL_SPLIT);
        raise(SIGSTOP);
    }
    return __real_uli_windows_deliver_control(comm, deadline);
}

/* Splits into halves, with the ranks of a half in the opposite order. */
static ulyx_status_t
split_half(ulyx_comm_t *comm, int rank, ulyx_comm_t **half_p)
{
    return ulyx_comm_split(
        comm, rank % (comm->nranks / 2), -rank, NULL, half_p);
}

static int
victim_split(const struct scene *s, ulyx_comm_t *comm, int rank)
{
    ulyx_comm_t *half = NULL;
    stops_in_split = true;
    posts_to = s->victim_posts ? comm : NULL;
    split_half(comm, rank, &half);
    ulyx_comm_destroy(half);
    return !ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
}

/* ---- the others ---------------------------------------------------------- */

static ulyx_status_t
rank_call(const struct scene *s, int rank, ulyx_comm_t *comm, ulyx_mem_t *mem)
{
    char src[MOST] = {0}, dst[MOST];
    ulyx_comm_t *half = NULL;
    if (s->call == SPLIT)
        return split_half(comm, rank, &half);
    if (rank != s->attacher)
        return s->call == BARRIER ? ulyx_comm_barrier(comm)
                                  : ulyx_alltoall(comm, src, dst, 1, NULL);
    comm->timeout_s = s->attach_s;
    return ulyx_mem_attach(comm, mem);
}

static bool
text_names_victim_only(const struct scene *s, int nranks)
{
    const char *text = ulyx_last_error();
    bool right = true;
    for (int r = 0; r < nranks; r++)
        right &= ranks_listed(text, "waiting for rank", r) == (r == s->victim);
    if (!right)
        fprintf(stderr, "%s\n", text);
    return ranks_expect(right);
}

/* Frees the window. The victim may hold it until it continues. */
static bool
mem_release(ulyx_mem_t *mem)
{
    uli_deadline_t deadline = uli_deadline_in(CREATE_S);
    ulyx_status_t status;
    while ((status = ulyx_mem_free(mem)) == ULYX_ERR_BUSY &&
           !uli_deadline_over(deadline))
        usleep(1000);
    return ranks_expect(status == ULYX_SUCCESS);
}

static int
late_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    ulyx_comm_t *comm = NULL;
    ulyx_mem_t *mem = NULL;
    void *address;
    char src[MOST] = {0}, dst[MOST];
    if (!ranks_expect(
            meet_comm(s->meet, rank, CREATE_S, &comm) == ULYX_SUCCESS) ||
        !ranks_expect(ulyx_alltoall(comm, src, dst, 1, NULL) == ULYX_SUCCESS))
        return 1;
    if (rank == s->victim)
        return s->call == SPLIT ? victim_split(s, comm, rank)
                                : victim_main(comm);
    bool right = s->call == SPLIT || ranks_expect(ranks_await_stopped(
                                         ranks_pid(s->pids, s->victim)));
    if (rank == s->attacher)
        right &= ranks_expect(
            ulyx_mem_alloc(4096, NULL, &mem, &address) == ULYX_SUCCESS);
    comm->timeout_s = SHORT_S;
    right &= ranks_expect(rank_call(s, rank, comm, mem) == ULYX_ERR_TIMEOUT) &&
             text_names_victim_only(s, nranks);
    bool stays = rank != s->attacher || !s->attacher_leaves;
    if (!stays)
        right &= ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
    if (atomic_fetch_add(&s->ended, 1) == nranks - 2)
        kill(ranks_pid(s->pids, s->victim), SIGCONT);
    while (stays && atomic_load(&s->ended) < nranks - 1)
        usleep(1000);
    if (stays)
        right &= ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS);
    return !(right & mem_release(mem));
}

static void
scene_run(const struct scene *given, int nranks)
{
    struct scene *s = ranks_shared(sizeof(*s));
    *s = *given;
    s->meet = meet_new(nranks);
    assert_int_equal(ranks_run_processes_victim(
                         nranks, late_body, s, LIMIT_S, s->victim, s->pids),
        0);
    meet_free(s->meet);
    ranks_shared_free(s, sizeof(*s));
}

/* ---- one node ------------------------------------------------------------ */

/* Rank 1 has not come to the others' call because it attaches, and the victim
 * holds the attach up. When the deadline of the others is over, rank 1 still
 * attaches, has given up, or has left. */
static void
rank_that_waits_in_attach_is_not_named(void **state)
{
    static const struct scene scenes[] = {
        {.victim = 0, .attacher = 1, .attach_s = 2 * SHORT_S},
        {.victim = 0, .attacher = 1, .attach_s = SHORT_S / 2},
        {.victim = 0,
            .attacher = 1,
            .attach_s = SHORT_S / 2,
            .attacher_leaves = true},
        {.victim = 0, .attacher = 1, .attach_s = 2 * SHORT_S, .call = ALLTOALL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(scenes) / sizeof(scenes[0]); i++)
        scene_run(&scenes[i], 4);
}

/* The victim's partner, which connects to the victim, holds up the split, also
 * for the other half. */
static void
rank_that_waits_in_a_split_is_not_named(void **state)
{
    (void)state;
    for (int victim = 0; victim <= 2; victim += 2)
        scene_run(
            &(struct scene){.victim = victim, .attacher = -1, .call = SPLIT},
            4);
}

/* The victim's partner has all posts that it needs, but not the victim's
 * control segment: the error belongs to the creation and names a rank of the
 * parent. */
static void
rank_is_named_by_its_number_in_the_parent(void **state)
{
    (void)state;
    scene_run(
        &(struct scene){
            .victim = 0, .attacher = -1, .call = SPLIT, .victim_posts = true},
        2);
}

/* ---- several nodes ------------------------------------------------------- */

#ifdef WITH_UCX
/* All ranks have posted, so none is missing: the first rank of a node does not
 * pass the posts on. With one rank per node it also passes on posts of other
 * nodes. */
static void
first_rank_that_passes_nothing_on_is_named(void **state)
{
    static const struct {
        int per_node, victim;
    } cases[] = {{3, 0}, {3, 3}, {1, 2}};
    (void)state;
    setenv("ULYX_KEEPALIVE", "1", 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        scene_set_nodes(cases[i].per_node);
        scene_run(
            &(struct scene){.victim = cases[i].victim, .attacher = -1}, 5);
    }
    scene_set_nodes(0);
    unsetenv("ULYX_KEEPALIVE");
}

static void
rank_that_waits_in_attach_of_another_node_is_not_named(void **state)
{
    (void)state;
    setenv("ULYX_KEEPALIVE", "1", 1);
    scene_set_nodes(3);
    scene_run(
        &(struct scene){.victim = 0, .attacher = 3, .attach_s = 2 * SHORT_S},
        5);
    scene_set_nodes(0);
    unsetenv("ULYX_KEEPALIVE");
}

/* The halves hold ranks of both nodes; then one half has ranks of one node and
 * the other of both. */
static void
rank_that_waits_in_a_split_over_nodes_is_not_named(void **state)
{
    (void)state;
    setenv("ULYX_KEEPALIVE", "1", 1);
    for (int per_node = 2; per_node <= 3; per_node++) {
        scene_set_nodes(per_node);
        for (int victim = 0; victim <= 2; victim += 2)
            scene_run(
                &(struct scene){
                    .victim = victim, .attacher = -1, .call = SPLIT},
                4);
    }
    scene_set_nodes(0);
    unsetenv("ULYX_KEEPALIVE");
}
#endif

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(rank_that_waits_in_attach_is_not_named),
    cmocka_unit_test(rank_that_waits_in_a_split_is_not_named),
    cmocka_unit_test(rank_is_named_by_its_number_in_the_parent),
#ifdef WITH_UCX
    cmocka_unit_test(first_rank_that_passes_nothing_on_is_named),
    cmocka_unit_test(rank_that_waits_in_attach_of_another_node_is_not_named),
    cmocka_unit_test(rank_that_waits_in_a_split_over_nodes_is_not_named),
#endif
};

ULI_TEST_MAIN("LateProcess", tests)
