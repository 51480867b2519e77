/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators of CUDA memory within one process: arenas, windows of all
 * origins, and the table that kernels read, compared with the memory at the
 * addresses; refusals, poison, and that nothing is left.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "comm/device/gpu_scene.h"
#include "device/device.h"
#include "device/fake_memory.h"
#include "device/fake_open.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"
#include "ulyx/ulyx.h"

enum { RANKS = 3 };
static const int32_t devices[RANKS] = {0, 1, 0};

struct world {
    ulyx_comm_t *comms[RANKS];
};

static int
set_up(void **state)
{
    static struct world world;
    *state = &world;
    memset(&world, 0, sizeof(world));
    return gpu_open(state) || gpu_threads(RANKS, devices, 20, world.comms);
}

static int
tear_down(void **state)
{
    struct world *w = *state;
    int wrong = 0;
    for (int r = 0; r < RANKS; r++)
        wrong += w->comms[r] && uli_comm_destroy(w->comms[r]) != ULYX_SUCCESS;
    return gpu_close(state) || wrong;
}

static bool
is_zero(const char *memory, int64_t bytes)
{
    for (int64_t i = 0; i < bytes; i++)
        if (memory[i])
            return false;
    return true;
}

/* ---- arenas -------------------------------------------------------------- */

static void
expect_known(struct world *w, int rank, const struct uli_arena_block *block)
{
    for (int r = 0; r < RANKS; r++) {
        assert_ptr_equal(uli_window_address(w->comms[r], rank, block->window,
                             block->offset, block->bytes),
            block->address);
        assert_ptr_equal(
            (char *)gpu_entry(w->comms[r], rank, block->window) + block->offset,
            block->address);
    }
}

static void
pieces_are_zeroed_and_have_an_address_for_all(void **state)
{
    struct world *w = *state;
    struct uli_arena_block small, large, again;
    for (int r = 0; r < RANKS; r++) {
        ulyx_comm_t *comm = w->comms[r];
        int64_t before = uli_gpu_bytes(comm);
        assert_status(uli_gpu_arena_alloc(comm, 100, &small), ULYX_SUCCESS);
        assert_int_equal(uli_gpu_bytes(comm), before);
        assert_int_equal((uintptr_t)small.address % ULI_GPU_ARENA_LINE, 0);
        assert_int_equal(small.bytes, 128);
        assert_true(is_zero(small.address, small.bytes));
        expect_known(w, r, &small);
        assert_status(
            uli_gpu_arena_alloc(comm, INT64_C(5) << 20, &large), ULYX_SUCCESS);
        assert_int_equal(uli_gpu_bytes(comm), before + (INT64_C(5) << 20));
        assert_int_not_equal(large.window, small.window);
        assert_true(is_zero(large.address, large.bytes));
        expect_known(w, r, &large);
        memset(large.address, 7, (size_t)large.bytes);
        uli_gpu_arena_free(comm, &large);
        assert_status(uli_gpu_arena_alloc(comm, INT64_C(5) << 20, &again), 0);
        assert_ptr_equal(again.address, large.address);
        assert_true(is_zero(again.address, again.bytes));
        uli_gpu_arena_free(comm, &again);
        uli_gpu_arena_free(comm, &small);
    }
    assert_status(
        uli_gpu_arena_alloc(w->comms[0], 0, &small), ULYX_ERR_NO_MEMORY);
    assert_status(
        uli_gpu_arena_alloc(w->comms[0], -1, &small), ULYX_ERR_NO_MEMORY);
}

enum { HELD = 16 };

