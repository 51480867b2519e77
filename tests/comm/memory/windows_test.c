/* SPDX-License-Identifier: Apache-2.0
 *
 * Windows among threads, among processes, and among both: all other ranks can
 * find, read and write a window that a rank attaches, and none can after its
 * detach.
 */
#include <stdlib.h>
#include <string.h>
#include "comm/meet.h"
#include "comm/memory/mem.h"
#include "comm/memory/windows.h"
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 4, WORDS = 1024, BYTES = WORDS * 8 };

static const ulyx_comm_params_t defaults = ULYX_COMM_PARAMS_INIT;

static void
make_local(int nranks, ulyx_comm_t **comms)
{
    assert_status(
        uli_comm_create_local(nranks, &defaults, comms), ULYX_SUCCESS);
}

static void
destroy_all(int nranks, ulyx_comm_t **comms)
{
    for (int r = 0; r < nranks; r++)
        assert_status(uli_comm_destroy(comms[r]), ULYX_SUCCESS);
}

/* ---- look-up, within one process ----------------------------------------- */

static void
finds_what_is_attached(void **state)
{
    (void)state;
    ulyx_comm_t *comms[RANKS];
    ulyx_mem_t *mem;
    uint32_t window;
    int64_t offset, bytes;
    char *base;
    make_local(RANKS, comms);
    assert_status(
        uli_mem_alloc(BYTES, ULYX_MEMORY_HOST, 0, false, &mem), ULYX_SUCCESS);
    uli_mem_range(mem, (void **)&base, &bytes);
    assert_int_equal(bytes, BYTES);
    assert_false(uli_window_find(comms[1], base, 8, &window, &offset));
    assert_status(uli_mem_attach(comms[1], mem), ULYX_SUCCESS);

    assert_true(uli_window_find(comms[1], base + 24, 8, &window, &offset));
    assert_int_equal(offset, 24);
    for (int r = 0; r < RANKS; r++)
        assert_ptr_equal(
            uli_window_address(comms[r], 1, window, 24, 8), base + 24);
    /* The window belongs to rank 1 alone. */
    assert_false(uli_window_find(comms[0], base, 8, &window, &offset));
    assert_null(uli_window_address(comms[2], 0, window, 0, 8));

    assert_status(uli_mem_detach(comms[1], mem), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++)
        assert_null(uli_window_address(comms[r], 1, window, 0, 8));
    assert_false(uli_window_find(comms[1], base, 8, &window, &offset));
    assert_status(uli_mem_free(mem), ULYX_SUCCESS);
    destroy_all(RANKS, comms);
}

static void
ranges_beyond_a_window_are_not_found(void **state)
{
    (void)state;
    ulyx_comm_t *comms[2];
    ulyx_mem_t *mem;
    uint32_t window;
    int64_t offset;
    static char around[64 + BYTES];
    char *memory = around + 64;
    make_local(2, comms);
    assert_status(uli_mem_register(memory, BYTES, ULYX_MEMORY_HOST, 0, &mem),
        ULYX_SUCCESS);
    assert_status(uli_mem_attach(comms[0], mem), ULYX_SUCCESS);
    assert_true(uli_window_find(comms[0], memory, BYTES, &window, &offset));
    assert_false(
        uli_window_find(comms[0], memory, BYTES + 1, &window, &offset));
    assert_false(
        uli_window_find(comms[0], memory + 1, BYTES, &window, &offset));
    assert_false(uli_window_find(comms[0], memory - 1, 1, &window, &offset));
    assert_true(uli_window_find(comms[0], memory + BYTES, 0, &window, &offset));
    assert_false(uli_window_find(comms[0], memory, -1, &window, &offset));
    assert_non_null(uli_window_address(comms[1], 0, window, BYTES - 1, 1));
    assert_null(uli_window_address(comms[1], 0, window, BYTES, 1));
    assert_null(uli_window_address(comms[1], 0, window, -1, 1));
    assert_null(uli_window_address(comms[1], 0, window, 1, INT64_MAX));
    assert_null(uli_window_address(comms[1], 0, window, INT64_MAX, 1));
    assert_null(uli_window_address(comms[1], 0, 1u << 30, 0, 1));
    assert_status(uli_mem_detach(comms[0], mem), ULYX_SUCCESS);
    assert_status(uli_mem_free(mem), ULYX_SUCCESS);
    destroy_all(2, comms);
}

