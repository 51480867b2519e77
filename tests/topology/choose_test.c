/* SPDX-License-Identifier: Apache-2.0
 *
 * Which source decides the schedule. The decision is the best by the model, and
 * it does not depend on how ranks are numbered.
 */
#include "topology/choose/choose.h"
#include "topology/model/schedule_hier.h"
#include "topology/model/schedule_model.h"

#include "base/status.h"
#include "support/random.h"
#include "support/test.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The file has two rules: messages of 12 KiB match the first, larger ones the
 * second. */
static const char rules[] =
    "ulyx tuning 1\n"
    "link nic latency=4.1us send=350ns 4K=90ps/B 64K=21.7ps/B\n"
    "fabric taper=1\n"
    "rule nodes=2-32 ranks_per_node=8 bytes=0-16K -> hier chunks=2\n"
    "rule nodes=1- -> pairwise\n";

/* Default settings, but without a tuning file. */
static struct uli_settings
own_settings(void)
{
    struct uli_settings settings;
    memset(&settings, 0, sizeof(settings));
    settings.net_peers = 8;
    settings.net_chunk_bytes = 128 << 10;
    settings.net_flight_bytes = 4 << 20;
    return settings;
}

static void
planner_load(const char *text, struct uli_planner *planner)
{
    struct uli_settings settings;
    char path[] = "/tmp/ulyx-choose-test-XXXXXX";
    settings = own_settings();
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_true(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    snprintf(settings.tuning, sizeof(settings.tuning), "%s", path);
    assert_status(uli_planner_load(&settings, planner), ULYX_SUCCESS);
    unlink(path);
}

static struct uli_choice
planner_choose(const struct uli_planner *planner, int64_t nodes, int64_t seq,
    const char *algo)
{
    struct uli_demand_shape shape = {
        nodes, 8, seq, 1, 8 * nodes, 8 * nodes, 64, 2, ULI_MODEL_NVLINK};
    struct uli_demand x;
    struct uli_choice c;
    assert_status(uli_demand_create(&shape, &x), ULYX_SUCCESS);
    assert_status(uli_choose(planner, &x, algo, &c), ULYX_SUCCESS);
    uli_demand_destroy(&x);
    return c;
}

static void
set_source(struct uli_planner *planner, enum uli_model_source source)
{
    planner->model.links[ULI_MODEL_NIC].source = source;
    planner->model.links[ULI_MODEL_SPINE].source = source;
}

static void
caller_before_rules_before_the_model(void **state)
{
    (void)state;
    struct uli_planner planner, none;
    struct uli_settings settings;
    settings = own_settings();
    planner_load(rules, &planner);
    assert_status(uli_planner_load(&settings, &none), ULYX_SUCCESS);
    struct uli_choice c = planner_choose(&planner, 4, 1024, "direct");
    assert_int_equal(c.algo, ULI_ALGO_DIRECT);
    assert_string_equal(c.reason, "asked for");
    c = planner_choose(&planner, 4, 1024, NULL);
    assert_int_equal(c.algo, ULI_ALGO_HIER);
    assert_int_equal(c.best.schedules[0].chunks, 2);
    assert_string_equal(c.reason, "rule on line 4 of the tuning file");
    c = planner_choose(&planner, 4, 32768, "");
    assert_int_equal(c.algo, ULI_ALGO_PAIRWISE);
    c = planner_choose(&none, 4, 1024, "");
    assert_non_null(strstr(c.reason, "links assumed, careful choice: "));
    assert_non_null(strstr(c.reason, "(assumed)"));
    set_source(&none, ULI_SOURCE_MEASURED);
    c = planner_choose(&none, 4, 1024, "");
    assert_non_null(strstr(c.reason, "fastest by the model: "));
    assert_non_null(strstr(c.reason, "(measured)"));
    assert_true(c.best.time_s <= c.other.time_s);
    /* With one node, no rule selects a schedule for a network. */
    c = planner_choose(&planner, 1, 32768, "");
    assert_int_equal(c.algo, ULI_ALGO_DIRECT);
    assert_string_equal(c.reason, "one node");
    c = planner_choose(&planner, 1, 32768, "hier");
    assert_int_equal(c.algo, ULI_ALGO_HIER);
}

static void
bad_names_and_files_are_refused(void **state)
{
    (void)state;
    struct uli_planner planner, before;
    struct uli_settings settings;
    struct uli_demand x;
    struct uli_choice c;
    const int32_t node_of[] = {0, 1};
    settings = own_settings();
    assert_status(uli_planner_load(&settings, &planner), ULYX_SUCCESS);
    assert_status(uli_demand_create_empty(2, 2, node_of, &x), ULYX_SUCCESS);
    assert_status(
        uli_choose(&planner, &x, "unheard", &c), ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(uli_error_text(), "algo is \"unheard\""));
    uli_demand_destroy(&x);
    before = planner;
    strcpy(settings.tuning, "/nonexistent/tuning");
    assert_status(uli_planner_load(&settings, &planner), ULYX_ERR_SYSTEM);
    assert_memory_equal(&planner, &before, sizeof(planner));
}

/* Returns the predicted time of all operations of the demand, one after
 * another, with a schedule whose longest stream is cut into so many parts. */
static double
time_of(const struct uli_planner *planner, const struct uli_demand *x,
    enum uli_algo algo, int32_t parts)
{
    struct uli_schedule s[ULYX_DIRECTIONS];
    double longest = 0, total = 0;
    for (int o = 0; o < ULYX_DIRECTIONS; o++) {
        assert_status(
            uli_schedule_build(x, o, &planner->model, algo, 1, &s[o]), 0);
        if (x->directions >> o & 1)
            longest = fmax(longest, uli_hier_stream_bytes(x, &s[o]));
    }
    int64_t chunk = uli_hier_chunk_bytes(x, &planner->limits, longest, parts);
    for (int o = 0; o < ULYX_DIRECTIONS; o++) {
        struct uli_prediction p;
        double stream = uli_hier_stream_bytes(x, &s[o]);
        if (algo == ULI_ALGO_HIER)
            s[o].chunks = (int32_t)fmax(1, ceil(stream / (double)chunk));
        uli_model_evaluate(&planner->model, &s[o], &p);
        total += x->directions >> o & 1 ? p.time_s : 0;
    }
    return total;
}

/* The choice must be the one of all schedules and numbers of parts whose
 * predicted time for all operations together is least. Another numbering of the
 * same ranks must not change it. */
static void
the_fastest_is_taken_whatever_the_numbering(void **state)
{
    (void)state;
    struct test_random random = {test_seed(31)};
    struct uli_planner planner;
    struct uli_settings settings;
    settings = own_settings();
    assert_status(uli_planner_load(&settings, &planner), ULYX_SUCCESS);
    set_source(&planner, ULI_SOURCE_FILE);
    for (int64_t draw = 0; draw < test_draws(200); draw++) {
        int32_t nodes = (int32_t)test_random_in(&random, 2, 6), node_of[48];
        int32_t g = (int32_t)test_random_in(&random, 1, 8);
        int32_t nranks = nodes * g;
        struct uli_demand x, y;
        struct uli_choice c, d;
        for (int32_t r = 0; r < nranks; r++)
            node_of[r] = r / g;
        assert_status(uli_demand_create_empty(nranks, nodes, node_of, &x), 0);
        for (int32_t r = 0; r < nranks; r++)
            node_of[r] = r % nodes;
        assert_status(uli_demand_create_empty(nranks, nodes, node_of, &y), 0);
        int64_t rows = test_random_in(&random, 1, 4096);
        int64_t bytes = test_random_in(&random, 1, 64) * 64;
        int64_t shared = test_random_in(&random, 0, 1) * bytes;
        for (int32_t r = 0; r < nranks; r++) {
            x.rows[r] = y.rows[r] = rows;
            x.reads.own[r] = y.reads.own[r] = bytes;
            x.reads.shared[r] = y.reads.shared[r] = shared;
            x.partials.own[r] = y.partials.own[r] = bytes;
            x.partials.shared[r] = y.partials.shared[r] = 2 * shared;
            x.gives[r] = y.gives[r] = bytes;
        }
        for (int32_t n = 0; n < nodes; n++) {
            x.reads.node_shared[n] = y.reads.node_shared[n] = shared;
            x.partials.node_shared[n] = y.partials.node_shared[n] = 2 * shared;
        }
        x.directions = y.directions = (uint64_t)test_random_in(&random, 1, 15);
        x.sums = y.sums = shared > 0;
        assert_status(uli_choose(&planner, &x, NULL, &c), ULYX_SUCCESS);
        assert_status(uli_choose(&planner, &y, NULL, &d), ULYX_SUCCESS);
        assert_int_equal(c.algo, d.algo);
        assert_int_equal(c.best.chunk_bytes, d.best.chunk_bytes);
        assert_string_equal(c.reason, d.reason);
        for (int algo = 0; algo < ULI_ALGOS; algo++)
            for (int32_t parts = 1; parts <= 16; parts *= 2)
                assert_true(c.best.time_s <=
                            time_of(&planner, &x, algo, parts) * (1 + 1e-12));
        uli_demand_destroy(&x);
        uli_demand_destroy(&y);
    }
}

/* Fills a demand of nodes with g ranks. Each rank holds `rows` tokens, reads
 * `own` bytes alone, and `shared` bytes together with all ranks of its node. */
static void
fill_demand(struct uli_demand *x, int32_t nodes, int32_t g, int64_t rows,
    int64_t own, int64_t shared)
{
    int32_t *node_of = calloc((size_t)(nodes * g), sizeof(*node_of));
    for (int32_t r = 0; r < nodes * g; r++)
        node_of[r] = r / g;
    assert_status(uli_demand_create_empty(nodes * g, nodes, node_of, x), 0);
    free(node_of);
    for (int32_t r = 0; r < nodes * g; r++) {
        x->rows[r] = rows;
        x->reads.own[r] = own;
        x->reads.shared[r] = shared;
    }
    for (int32_t n = 0; n < nodes; n++)
        x->reads.node_shared[n] = shared;
}

/* Eight ranks that share a NIC take eight times as long for large messages.
 * Where there are at least as many NICs as ranks, each rank has its own. */
static void
ranks_share_a_nic(void **state)
{
    (void)state;
    struct uli_planner planner;
    struct uli_settings settings;
    settings = own_settings();
    assert_status(uli_planner_load(&settings, &planner), ULYX_SUCCESS);
    double each = planner_choose(&planner, 4, 1 << 20, "pairwise")
                      .best.predictions[0]
                      .busy_s;
    planner.model.nics = 8;
    double eight = planner_choose(&planner, 4, 1 << 20, "pairwise")
                       .best.predictions[0]
                       .busy_s;
    planner.model.nics = 16;
    double more = planner_choose(&planner, 4, 1 << 20, "pairwise")
                      .best.predictions[0]
                      .busy_s;
    planner.model.nics = 1;
    double one = planner_choose(&planner, 4, 1 << 20, "pairwise")
                     .best.predictions[0]
                     .busy_s;
    assert_true(each == eight && each == more);
    assert_true(one > 7.9 * each && one < 8.1 * each);
}

/* Returns the seconds that the model predicts for the demand with links of that
 * speed. */
static double
planner_predicted(const struct uli_planner *planner, const struct uli_demand *x,
    enum uli_algo algo, double bytes_per_s)
{
    struct uli_planner p = *planner;
    struct uli_choice c;
    for (int i = ULI_MODEL_NIC; bytes_per_s > 0 && i <= ULI_MODEL_SPINE; i++) {
        struct uli_model_link *link = &p.model.links[i];
        link->latency_s = 30e-6;
        link->send_s = link->receive_s = 5e-6;
        link->s_per_byte[0] = 1 / bytes_per_s;
    }
    assert_status(uli_choose(&p, x, uli_algo_name(algo), &c), ULYX_SUCCESS);
    return c.best.time_s;
}

/* Where links were not measured, direct is never chosen, because it loads the
 * network most; hier is chosen only where it is best for slow links too. Both
 * outcomes must occur. */
static void
assumed_links_choose_what_fits_any_network(void **state)
{
    (void)state;
    struct test_random random = {test_seed(32)};
    struct uli_planner planner;
    struct uli_settings settings;
    int seen[ULI_ALGOS] = {0}, apart = 0;
    settings = own_settings();
    assert_status(uli_planner_load(&settings, &planner), ULYX_SUCCESS);
    for (int64_t draw = 0; draw < test_draws(400); draw++) {
        int32_t nodes = (int32_t)test_random_in(&random, 2, 32);
        int32_t g = (int32_t)test_random_in(&random, 1, 8);
        int64_t own = test_random_in(&random, 0, 16) * 64;
        int64_t shared = test_random_in(&random, 0, 16) * 64;
        struct uli_demand x;
        struct uli_choice c;
        fill_demand(&x, nodes, g, INT64_C(1) << test_random_in(&random, 0, 14),
            own, shared);
        assert_status(uli_choose(&planner, &x, NULL, &c), ULYX_SUCCESS);
        bool fast = planner_predicted(&planner, &x, ULI_ALGO_HIER, 0) <
                    planner_predicted(&planner, &x, ULI_ALGO_PAIRWISE, 0);
        bool slow = planner_predicted(&planner, &x, ULI_ALGO_HIER, 1.2e9) <
                    planner_predicted(&planner, &x, ULI_ALGO_PAIRWISE, 1.2e9);
        apart += fast != slow;
        seen[c.algo]++;
        assert_int_equal(
            c.algo, fast && slow ? ULI_ALGO_HIER : ULI_ALGO_PAIRWISE);
        x.one_machine = true;
        assert_status(uli_choose(&planner, &x, NULL, &c), ULYX_SUCCESS);
        assert_int_equal(c.algo, ULI_ALGO_PAIRWISE);
        assert_non_null(strstr(c.reason, "nodes share a machine"));
        assert_status(uli_choose(&planner, &x, "hier", &c), ULYX_SUCCESS);
        assert_int_equal(c.best.chunk_bytes,
            uli_hier_chunk_bytes(&x, &planner.limits,
                uli_hier_stream_bytes(&x, &c.best.schedules[0]),
                ULI_CHOOSE_CHUNKS));
        uli_demand_destroy(&x);
    }
    assert_true(test_draws(400) < 400 ||
                (seen[ULI_ALGO_PAIRWISE] && seen[ULI_ALGO_HIER] && apart));
}

/* Hier takes nodes of at most ULI_HIER_NODE_RANKS ranks. For larger nodes a
 * requested hier is refused by name; hier by a rule is replaced, and the
 * description has the reason. */
static void
nodes_too_large_for_hier_go_pairwise(void **state)
{
    (void)state;
    struct uli_planner planner, none;
    struct uli_settings settings;
    struct uli_demand x;
    struct uli_choice c;
    settings = own_settings();
    planner_load("ulyx tuning 1\nrule nodes=2- -> hier\n", &planner);
    assert_status(uli_planner_load(&settings, &none), ULYX_SUCCESS);
    fill_demand(&x, 16, ULI_HIER_NODE_RANKS, 4, 0, 64);
    assert_status(uli_choose(&planner, &x, NULL, &c), ULYX_SUCCESS);
    assert_int_equal(c.algo, ULI_ALGO_HIER);
    assert_status(uli_choose(&none, &x, NULL, &c), ULYX_SUCCESS);
    assert_int_equal(c.algo, ULI_ALGO_HIER);
    uli_demand_destroy(&x);
    fill_demand(&x, 16, ULI_HIER_NODE_RANKS + 1, 4, 0, 64);
    assert_status(uli_choose(&planner, &x, NULL, &c), ULYX_SUCCESS);
    assert_int_equal(c.algo, ULI_ALGO_PAIRWISE);
    assert_string_equal(c.reason, "rule on line 2 of the tuning file, but hier "
                                  "needs at most 64 ranks per "
                                  "node, not 65");
    assert_status(uli_choose(&none, &x, NULL, &c), ULYX_SUCCESS);
    assert_int_equal(c.algo, ULI_ALGO_PAIRWISE);
    assert_int_equal(c.other.algo, ULI_ALGO_DIRECT);
    assert_status(uli_choose(&none, &x, "hier", &c), ULYX_ERR_UNSUPPORTED);
    assert_string_equal(uli_error_text(),
        "algo is \"hier\", which needs at most 64 ranks per node, not 65");
    uli_demand_destroy(&x);
}

/* The conditions of the table on which the choice relies. */
static void
one_schedule_is_plain_and_one_safe(void **state)
{
    int plain = 0, safe = 0;
    (void)state;
    for (int algo = 0; algo < ULI_ALGOS; algo++) {
        const struct uli_schedule_model *row = uli_schedule_model_of(algo);
        enum uli_algo parsed;
        assert_true(uli_algo_parse(uli_algo_name(algo), &parsed));
        assert_int_equal(parsed, algo);
        assert_true(row->build != NULL);
        assert_true(!row->stream_bytes == !row->chunk_bytes);
        plain += (row->traits & ULI_SCHEDULE_PLAIN) != 0;
        safe += (row->traits & ULI_SCHEDULE_SAFE) != 0;
        assert_true(!(row->traits & ULI_SCHEDULE_SAFE) || !row->applicable);
    }
    assert_int_equal(plain, 1);
    assert_int_equal(safe, 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_schedule_is_plain_and_one_safe),
    cmocka_unit_test(ranks_share_a_nic),
    cmocka_unit_test(caller_before_rules_before_the_model),
    cmocka_unit_test(bad_names_and_files_are_refused),
    cmocka_unit_test(the_fastest_is_taken_whatever_the_numbering),
    cmocka_unit_test(assumed_links_choose_what_fits_any_network),
    cmocka_unit_test(nodes_too_large_for_hier_go_pairwise),
};

ULI_TEST_MAIN("Choose", tests)
