/* SPDX-License-Identifier: Apache-2.0
 *
 * Arenas: blocks do not overlap, are zeroed and aligned, and every peer finds
 * them; freed blocks are used again; where no block fits, one arena is added.
 */
#include <stdlib.h>
#include <string.h>
#include "comm/meet.h"
#include "comm/memory/windows.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"

static const ulyx_comm_params_t defaults = ULYX_COMM_PARAMS_INIT;
static const int64_t first_bytes = 1 << 20; /* ULYX_ARENA_BYTES */

static int
set_up(void **state)
{
    static ulyx_comm_t *comms[2];
    *state = comms;
    return uli_comm_create_local(2, &defaults, comms);
}

static int
tear_down(void **state)
{
    ulyx_comm_t **comms = *state;
    return uli_comm_destroy(comms[0]) || uli_comm_destroy(comms[1]);
}

static bool
is_zero(const struct uli_arena_block *block)
{
    const char *byte = block->address;
    for (int64_t i = 0; i < block->bytes; i++)
        if (byte[i])
            return false;
    return true;
}

static struct uli_arena_block
block_take(ulyx_comm_t *comm, int64_t bytes)
{
    struct uli_arena_block block;
    assert_status(uli_arena_alloc(comm, bytes, &block), ULYX_SUCCESS);
    assert_true(block.bytes >= bytes);
    assert_int_equal(block.bytes % ULI_LINE, 0);
    assert_int_equal((uintptr_t)block.address % ULI_LINE, 0);
    assert_true(is_zero(&block));
    memset(block.address, 0xA5, (size_t)block.bytes);
    return block;
}

static void
peers_find_pieces(void **state)
{
    ulyx_comm_t **comms = *state;
    struct uli_arena_block small = block_take(comms[0], 1);
    struct uli_arena_block large = block_take(comms[0], 5 * first_bytes);
    assert_int_equal(small.window, 0);
    assert_true(small.offset >= uli_control_bytes(2));
    assert_int_not_equal(large.window, 0);
    assert_ptr_equal(uli_window_address(
                         comms[1], 0, small.window, small.offset, small.bytes),
        small.address);
    assert_ptr_equal(uli_window_address(
                         comms[1], 0, large.window, large.offset, large.bytes),
        large.address);
    uli_arena_free(comms[0], &large);
    uli_arena_free(comms[0], &small);
}

static void
whole_arena_comes_back(void **state)
{
    ulyx_comm_t **comms = *state;
    enum { COUNT = 64 };
    struct uli_arena_block blocks[COUNT];
    struct uli_arena_block all = block_take(comms[0], first_bytes - 8192);
    assert_int_equal(all.window, 0);
    uli_arena_free(comms[0], &all);
    /* In three orders: merging with the left neighbour, the right one and
     * both. */
    for (int order = 0; order < 3; order++) {
        for (int i = 0; i < COUNT; i++)
            blocks[i] = block_take(comms[0], 8192);
        for (int i = 0; i < COUNT; i++)
            uli_arena_free(comms[0], &blocks[order == 0   ? i
                                             : order == 1 ? COUNT - 1 - i
                                                          : (i * 37) % COUNT]);
        struct uli_arena_block again = block_take(comms[0], first_bytes - 8192);
        assert_int_equal(again.window, all.window);
        assert_int_equal(again.offset, all.offset);
        uli_arena_free(comms[0], &again);
    }
}

static void
grows_by_doubling(void **state)
{
    ulyx_comm_t **comms = *state;
    uint32_t high = 0;
    for (int i = 0; i < 62; i++) {
        struct uli_arena_block block = block_take(comms[0], first_bytes / 2);
        if (block.window > high)
            high = block.window;
    }
    /* Doubling ends at 8 MiB. Window 0 has 1 MiB for blocks; windows 1 to 5
     * have 2, 4, 8, 8 and 8 MiB: together 31 MiB. */
    assert_in_range(high, 4, 5);
}

static void
refuses_absurd_sizes(void **state)
{
    ulyx_comm_t **comms = *state;
    struct uli_arena_block block = {7, 7, 7, &block};
    const int64_t sizes[] = {0, -1, INT64_MAX, INT64_C(1) << 50};
    for (size_t i = 0; i < 4; i++) {
        assert_status(
            uli_arena_alloc(comms[0], sizes[i], &block), ULYX_ERR_NO_MEMORY);
        assert_int_equal(block.window, 7);
    }
}

