/* SPDX-License-Identifier: Apache-2.0
 *
 * Failures over several nodes: aborts, a host that vanishes, shrink and split,
 * a creation that cannot open its network.
 */
#include "support/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "bootstrap/bootstrap.h"
#include "comm/meet.h"
#include "comm/remote/nodes_scene.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/thread_net.h"

static void
pause_ms(int64_t ms)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    nanosleep(&time, NULL);
}

static bool
has_nodes(ulyx_comm_t *comm, int32_t nranks, int32_t nnodes)
{
    return ranks_expect(comm->nranks == nranks) &&
           ranks_expect(comm->nnodes == nnodes) &&
           ranks_expect(ulyx_comm_barrier(comm) == ULYX_SUCCESS);
}

/* ---- abort and shrink ---------------------------------------------------- */

static int
abort_body(int rank, int nranks, void *context)
{
    ulyx_comm_t **comms = context, *smaller = NULL;
    ulyx_status_t status;
    if (rank == 4)
        pause_ms(20);
    if (rank == 4)
        ulyx_comm_abort(comms[rank]);
    status = ulyx_comm_barrier(comms[rank]);
    bool right = ranks_expect(status == ULYX_ERR_ABORTED) &&
                 ranks_expect(strstr(ulyx_last_error(), "rank 4 ")) &&
                 ranks_expect(strstr(ulyx_last_error(), "aborted")) &&
                 ranks_expect(ulyx_comm_shrink(comms[rank], NULL, &smaller) ==
                              ULYX_SUCCESS) &&
                 has_nodes(smaller, nranks, 3);
    return !(ranks_expect(ulyx_comm_destroy(smaller) == ULYX_SUCCESS) && right);
}

static void
abort_reaches_all_nodes_and_shrink_recovers(void **state)
{
    ulyx_comm_t *comms[MOST_RANKS];
    (void)state;
    for (int i = 0; i < 4; i++) {
        thread_net_delay(i % 2 ? 1000 : 0);
        scene_open(7, 3, 30, comms);
        assert_int_equal(ranks_run_threads(7, abort_body, comms, 60), 0);
        scene_close(7, comms);
    }
    thread_net_delay(0);
}

/* ---- a host vanishes ----------------------------------------------------- */

struct loss {
    ulyx_comm_t **comms;
    int first, end; /* ranks of the lost host */
};

static bool
is_lost(const struct loss *loss, int rank)
{
    return rank >= loss->first && rank < loss->end;
}

static int
loss_body(int rank, int nranks, void *context)
{
    struct loss *loss = context;
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *smaller = NULL;
    params.timeout_s = 3;
    if (is_lost(loss, rank))
        return 0;
    ulyx_status_t status = ULYX_SUCCESS;
    while (status == ULYX_SUCCESS)
        status = ulyx_comm_barrier(loss->comms[rank]);
    bool right = ranks_expect(status == ULYX_ERR_RANK_LOST) &&
                 ranks_expect(ulyx_comm_shrink(loss->comms[rank], &params,
                                  &smaller) == ULYX_SUCCESS) &&
                 has_nodes(smaller, nranks - (loss->end - loss->first), 2);
    return !(ranks_expect(ulyx_comm_destroy(smaller) == ULYX_SUCCESS) && right);
}

static void
cut_host(const struct loss *loss)
{
    for (int r = loss->first; r < loss->end; r++)
        thread_net_cut(loss->comms[r]->net);
}

static void
vanished_host_is_reported_and_shrink_leaves_it_out(void **state)
{
    struct loss cases[] = {{NULL, 0, 2}, {NULL, 2, 4}, {NULL, 4, 6}};
    ulyx_comm_t *comms[MOST_RANKS];
    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        cases[i].comms = comms;
        scene_open(6, 2, 30, comms);
        cut_host(&cases[i]);
        assert_int_equal(ranks_run_threads(6, loss_body, &cases[i], 60), 0);
        scene_close(6, comms);
    }
}

/* ---- split --------------------------------------------------------------- */

static int
split_body(int rank, int nranks, void *context)
{
    ulyx_comm_t **comms = context, *half = NULL, *node = NULL;
    bool right = ranks_expect(ulyx_comm_split(comms[rank], rank % 2, -rank,
                                  NULL, &half) == ULYX_SUCCESS) &&
                 has_nodes(half, nranks / 2, 3) &&
                 ranks_expect(ulyx_comm_split(comms[rank], rank / 2, 0, NULL,
                                  &node) == ULYX_SUCCESS) &&
                 has_nodes(node, 2, 1);
    return !(ranks_expect(ulyx_comm_destroy(half) == ULYX_SUCCESS) &&
             ranks_expect(ulyx_comm_destroy(node) == ULYX_SUCCESS) && right);
}

/* A group that spans nodes and a group inside one node take different numbers
 * of gathers: the former must not wait for the latter. */
