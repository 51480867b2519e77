/* SPDX-License-Identifier: Apache-2.0
 *
 * Random distributed attentions are compared with the whole sequence on one
 * rank: close to the fp64 reference, and bit by bit equal to what one rank
 * computes.
 */
#include <stdio.h>
#include "attention/dist_attention/dist_world.h"
#include "support/test.h"

/* Returns whether copies of dout, of replicated queries, are summed on the way.
 * Then dq does not have the bits that one rank computes. */
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
random_check(const struct dist_case *c, bool processes, int64_t *count)
{
    bool dq = !sums_dout(c);
    (void)count;
    return world_check(c, processes, dq, dq && !replicated_keys(c), NULL);
}

static void
run_draws(uint64_t seed, int64_t draws, bool processes, int32_t delay_ms)
{
    case_check_draws(&(struct case_draws){seed, draws, processes, delay_ms},
        case_draw, random_check);
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
    test_skip("ThreadSanitizer does not track order between processes");
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