/* Random taking and giving; each block carries a mark that must survive. */
static void
pieces_do_not_overlap(void **state)
{
    ulyx_comm_t **comms = *state;
    enum { COUNT = 100 };
    struct uli_arena_block blocks[COUNT] = {{0}};
    struct test_random random = {test_seed(21)};
    for (int64_t i = 0; i < test_draws(4000); i++) {
        int at = (int)test_random_in(&random, 0, COUNT - 1);
        struct uli_arena_block *block = &blocks[at];
        if (!block->address) {
            *block = block_take(
                comms[1], test_random_in(&random, 1, i % 50 ? 9000 : 900000));
            memset(block->address, at + 1, (size_t)block->bytes);
            continue;
        }
        const unsigned char *byte = block->address;
        for (int64_t b = 0; b < block->bytes; b++)
            if (byte[b] != at + 1)
                fail_msg("draw %d: block %d was overwritten", (int)i, at);
        uli_arena_free(comms[1], block);
        block->address = NULL;
    }
}

/* ---- several threads, and processes -------------------------------------- */

static int
thread_body(int rank, int nranks, void *context)
{
    ulyx_comm_t *comm = context;
    bool ok = true;
    (void)nranks;
    for (int i = 0; i < 300 && ok; i++) {
        struct uli_arena_block block;
        ok &=
            ranks_expect(uli_arena_alloc(comm, 50000, &block) == ULYX_SUCCESS);
        ok &= ranks_expect(is_zero(&block));
        memset(block.address, rank + 1, (size_t)block.bytes);
        ok &= ((char *)block.address)[block.bytes - 1] == rank + 1;
        uli_arena_free(comm, &block);
    }
    return !ranks_expect(ok);
}

static void
any_thread_may_take(void **state)
{
    ulyx_comm_t **comms = *state;
    assert_int_equal(ranks_run_threads(4, thread_body, comms[0], 30), 0);
}

static int
process_body(int rank, int nranks, void *context)
{
    struct meet *meet = context;
    uint64_t windows[3], offsets[3];
    struct uli_arena_block small, block;
    ulyx_comm_t *comm;
    bool ok = ranks_expect(meet_comm(meet, rank, 20, &comm) == ULYX_SUCCESS);
    if (!ok)
        return 1;
    ok &= uli_arena_alloc(comm, 100, &small) == ULYX_SUCCESS;
    ok &= ranks_expect(
        uli_arena_alloc(comm, 3 * first_bytes, &block) == ULYX_SUCCESS);
    *(_Atomic int *)block.address = 100 + rank;
    ok &= meet_gather(meet, rank, block.window, windows);
    ok &= meet_gather(meet, rank, (uint64_t)block.offset, offsets);
    for (int p = 0; p < nranks && ok; p++) {
        _Atomic int *at = uli_window_address(comm, p, (uint32_t)windows[p],
            (int64_t)offsets[p], 3 * first_bytes);
        ok &= ranks_expect(at && *at >= 100 + p);
        atomic_fetch_add(at, 1000);
    }
    ok &= ranks_expect(meet_barrier(meet, rank));
    ok &= ranks_expect(
        *(_Atomic int *)block.address == 100 + rank + 1000 * nranks);
    uli_arena_free(comm, &block);
    uli_arena_free(comm, &small);
    ok &= ranks_expect(meet_barrier(meet, rank));
    ok &= ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS);
    return !ok;
}

static void
grows_between_processes(void **state)
{
    (void)state;
    struct meet *meet = meet_new(3);
    assert_int_equal(ranks_run_processes(3, process_body, meet, 40), 0);
    meet_free(meet);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

static const struct CMUnitTest tests[] = {
    CASE(peers_find_pieces),
    CASE(whole_arena_comes_back),
    CASE(grows_by_doubling),
    CASE(refuses_absurd_sizes),
    CASE(pieces_do_not_overlap),
    CASE(any_thread_may_take),
    cmocka_unit_test(grows_between_processes),
};

ULI_TEST_MAIN("Arena", tests)