/* Blocks that live at the same time keep their content. */
static void
random_pieces_do_not_overlap(void **state)
{
    struct world *w = *state;
    struct test_random random = {test_seed(5)};
    struct uli_arena_block held[HELD];
    memset(held, 0, sizeof(held));
    for (int64_t i = 0; i < test_draws(400); i++) {
        int64_t which = test_random_in(&random, 0, HELD - 1);
        struct uli_arena_block *block = &held[which];
        char mark = (char)(which + 1);
        if (block->bytes) {
            char *at = block->address;
            assert_true(at[0] == mark && at[block->bytes - 1] == mark &&
                        memcmp(at, at + 1, (size_t)block->bytes - 1) == 0);
            uli_gpu_arena_free(w->comms[1], block);
            block->bytes = 0;
            continue;
        }
        int64_t bytes = test_random_in(&random, 1, 300000);
        assert_status(uli_gpu_arena_alloc(w->comms[1], bytes, block), 0);
        assert_true(block->bytes >= bytes);
        assert_true(is_zero(block->address, block->bytes));
        memset(block->address, mark, (size_t)block->bytes);
    }
    for (int i = 0; i < HELD; i++)
        if (held[i].bytes)
            uli_gpu_arena_free(w->comms[1], &held[i]);
}

/* ---- windows ------------------------------------------------------------- */

/* Attaches at rank 1, finds the window from every rank, detaches. */
static void
attach_and_look(struct world *w, ulyx_mem_t *mem, char *base, int64_t bytes)
{
    uint32_t window = 0;
    int64_t offset = 0;
    ulyx_comm_t *mine = w->comms[1];
    assert_non_null(mem);
    assert_false(uli_window_find(mine, base, bytes, &window, &offset));
    assert_status(uli_mem_attach(mine, mem), ULYX_SUCCESS);
    assert_true(uli_window_find(mine, base + 1, bytes - 1, &window, &offset));
    assert_int_equal(offset, 1);
    assert_false(uli_window_find(mine, base + 1, bytes, &window, &offset));
    for (int r = 0; r < RANKS; r++) {
        ulyx_comm_t *comm = w->comms[r];
        assert_ptr_equal(uli_window_address(comm, 1, window, 0, bytes), base);
        assert_null(uli_window_address(comm, 1, window, 0, bytes + 1));
        assert_ptr_equal(gpu_entry(comm, 1, window), base);
    }
    assert_status(uli_mem_free(mem), ULYX_ERR_BUSY);
    assert_status(uli_mem_detach(mine, mem), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++) {
        assert_null(uli_window_address(w->comms[r], 1, window, 0, 1));
        assert_null(gpu_entry(w->comms[r], 1, window));
    }
    assert_false(uli_window_find(mine, base, bytes, &window, &offset));
}

static void
windows_of_all_origins_are_found_by_all(void **state)
{
    struct world *w = *state;
    char *base = NULL;
    void *plain = NULL;
    ulyx_mem_t *mem = gpu_alloc(1, 100000, &base);
    assert_true(is_zero(base, 100000));
    attach_and_look(w, mem, base, 100000);
    attach_and_look(w, mem, base, 100000);
    assert_status(uli_mem_free(mem), ULYX_SUCCESS);

    assert_status(uli_device_cuda.alloc(1, 9000, &plain), ULYX_SUCCESS);
    mem = gpu_register((char *)plain + 500, 8000);
    attach_and_look(w, mem, (char *)plain + 500, 8000);
    assert_status(uli_mem_free(mem), ULYX_SUCCESS);
    assert_status(uli_device_cuda.free(1, plain), ULYX_SUCCESS);

    base = gpu_segment(1, 4);
    mem = gpu_register(base + 1000, 3 * FAKE_GRANULARITY);
    attach_and_look(w, mem, base + 1000, 3 * FAKE_GRANULARITY);
    assert_status(uli_mem_free(mem), ULYX_SUCCESS);
    gpu_segment_free(base, 4);
}

