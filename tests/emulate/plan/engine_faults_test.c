/* SPDX-License-Identifier: Apache-2.0
 *
 * What is found when the copy engines' kernel is wrong: faults planted into it
 * by engine_plant.py, each in a process of its own, as what follows a fault is
 * undefined. A fault is caught by a race, a wrong byte or a call that does not
 * end well; the kernel as it is shows none.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "emulate/plan/plan_scene.h"
#include "engine_planted.h"
#include "support/test.h"

int engine_planted;

enum { SEEDS = 2, RANKS = 3, DEVICES = 2, CALLS = 3 };

#define NAME(name) #name,
static const char *const names[] = {"NONE", ENGINE_FAULTS(NAME)};
enum { FAULTS = sizeof(names) / sizeof(names[0]) };

/* Calls of several rounds back to back, sums among them; is all well? */
static bool
runs_well(uint64_t seed)
{
    const struct emu_config machine = {.devices = DEVICES,
        .sm_count = 8,
        .host_threads = RANKS + 1,
        .seed = seed,
        .quiet = true,
        .wall_time = true};
    struct plan_scene s;
    struct test_random random = {seed};
    struct world *w = calloc(1, sizeof(*w));
    bool well = w != NULL;
    if (!well || emu_open(&machine))
        return false;
    plan_connect(&s, RANKS, DEVICES, 20);
    w->flags = ULYX_PLAN_COPY_ENGINE;
    w->fixed_limits = true;
    w->slot_bytes = -1;
    w->bytes_in_flight = 8192;
    world_plain_case(w, RANKS, 700, 8, 2, 5, ULYX_DTYPE_BF16);
    well =
        well && plan_draw(&s, w, &random) && plan_create(&s, w) == ULYX_SUCCESS;
    if (!well)
        return false;
    plan_upload(&s);
    for (int n = 0; n < CALLS; n++)
        for (int op = 0; op < ULYX_OPERATIONS; op += 2) {
            for (int32_t r = 0; r < RANKS; r++)
                well = well && plan_execute(&s, r, op) == ULYX_SUCCESS;
            w->order[op / 2] = op;
        }
    w->norder = 2;
    for (int32_t r = 0; r < RANKS; r++)
        well = well && cudaStreamSynchronize(s.streams[r]) == cudaSuccess;
    if (well)
        plan_download(&s);
    for (int32_t r = 0; r < RANKS && well; r++) {
        ulyx_status_t status = ULYX_SUCCESS;
        ulyx_comm_get_async_error(s.ranks.comms[r], &status);
        well = status == ULYX_SUCCESS;
    }
    return well && emu_fault_count() == 0 && world_check(w);
}

static bool
caught(int fault, uint64_t seed)
{
    int status = 0;
    pid_t child = fork();
    if (child == 0) {
        engine_planted = fault;
        alarm(60);
        _exit(runs_well(seed) ? 0 : 9);
    }
    assert_true(child > 0);
    assert_int_equal(waitpid(child, &status, 0), child);
    return !WIFEXITED(status) || WEXITSTATUS(status) == 9;
}

static void
the_kernel_as_it_is_shows_none(void **state)
{
    uint64_t seeds = (uint64_t)test_draws(SEEDS);
    (void)state;
    for (uint64_t seed = 1; seed <= seeds; seed++)
        assert_false(caught(0, seed));
}

static void
each_planted_fault_is_caught(void **state)
{
    uint64_t seeds = (uint64_t)test_draws(SEEDS);
    (void)state;
    for (int fault = 1; fault < FAULTS; fault++)
        for (uint64_t seed = 1; seed <= seeds; seed++)
            if (!caught(fault, seed))
                fail_msg(
                    "%s is not seen with seed %d", names[fault], (int)seed);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(the_kernel_as_it_is_shows_none),
    cmocka_unit_test(each_planted_fault_is_caught),
};

ULI_TEST_MAIN("EmulateEngineFaults", tests)
