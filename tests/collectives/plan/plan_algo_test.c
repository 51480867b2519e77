/* SPDX-License-Identifier: Apache-2.0
 *
 * Which schedule plans over several nodes use and how they describe it: by the
 * caller, ULYX_ALGO, a rule, or the cost model; all ranks must agree; and each
 * schedule moves the bytes to where they belong.
 */
#include "collectives/exchange/reshuffle_world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "collectives/hier/hier.h"
#include "support/ranks.h"
#include "support/test.h"
#include "topology/choose/choose.h"

enum { RANKS = 4, LIMIT_S = 60, ROWS = 4096 };

struct scene {
    struct world w;
    struct world_ranks ranks;
    char tuning[64];
};

/* Four ranks on two nodes; k and v have two heads, so the ranks of a node share
 * one head. tuning: lines of a tuning file, or NULL. */
static struct scene *
scene_new(const char *tuning, const char *algo_setting, const char *algo)
{
    struct scene *s = calloc(1, sizeof(*s));
    struct test_random random = {7};
    if (tuning) {
        snprintf(s->tuning, sizeof(s->tuning), "/tmp/ulyx-plan-algo-XXXXXX");
        int fd = mkstemp(s->tuning);
        assert_true(fd >= 0 && dprintf(fd, "ulyx tuning 1\n%s", tuning) > 0);
        close(fd);
        setenv("ULYX_TUNING", s->tuning, 1);
    }
    if (algo_setting)
        setenv("ULYX_ALGO", algo_setting, 1);
    setenv("ULYX_RANKS_PER_NODE", "2", 1);
    world_ranks_init(&s->ranks, RANKS);
    unsetenv("ULYX_RANKS_PER_NODE");
    unsetenv("ULYX_ALGO");
    unsetenv("ULYX_TUNING");
    world_plain_case(&s->w, RANKS, ROWS, 8, 2, 8, ULYX_DTYPE_BF16);
    s->w.algo = algo;
    s->w.fixed_limits = true;
    assert_true(world_draw(&s->w, &s->ranks, &random, 2));
    world_fill(&s->w);
    return s;
}

static void
scene_free(struct scene *s)
{
    for (int32_t r = 0; r < RANKS; r++)
        if (s->w.plans[r])
            assert_status(ulyx_plan_destroy(s->w.plans[r]), ULYX_SUCCESS);
    world_free(&s->w);
    world_ranks_free(&s->ranks);
    if (s->tuning[0])
        unlink(s->tuning);
    free(s);
}

static int
run_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    (void)nranks;
    if (!ranks_expect(world_create(&s->w, rank) == ULYX_SUCCESS))
        return 1;
    for (int i = 0; i < s->w.norder; i++)
        if (!ranks_expect(
                world_execute(&s->w, rank, s->w.order[i]) == ULYX_SUCCESS))
            return 1;
    return 0;
}

/* All ranks use the algorithm and describe it with the reason, and the exchange
 * is right. */
static void
algo_expect(struct scene *s, enum uli_algo algo, const char *reason)
{
    char text[4096], wanted[256];
    assert_int_equal(ranks_run_threads(RANKS, run_body, s, LIMIT_S), 0);
    assert_true(world_check(&s->w));
    snprintf(
        wanted, sizeof(wanted), "reshuffle %s (2 nodes", uli_algo_name(algo));
    for (int32_t r = 0; r < RANKS; r++) {
        assert_int_equal(s->w.plans[r]->algo, algo);
        assert_int_equal(uli_hier_of(&s->w.plans[r]->exchange) != NULL,
            algo == ULI_ALGO_HIER);
        assert_status(ulyx_plan_describe(s->w.plans[r], text, sizeof(text)), 0);
        if (!strstr(text, wanted) || !strstr(text, reason))
            fail_msg("%s ... %s is not in %s", wanted, reason, text);
    }
}

static void
expect_scene(const char *tuning, const char *setting, const char *caller,
    enum uli_algo algo, const char *reason)
{
    struct scene *s = scene_new(tuning, setting, caller);
    algo_expect(s, algo, reason);
    scene_free(s);
}