/* Each rank with its own handle, all ranks at the same time. */
static int
attach_and_grow(int rank, int nranks, void *context)
{
    struct world *w = context;
    ulyx_comm_t *comm = w->comms[rank];
    struct test_random random = {test_seed(40) + (uint64_t)rank};
    bool well = true;
    for (int64_t i = 0; i < test_draws(40) && well; i++) {
        int64_t bytes = test_random_in(&random, 1, 200000);
        struct uli_arena_block block;
        uint32_t window = 0;
        int64_t offset = -1;
        char *base = NULL;
        ulyx_mem_t *mem = gpu_alloc(devices[rank], bytes, &base);
        well =
            ranks_expect(mem != NULL) &&
            ranks_expect(uli_mem_attach(comm, mem) == ULYX_SUCCESS) &&
            ranks_expect(uli_window_find(comm, base, bytes, &window, &offset));
        for (int p = 0; p < nranks && well; p++)
            well = ranks_expect(uli_window_address(w->comms[p], rank, window, 0,
                                    bytes) == base) &&
                   ranks_expect(gpu_entry(w->comms[p], rank, window) == base);
        well = well && ranks_expect(uli_gpu_arena_alloc(comm, bytes * 4,
                                        &block) == ULYX_SUCCESS);
        if (well && (i & 1))
            uli_gpu_arena_free(comm, &block);
        well = well &&
               ranks_expect(uli_mem_detach(comm, mem) == ULYX_SUCCESS) &&
               ranks_expect(uli_mem_free(mem) == ULYX_SUCCESS);
    }
    return !well;
}

static void
ranks_attach_and_grow_at_the_same_time(void **state)
{
    assert_int_equal(ranks_run_threads(RANKS, attach_and_grow, *state, 60), 0);
}

static void
wrong_memory_is_refused_by_name(void **state)
{
    struct world *w = *state;
    static char plain[64];
    static const ulyx_comm_params_t host = ULYX_COMM_PARAMS_INIT;
    ulyx_mem_t *mem = NULL, *none = NULL;
    ulyx_comm_t *threads[1];
    char *base = NULL;
    const ulyx_status_t bad = ULYX_ERR_INVALID_ARGUMENT;
    const int32_t cuda = ULYX_MEMORY_CUDA;
    assert_status(uli_mem_alloc(64, cuda, 8, false, &none), bad);
    assert_status(uli_mem_register(plain, 64, cuda, -1, &none), bad);
    expect_text("is host memory, memory_kind says CUDA");
    assert_status(uli_mem_alloc(64, ULYX_MEMORY_HOST, 0, false, &mem), 0);
    assert_status(uli_mem_attach(w->comms[0], mem), bad);
    expect_text("the window is host memory, comm moves CUDA memory");
    assert_status(uli_mem_free(mem), ULYX_SUCCESS);

    mem = gpu_alloc(1, 64, &base);
    assert_status(uli_mem_attach(w->comms[0], mem), bad);
    expect_text("lies on CUDA device 1, rank 0 of comm is on device 0");
    assert_status(uli_comm_create_local(1, &host, threads), ULYX_SUCCESS);
    assert_status(uli_mem_attach(threads[0], mem), bad);
    expect_text("the window is CUDA memory, comm moves host memory");
    assert_status(uli_comm_destroy(threads[0]), ULYX_SUCCESS);
    assert_status(uli_mem_register(base, 64, cuda, 0, &none), bad);
    expect_text("lies on CUDA device 1, device says 0");
    assert_status(
        uli_mem_register(base, FAKE_GRANULARITY + 1, cuda, -1, &none), bad);
    assert_status(uli_mem_free(mem), ULYX_SUCCESS);
    assert_null(none);
    gpu_driver->lacks = 102;
    assert_status(
        uli_mem_alloc(64, cuda, 0, false, &none), ULYX_ERR_UNSUPPORTED);
    expect_text("no virtual memory management");
}

