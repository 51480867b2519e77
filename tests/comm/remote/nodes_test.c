/* SPDX-License-Identifier: Apache-2.0
 *
 * Agreement over several nodes: payloads of any length over any nodes, the
 * number of messages, disagreement, missing ranks, ranks that have left.
 * ULYX_RANKS_PER_NODE makes the nodes, which meet over the test's network.
 */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/remote/nodes_scene.h"
#include "comm/remote/remote_internal.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/thread_net.h"

enum { ROUNDS = 8, MAX_BYTES = 2 * ULI_AGREE_BYTES + 100 };

/* ---- gathers ------------------------------------------------------------- */

static int64_t
length_of(int rank, int i)
{
    struct test_random random = {(uint64_t)(rank * 1000 + i)};
    return test_random_in(&random, 0, 3) ? test_random_in(&random, 0, MAX_BYTES)
                                         : 0;
}

static unsigned char
byte_of(int rank, int i, int64_t at)
{
    return (unsigned char)(at * 7 + rank * 31 + i);
}

static bool
is_right(int nranks, int i, const unsigned char *all, const int64_t *bytes,
    const ulyx_status_t *outcomes)
{
    for (int p = 0; p < nranks; p++) {
        if (bytes[p] != length_of(p, i) || outcomes[p] != -p)
            return false;
        for (int64_t at = 0; at < bytes[p]; at++)
            if (all[(int64_t)p * MAX_BYTES + at] != byte_of(p, i, at))
                return false;
    }
    return true;
}

static int
gather_body(int rank, int nranks, void *context)
{
    ulyx_comm_t *comm = ((ulyx_comm_t **)context)[rank];
    unsigned char *mine = malloc(MAX_BYTES);
    unsigned char *all = malloc((size_t)nranks * MAX_BYTES);
    int64_t bytes[MOST_RANKS];
    ulyx_status_t outcomes[MOST_RANKS], status;
    bool right = true;
    for (int i = 0; i < ROUNDS && right; i++) {
        for (int64_t at = 0; at < length_of(rank, i); at++)
            mine[at] = byte_of(rank, i, at);
        memset(all, 0xA5, (size_t)nranks * MAX_BYTES);
        status = uli_agree_gather(
            comm, &(struct uli_gather){.call = ULI_CALL_PLAN_CREATE,
                      .status = -rank,
                      .mine = mine,
                      .bytes = length_of(rank, i),
                      .max_bytes = MAX_BYTES,
                      .all_p = all,
                      .bytes_p = bytes,
                      .status_p = outcomes,
                      .deadline = uli_deadline_in(60)});
        right = ranks_expect(status == ULYX_SUCCESS) &&
                ranks_expect(is_right(nranks, i, all, bytes, outcomes));
    }
    free(mine);
    free(all);
    return !right;
}

static void
gather_any_lengths_over_any_nodes(void **state)
{
    struct test_random random = {test_seed(20)};
    ulyx_comm_t *comms[MOST_RANKS];
    (void)state;
    for (int64_t i = test_draws(8); i > 0; i--) {
        int nranks = (int)test_random_in(&random, 2, 12);
        int per_node = (int)test_random_in(&random, 1, nranks - 1);
        thread_net_delay(i % 2 ? 300 : 0);
        scene_open(nranks, per_node, 60, comms);
        assert_int_equal(ranks_run_threads(nranks, gather_body, comms, 60), 0);
        scene_close(nranks, comms);
    }
    thread_net_delay(0);
}

/* ---- counts -------------------------------------------------------------- */

static int
barrier_body(int rank, int nranks, void *context)
{
    (void)nranks;
    return !ranks_expect(
        ulyx_comm_barrier(((ulyx_comm_t **)context)[rank]) == ULYX_SUCCESS);
}

static int
log2_up(int n)
{
    int k = 0;
    while (1 << k < n)
        k++;
    return k;
}

static void
barrier_costs_log_n_messages_of_each_node(void **state)
{
    static const int shapes[][2] = {{2, 1}, {6, 2}, {8, 1}, {9, 2}, {16, 4}};
    ulyx_comm_t *comms[MOST_RANKS];
    (void)state;
    for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]); i++) {
        int nranks = shapes[i][0], per_node = shapes[i][1];
        int nodes = (nranks + per_node - 1) / per_node;
        scene_open(nranks, per_node, 60, comms);
        for (int round = 0; round < 2; round++) {
            int64_t before = thread_net_messages();
            assert_int_equal(
                ranks_run_threads(nranks, barrier_body, comms, 60), 0);
            assert_int_equal(
                thread_net_messages() - before, nodes * log2_up(nodes));
        }
        for (int r = 0; r < nranks; r++) {
            int64_t sent = atomic_load(&comms[r]->remote->nmessages);
            /* GUARD: one question from each rank, and answers from each node's
             * first rank to all ranks of the node before. */
            int64_t before =
                r == 0 ? nranks - (nodes - 1) * per_node : per_node;
            int64_t guard = 1 + (r % per_node ? 0 : before);
            assert_int_equal(
                sent, guard + (r % per_node ? 0 : 2 * log2_up(nodes)));
        }
        scene_close(nranks, comms);
    }
}

/* ---- disagreement and absence -------------------------------------------- */