static void
caller_before_setting_before_rule(void **state)
{
    (void)state;
    const char *rule = "rule nodes=2 -> direct\n";
    expect_scene(rule, "pairwise", "hier", ULI_ALGO_HIER, "; asked for)");
    expect_scene(rule, "pairwise", NULL, ULI_ALGO_PAIRWISE, "; asked for)");
    expect_scene(rule, "pairwise", "", ULI_ALGO_PAIRWISE, "; asked for)");
    expect_scene(rule, NULL, NULL, ULI_ALGO_DIRECT,
        "; rule on line 2 of the tuning file)");
}

/* The nodes are on one machine, made by a setting, so nothing is known about
 * the link. */
static void
nodes_made_by_a_setting_go_pairwise(void **state)
{
    (void)state;
    expect_scene(NULL, NULL, NULL, ULI_ALGO_PAIRWISE,
        "; nodes share a machine, links between them are not known)");
}

static void
a_measured_link_lets_the_model_choose(void **state)
{
    (void)state;
    expect_scene("link nic latency=30us 64K=10ns/B source=measured\n"
                 "link spine latency=30us 64K=10ns/B source=measured\n",
        NULL, NULL, ULI_ALGO_HIER, "; fastest by the model: ");
    expect_scene("link nic latency=0 64K=1ps/B source=measured\n"
                 "link spine latency=0 64K=1ps/B source=measured\n",
        NULL, NULL, ULI_ALGO_DIRECT, "; fastest by the model: ");
}

/* The plan uses the chunk count of a rule, and a rule applies only in its
 * ranges. */
static void
rules_set_chunks_and_ranges(void **state)
{
    (void)state;
    int64_t chunk[2];
    for (int i = 0; i < 2; i++) {
        struct scene *s = scene_new(i ? "rule nodes=2 -> hier chunks=8\n"
                                      : "rule nodes=2 -> hier chunks=4\n",
            NULL, NULL);
        algo_expect(s, ULI_ALGO_HIER, "; rule on line 2 of the tuning file)");
        chunk[i] = uli_hier_of(&s->w.plans[0]->exchange)->chunk_bytes;
        scene_free(s);
    }
    assert_int_equal(chunk[0], 2 * chunk[1]);
    expect_scene("rule nodes=3- -> hier\nrule ranks_per_node=1 -> hier\n"
                 "rule bytes=0-1K -> hier\nrule bytes=1K-1G -> direct\n",
        NULL, NULL, ULI_ALGO_DIRECT, "; rule on line 5 of the tuning file)");
}

/* ---- disagreement -------------------------------------------------------- */

static int
disagree_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    (void)nranks;
    return !ranks_expect(world_create(&s->w, rank) == ULYX_ERR_MISMATCH) ||
           !ranks_expect(strstr(ulyx_last_error(),
               "algo (0 direct, 1 pairwise, 2 hier) is 0 on rank 0 and 2 on "
               "rank 3"));
}

static int
agree_body(int rank, int nranks, void *context)
{
    struct scene *s = context;
    (void)nranks;
    return !ranks_expect(world_create(&s->w, rank) == ULYX_SUCCESS);
}

/* Nodes with different tuning files: all ranks return the same error, and the
 * communicator stays usable. */
static void
different_tuning_files_are_a_mismatch(void **state)
{
    (void)state;
    struct scene *s = scene_new("rule nodes=2 -> direct\n", NULL, NULL);
    s->ranks.comms[3]->planner->tuning.rules[0].algo = ULI_ALGO_HIER;
    assert_int_equal(ranks_run_threads(RANKS, disagree_body, s, LIMIT_S), 0);
    s->ranks.comms[3]->planner->tuning.rules[0].algo = ULI_ALGO_DIRECT;
    assert_int_equal(ranks_run_threads(RANKS, agree_body, s, LIMIT_S), 0);
    scene_free(s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(caller_before_setting_before_rule),
    cmocka_unit_test(nodes_made_by_a_setting_go_pairwise),
    cmocka_unit_test(a_measured_link_lets_the_model_choose),
    cmocka_unit_test(rules_set_chunks_and_ranges),
    cmocka_unit_test(different_tuning_files_are_a_mismatch),
};

ULI_TEST_MAIN("PlanAlgo", tests)
