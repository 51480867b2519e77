/* SPDX-License-Identifier: Apache-2.0
 *
 * Movers: their tables are complete, and a plan's memory, flags and requested
 * algorithm decide which mover serves it.
 */
#include <stdlib.h>
#include <string.h>
#include "collectives/exchange/mover.h"
#include "comm/device/gpu.h"
#include "plan_scene.h"
#include "support/test.h"

/* ---- tables -------------------------------------------------------------- */

static void
every_table_has_every_entry(void **state)
{
    (void)state;
    for (int i = 0; uli_movers[i]; i++) {
        const struct uli_mover_ops *m = uli_movers[i];
        assert_non_null(m->name);
        assert_true(m->serves && m->check && m->prepare && m->complete);
        assert_true(m->needs_windows && m->start && m->refuse && m->update);
        assert_true(m->leave && m->left && m->destroy);
        assert_true(m->describe && m->describe_direction && m->describe_rest);
        assert_non_null(m->bytes);
    }
}

static void
the_list_ends_with_the_host(void **state)
{
    int n = 0;
    (void)state;
    while (uli_movers[n])
        n++;
    assert_int_equal(n, 4);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(uli_movers[i]->name, uli_movers[j]->name);
    assert_ptr_equal(uli_movers[n - 1], &uli_mover_host);
}

/* ---- the choice ---------------------------------------------------------- */

static void
expect_mover(const ulyx_plan_t *plan, const char *algo, const char *name)
{
    assert_string_equal(uli_mover_choose(plan, algo)->name, name);
}

/* A world of two ranks on device memory. */
static struct world *
plain_world(struct plan_scene *s, uint64_t flags)
{
    struct test_random random = {640};
    struct world *w = calloc(1, sizeof(*w));
    assert_non_null(w);
    w->flags = flags;
    world_plain_case(w, 2, 64, 4, 4, 8, ULYX_DTYPE_BF16);
    assert_true(plan_draw(s, w, &random));
    return w;
}

/* Draws worlds until one has document tables that change the layout. */
static struct world *
world_with_tables(struct plan_scene *s, uint64_t flags)
{
    struct test_random random = {641};
    for (;;) {
        struct world *w = calloc(1, sizeof(*w));
        assert_non_null(w);
        w->flags = flags;
        do
            case_random(&w->c, &random, 2, true);
        while (w->c.shape.nranks != 2);
        bool drawn = plan_draw(s, w, &random);
        if (drawn && uli_layout_has_tables(w->layout))
            return w;
        if (drawn)
            world_free(w);
        free(w);
    }
}

static void
device_memory_is_served_by_flag_and_name(void **state)
{
    struct plan_scene s;
    (void)state;
    plan_open(&s, 2, 2, 0);
    struct world *w = plain_world(&s, 0);
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    ulyx_plan_t *plan = w->plans[0];
    assert_string_equal(plan->mover->name, "mapped");
    expect_mover(plan, NULL, "mapped");
    expect_mover(plan, "hier", "mapped");
    expect_mover(plan, "staged", "messages");
    expect_mover(plan, "nccl", "messages");
    plan->flags |= ULYX_PLAN_COPY_ENGINE;
    expect_mover(plan, "", "engine");
    expect_mover(plan, "staged", "messages");
    plan->flags &= ~(uint64_t)ULYX_PLAN_COPY_ENGINE;
    strcpy(s.ranks.comms[0]->gpu->unmapped, "no reason");
    expect_mover(plan, NULL, "messages");
    expect_mover(plan, "pairwise", "messages");
    expect_mover(plan, "direct", "mapped");
    s.ranks.comms[0]->gpu->unmapped[0] = 0;
    plan_round(&s);
    plan_drop(&s);
    plan_close(&s);
}

/* Captured copies cannot follow an update. */
static void
copy_engines_refuse_document_tables(void **state)
{
    struct plan_scene s;
    (void)state;
    plan_open(&s, 2, 2, 0);
    struct world *w = plain_world(&s, ULYX_PLAN_COPY_ENGINE);
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    assert_string_equal(w->plans[1]->mover->name, "engine");
    plan_drop(&s);
    w = world_with_tables(&s, ULYX_PLAN_COPY_ENGINE);
    assert_status(plan_create(&s, w), ULYX_SUCCESS);
    assert_string_equal(w->plans[1]->mover->name, "mapped");
    plan_drop(&s);
    plan_close(&s);
}

/* Captured copies cannot follow rows that change, so the mapped kernel serves
 * such plans. */
static void
rows_that_change_are_served_by_the_kernel(void **state)
{
    struct plan_scene s;
    struct test_random random = {643};
    (void)state;
    plan_open(&s, 2, 2, 0);
    for (int flags = 0; flags < 2; flags++) {
        struct world *w = calloc(1, sizeof(*w));
        assert_non_null(w);
        w->flags = flags ? ULYX_PLAN_COPY_ENGINE : 0;
        world_plain_case(w, 2, 64, 4, 4, 8, ULYX_DTYPE_BF16);
        w->c.shape.parts[0].row_capacity = 80;
        assert_true(plan_draw(&s, w, &random));
        assert_status(plan_create(&s, w), ULYX_SUCCESS);
        assert_string_equal(w->plans[1]->mover->name, "mapped");
        plan_drop(&s);
    }
    plan_close(&s);
}

static void
host_memory_is_served_by_the_host(void **state)
{
    struct world_ranks ranks;
    struct test_random random = {642};
    struct world *w = calloc(1, sizeof(*w));
    (void)state;
    assert_non_null(w);
    world_ranks_init(&ranks, 1);
    world_plain_case(w, 1, 37, 8, 4, 5, ULYX_DTYPE_BF16);
    assert_true(world_draw(w, &ranks, &random, 0));
    assert_status(world_create(w, 0), ULYX_SUCCESS);
    expect_mover(w->plans[0], NULL, "host");
    expect_mover(w->plans[0], "staged", "host");
    assert_status(w->plans[0]->mover->check(
                      w->plans[0], &(struct uli_plan_params){.algo = "staged"}),
        ULYX_ERR_UNSUPPORTED);
    assert_status(ulyx_plan_destroy(w->plans[0]), ULYX_SUCCESS);
    world_free(w);
    free(w);
    world_ranks_free(&ranks);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_table_has_every_entry),
    cmocka_unit_test(the_list_ends_with_the_host),
    cmocka_unit_test(device_memory_is_served_by_flag_and_name),
    cmocka_unit_test(copy_engines_refuse_document_tables),
    cmocka_unit_test(rows_that_change_are_served_by_the_kernel),
    cmocka_unit_test(host_memory_is_served_by_the_host),
};

ULI_TEST_MAIN("EmulateMover", tests)
