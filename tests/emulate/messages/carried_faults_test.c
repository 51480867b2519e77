/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults planted into the exchange by messages and into the transport "staged"
 * (carried_plant.py). Each runs in a process of its own, because behaviour
 * after a fault is undefined. A race, a wrong byte or a failed call reveals a
 * fault; the unchanged sources pass.
 */
#include <stdio.h>
#include <stdlib.h>
#include "carried_planted.h"
#include "emulate.h"
#include "emulate/messages/carried_scene.h"
#include "emulate/driver/driver.h"
#include "emulate/plant/fault_runs.h"
#include "support/test.h"

int carried_planted; /* number of the planted fault; 0 = none */

enum { SEEDS = 2, DEVICES = 2, CALLS = 3 };

#define NAME(name) #name,
static const char *const names[] = {"NONE", CARRIED_FAULTS(NAME)};
enum { FAULTS = sizeof(names) / sizeof(names[0]) };

/* Makes calls of a permutation and of sums in turn, without a wait between
 * them. */
static int
play_calls(struct job *job, int rank)
{
    bool good = world_create(job->w, rank) == ULYX_SUCCESS;
    for (int n = 0; good && n < CALLS; n++)
        for (int op = 0; good && op < ULYX_DIRECTIONS; op += 2)
            good = carried_execute(job, rank, op) == ULYX_SUCCESS;
    ulyx_status_t status = ULYX_SUCCESS;
    good = carried_sync(job, rank) && good;
    ulyx_comm_get_async_error(job->storage.comms[rank], &status);
    good = good && status == ULYX_SUCCESS &&
           carried_check(job, rank, 1 << 0 | 1 << 2);
    if (!good || emu_fault_count())
        _exit(RUN_CAUGHT);
    return 0;
}

/* Rounds have several tiles, calls several rounds, and messages several
 * chunks. */
static int
run_here(int fault, uint64_t seed)
{
    const struct emu_config machine = {.devices = DEVICES,
        .sm_count = 4,
        .host_threads = RANKS + 1,
        .seed = seed,
        .quiet = fault != 0,
        .wall_time = true};
    struct test_random random = {seed};
    carried_planted = fault;
    run_must(!fault || freopen("/dev/null", "w", stderr));
    run_must(emu_open(&machine) == 0);
    emu_driver_no_peers(true);
    struct job *job = carried_new(10, DEVICES);
    job->storage.nranks = RANKS;
    job->w->bytes_in_flight = 24 << 10;
    world_plain_case(job->w, RANKS, 240, 8, 2, 5, ULYX_DTYPE_BF16);
    run_must(world_draw(job->w, &job->storage, &random, 0));
    return carried_run(job, play_calls, 60, -1) ? RUN_CAUGHT : RUN_WELL;
}

static const struct fault_runs runs = {
    names, FAULTS, SEEDS, 100, .astray = true, .run = run_here};

static void
unchanged_sources_have_no_fault(void **state)
{
    (void)state;
    fault_runs_none_is_well(&runs);
}

static void
each_planted_fault_is_caught(void **state)
{
    (void)state;
    fault_runs_each_is_caught(&runs);
}

static int
set_up(void **state)
{
    (void)state;
    setenv("ULYX_NCCL_LIB", "/nowhere/libnccl.so", 1);
    setenv("ULYX_STAGE_CHUNK", "4K", 1);
    setenv("ULYX_GPU_SMS", "2", 1);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(unchanged_sources_have_no_fault, set_up),
    cmocka_unit_test_setup(each_planted_fault_is_caught, set_up),
};

ULI_TEST_MAIN("EmulateCarriedFaults", tests)
