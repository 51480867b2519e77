/* SPDX-License-Identifier: Apache-2.0
 *
 * Random distributed attentions against the whole sequence on one rank: close
 * to the fp64 reference, and bit by bit what one rank computes.
 */
#include <stdio.h>
#include "attention/dist_attention/dist_world.h"
#include "support/test.h"

/* dq's bits hold where dout is what one rank has: not where copies of
 * replicated rows are summed on the way. */
static bool
sums_dout(const struct dist_case *c)
{
    for (int i = 0; i < c->p.nparts; i++)
        if (c->parts[i].axis == 0 && c->parts[i].kind == ULYX_PART_REPLICATED &&
            c->nranks > 1)
            return !(c->p.flags & ULYX_DIST_ATTENTION_GRAD_EQUAL);
    return false;
}

static bool
replicated_keys(const struct dist_case *c)
{
    for (int i = 0; i < c->p.nparts; i++)
        if (c->parts[i].kind == ULYX_PART_REPLICATED)
            return true;
    return false;
}

static bool
case_check(const struct dist_case *c, bool processes)
{
    struct dist_case single;
    struct world w, one, reference;
    bool own = true;
    world_init(&w, c);
    case_single(c, &single);
    world_like(&one, &single, &w);
    bool good = world_run(&w, processes) && world_run(&one, false);
    good = world_reference(&w, &reference) && good;
    for (int r = 0; r < c->nranks; r++)
        own &= w.own_keys[r] != 0;
    bool dq = !sums_dout(c);
    good = good && world_close(&w, &reference) &&
           world_same(&w, &one, dq, dq && own && !replicated_keys(c));
    world_free(&w);
    world_free(&one);
    world_free(&reference);
    return good;
}

static void
run_draws(uint64_t seed, int64_t draws, bool processes, int32_t delay_ms)
{
    struct test_random random = {test_seed(seed)};
    for (int64_t i = 0; i < draws; i++) {
        struct dist_case c;
        uint64_t state = random.state;
        case_draw(&c, &random);
        c.delay_ms = delay_ms;
        if (!case_check(&c, processes)) {
            case_print(&c);
            fail_msg("draw %lld of state %llu", (long long)i,
                (unsigned long long)state);
        }
    }
}

static void
threads_match_one_rank(void **state)
{
    (void)state;
    run_draws(20261128, test_draws(60), false, 0);
}

static void
processes_match_one_rank(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    test_skip("ThreadSanitizer does not see what other processes order");
#endif
    run_draws(4711, test_draws(6), true, 0);
}

static void
late_ranks_change_nothing(void **state)
{
    (void)state;
    run_draws(99, test_draws(6), false, 20);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(threads_match_one_rank),
    cmocka_unit_test(processes_match_one_rank),
    cmocka_unit_test(late_ranks_change_nothing),
};

ULI_TEST_MAIN("DistRandom", tests)
