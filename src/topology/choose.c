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
    int32_t most = algo == ULI_ALGO_HIER ? CHUNKS_MAX : 1;
    struct uli_schedule schedule;
    ULI_TRY(
        uli_schedule_build(x, model, algo, chunks > 0 ? chunks : 1, &schedule));
    uli_model_evaluate(model, &schedule, prediction_p);
    *schedule_p = schedule;
    for (int32_t c = 2; chunks == 0 && c <= most; c *= 2) {
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

/* The best by the model of those that are not `except`. */
static ulyx_status_t
find_best(const struct uli_model *model, const struct uli_demand *x,
    enum uli_algo except, enum uli_algo *algo_p,
    struct uli_schedule *schedule_p, struct uli_prediction *prediction_p)
{
    bool found = false;
    for (int algo = 0; algo < ULI_ALGOS; algo++) {
        struct uli_schedule schedule;
        struct uli_prediction prediction;
        if (algo == (int)except)
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

/* Says who decided, and what chunks (0: the best) that gives; false where the
 * model is left to. */
static bool
is_settled(const struct uli_tuning *tuning, const struct uli_demand *x,
    const char *algo, struct uli_choice *c, int32_t *chunks_p)
{
    const struct uli_tuning_rule *rule = find_rule(tuning, x);
    *chunks_p = 0;
    if (algo && algo[0]) {
        snprintf(c->reason, sizeof(c->reason), "asked for");
    } else if (x->nodes == 1) {
        c->algo = ULI_ALGO_DIRECT;
        snprintf(c->reason, sizeof(c->reason), "one node");
    } else if (rule) {
        c->algo = rule->algo;
        *chunks_p = rule->chunks;
        snprintf(c->reason, sizeof(c->reason),
            "rule on line %" PRId32 " of the tuning file", rule->line);
    } else {
        return false;
    }
    return true;
}

/* "fastest by the model, 84 us against 120 of hier" */
static void
say_by_model(struct uli_choice *c, const struct uli_model *model)
{
    const struct uli_model_link *link = &model->links[c->prediction.class];
    snprintf(c->reason, sizeof(c->reason),
        "fastest by the model: %.1f us, %s %.1f us, bound by %s (%s)",
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
            "algorithm %s: expected direct, pairwise or hier", algo);
    bool settled = is_settled(&planner->tuning, x, algo, &c, &chunks);
    if (settled)
        ULI_TRY(predict(model, x, c.algo, chunks, &c.schedule, &c.prediction));
    else
        ULI_TRY(find_best(
            model, x, ULI_ALGOS, &c.algo, &c.schedule, &c.prediction));
    ULI_TRY(find_best(
        model, x, c.algo, &c.runner_up, &c.other, &c.other_prediction));
    if (!settled)
        say_by_model(&c, model);
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
