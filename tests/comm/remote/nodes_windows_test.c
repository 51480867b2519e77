/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows over several nodes: every rank knows them when attach returns, also a
 * rank that makes no call; puts land in them; memory into which peers of a
 * failed communicator may still put is not given back.
 */
#include "support/test.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/memory/mem.h"
#include "comm/remote/nodes_scene.h"
#include "comm/remote/remote.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/thread_net.h"

enum { RANKS = 5, PER_NODE = 2, BYTES = 1 << 16 };

static void
window_is_attached_on_all_nodes_while_ranks_compute(void **state)
{
    ulyx_comm_t *comms[MOST_RANKS];
    ulyx_mem_t *mem;
    void *address;
    uint32_t window;
    int64_t bytes, offset;
    (void)state;
    thread_net_delay(500);
    scene_open(RANKS, PER_NODE, 30, comms);
    assert_status(
        uli_mem_alloc(BYTES, ULYX_MEMORY_HOST, 0, false, &mem), ULYX_SUCCESS);
    uli_mem_range(mem, &address, &bytes);
    /* No other rank makes a call: their network threads answer. */
    assert_status(uli_mem_attach(comms[1], mem), ULYX_SUCCESS);
    assert_true(uli_window_find(comms[1], address, bytes, &window, &offset));
    for (int r = 0; r < RANKS; r++) {
        bool remote = uli_comm_is_remote(comms[r], 1);
        assert_int_equal(remote, r / PER_NODE != 0);
        assert_int_equal(
            uli_window_address(comms[r], 1, window, 0, BYTES) != NULL, !remote);
        if (!remote)
            continue;
        assert_true(uli_remote_window_holds(comms[r], 1, window, 0, BYTES));
        assert_true(uli_remote_window_holds(comms[r], 1, window, BYTES, 0));
        assert_false(uli_remote_window_holds(comms[r], 1, window, 1, BYTES));
        assert_false(uli_remote_window_holds(comms[r], 1, window, -1, 2));
        assert_false(uli_remote_window_holds(comms[r], 1, window + 1, 0, 1));
    }
    assert_status(uli_mem_detach(comms[1], mem), ULYX_SUCCESS);
    for (int r = PER_NODE; r < RANKS; r++)
        assert_false(uli_remote_window_holds(comms[r], 1, window, 0, 1));
    assert_status(uli_mem_free(mem), ULYX_SUCCESS);
    thread_net_delay(0);
    scene_close(RANKS, comms);
}

static int
attach_body(int rank, int nranks, void *context)
{
    ulyx_comm_t *comm = ((ulyx_comm_t **)context)[rank];
    bool right = true;
    (void)nranks;
    for (int i = 0; i < 20 && right; i++) {
        ulyx_mem_t *mem;
        right = ranks_expect(uli_mem_alloc(BYTES, ULYX_MEMORY_HOST, 0, false,
                                 &mem) == ULYX_SUCCESS) &&
                ranks_expect(uli_mem_attach(comm, mem) == ULYX_SUCCESS) &&
                ranks_expect(uli_mem_detach(comm, mem) == ULYX_SUCCESS) &&
                ranks_expect(uli_mem_free(mem) == ULYX_SUCCESS);
    }
    return !right;
}

static void
all_ranks_attach_at_the_same_time(void **state)
{
    ulyx_comm_t *comms[MOST_RANKS];
    (void)state;
    thread_net_delay(200);
    scene_open(RANKS, PER_NODE, 30, comms);
    assert_int_equal(ranks_run_threads(RANKS, attach_body, comms, 60), 0);
    thread_net_delay(0);
    scene_close(RANKS, comms);
}

/* ---- puts ---------------------------------------------------------------- */

struct target {
    struct uli_arena_block block;
    _Atomic uint64_t *signal;
};

static bool
signal_came(void *context)
{
    return atomic_load(((struct target *)context)->signal) == 7;
}

