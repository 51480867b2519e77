/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults planted into the kernel that goes with copy engines (engine_plant.py).
 * Each runs in a process of its own, because behaviour after a fault is
 * undefined. A race, a wrong byte or a failed call reveals a fault; the
 * unchanged kernel passes.
 */
#include <stdlib.h>
#include "emulate/plant/fault_runs.h"
#include "emulate/plan/plan_scene.h"
#include "engine_planted.h"
#include "support/test.h"

int engine_planted;

enum { SEEDS = 2, RANKS = 3, DEVICES = 2, CALLS = 3 };

#define NAME(name) #name,
static const char *const names[] = {"NONE", ENGINE_FAULTS(NAME)};
enum { FAULTS = sizeof(names) / sizeof(names[0]) };

/* Makes calls of several rounds back to back, sums among them. */
static int
run_here(int fault, uint64_t seed)
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
    engine_planted = fault;
    run_must(w && emu_open(&machine) == 0);
    plan_connect(&s, RANKS, DEVICES, 20);
    w->flags = ULYX_PLAN_COPY_ENGINE;
    w->fixed_limits = true;
    w->slot_bytes = -1;
    w->bytes_in_flight = 8192;
    world_plain_case(w, RANKS, 700, 8, 2, 5, ULYX_DTYPE_BF16);
    run_must(plan_draw(&s, w, &random));
    run_must(plan_create(&s, w) == ULYX_SUCCESS);
    plan_upload(&s);
    bool well = true;
    for (int n = 0; n < CALLS; n++)
        for (int op = 0; op < ULYX_DIRECTIONS; op += 2) {
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
    well = well && emu_fault_count() == 0 && world_check(w);
    return well ? RUN_WELL : RUN_CAUGHT;
}

static const struct fault_runs runs = {
    names, FAULTS, SEEDS, 60, .astray = true, .run = run_here};

static void
unchanged_kernel_has_no_fault(void **state)
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(unchanged_kernel_has_no_fault),
    cmocka_unit_test(each_planted_fault_is_caught),
};

ULI_TEST_MAIN("EmulateEngineFaults", tests)
