/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of a schedule; see choose.h.
 */
#include "topology/choose.h"

#include <inttypes.h>
#include <string.h>
#include "base/log.h"
#include "base/status.h"

enum { CHUNKS_MAX = 16 };

static bool
is_in(const struct uli_range *range, int64_t value)
{
    return value >= range->low && value <= range->high;
}

/* Mean bytes of a message between two ranks. */
static int64_t
message_bytes(const struct uli_demand *x)
{
    double rows = 0, reads = 0;
    for (int32_t r = 0; r < x->nranks; r++) {
        rows += (double)x->rows[r];
        reads += (double)(x->own_bytes[r] + x->shared_bytes[r]);
    }
    return (int64_t)(rows / x->nranks * reads / x->nranks);
}

static const struct uli_tuning_rule *
find_rule(const struct uli_tuning *tuning, const struct uli_demand *x)
{
    int64_t bytes = message_bytes(x);
    for (int32_t i = 0; i < tuning->nrules; i++) {
        const struct uli_tuning_rule *rule = &tuning->rules[i];
        if (is_in(&rule->nodes, x->nodes) &&
            is_in(&rule->ranks_per_node, x->ranks_per_node) &&
            is_in(&rule->bytes, bytes))
            return rule;
    }
    return NULL;
}

/* chunks 0: the best of 1, 2, 4, ... for hier, 1 for the others. */
static ulyx_status_t
predict(const struct uli_model *model, const struct uli_demand *x,
    enum uli_algo algo, int32_t chunks, struct uli_schedule *schedule_p,
    struct uli_prediction *prediction_p)
{
    struct uli_schedule schedule;
    chunks = algo == ULI_ALGO_HIER ? chunks : 1;
    ULI_TRY(
        uli_schedule_build(x, model, algo, chunks > 0 ? chunks : 1, &schedule));
    uli_model_evaluate(model, &schedule, prediction_p);
    *schedule_p = schedule;
    for (int32_t c = 2; chunks == 0 && c <= CHUNKS_MAX; c *= 2) {
        struct uli_prediction prediction;
        schedule.chunks = c;
        uli_model_evaluate(model, &schedule, &prediction);
        if (prediction.time_s < prediction_p->time_s) {
            *schedule_p = schedule;
            *prediction_p = prediction;
        }
    }
    return ULYX_SUCCESS;
}

/* A set of schedules, a bit each. */
static uint32_t
bit(enum uli_algo algo)
{
    return UINT32_C(1) << algo;
}

/* Those that the exchange can go by. */
static uint32_t
possible(const struct uli_demand *x)
{
    uint32_t all = bit(ULI_ALGOS) - 1;
    return x->nodes > 1 && x->ranks_per_node > ULI_HIER_NODE_RANKS
               ? all & ~bit(ULI_ALGO_HIER)
               : all;
}

bool
uli_can_choose(const struct uli_demand *demand, enum uli_algo algo)
{
    return (possible(demand) & bit(algo)) != 0;
}

/* The best by the model of a set, which is not empty. */
static ulyx_status_t
find_best(const struct uli_model *model, const struct uli_demand *x,
    uint32_t set, enum uli_algo *algo_p, struct uli_schedule *schedule_p,
    struct uli_prediction *prediction_p)
{
    bool found = false;
    for (int algo = 0; algo < ULI_ALGOS; algo++) {
        struct uli_schedule schedule;
        struct uli_prediction prediction;
        if (!(set & bit(algo)))
            continue;
        ULI_TRY(predict(model, x, algo, 0, &schedule, &prediction));
        if (!found || prediction.time_s < prediction_p->time_s) {
            *algo_p = algo;
            *schedule_p = schedule;
            *prediction_p = prediction;
            found = true;
        }
    }
    return ULYX_SUCCESS;
}

/* ---- links that nobody knows --------------------------------------------- */

static bool
are_assumed(const struct uli_model *model)
{
    return model->links[ULI_MODEL_NIC].source == ULI_SOURCE_ASSUMED &&
           model->links[ULI_MODEL_SPINE].source == ULI_SOURCE_ASSUMED;
}

/* TCP over 10 Gb/s. */
static void
slow_down(struct uli_model *model)
{
    for (int class = ULI_MODEL_NIC; class <= ULI_MODEL_SPINE; class ++) {
        struct uli_model_link *link = &model->links[class];
        link->latency_s = 30e-6;
        link->send_s = link->receive_s = 5e-6;
        link->npoints = 1;
        link->s_per_byte[0] = 1 / 1.2e9;
    }
}

/* Pairwise, or hier where it is faster on both networks. */
static ulyx_status_t
choose_on_assumptions(const struct uli_model *model, const struct uli_demand *x,
    enum uli_algo *algo_p)
{
    const uint32_t set = possible(x) & ~bit(ULI_ALGO_DIRECT);
    struct uli_model slow = *model;
    struct uli_schedule schedule;
    struct uli_prediction prediction;
    enum uli_algo fast_algo, slow_algo;
    slow_down(&slow);
    ULI_TRY(find_best(model, x, set, &fast_algo, &schedule, &prediction));
    ULI_TRY(find_best(&slow, x, set, &slow_algo, &schedule, &prediction));
    *algo_p = fast_algo == slow_algo ? fast_algo : ULI_ALGO_PAIRWISE;
    return ULYX_SUCCESS;
}