static void
put_lands_in_an_arena_that_grew(void **state)
{
    ulyx_comm_t *comms[MOST_RANKS];
    struct target to;
    _Atomic int64_t pending = 0;
    int64_t bytes = 4 << 20;
    (void)state;
    scene_open(RANKS, PER_NODE, 30, comms);
    assert_status(
        uli_arena_alloc(comms[4], bytes + 64, &to.block), ULYX_SUCCESS);
    assert_int_not_equal(to.block.window, 0);
    to.signal = (void *)((char *)to.block.address + bytes);
    unsigned char *data = malloc((size_t)bytes);
    for (int64_t i = 0; i < bytes; i++)
        data[i] = (unsigned char)(i * 13 + i / 251);
    struct uli_net_put put = {data, bytes, to.block.window, to.block.offset,
        to.block.window, to.block.offset + bytes, 7, &pending};
    assert_status(uli_remote_put(comms[0], 4, &put), ULYX_SUCCESS);
    assert_status(
        uli_comm_wait(comms[4], signal_came, &to, uli_deadline_in(20)),
        ULYX_SUCCESS);
    assert_memory_equal(to.block.address, data, (size_t)bytes);
    while (atomic_load(&pending))
        uli_comm_progress(comms[0]);
    put.window = 77;
    assert_status(uli_remote_put(comms[0], 4, &put), ULYX_ERR_ABORTED);
    free(data);
    scene_close(RANKS, comms);
}

/* ---- quarantine ---------------------------------------------------------- */

/* Rank 4 stands still, so rank 0's barrier has timed out and its window is
 * held. */
static ulyx_mem_t *
scene_of_a_still_peer(ulyx_comm_t **comms)
{
    ulyx_mem_t *mem;
    scene_open(RANKS, PER_NODE, 0.4, comms);
    assert_status(
        uli_mem_alloc(BYTES, ULYX_MEMORY_HOST, 0, false, &mem), ULYX_SUCCESS);
    assert_status(uli_mem_attach(comms[0], mem), ULYX_SUCCESS);
    thread_net_freeze(comms[4]->net, true);
    assert_status(ulyx_comm_barrier(comms[0]), ULYX_ERR_TIMEOUT);
    assert_status(uli_mem_detach(comms[0], mem), ULYX_ERR_BUSY);
    return mem;
}

/* Rank 4 stands still and its peer's barrier times out: only rank 4's answer
 * proves that none of its puts will land. */
static void
window_of_a_failed_communicator_waits_for_a_still_peer(void **state)
{
    ulyx_comm_t *comms[MOST_RANKS];
    (void)state;
    ulyx_mem_t *mem = scene_of_a_still_peer(comms);
    assert_non_null(strstr(ulyx_last_error(), "rank 4 of nodes"));
    assert_status(uli_mem_free(mem), ULYX_ERR_BUSY);
    thread_net_freeze(comms[4]->net, false);
    ulyx_status_t status = ULYX_ERR_BUSY;
    for (int i = 0; i < 40 && status == ULYX_ERR_BUSY; i++)
        status = uli_mem_detach(comms[0], mem);
    assert_status(status, ULYX_SUCCESS);
    assert_status(uli_mem_free(mem), ULYX_SUCCESS);
    scene_close(RANKS, comms);
}

struct watcher {
    ulyx_comm_t *comm;
    _Atomic bool stop;
    _Atomic int64_t looks, missed;
};

static void *
watch_window(void *context)
{
    struct watcher *w = context;
    while (!atomic_load(&w->stop)) {
        atomic_fetch_add(&w->looks, 1);
        if (!uli_remote_window_holds(w->comm, 0, 1, 0, BYTES))
            atomic_fetch_add(&w->missed, 1);
    }
    return NULL;
}

/* Only rank 0's communicator has failed, and rank 0 asks for its window back
 * again and again; rank 4 is in an operation and must find the window at any
 * time. */
static void
window_in_use_is_never_missed(void **state)
{
    ulyx_comm_t *comms[MOST_RANKS];
    ulyx_mem_t *mem;
    pthread_t thread;
    (void)state;
    scene_open(RANKS, PER_NODE, 10, comms);
    assert_status(
        uli_mem_alloc(BYTES, ULYX_MEMORY_HOST, 0, false, &mem), ULYX_SUCCESS);
    assert_status(uli_mem_attach(comms[0], mem), ULYX_SUCCESS);
    struct watcher watcher = {.comm = comms[4]};
    assert_true(uli_remote_window_holds(comms[4], 0, 1, 0, BYTES));
    atomic_fetch_add(&comms[4]->nops, 1);
    pthread_create(&thread, NULL, watch_window, &watcher);
    int64_t retired = 0;
    for (int i = 0; i < 2000; i++)
        retired +=
            uli_remote_window_retire(comms[0], 4, 1, uli_deadline_in(10));
    atomic_store(&watcher.stop, true);
    pthread_join(thread, NULL);
    atomic_fetch_sub(&comms[4]->nops, 1);
    assert_int_equal(retired, 0);
    assert_true(atomic_load(&watcher.looks) > 0);
    assert_int_equal(atomic_load(&watcher.missed), 0);
    assert_true(uli_remote_window_retire(comms[0], 4, 1, uli_deadline_in(10)));
    assert_status(uli_mem_detach(comms[0], mem), ULYX_SUCCESS);
    assert_status(uli_mem_free(mem), ULYX_SUCCESS);
    scene_close(RANKS, comms);
}

