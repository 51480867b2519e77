/* SPDX-License-Identifier: Apache-2.0
 *
 * Random distributed attentions on device memory are compared as those of host
 * memory are: with the fp64 reference within the host's bounds, and bit by bit
 * with one rank. Outputs hold poison before, and guard bytes surround them.
 */
#include <stdio.h>
#include <string.h>
#include "emulate/dist_attention/device_place.h"
#ifdef ULI_EMULATE
#include "emulate.h"
#include "emulate/driver/driver.h"
#else
#include "emulate/card/card.h"
#endif
#include "support/test.h"

enum { SCORES_MOST = 30000 };

/* ---- draws --------------------------------------------------------------- */

static void
draw_for(struct dist_case *c, struct test_random *random, int32_t nranks)
{
    do
        case_draw(c, random);
    while (c->nranks != nranks || device_place_scores(c) > SCORES_MOST ||
           device_place_scores(c) == 0);
    device_place_adapt(c, &device_place);
}

#define DRAW(n)                                                                \
    static void draw_##n(struct dist_case *c, struct test_random *random)      \
    {                                                                          \
        draw_for(c, random, n);                                                \
    }
DRAW(1)
DRAW(2)
DRAW(3)
DRAW(4)

/* Kernels take so many registers that the tiles of backward have two slots. On
 * a card, the library owns the contexts, so the devices are not reset. */
static void
machine_open(int32_t nranks, uint64_t seed)
{
#ifdef ULI_EMULATE
    const struct emu_config config = {.devices = DEVICE_PLACE_DEVICES,
        .sm_count = 4,
        .registers = 255,
        .host_threads = nranks + 1,
        .seed = seed,
        .wall_time = true};
    assert_int_equal(emu_open(&config), 0);
#else
    (void)nranks, (void)seed;
    card_devices(1);
#endif
}

static void
machine_close(void)
{
#ifdef ULI_EMULATE
    assert_int_equal(emu_fault_count(), 0);
    assert_int_equal(emu_driver_live(), 0);
    emu_close();
#endif
}

static bool
random_check(const struct dist_case *c, bool processes, int64_t *count)
{
    bool dq, dk;
    device_place_bits(c, &dq, &dk);
    machine_open(c->nranks, 0);
    bool good = world_check(c, processes, dq, dk, NULL);
    if (emu_fault_count())
        case_print(c);
    machine_close();
    ++*count;
    return good;
}

static void
run_draws(uint64_t seed, int64_t draws, case_draw_fn draw)
{
    case_check_draws(
        &(struct case_draws){.seed = seed, .count = test_draws(draws)}, draw,
        random_check);
}

static void
one_rank_matches_the_reference(void **state)
{
    (void)state;
    run_draws(20261129, 4, draw_1);
}

static void
two_ranks_match_one(void **state)
{
    (void)state;
    run_draws(20261130, 4, draw_2);
}

static void
three_ranks_match_one(void **state)
{
    (void)state;
    run_draws(20261131, 4, draw_3);
}

static void
four_ranks_match_one(void **state)
{
    (void)state;
    run_draws(20261132, 4, draw_4);
}

/* ---- every layout, every save mode --------------------------------------- */

static void
part_set(struct dist_case *c, int i, int32_t axis, int32_t kind, int64_t rows)
{
    c->parts[i] = (ulyx_part_t)ULYX_PART_INIT;
    c->parts[i].axis = axis;
    c->parts[i].kind = kind;
    c->parts[i].rows = rows;
    c->p.nparts = i + 1;
}

static void
layout_zigzag(struct dist_case *c)
{
    c->parts[0].order = ULYX_TOKENS_ZIGZAG;
}

static void
docs_set(struct dist_case *c)
{
    static const int64_t begin[] = {0, 5, 14}, length[] = {5, 9, 16};
    c->has_docs = true;
    c->ndocs = 3;
    for (int axis = 0; axis < 2; axis++) {
        memcpy(c->docs[axis][0], begin, sizeof(begin));
        memcpy(c->docs[axis][1], length, sizeof(length));
    }
}

static void
layout_zigzag_docs(struct dist_case *c)
{
    c->parts[0].order = ULYX_TOKENS_ZIGZAG_DOCS;
    c->p.max_local_rows = c->parts[0].rows;
    docs_set(c);
}

static void
layout_splits(struct dist_case *c)
{
    c->has_splits[0] = true;
    for (int32_t r = 0; r < c->nranks; r++)
        c->splits[0][r] = r ? 0 : c->parts[0].rows;
    c->splits[0][0] -= 7;
    c->splits[0][c->nranks - 1] += 7;
}

static void
layout_balanced(struct dist_case *c)
{
    c->p.work_split = ULYX_WORK_BALANCED;
    c->p.heads = 3;
    c->p.kv_heads = 1;
    docs_set(c);
}

