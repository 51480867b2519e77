/* SPDX-License-Identifier: Apache-2.0
 *
 * The pool of GPU memory: an allocation is a window of every communicator of
 * its device, from its return until its free; failures and quarantine lose no
 * memory and give none back too early.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "comm/device/gpu_scene.h"
#include "comm/meet.h"
#include "device/fake_memory.h"
#include "device/fake_open.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"
#include "ulyx/ulyx.h"

enum { RANKS = 2 };
static const int32_t devices[2][RANKS] = {{0, 0}, {0, 1}};

struct world {
    ulyx_comm_t *comms[2][RANKS];
};

static int
set_up(void **state)
{
    static struct world world;
    *state = &world;
    memset(&world, 0, sizeof(world));
    return gpu_open(state) ||
           gpu_threads(RANKS, devices[0], 20, world.comms[0]) ||
           gpu_threads(RANKS, devices[1], 20, world.comms[1]);
}

static int
tear_down(void **state)
{
    struct world *w = *state;
    int64_t allocations = -1, quarantined = -1;
    int wrong = 0;
    for (int i = 0; i < 2 * RANKS; i++) {
        ulyx_comm_t *comm = w->comms[i / RANKS][i % RANKS];
        wrong += comm && uli_comm_destroy(comm) != ULYX_SUCCESS;
    }
    wrong += ulyx_pool_get_counts(&allocations, &quarantined) != 0;
    return gpu_close(state) || wrong || allocations || quarantined;
}

static bool
is_window(const ulyx_comm_t *comm, const void *address, int64_t bytes)
{
    uint32_t window;
    int64_t offset;
    return uli_window_find(comm, address, bytes, &window, &offset) &&
           gpu_entry(comm, comm->rank, window) == address;
}

static void
allocations_are_windows_of_the_members(void **state)
{
    struct world *w = *state;
    ulyx_comm_t *a = w->comms[0][1], *b = w->comms[1][0], *c = w->comms[1][1];
    char *early = ulyx_pool_malloc(5000, 0, NULL);
    assert_non_null(early);
    assert_false(is_window(a, early, 5000));
    assert_status(ulyx_pool_attach(a), ULYX_SUCCESS);
    assert_status(ulyx_pool_attach(a), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(ulyx_pool_attach(b), ULYX_SUCCESS);
    assert_status(ulyx_pool_attach(c), ULYX_SUCCESS);
    assert_true(is_window(a, early, 5000) && is_window(b, early, 5000));
    assert_false(is_window(c, early, 1)); /* another device */
    char *late = ulyx_pool_malloc(FAKE_GRANULARITY + 1, 1, NULL);
    assert_true(is_window(c, late, FAKE_GRANULARITY + 1));
    assert_false(is_window(a, late, 1));
    assert_status(uli_comm_destroy(a), ULYX_ERR_BUSY);
    ulyx_pool_free(early, 5000, 0, NULL);
    assert_false(is_window(a, early, 1) || is_window(b, early, 1));
    assert_status(ulyx_pool_detach(c), ULYX_SUCCESS);
    assert_status(ulyx_pool_detach(c), ULYX_ERR_INVALID_ARGUMENT);
    assert_false(is_window(c, late, 1));
    ulyx_pool_free(late, 0, 1, NULL);
    ulyx_pool_free(NULL, 0, 1, NULL);
    assert_status(ulyx_pool_detach(a), ULYX_SUCCESS);
    assert_status(ulyx_pool_detach(b), ULYX_SUCCESS);
}