static int
mixed_body(int rank, int nranks, void *context)
{
    ulyx_comm_t **comms = context, *part = NULL;
    int color = rank < 2 ? 0 : rank < 5 ? 1 : -1;
    (void)nranks;
    bool right = ranks_expect(ulyx_comm_split(comms[rank], color, 0, NULL,
                                  &part) == ULYX_SUCCESS) &&
                 (color < 0 || has_nodes(part, color ? 3 : 2, color ? 2 : 1));
    return !(ranks_expect(ulyx_comm_destroy(part) == ULYX_SUCCESS) && right);
}

static void
split_keeps_the_parents_nodes(void **state)
{
    ulyx_comm_t *comms[MOST_RANKS];
    (void)state;
    scene_open(6, 2, 30, comms);
    assert_int_equal(ranks_run_threads(6, split_body, comms, 60), 0);
    assert_int_equal(ranks_run_threads(6, mixed_body, comms, 60), 0);
    scene_close(6, comms);
}

/* ---- creation ------------------------------------------------------------ */

static int
create_body(int rank, int nranks, void *context)
{
    ulyx_comm_t *comm = NULL;
    (void)nranks;
    ulyx_status_t status = meet_comm(context, rank, 20, &comm);
    return !(ranks_expect(status == ULYX_ERR_UNSUPPORTED) &&
             ranks_expect(!comm) &&
             ranks_expect(
                 strstr(ulyx_last_error(), "the test's network is broken")));
}

static int
good_body(int rank, int nranks, void *context)
{
    ulyx_comm_t *comm = NULL;
    bool right =
        ranks_expect(meet_comm(context, rank, 20, &comm) == ULYX_SUCCESS) &&
        has_nodes(comm, nranks, 2);
    return !(ranks_expect(ulyx_comm_destroy(comm) == ULYX_SUCCESS) && right);
}

static void
network_that_cannot_open_is_the_same_error_everywhere(void **state)
{
    ulyx_comm_t *comms[4] = {NULL};
    struct meet *meet = meet_new(4);
    (void)state;
    scene_set_nodes(2);
    thread_net_break_opening(true);
    assert_int_equal(ranks_run_threads(4, create_body, meet, 60), 0);
    assert_status(ulyx_comm_create_local(4, NULL, comms), ULYX_ERR_UNSUPPORTED);
    assert_null(comms[0]);
    thread_net_break_opening(false);
    assert_int_equal(ranks_run_threads(4, good_body, meet, 60), 0);
    scene_set_nodes(0);
    meet_free(meet);
}

/* ---- another version ----------------------------------------------------- */

/* A bootstrap whose records have another protocol in their first word. */
struct other {
    struct uli_bootstrap base;
    struct uli_bootstrap *inner;
};

static ulyx_status_t
other_gather(struct uli_bootstrap *bootstrap, const void *mine, size_t bytes,
    void *all_p, uli_deadline_t deadline)
{
    struct uli_bootstrap *inner = ((struct other *)bootstrap)->inner;
    uint32_t protocol = ULI_PROTOCOL + 7;
    unsigned char *changed = malloc(bytes);
    memcpy(changed, mine, bytes);
    memcpy(changed, &protocol, sizeof(protocol));
    ulyx_status_t status =
        inner->ops->gather(inner, changed, bytes, all_p, deadline);
    free(changed);
    return status;
}

static const struct uli_bootstrap_ops other_ops = {.gather = other_gather};

static int
version_body(int rank, int nranks, void *context)
{
    struct uli_settings settings;
    struct other other = {.base = {&other_ops, rank, nranks, NULL}};
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *comm = NULL;
    char text[64];
    uli_settings_load(&settings);
    if (!ranks_expect(uli_bootstrap_open_id(context, nranks, rank, &settings,
                          uli_deadline_in(20), &other.inner) == ULYX_SUCCESS))
        return 1;
    ulyx_status_t status =
        uli_comm_create(rank == 3 ? &other.base : other.inner, nranks, rank,
            &params, uli_deadline_in(20), &comm);
    other.inner->ops->close(other.inner);
    snprintf(text, sizeof(text), "rank 3 speaks protocol %d", ULI_PROTOCOL + 7);
    return !(ranks_expect(status == ULYX_ERR_VERSION) && ranks_expect(!comm) &&
             ranks_expect(strstr(ulyx_last_error(), text)));
}

static void
another_version_is_named_everywhere(void **state)
{
    ulyx_unique_id_t id;
    (void)state;
    assert_status(ulyx_unique_id_create(&id), ULYX_SUCCESS);
    scene_set_nodes(2);
    assert_int_equal(ranks_run_threads(4, version_body, &id, 60), 0);
    scene_set_nodes(0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(abort_reaches_all_nodes_and_shrink_recovers),
    cmocka_unit_test(vanished_host_is_reported_and_shrink_leaves_it_out),
    cmocka_unit_test(split_keeps_the_parents_nodes),
    cmocka_unit_test(network_that_cannot_open_is_the_same_error_everywhere),
    cmocka_unit_test(another_version_is_named_everywhere),
};

ULI_TEST_MAIN("NodesFault", tests)
