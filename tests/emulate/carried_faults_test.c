/* SPDX-License-Identifier: Apache-2.0
 *
 * What is found when the packed exchange or the carrier "staged" is wrong:
 * faults planted into them by carried_plant.py, each in a process of its own,
 * as what follows a fault is undefined. A fault is caught by a race, a wrong
 * byte or a call that does not end well; the sources as they are show none.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "carried_planted.h"
#include "emulate.h"
#include "emulate/carried_scene.h"
#include "emulate/driver/driver.h"
#include "support/test.h"

int carried_planted; /* number of the fault; 0 = none */

enum { SEEDS = 2, DEVICES = 2, CALLS = 3 };
enum { WELL = 0, CAUGHT = 7, BROKEN = 1 };

#define NAME(name) #name,
static const char *const names[] = {"NONE", CARRIED_FAULTS(NAME)};
enum { FAULTS = sizeof(names) / sizeof(names[0]) };

/* That the fault has nothing to do with. */
#define must(condition)                                                        \
    do {                                                                       \
        if (!(condition)) {                                                    \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
            _exit(BROKEN);                                                     \
        }                                                                      \
    } while (0)

/* Calls back to back, a permutation and sums in turn, nothing waited for
 * between them. */
static int
play_calls(struct job *job, int rank)
{
    bool good = world_create(job->w, rank) == ULYX_SUCCESS;
    for (int n = 0; good && n < CALLS; n++)
        for (int op = 0; good && op < ULYX_OPERATIONS; op += 2)
            good = carried_execute(job, rank, op) == ULYX_SUCCESS;
    ulyx_status_t status = ULYX_SUCCESS;
    good = carried_sync(job, rank) && good;
    ulyx_comm_get_async_error(job->storage.comms[rank], &status);
    good = good && status == ULYX_SUCCESS &&
           carried_check(job, rank, 1 << 0 | 1 << 2);
    if (!good || emu_fault_count())
        _exit(CAUGHT);
    return 0;
}

/* Several tiles a round, rounds a call and chunks a message. */
static int
run_here(uint64_t seed, bool quiet)
{
    const struct emu_config machine = {.devices = DEVICES,
        .sm_count = 4,
        .host_threads = RANKS + 1,
        .seed = seed,
        .quiet = quiet,
        .wall_time = true};
    struct test_random random = {seed};
    must(emu_open(&machine) == 0);
    emu_driver_no_peers(true);
    struct job *job = carried_new(10, DEVICES);
    job->storage.nranks = RANKS;
    job->w->bytes_in_flight = 24 << 10;
    world_plain_case(job->w, RANKS, 240, 8, 2, 5, ULYX_DTYPE_BF16);
    must(world_draw(job->w, &job->storage, &random, 0));
    return carried_run(job, play_calls, 60, -1) ? CAUGHT : WELL;
}

static int
run_once(int fault, uint64_t seed)
{
    int status = 0;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        carried_planted = fault;
        if (fault && !freopen("/dev/null", "w", stderr))
            _exit(BROKEN);
        alarm(100);
        _exit(run_here(seed, fault != 0));
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        return BROKEN;
    if (!WIFEXITED(status)) /* a kernel went astray */
        return WTERMSIG(status) == SIGALRM ? BROKEN : CAUGHT;
    return WEXITSTATUS(status);
}

static void
the_sources_as_they_are_show_none(void **state)
{
    (void)state;
    for (int64_t seed = 1; seed <= test_draws(SEEDS); seed++)
        assert_int_equal(run_once(0, (uint64_t)seed), WELL);
}

static void
each_planted_fault_is_caught(void **state)
{
    int missed = 0;
    (void)state;
    for (int fault = 1; fault < FAULTS; fault++)
        for (int64_t seed = 1; seed <= test_draws(SEEDS); seed++) {
            int result = run_once(fault, (uint64_t)seed);
            if (result == CAUGHT)
                continue;
            print_error("%s is %s in seed %d\n", names[fault],
                result == WELL ? "not caught" : "not tried", (int)seed);
            missed++;
        }
    assert_int_equal(missed, 0);
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
    cmocka_unit_test_setup(the_sources_as_they_are_show_none, set_up),
    cmocka_unit_test_setup(each_planted_fault_is_caught, set_up),
};

ULI_TEST_MAIN("EmulateCarriedFaults", tests)