/* Each call of the driver that attach and the arena make fails once. */
static void
a_failing_driver_leaves_nothing_attached(void **state)
{
    struct world *w = *state;
    static const char *const calls[] = {"cuMemcpyAsync", "cuMemSetAccess",
        "cuMemsetD8Async", "cuMemCreate", "cuMemAddressReserve", "cuMemMap"};
    struct uli_arena_block block;
    char *base = NULL;
    ulyx_mem_t *mem = gpu_alloc(1, 4096, &base);
    gpu_driver->result = 719;
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        uint32_t window;
        int64_t offset;
        gpu_driver->failing = calls[i];
        ulyx_status_t status =
            i < 2 ? uli_mem_attach(w->comms[1], mem)
                  : uli_gpu_arena_alloc(w->comms[1], 9 << 20, &block);
        assert_status(status, ULYX_ERR_SYSTEM);
        expect_text(calls[i]);
        gpu_driver->failing = NULL;
        assert_false(uli_window_find(w->comms[1], base, 1, &window, &offset));
        for (int r = 0; r < RANKS && i < 2; r++)
            assert_null(uli_window_address(w->comms[r], 1, 2, 0, 1));
    }
    attach_and_look(w, mem, base, 4096);
    assert_status(uli_mem_free(mem), ULYX_SUCCESS);
}

/* ---- failure ------------------------------------------------------------- */

static void
kernels_receive_the_poison_of_a_failure(void **state)
{
    struct world *w = *state;
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(gpu_poison_of(w->comms[r]), 0);
    uli_comm_abort(w->comms[1]);
    assert_int_not_equal(gpu_poison_of(w->comms[1]), 0);
    assert_true(gpu_poison_comes(w->comms[0]));
    assert_true(gpu_poison_comes(w->comms[2]));
    assert_int_equal((int32_t)(uint32_t)gpu_poison_of(w->comms[0]), 1);
}

static void
kernels_receive_the_poison_of_a_timeout_on_this_rank_only(void **state)
{
    struct world *w = *state;
    struct timespec nap = {0, 60000000};
    uli_comm_fail(w->comms[1], ULYX_ERR_TIMEOUT, 2, "rank 2 is late");
    assert_int_equal(
        (ulyx_status_t)(gpu_poison_of(w->comms[1]) >> 32), ULYX_ERR_TIMEOUT);
    nanosleep(&nap, NULL);
    assert_int_equal(gpu_poison_of(w->comms[0]), 0);
}

static void
work_on_the_device_keeps_windows_and_handles(void **state)
{
    struct world *w = *state;
    char *base = NULL;
    ulyx_mem_t *mem = gpu_alloc(1, 4096, &base);
    assert_status(uli_mem_attach(w->comms[1], mem), ULYX_SUCCESS);
    w->comms[0]->gpu->calls = &gpu_busy_calls;
    gpu_busy = true;
    assert_status(uli_comm_destroy(w->comms[0]), ULYX_ERR_BUSY);
    expect_text("in flight on device 0");
    uli_comm_abort(w->comms[2]);
    assert_true(gpu_poison_comes(w->comms[1]));
    assert_status(uli_mem_detach(w->comms[1], mem), ULYX_ERR_BUSY);
    expect_text("rank 0 of comm may still use it");
    gpu_busy = false;
    assert_status(uli_mem_detach(w->comms[1], mem), ULYX_SUCCESS);
    assert_status(uli_mem_free(mem), ULYX_SUCCESS);
}

/* ---- split and shrink ---------------------------------------------------- */

struct family {
    ulyx_comm_t **parents, *children[RANKS];
};

static int
split_one(int rank, int nranks, void *context)
{
    struct family *f = context;
    (void)nranks;
    return !ranks_expect(ulyx_comm_split(f->parents[rank], rank == 1, 0, NULL,
                             &f->children[rank]) == ULYX_SUCCESS);
}

static int
shrink_one(int rank, int nranks, void *context)
{
    struct family *f = context;
    (void)nranks;
    return !ranks_expect(ulyx_comm_shrink(f->parents[rank], NULL,
                             &f->children[rank]) == ULYX_SUCCESS);
}

/* Each child has memory of its own, on its parent's device. */
static void
expect_children(struct family *f, int nranks)
{
    for (int r = 0; r < nranks; r++) {
        struct uli_arena_block block;
        ulyx_comm_t *child = f->children[r];
        assert_int_equal(child->gpu->device, f->parents[r]->gpu->device);
        assert_null(uli_gpu_unmapped(child));
        assert_int_equal(gpu_poison_of(child), 0);
        assert_status(uli_gpu_arena_alloc(child, 64, &block), ULYX_SUCCESS);
        assert_true(is_zero(block.address, 64));
        memset(block.address, 1, 64);
    }
    for (int r = 0; r < nranks; r++)
        assert_status(uli_comm_destroy(f->children[r]), ULYX_SUCCESS);
}

