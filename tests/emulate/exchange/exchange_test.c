/* SPDX-License-Identifier: Apache-2.0
 *
 * The real source of the exchange kernels on emulated devices, compared with
 * obvious placement: random layouts, strides, alignments, launches and devices.
 * The same file runs on a card, with several ranks of a process on each
 * device.
 */
#include "exchange_ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include "support/random.h"
#include "support/test.h"

enum { SMALL, DIRECT, MIXED };

static struct ranks_config
draw_config(struct test_random *random, int32_t nranks, int slots)
{
    static const int64_t limits[] = {0, 64, 512, RANKS_SLOT_BYTES};
    struct ranks_config config = {.seed = test_random_next(random) | 1,
        .devices = (int)test_random_in(random, 1, nranks),
        .slot_bytes = slots == SMALL    ? RANKS_SLOT_BYTES
                      : slots == DIRECT ? 0
                                        : limits[test_random_in(random, 0, 3)],
        .split = test_random_in(random, 0, 2) == 0,
        .blocks = (int32_t)test_random_in(random, 1, 3),
        .threads = 32 * (int32_t)test_random_in(random, 1, 3)};
    return config;
}

static void
expect_no_faults(struct ranks_world *g)
{
    for (int32_t r = 0; r < g->nranks; r++) {
        struct uli_gpu_state state = ranks_state(g, r);
        assert_int_equal(state.failed, 0);
        assert_int_equal(state.outcome, 0);
    }
    assert_int_equal(emu_fault_count(), 0);
}

/* Runs each operation once and counts every write; then runs some operations
 * back to back. */
static void
run_world(struct ranks_world *g)
{
    struct world *w = g->w;
    int64_t calls = 0;
    world_fill(w);
    ranks_upload(g);
    for (int op = 0; op < ULYX_DIRECTIONS; op++) {
        if (!(w->directions >> op & 1))
            continue;
#ifdef ULI_EMULATE
        ranks_track(g, op);
#endif
        ranks_enqueue_all(g, op);
        assert_true(ranks_sync(g));
#ifdef ULI_EMULATE
        assert_true(ranks_track_check(g, op));
#endif
        calls++;
    }
    w->norder = w->norder < 3 ? w->norder : 3;
    for (int i = 0; i < w->norder; i++, calls++)
        ranks_enqueue_all(g, w->order[i]);
    assert_true(ranks_sync(g));
    expect_no_faults(g);
    assert_int_equal(ranks_state(g, 0).call, calls);
    ranks_download(g);
    w->norder = 0;
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        if (w->directions >> op & 1)
            w->order[w->norder++] = op;
    assert_true(world_check(w));
}

static void
run_draws(uint64_t seed, int64_t draws, int slots, bool balanced)
{
    struct test_random random = {test_seed(seed)};
    for (int64_t i = 0; i < draws; i++) {
        struct world_ranks storage;
        struct ranks_world g;
        struct world *w = ranks_new_world(RANKS_MAX, &storage);
        case_random(&w->c, &random, RANKS_MAX, balanced);
        storage.nranks = w->c.shape.nranks;
        w->salt = i;
        if (world_draw(w, &storage, &random, 0)) {
            struct ranks_config config =
                draw_config(&random, storage.nranks, slots);
            ranks_open(&g, w, &config);
            run_world(&g);
            ranks_close(&g);
            world_free(w);
        }
        free(w);
    }
}

static void
direct_draws(void **state)
{
    (void)state;
    run_draws(101, test_draws(40), DIRECT, false);
}

static void
small_draws(void **state)
{
    (void)state;
    run_draws(102, test_draws(40), SMALL, false);
}

static void
mixed_draws(void **state)
{
    (void)state;
    run_draws(103, test_draws(40), MIXED, false);
}

static void
balanced_draws(void **state)
{
    (void)state;
    run_draws(104, test_draws(30), MIXED, true);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(direct_draws),
    cmocka_unit_test(small_draws),
    cmocka_unit_test(mixed_draws),
    cmocka_unit_test(balanced_draws),
};

#ifdef ULI_EMULATE
ULI_TEST_MAIN("EmulateExchange", tests)
#else
ULI_TEST_MAIN("CardExchange", tests)
#endif
