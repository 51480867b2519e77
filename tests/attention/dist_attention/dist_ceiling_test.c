/* SPDX-License-Identifier: Apache-2.0
 *
 * Ceilings of the workspace, from the least that creation accepts to ample
 * ones. A low ceiling cuts the queries of a KV head into pieces, and no result
 * may change.
 */
#include <stdio.h>
#include <string.h>
#include "attention/dist_attention/dist_world.h"
#include "support/test.h"

/* Returns whether a part is replicated. dq has one rank's bits only where no
 * copies of dout are summed on the way; dk and dv have them only if, in
 * addition, every KV head has its queries on one rank. */
static bool
case_replicated(const struct dist_case *c)
{
    for (int i = 0; i < c->p.nparts; i++)
        if (c->parts[i].kind == ULYX_PART_REPLICATED && c->nranks > 1)
            return true;
    return false;
}

/* Each KV head has several queries, so that there is something to cut. */
static void
ceiling_draw(struct dist_case *c, struct test_random *random)
{
    case_draw(c, random);
    c->p.kv_heads = test_random_in(random, 1, 2);
    c->p.heads = c->p.kv_heads * test_random_in(random, 2, 7);
    c->p.head_groups = 0;
    c->has_head_splits = false;
    if (test_random_in(random, 0, 1)) {
        c->nranks = (int32_t)test_random_in(random, 1, 3);
        memset(c->has_splits, 0, sizeof(c->has_splits));
    }
    c->ceiling = true;
    c->ceiling_eighths = (int32_t)test_random_in(random, 0, 8);
}

/* *cut counts the cases in which KV heads are cut. */
static bool
ceiling_check(const struct dist_case *c, bool processes, int64_t *cut)
{
    bool bits = !case_replicated(c);
    int64_t groups;
    bool good = world_check(c, processes, bits, bits, &groups);
    *cut += groups > c->p.kv_heads;
    return good;
}

static void
run_draws(uint64_t seed, int64_t draws, bool processes, int32_t delay_ms)
{
    int64_t cut =
        case_check_draws(&(struct case_draws){seed, draws, processes, delay_ms},
            ceiling_draw, ceiling_check);
    printf("%lld of %lld distributed attentions cut KV heads\n", (long long)cut,
        (long long)draws);
    assert_true(cut > draws / 8);
}

static void
ceilings_change_nothing(void **state)
{
    (void)state;
    run_draws(20261129, test_draws(60), false, 0);
}

static void
ceilings_change_nothing_with_delays_or_processes(void **state)
{
    (void)state;
    run_draws(31, test_draws(8), false, 20);
    /* A thread sanitizer does not track order between processes. */
#if !defined(__SANITIZE_THREAD__)
    run_draws(41, test_draws(8), true, 0);
#endif
}

/* On one rank and with the same kernel, all pieces of every KV head add up to
 * the dk and dv of one call, bit for bit. */
static void
pieces_add_in_the_order_of_heads(void **state)
{
    (void)state;
    static const int32_t dtypes[] = {
        ULYX_DTYPE_F64, ULYX_DTYPE_F32, ULYX_DTYPE_BF16, ULYX_DTYPE_F16};
    for (int i = 0; i < 8; i++) {
        struct dist_case c;
        int64_t cut = 0;
        case_plain(&c, 1, 200, 12, 2, 16);
        c.p.dtype = dtypes[i / 2];
        c.p.flags = ULYX_DIST_ATTENTION_LSE;
        c.p.save = i % 2 ? ULYX_SAVE_NONE : ULYX_SAVE_HEADS;
        c.ceiling = true;
        assert_true(ceiling_check(&c, false, &cut));
        assert_int_equal(cut, 1);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ceilings_change_nothing),
    cmocka_unit_test(ceilings_change_nothing_with_delays_or_processes),
    cmocka_unit_test(pieces_add_in_the_order_of_heads),
};

ULI_TEST_MAIN("DistCeiling", tests)