/* ---- who decides --------------------------------------------------------- */

/* A rule that cannot be followed is followed as nearly as may be. */
static void
say_rule(struct uli_choice *c, const struct uli_tuning_rule *rule,
    const struct uli_demand *x)
{
    int at = snprintf(c->reason, sizeof(c->reason),
        "rule on line %" PRId32 " of the tuning file", rule->line);
    if (possible(x) & bit(rule->algo))
        return;
    c->algo = ULI_ALGO_PAIRWISE;
    snprintf(c->reason + at, sizeof(c->reason) - (size_t)at,
        ", but hier takes at most %d ranks a node, not %" PRId32,
        ULI_HIER_NODE_RANKS, x->ranks_per_node);
}

/* Says who decided, and what chunks (0: the best) that gives; false where the
 * model is left to. */
static bool
is_settled(const struct uli_planner *planner, const struct uli_demand *x,
    const char *algo, struct uli_choice *c, int32_t *chunks_p)
{
    const struct uli_tuning_rule *rule = find_rule(&planner->tuning, x);
    bool meaningless = x->one_machine && are_assumed(&planner->model);
    *chunks_p = meaningless ? ULI_CHOOSE_CHUNKS : 0;
    if (algo && algo[0]) {
        snprintf(c->reason, sizeof(c->reason), "asked for");
    } else if (x->nodes == 1) {
        c->algo = ULI_ALGO_DIRECT;
        snprintf(c->reason, sizeof(c->reason), "one node");
    } else if (rule) {
        c->algo = rule->algo;
        *chunks_p = rule->chunks ? rule->chunks : *chunks_p;
        say_rule(c, rule, x);
    } else if (meaningless) {
        c->algo = ULI_ALGO_PAIRWISE;
        snprintf(c->reason, sizeof(c->reason),
            "nodes share a machine, links between them are not known");
    } else {
        return false;
    }
    return true;
}

/* "fastest by the model: 84.0 us, hier 120.1 us, bound by nic (measured)";
 * "links assumed, for any network: 84.0 us, ..." */
static void
say_by_model(struct uli_choice *c, const struct uli_model *model, bool assumed)
{
    const struct uli_model_link *link = &model->links[c->prediction.class];
    snprintf(c->reason, sizeof(c->reason),
        "%s: %.1f us, %s %.1f us, bound by %s (%s)",
        assumed ? "links assumed, for any network" : "fastest by the model",
        c->prediction.time_s * 1e6, uli_algo_name(c->runner_up),
        c->other_prediction.time_s * 1e6,
        uli_model_class_name(c->prediction.class),
        uli_model_source_name(link->source));
}

ulyx_status_t
uli_choose(const struct uli_planner *planner, const struct uli_demand *x,
    const char *algo, struct uli_choice *choice_p)
{
    const struct uli_model *model = &planner->model;
    struct uli_choice c = {0};
    int32_t chunks;
    if (algo && algo[0] && !uli_algo_parse(algo, &c.algo))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "algo is \"%s\", must be \"direct\", \"pairwise\" or \"hier\"",
            algo);
    if (!(possible(x) & bit(c.algo)))
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "algo is \"hier\": it takes at most %d ranks a node, not %" PRId32,
            ULI_HIER_NODE_RANKS, x->ranks_per_node);
    bool settled = is_settled(planner, x, algo, &c, &chunks);
    bool assumed = are_assumed(model);
    if (!settled && assumed)
        ULI_TRY(choose_on_assumptions(model, x, &c.algo));
    if (settled || assumed)
        ULI_TRY(predict(model, x, c.algo, chunks, &c.schedule, &c.prediction));
    else
        ULI_TRY(find_best(
            model, x, possible(x), &c.algo, &c.schedule, &c.prediction));
    ULI_TRY(find_best(model, x, possible(x) & ~bit(c.algo), &c.runner_up,
        &c.other, &c.other_prediction));
    if (!settled)
        say_by_model(&c, model, assumed);
    *choice_p = c;
    return ULYX_SUCCESS;
}

static void
log_finding(void *context, int32_t line, bool is_error, const char *text)
{
    if (!is_error) /* an error is reported by who fails */
        ULI_WARN(
            ULI_LOG_ENV, -1, "%s:%d: %s", (const char *)context, line, text);
}

ulyx_status_t
uli_planner_load(
    const struct uli_settings *settings, struct uli_planner *planner_p)
{
    struct uli_planner planner;
    memset(&planner, 0, sizeof(planner));
    uli_model_defaults(&planner.model);
    if (settings->tuning[0])
        ULI_TRY(uli_tuning_read(settings->tuning, &planner.model,
            &planner.tuning, log_finding, (void *)(uintptr_t)settings->tuning));
    *planner_p = planner;
    return ULYX_SUCCESS;
}