static void
children_inherit_the_device(void **state)
{
    struct world *w = *state;
    struct family f = {.parents = w->comms};
    if (!uli_device_kernels_built())
        test_skip("built without CUDA: the public calls refuse");
    assert_int_equal(ranks_run_threads(RANKS, split_one, &f, 30), 0);
    assert_int_equal(f.children[2]->nranks, 2);
    assert_int_equal(f.children[1]->nranks, 1);
    expect_children(&f, RANKS);
}

static void
survivors_shrink_to_a_sound_communicator(void **state)
{
    struct world *w = *state;
    struct family f = {.parents = w->comms};
    if (!uli_device_kernels_built())
        test_skip("built without CUDA: the public calls refuse");
    uli_comm_abort(w->comms[2]);
    assert_status(uli_comm_destroy(w->comms[2]), ULYX_SUCCESS);
    w->comms[2] = NULL;
    assert_true(gpu_poison_comes(w->comms[0]) && gpu_poison_comes(w->comms[1]));
    assert_int_equal(ranks_run_threads(RANKS - 1, shrink_one, &f, 30), 0);
    assert_int_equal(f.children[0]->nranks, 2);
    expect_children(&f, RANKS - 1);
}

static void
ranks_that_share_a_device_are_counted(void **state)
{
    struct world *w = *state;
    for (int r = 0; r < RANKS; r++)
        assert_int_equal(uli_gpu_sharers(w->comms[r]), devices[r] ? 1 : 2);
}

/* Making a stream may wait for kernels that spin, and it needs not be made:
 * where a communicator lives, there is one. */
static void
memory_is_zeroed_by_an_existing_stream(void **state)
{
    const int32_t another = 1 - devices[0];
    struct world *w = *state;
    char *address;
    gpu_driver->failing = "cuStreamCreateWithPriority";
    gpu_driver->result = 719;
    ulyx_mem_t *mem = gpu_alloc(devices[0], 1000, &address);
    assert_true(is_zero(address, 1000));
    assert_status(ulyx_mem_free(mem), ULYX_SUCCESS);
    assert_status(uli_comm_destroy(w->comms[1]), ULYX_SUCCESS);
    w->comms[1] = NULL;
    assert_status(uli_gpu_zero_new(another, address, 1), ULYX_IN_PROGRESS);
    gpu_driver->failing = NULL;
    mem = gpu_alloc(another, 1000, &address);
    assert_true(is_zero(address, 1000));
    assert_status(ulyx_mem_free(mem), ULYX_SUCCESS);
}

#define WITH_RANKS(name)                                                       \
    cmocka_unit_test_setup_teardown(name, set_up, tear_down)
static const struct CMUnitTest tests[] = {
    WITH_RANKS(pieces_are_zeroed_and_have_an_address_for_all),
    WITH_RANKS(random_pieces_do_not_overlap),
    WITH_RANKS(windows_of_all_origins_are_found_by_all),
    WITH_RANKS(ranks_attach_and_grow_at_the_same_time),
    WITH_RANKS(wrong_memory_is_refused_by_name),
    WITH_RANKS(a_failing_driver_leaves_nothing_attached),
    WITH_RANKS(kernels_receive_the_poison_of_a_failure),
    WITH_RANKS(kernels_receive_the_poison_of_a_timeout_on_this_rank_only),
    WITH_RANKS(work_on_the_device_keeps_windows_and_handles),
    WITH_RANKS(children_inherit_the_device),
    WITH_RANKS(survivors_shrink_to_a_sound_communicator),
    WITH_RANKS(ranks_that_share_a_device_are_counted),
    WITH_RANKS(memory_is_zeroed_by_an_existing_stream),
};

ULI_TEST_MAIN("Gpu", tests)
