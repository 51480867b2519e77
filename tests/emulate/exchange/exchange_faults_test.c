/* SPDX-License-Identifier: Apache-2.0
 *
 * Faults planted into the exchange kernels (exchange_plant.py). The emulator
 * must report each fault, or the result must show it, in every seed; the same
 * sources without a fault must pass. Faults of the protocol run in calls of
 * three ranks, faults of the loops over a tile in items of one rank.
 */
#include "exchange_ranks.h"

#include <stdlib.h>
#include "emulate/exchange/exchange_items.h"
#include "emulate/plant/fault_runs.h"
#include "exchange_planted.h"
#include "support/random.h"
#include "support/test.h"

int exchange_planted; /* number of the planted fault; 0 = none */

#define FAULT_NUMBER(name) name,
enum { NONE, EXCHANGE_FAULTS(FAULT_NUMBER) FAULTS_END };
#define FAULT_NAME(name) #name,
static const char *const names[] = {"NONE", EXCHANGE_FAULTS(FAULT_NAME)};
enum { FIRST_OF_LOOPS = WALK_STEP_WITHOUT_THE_RUN, ITEM_DRAWS = 600 };

/* Data is copied in the ranks' own streams, so only the exchange orders the
 * work of one rank before that of another. */
static void
run_stream(struct ranks_world *g, int32_t r, int op, unsigned char *fresh[])
{
    struct ranks_one *one = &g->at[r];
    cudaSetDevice(one->device);
    for (int32_t t = 0; t < g->w->c.shape.ntensors; t++) {
        size_t bytes = (size_t)g->w->src[op][r][t].bytes;
        cudaMemcpyAsync(one->src[op][t], fresh[r * ULI_TENSORS + t], bytes,
            cudaMemcpyDeviceToDevice, one->stream);
    }
    ranks_enqueue(g, r, op);
    for (int32_t t = 0; t < g->w->c.shape.ntensors; t++) {
        size_t bytes = (size_t)g->w->dst[op][r][t].bytes;
        cudaMemcpyAsync(one->scratch[t], one->dst[op][t], bytes,
            cudaMemcpyDeviceToDevice, one->stream);
    }
}

/* Returns whether the results were right and no fault was reported. */
static bool
run_once(int fault, uint64_t seed, bool small)
{
    struct test_random random = {seed};
    struct world_ranks storage;
    struct ranks_world *g = calloc(1, sizeof(*g));
    struct world *w = ranks_new_world(3, &storage);
    unsigned char *fresh[RANKS_MAX * ULI_TENSORS] = {NULL};
    /* with one row some ranks have nothing to move, but still take part */
    int64_t rows = fault == DONE_BEFORE_RECORDS_ARE_READ ? 1 : 40;
    world_plain_case(w, 3, rows, 4, 1, 16, ULYX_DTYPE_BF16);
    assert_true(world_draw(w, &storage, &random, 0));
    struct ranks_config config = {.seed = seed,
        .devices = 2,
        .slot_bytes = small ? RANKS_SLOT_BYTES : 0,
        .blocks = 2,
        .threads = 64,
        .timeout_ns = UINT64_C(1000000000),
        .launch = uli_gpu_exchange_launch,
        .quiet = fault != NONE};
    exchange_planted = fault;
    world_fill(w);
    ranks_open(g, w, &config);
    ranks_upload(g);
    int op = ULYX_SEQ_TO_HEAD_ADJOINT;
    for (int32_t r = 0; r < 3; r++)
        for (int32_t t = 0; t < 3; t++)
            fresh[r * ULI_TENSORS + t] = ranks_device_copy(
                g, r, w->src[op][r][t].base, (size_t)w->src[op][r][t].bytes);
    if (fault == TILES_TWICE)
        ranks_track(g, op);
    uint64_t calls = fault == TILES_TWICE ? 1 : 3;
    for (uint64_t i = 0; i < calls; i++)
        for (int32_t r = 0; r < 3; r++)
            run_stream(g, r, op, fresh);
    bool well = ranks_sync(g) && emu_fault_count() == 0;
    for (int32_t r = 0; well && r < 3; r++) {
        struct uli_gpu_state state = ranks_state(g, r);
        /* A call that is not counted would otherwise show only by luck: as a
         * race, if a peer has not yet posted its next call. */
        well = state.failed == 0 && state.outcome == 0 && state.call == calls;
    }
    if (well) {
        ranks_download(g);
        w->norder = 1;
        w->order[0] = op;
        well = world_check(w);
    }
    ranks_close(g);
    world_free(w);
    free(w);
    free(g);
    return well;
}