static void
layout_joint(struct dist_case *c)
{
    part_set(c, 1, 0, ULYX_PART_REPLICATED, 6);
    c->p.flags |= ULYX_DIST_ATTENTION_GRAD_EQUAL;
}

static void
layout_cross(struct dist_case *c)
{
    part_set(c, 1, 1, ULYX_PART_SHARDED, 40);
    part_set(c, 2, 1, ULYX_PART_REPLICATED, 5);
}

static void
layout_rows_change(struct dist_case *c)
{
    c->changes_rows = c->call_strides = true;
}

/* Checks each layout, on 2 to 4 ranks in turn. */
static void
check_layouts(ulyx_save_mode_t save)
{
    void (*const layouts[])(struct dist_case *) = {layout_zigzag,
        layout_zigzag_docs, layout_splits, layout_balanced, layout_joint,
        layout_cross, layout_rows_change};
    enum { LAYOUTS = sizeof(layouts) / sizeof(layouts[0]) };
    int64_t count = 0;
    for (int i = 0; i < LAYOUTS; i++) {
        int n = save == ULYX_SAVE_HEADS ? i : i + LAYOUTS;
        struct dist_case c;
        case_plain(&c, 2 + n % 3, 30, 4, 2, 8);
        c.p.flags = ULYX_DIST_ATTENTION_LSE;
        c.p.save = save;
        c.p.head_groups = 1 + n % 2;
        c.p.dtype = n % 4 ? ULYX_DTYPE_F32 : ULYX_DTYPE_BF16;
        layouts[i](&c);
        c.place = &device_place;
        if (!random_check(&c, false, &count)) {
            case_print(&c);
            fail();
        }
    }
}

static void
every_layout_matches_one_rank_where_heads_are_saved(void **state)
{
    (void)state;
    check_layouts(ULYX_SAVE_HEADS);
}

static void
every_layout_matches_one_rank_where_none_are_saved(void **state)
{
    (void)state;
    check_layouts(ULYX_SAVE_NONE);
}

/* ---- ceilings ------------------------------------------------------------ */

/* The queries of a KV head are cut into pieces, and dk and dv are carried from
 * piece to piece. */
static void
check_ceiling(int32_t work_split)
{
    struct dist_case c;
    int64_t groups = 0;
    case_plain(&c, 2, 24, 6, 2, 8);
    c.p.flags = ULYX_DIST_ATTENTION_LSE;
    c.p.work_split = work_split;
    c.ceiling = true;
    c.place = &device_place;
    machine_open(c.nranks, 0);
    bool good = world_check(&c, false, true, !work_split, &groups);
    machine_close();
    assert_true(good);
    assert_true(groups > 2);
}

static void
a_ceiling_cuts_kv_heads(void **state)
{
    (void)state;
    check_ceiling(ULYX_WORK_HEADS);
}

static void
a_ceiling_cuts_balanced_work(void **state)
{
    (void)state;
    check_ceiling(ULYX_WORK_BALANCED);
}

/* ---- determinism --------------------------------------------------------- */

/* The seed decides the order of warps, blocks and streams, but not the bits. */
static void
bits_do_not_depend_on_the_seed(void **state)
{
    struct dist_case c;
    struct world first, again;
    (void)state;
    case_plain(&c, 3, 37, 4, 2, 16);
    c.p.flags = ULYX_DIST_ATTENTION_LSE;
    c.p.head_groups = 2;
    c.sinks = c.dlse = true;
    c.place = &device_place;
    world_init(&first, &c);
    machine_open(c.nranks, 11);
    assert_true(world_run(&first, false));
    machine_close();
    for (uint64_t seed = 12; seed < 18; seed++) {
        world_init(&again, &c);
        machine_open(c.nranks, seed);
        assert_true(world_run(&again, false));
        machine_close();
        assert_true(world_same(&again, &first, true, true));
        assert_memory_equal(again.sum[WORLD_D_SINK], first.sum[WORLD_D_SINK],
            (size_t)c.p.heads * sizeof(double));
        world_free(&again);
    }
    world_free(&first);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_rank_matches_the_reference),
    cmocka_unit_test(two_ranks_match_one),
    cmocka_unit_test(three_ranks_match_one),
    cmocka_unit_test(four_ranks_match_one),
    cmocka_unit_test(every_layout_matches_one_rank_where_heads_are_saved),
    cmocka_unit_test(every_layout_matches_one_rank_where_none_are_saved),
    cmocka_unit_test(a_ceiling_cuts_kv_heads),
    cmocka_unit_test(a_ceiling_cuts_balanced_work),
    cmocka_unit_test(bits_do_not_depend_on_the_seed),
};

#ifdef ULI_EMULATE
ULI_TEST_MAIN("EmulateOperator", tests)
#else
ULI_TEST_MAIN("CardOperator", tests)
#endif