static void
uses_ids_again(void **state)
{
    (void)state;
    enum { COUNT = 200 };
    ulyx_comm_t *comms[2];
    ulyx_mem_t *mems[COUNT];
    static char memory[COUNT][64];
    uint32_t window;
    int64_t offset;
    make_local(2, comms);
    for (int i = 0; i < COUNT; i++) {
        assert_status(
            uli_mem_register(memory[i], 64, ULYX_MEMORY_HOST, 0, &mems[i]),
            ULYX_SUCCESS);
        assert_status(uli_mem_attach(comms[0], mems[i]), ULYX_SUCCESS);
        assert_true(uli_window_find(comms[0], memory[i], 64, &window, &offset));
        assert_int_equal(window, i + 1);
    }
    for (int i = 0; i < COUNT; i += 3)
        assert_status(uli_mem_detach(comms[0], mems[i]), ULYX_SUCCESS);
    for (int i = 0; i < COUNT; i += 3) {
        assert_status(uli_mem_attach(comms[0], mems[i]), ULYX_SUCCESS);
        assert_true(uli_window_find(comms[0], memory[i], 64, &window, &offset));
        assert_int_equal(window, i + 1);
        assert_ptr_equal(
            uli_window_address(comms[1], 0, window, 0, 64), memory[i]);
    }
    for (int i = 0; i < COUNT; i++) {
        assert_status(uli_mem_detach(comms[0], mems[i]), ULYX_SUCCESS);
        assert_status(uli_mem_free(mems[i]), ULYX_SUCCESS);
    }
    destroy_all(2, comms);
}

/* While slots are reused, readers never get the base of one window with the
 * size of another that had the slot before: window k has 8 * 2^k bytes. */
struct churn {
    ulyx_comm_t *comms[2];
    char memory[2][4096];
    atomic_bool stop;
};

static int
churn_body(int rank, int nranks, void *context)
{
    struct churn *churn = context;
    int wrong = 0;
    (void)nranks;
    if (rank > 0) {
        while (!atomic_load(&churn->stop)) {
            char *at = uli_window_address(churn->comms[1], 0, 1, 2048, 8);
            wrong += at != NULL && at != churn->memory[1] + 2048;
        }
        return !ranks_expect(wrong == 0);
    }
    for (int i = 0; i < 3000; i++) {
        ulyx_mem_t *mem;
        int64_t bytes = i & 1 ? 4096 : 1024;
        wrong += uli_mem_register(churn->memory[i & 1], bytes, ULYX_MEMORY_HOST,
                     0, &mem) != ULYX_SUCCESS;
        wrong += uli_mem_attach(churn->comms[0], mem) != ULYX_SUCCESS;
        wrong += uli_mem_detach(churn->comms[0], mem) != ULYX_SUCCESS;
        wrong += uli_mem_free(mem) != ULYX_SUCCESS;
    }
    atomic_store(&churn->stop, true);
    return !ranks_expect(wrong == 0);
}

static void
readers_get_whole_slots(void **state)
{
    (void)state;
    static struct churn churn;
    atomic_store(&churn.stop, false);
    make_local(2, churn.comms);
    assert_int_equal(ranks_run_threads(3, churn_body, &churn, 30), 0);
    destroy_all(2, churn.comms);
}

/* ---- between processes --------------------------------------------------- */

static uint64_t
word_of(int owner, int writer, int i)
{
    return (uint64_t)owner << 40 | (uint64_t)writer << 32 | (uint32_t)i;
}

/* Every rank attaches a window, writes its part of every window and reads the
 * parts that the owner wrote. */