static void
invalid_arguments_are_refused(void **state)
{
    static const ulyx_comm_params_t host = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *threads[1];
    char local;
    (void)state;
    assert_null(ulyx_pool_malloc(0, 0, NULL));
    assert_non_null(strstr(ulyx_last_error(), "bytes is 0, must be 1 to 92"));
    assert_null(ulyx_pool_malloc(64, -1, NULL));
    assert_null(ulyx_pool_malloc(64, 9, NULL));
    expect_text("cuDeviceGet");
    assert_null(ulyx_pool_malloc(SIZE_MAX, 0, NULL));
    ulyx_pool_free(&local, 1, 0, NULL);
    expect_text("was not allocated from the pool");
    assert_status(ulyx_pool_attach(NULL), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(uli_comm_create_local(1, &host, threads), ULYX_SUCCESS);
    assert_status(ulyx_pool_attach(threads[0]), ULYX_SUCCESS);
    assert_status(ulyx_pool_attach(threads[0]), ULYX_ERR_INVALID_ARGUMENT);
    expect_text("has joined the pool already");
    assert_status(uli_comm_destroy(threads[0]), ULYX_SUCCESS);
}

static void
a_failure_attaches_nothing_or_leaves_the_memory(void **state)
{
    struct world *w = *state;
    ulyx_comm_t *a = w->comms[0][0];
    char *one = ulyx_pool_malloc(64, 0, NULL);
    gpu_driver->failing = "cuMemcpyAsync";
    gpu_driver->result = 719;
    assert_status(ulyx_pool_attach(a), ULYX_ERR_SYSTEM);
    expect_text("cuMemcpyAsync");
    gpu_driver->failing = NULL;
    assert_false(is_window(a, one, 64));
    assert_status(ulyx_pool_detach(a), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(ulyx_pool_attach(a), ULYX_SUCCESS);
    gpu_driver->failing = "cuMemcpyAsync";
    char *two = ulyx_pool_malloc(64, 0, NULL);
    gpu_driver->failing = "cuMemCreate";
    assert_null(ulyx_pool_malloc(64, 0, NULL));
    gpu_driver->failing = NULL;
    assert_true(two && is_window(a, one, 64) && !is_window(a, two, 64));
    ulyx_pool_free(one, 64, 0, NULL);
    ulyx_pool_free(two, 64, 0, NULL);
    assert_status(ulyx_pool_detach(a), ULYX_SUCCESS);
}

static void
memory_in_quarantine_is_kept(void **state)
{
    struct world *w = *state;
    ulyx_comm_t *mine = w->comms[0][0], *other = w->comms[0][1];
    int64_t allocations, quarantined;
    assert_status(ulyx_pool_attach(mine), ULYX_SUCCESS);
    char *one = ulyx_pool_malloc(64, 0, NULL);
    char *two = ulyx_pool_malloc(64, 0, NULL);
    one[5] = 7;
    atomic_store(&other->gpu->calls, &gpu_busy_calls);
    gpu_busy = true;
    uli_comm_abort(mine);
    ulyx_pool_free(one, 64, 0, NULL);
    assert_status(ulyx_pool_get_counts(&allocations, &quarantined), 0);
    assert_int_equal(allocations, 2);
    assert_int_equal(quarantined, 1);
    assert_int_equal(one[5], 7); /* the memory is still there */
    assert_status(ulyx_pool_detach(mine), ULYX_ERR_BUSY);
    assert_status(uli_comm_destroy(mine), ULYX_SUCCESS);
    w->comms[0][0] = NULL;
    ulyx_pool_free(two, 64, 0, NULL);
    assert_status(ulyx_pool_get_counts(&allocations, &quarantined), 0);
    assert_int_equal(quarantined, 2);
    gpu_busy = false;
    char *three = ulyx_pool_malloc(64, 0, NULL);
    assert_status(ulyx_pool_get_counts(&allocations, &quarantined), 0);
    assert_int_equal(allocations, 1);
    assert_int_equal(quarantined, 0);
    ulyx_pool_free(three, 64, 0, NULL);
}

/* ---- ranks that allocate at random --------------------------------------- */

enum { HELD = 6 };

static int
pool_churn(int rank, int nranks, void *context)
{
    struct test_random random = {test_seed(91) + (uint64_t)rank};
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *comm = NULL;
    char *held[HELD] = {NULL};
    (void)nranks;
    params.memory_kind = ULYX_MEMORY_CUDA;
    params.timeout_s = 20;
    if (!ranks_expect(gpu_open(NULL) == 0) ||
        !ranks_expect(
            meet_comm_by(context, rank, &params, &comm) == ULYX_SUCCESS) ||
        !ranks_expect(ulyx_pool_attach(comm) == ULYX_SUCCESS))
        return 1;
    bool well = true;
    for (int64_t i = 0; i < test_draws(60) && well; i++) {
        int64_t which = test_random_in(&random, 0, HELD - 1);
        int64_t bytes = test_random_in(&random, 1, 3 * FAKE_GRANULARITY);
        if (held[which]) {
            well = ranks_expect(held[which][0] == (char)which);
            ulyx_pool_free(held[which], 0, 0, NULL);
            held[which] = NULL;
            continue;
        }
        held[which] = ulyx_pool_malloc((size_t)bytes, 0, NULL);
        well = ranks_expect(held[which] != NULL) &&
               ranks_expect(is_window(comm, held[which], bytes));
        if (well)
            held[which][0] = (char)which;
    }
    for (int i = 0; i < HELD; i++)
        ulyx_pool_free(held[i], 0, 0, NULL);
    well = ranks_expect(meet_barrier(context, rank)) && well;
    well = ranks_expect(ulyx_pool_detach(comm) == ULYX_SUCCESS) && well;
    well = ranks_expect(uli_comm_destroy(comm) == ULYX_SUCCESS) && well;
    return !(ranks_expect(gpu_nothing_left()) && well);
}

static void
processes_allocate_out_of_step(void **state)
{
    struct meet *meet = meet_new(3);
    (void)state;
    assert_int_equal(ranks_run_processes(3, pool_churn, meet, 60), 0);
    meet_free(meet);
}

#define WITH_RANKS(name)                                                       \
    cmocka_unit_test_setup_teardown(name, set_up, tear_down)
static const struct CMUnitTest tests[] = {
    cmocka_unit_test(processes_allocate_out_of_step),
    WITH_RANKS(allocations_are_windows_of_the_members),
    WITH_RANKS(invalid_arguments_are_refused),
    WITH_RANKS(a_failure_attaches_nothing_or_leaves_the_memory),
    WITH_RANKS(memory_in_quarantine_is_kept),
};

ULI_TEST_MAIN("Pool", tests)