/* Rank 4 is dead, but a put of rank 4 has arrived at this host and is still to
 * be written. */
static void
window_waits_for_puts_of_a_dead_peer(void **state)
{
    ulyx_comm_t *comms[MOST_RANKS];
    ulyx_mem_t *mem;
    (void)state;
    scene_open(RANKS, PER_NODE, 10, comms);
    assert_status(
        uli_mem_alloc(BYTES, ULYX_MEMORY_HOST, 0, false, &mem), ULYX_SUCCESS);
    assert_status(uli_mem_attach(comms[0], mem), ULYX_SUCCESS);
    uli_comm_rank_died(comms[0], 4, "has died");
    thread_net_hold_landing(true);
    ulyx_status_t status = uli_mem_detach(comms[0], mem);
    char text[256];
    snprintf(text, sizeof(text), "%s", ulyx_last_error());
    thread_net_hold_landing(false);
    assert_status(status, ULYX_ERR_BUSY);
    assert_non_null(strstr(text, "rank 4 of nodes"));
    for (int i = 0; i < 40 && status == ULYX_ERR_BUSY; i++)
        status = uli_mem_detach(comms[0], mem);
    assert_status(status, ULYX_SUCCESS);
    assert_status(uli_mem_free(mem), ULYX_SUCCESS);
    scene_close(RANKS, comms);
}

/* Once the network is closed no put can land. */
static void
destroy_of_a_failed_communicator_frees_the_window(void **state)
{
    ulyx_comm_t *comms[MOST_RANKS];
    (void)state;
    ulyx_mem_t *mem = scene_of_a_still_peer(comms);
    assert_status(ulyx_comm_destroy(comms[0]), ULYX_SUCCESS);
    comms[0] = NULL;
    assert_status(uli_mem_free(mem), ULYX_SUCCESS);
    thread_net_freeze(comms[4]->net, false);
    scene_close(RANKS, comms);
}

static void
attach_past_a_still_peer_times_out_and_names_it(void **state)
{
    ulyx_comm_t *comms[MOST_RANKS];
    ulyx_mem_t *mem;
    (void)state;
    scene_open(RANKS, PER_NODE, 0.4, comms);
    assert_status(
        uli_mem_alloc(BYTES, ULYX_MEMORY_HOST, 0, false, &mem), ULYX_SUCCESS);
    thread_net_freeze(comms[3]->net, true);
    assert_status(uli_mem_attach(comms[0], mem), ULYX_ERR_TIMEOUT);
    assert_non_null(strstr(ulyx_last_error(), "attach of window "));
    assert_non_null(
        strstr(ulyx_last_error(), ": timed out waiting for rank 3 ("));
    assert_non_null(strstr(ulyx_last_error(), ") to acknowledge it"));
    thread_net_freeze(comms[3]->net, false);
    assert_status(uli_mem_free(mem), ULYX_SUCCESS);
    scene_close(RANKS, comms);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(window_is_attached_on_all_nodes_while_ranks_compute),
    cmocka_unit_test(all_ranks_attach_at_the_same_time),
    cmocka_unit_test(put_lands_in_an_arena_that_grew),
    cmocka_unit_test(window_of_a_failed_communicator_waits_for_a_still_peer),
    cmocka_unit_test(window_in_use_is_never_missed),
    cmocka_unit_test(window_waits_for_puts_of_a_dead_peer),
    cmocka_unit_test(destroy_of_a_failed_communicator_frees_the_window),
    cmocka_unit_test(attach_past_a_still_peer_times_out_and_names_it),
};

ULI_TEST_MAIN("NodesWindows", tests)