static int
windows_exchange(struct meet *meet, int rank, int nranks, ulyx_comm_t *comm)
{
    ulyx_mem_t *mem;
    uint64_t *mine, windows[16];
    int64_t bytes, offset;
    uint32_t window;
    int part = WORDS / nranks;
    bool ok = ranks_expect(uli_mem_alloc(BYTES, ULYX_MEMORY_HOST, 0, rank & 1,
                               &mem) == ULYX_SUCCESS);
    uli_mem_range(mem, (void **)&mine, &bytes);
    for (int i = 0; i < WORDS; i++)
        ok &= mine[i] == 0;
    ok &= ranks_expect(ok);
    ok &= ranks_expect(uli_mem_attach(comm, mem) == ULYX_SUCCESS);
    ok &= ranks_expect(
        uli_window_find(comm, mine, BYTES, &window, &offset) && !offset);
    ok &= ranks_expect(meet_gather(meet, rank, window, windows));
    for (int p = 0; p < nranks && ok; p++) {
        uint64_t *at = uli_window_address(
            comm, p, (uint32_t)windows[p], rank * part * 8, part * 8);
        ok &= ranks_expect(at != NULL);
        for (int i = 0; i < part && ok; i++)
            at[i] = word_of(p, rank, i);
    }
    ok &= ranks_expect(meet_barrier(meet, rank));
    for (int i = 0; i < part * nranks; i++)
        ok &= mine[i] == word_of(rank, i / part, i % part);
    ok &= ranks_expect(ok);
    ok &= ranks_expect(meet_barrier(meet, rank));
    ok &= ranks_expect(uli_mem_detach(comm, mem) == ULYX_SUCCESS);
    ok &= ranks_expect(meet_barrier(meet, rank));
    for (int p = 0; p < nranks; p++)
        ok &= ranks_expect(
            !uli_window_address(comm, p, (uint32_t)windows[p], 0, 8));
    ok &= ranks_expect(meet_barrier(meet, rank)); /* ids are used again */
    ok &= ranks_expect(uli_mem_free(mem) == ULYX_SUCCESS);
    return ok;
}

static int
exchange_body(int rank, int nranks, void *context)
{
    struct meet *meet = context;
    ulyx_comm_t *comm;
    bool ok = ranks_expect(meet_comm(meet, rank, 20, &comm) == ULYX_SUCCESS);
    if (!ok)
        return 1;
    for (int i = 0; i < 3 && ok; i++)
        ok &= windows_exchange(meet, rank, nranks, comm);
    ok &= ranks_expect(meet_barrier(meet, rank));
    ok &= ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS);
    return !ok;
}

static void
processes_reach_each_other(void **state)
{
    (void)state;
    struct meet *meet = meet_new(RANKS);
    assert_int_equal(ranks_run_processes(RANKS, exchange_body, meet, 60), 0);
    meet_free(meet);
}

/* Two processes with two ranks each, as threads. */
struct mixed {
    struct meet *meet;
    int first;
};

static int
mixed_thread(int thread, int nthreads, void *context)
{
    struct mixed *mixed = context;
    return exchange_body(mixed->first + thread, 2 * nthreads, mixed->meet);
}

static int
mixed_process(int process, int nprocesses, void *context)
{
    struct mixed mixed = {context, 2 * process};
    (void)nprocesses;
    return ranks_run_threads(2, mixed_thread, &mixed, 50);
}

static void
threads_and_processes_mix(void **state)
{
    (void)state;
    struct meet *meet = meet_new(4);
    assert_int_equal(ranks_run_processes(2, mixed_process, meet, 60), 0);
    meet_free(meet);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(finds_what_is_attached),
    cmocka_unit_test(ranges_beyond_a_window_are_not_found),
    cmocka_unit_test(uses_ids_again),
    cmocka_unit_test(readers_get_whole_slots),
    cmocka_unit_test(processes_reach_each_other),
    cmocka_unit_test(threads_and_processes_mix),
};

ULI_TEST_MAIN("Windows", tests)