/* Rank 0 loads after the other ranks have given up. Returns whether rank 0
 * takes what it has loaded for a result. */
static bool
run_given_up(int fault, uint64_t seed)
{
    const int op = ULYX_SEQ_TO_HEAD_ADJOINT;
    struct test_random random = {seed};
    struct world_ranks storage;
    struct ranks_world g;
    struct world *w = ranks_new_world(2, &storage);
    world_plain_case(w, 2, 24, 4, 1, 8, ULYX_DTYPE_BF16);
    assert_true(world_draw(w, &storage, &random, 0));
    struct ranks_config config = {.seed = seed,
        .devices = 2,
        .split = true,
        .blocks = 2,
        .threads = 64,
        .timeout_ns = UINT64_C(1000000000)};
    exchange_planted = fault;
    world_fill(w);
    ranks_open(&g, w, &config);
    ranks_upload(&g);
    ranks_enqueue_step(&g, 0, op, ULI_GPU_OPEN);
    ranks_enqueue(&g, 1, op);
    assert_true(ranks_sync(&g));
    ranks_enqueue_step(&g, 0, op, ULI_GPU_MOVE);
    ranks_enqueue_step(&g, 0, op, ULI_GPU_CLOSE);
    assert_true(ranks_sync(&g));
    bool taken = ranks_state(&g, 0).failed == 0;
    ranks_close(&g);
    world_free(w);
    free(w);
    return taken;
}

/* Draws items as exchange_protocol_test.c does, until one is wrong. */
static bool
run_items(uint64_t seed, int draws)
{
    const struct emu_config config = {
        .seed = seed, .quiet = exchange_planted != NONE};
    struct test_random random = {seed};
    run_must(emu_open(&config) == 0);
    for (int i = 0; i < draws; i++)
        if (!item_copy_is_right(&random) || !item_sum_is_right(&random))
            return false;
    return true;
}

static int
run_planted(int fault, uint64_t seed)
{
    bool well;
    exchange_planted = fault;
    if (fault >= FIRST_OF_LOOPS)
        well = run_items(seed, ITEM_DRAWS);
    else if (fault == GIVEN_UP_NOT_LOOKED_FOR || fault == GIVEN_UP_NOT_REPORTED)
        well = !run_given_up(fault, seed);
    else if (fault == NONE)
        well = run_once(fault, seed, false) && run_once(fault, seed, true) &&
               !run_given_up(fault, seed) && run_items(seed, 100);
    else
        well = run_once(fault, seed, fault >= SLOT_DONE_BEFORE_DATA);
    return well ? RUN_WELL : RUN_CAUGHT;
}

static const struct fault_runs runs = {.names = names,
    .faults = FAULTS_END,
    .seeds = 5,
    .limit_s = 60,
    .astray = true,
    .run = run_planted};

static void
none_planted_passes(void **state)
{
    (void)state;
    fault_runs_none_is_well(&runs);
}

static void
each_fault_is_caught(void **state)
{
    (void)state;
    fault_runs_each_is_caught(&runs);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(none_planted_passes),
    cmocka_unit_test(each_fault_is_caught),
};

ULI_TEST_MAIN("EmulateExchangeFaults", tests)