static int
disagree_body(int rank, int nranks, void *context)
{
    ulyx_comm_t **comms = context, *child = NULL;
    ulyx_status_t status = rank == 3
                               ? ulyx_comm_split(comms[3], 0, 0, NULL, &child)
                               : ulyx_comm_barrier(comms[rank]);
    (void)nranks;
    return !(ranks_expect(status == ULYX_ERR_MISMATCH) &&
             ranks_expect(strstr(ulyx_last_error(),
                 "rank 3 called split where rank 0 called barrier")) &&
             ranks_expect(ulyx_comm_barrier(comms[rank]) == ULYX_SUCCESS));
}

static void
mismatch_is_the_same_on_all_nodes_and_leaves_comm_usable(void **state)
{
    ulyx_comm_t *comms[MOST_RANKS];
    (void)state;
    scene_open(6, 2, 30, comms);
    assert_int_equal(ranks_run_threads(6, disagree_body, comms, 60), 0);
    scene_close(6, comms);
}

struct absence {
    ulyx_comm_t **comms;
    int absent;
    const char *text;
};

static int
absence_body(int rank, int nranks, void *context)
{
    struct absence *a = context;
    (void)nranks;
    if (rank == a->absent)
        return 0;
    ulyx_status_t status = ulyx_comm_barrier(a->comms[rank]);
    if (status != ULYX_ERR_TIMEOUT || !strstr(ulyx_last_error(), a->text))
        fprintf(stderr, "rank %d: %s\n", rank, ulyx_last_error());
    return !(ranks_expect(status == ULYX_ERR_TIMEOUT) &&
             ranks_expect(strstr(ulyx_last_error(), a->text)));
}

/* Rank 3 is not the first of its node. Rank 2 is, so no post of its node
 * reaches other nodes. In the last case rank 2 is stopped, so that its process
 * does not answer either. */
static void
timeout_names_only_who_is_missing(void **state)
{
    static const struct {
        int absent;
        bool frozen;
        const char *text;
    } cases[] = {
        {3, false, "timed out waiting for rank 3 ("},
        {2, false, "timed out waiting for rank 2 ("},
        {2, true, "timed out waiting for rank 2 ("},
    };
    ulyx_comm_t *comms[MOST_RANKS];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct absence absence = {comms, cases[i].absent, cases[i].text};
        scene_open(6, 2, 1.5, comms);
        if (cases[i].frozen)
            thread_net_freeze(comms[2]->net, true);
        assert_int_equal(ranks_run_threads(6, absence_body, &absence, 60), 0);
        if (cases[i].frozen)
            thread_net_freeze(comms[2]->net, false);
        scene_close(6, comms);
    }
}

static int
left_body(int rank, int nranks, void *context)
{
    struct absence *a = context;
    (void)nranks;
    if (rank == a->absent)
        return !ranks_expect(ulyx_comm_destroy(a->comms[rank]) == ULYX_SUCCESS);
    ulyx_status_t status = ulyx_comm_barrier(a->comms[rank]);
    return !(ranks_expect(status == ULYX_ERR_RANK_LOST) &&
             ranks_expect(strstr(ulyx_last_error(), a->text)));
}

static void
destroyed_handle_ends_waits_on_all_nodes(void **state)
{
    static const char *const names[] = {"rank 2", "rank 3"};
    ulyx_comm_t *comms[MOST_RANKS];
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct absence absence = {comms, 2 + i, names[i]};
        scene_open(6, 2, 30, comms);
        /* A barrier first, because a rank that leaves notifies only the ranks
         * with which it has exchanged messages. */
        assert_int_equal(ranks_run_threads(6, barrier_body, comms, 60), 0);
        assert_int_equal(ranks_run_threads(6, left_body, &absence, 20), 0);
        comms[absence.absent] = NULL;
        scene_close(6, comms);
    }
}

/* A rank may leave as soon as it has passed the last barrier. */
static int
last_barrier_body(int rank, int nranks, void *context)
{
    ulyx_comm_t **comms = context;
    (void)nranks;
    ulyx_status_t status = ulyx_comm_barrier(comms[rank]);
    return !(ranks_expect(status == ULYX_SUCCESS) &&
             ranks_expect(ulyx_comm_destroy(comms[rank]) == ULYX_SUCCESS));
}

static void
leaving_after_the_last_barrier_fails_nobody(void **state)
{
    struct test_random random = {test_seed(21)};
    ulyx_comm_t *comms[MOST_RANKS];
    (void)state;
    for (int64_t i = test_draws(15); i > 0; i--) {
        int nranks = (int)test_random_in(&random, 2, 10);
        thread_net_delay((int)test_random_in(&random, 0, 2000));
        scene_open(
            nranks, (int)test_random_in(&random, 1, nranks - 1), 30, comms);
        assert_int_equal(
            ranks_run_threads(nranks, last_barrier_body, comms, 60), 0);
    }
    thread_net_delay(0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(gather_any_lengths_over_any_nodes),
    cmocka_unit_test(barrier_costs_log_n_messages_of_each_node),
    cmocka_unit_test(mismatch_is_the_same_on_all_nodes_and_leaves_comm_usable),
    cmocka_unit_test(timeout_names_only_who_is_missing),
    cmocka_unit_test(destroyed_handle_ends_waits_on_all_nodes),
    cmocka_unit_test(leaving_after_the_last_barrier_fails_nobody),
};

ULI_TEST_MAIN("Nodes", tests)
