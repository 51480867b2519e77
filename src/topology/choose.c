/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of a schedule; see tuning.h. Every rank makes it from the same
 * numbers, so all choose alike.
 */
#include <inttypes.h>
#include "base/status.h"
#include "topology/tuning.h"

enum { CHUNKS_MAX = 16 };

static bool
is_in(const struct uli_range *range, int64_t value)
{
    return value >= range->low && value <= range->high;
}

/* Mean bytes of a message between two ranks. */
static int64_t
message_bytes(const struct uli_exchange *x)
{
    double rows = 0, reads = 0;
    for (int32_t r = 0; r < x->nranks; r++) {
        rows += (double)x->rows[r];
        reads += (double)(x->own_bytes[r] + x->shared_bytes[r]);
    }
    return (int64_t)(rows / x->nranks * reads / x->nranks);
}

static const struct uli_tuning_rule *
find_rule(const struct uli_tuning *tuning, const struct uli_exchange *x)
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
predict(const struct uli_model *model, const struct uli_exchange *x,
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
find_best(const struct uli_model *model, const struct uli_exchange *x,
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

ulyx_status_t
uli_tuning_choose(const struct uli_tuning *tuning,
    const struct uli_model *model, const struct uli_exchange *x,
    const char *algo, struct uli_choice *choice_p)
{
    struct uli_choice c = {.reason = "fastest by the model"};
    const struct uli_tuning_rule *rule = find_rule(tuning, x);
    int32_t chunks = 0;
    if (algo[0]) {
        if (!uli_algo_parse(algo, &c.algo))
            return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                "algorithm %s: expected direct, pairwise or hier", algo);
        snprintf(c.reason, sizeof(c.reason), "asked for");
    } else if (rule) {
        c.algo = rule->algo;
        chunks = rule->chunks;
        snprintf(c.reason, sizeof(c.reason),
            "rule on line %" PRId32 " of the tuning file", rule->line);
    }
    if (algo[0] || rule)
        ULI_TRY(predict(model, x, c.algo, chunks, &c.schedule, &c.prediction));
    else
        ULI_TRY(find_best(
            model, x, ULI_ALGOS, &c.algo, &c.schedule, &c.prediction));
    ULI_TRY(find_best(
        model, x, c.algo, &c.runner_up, &c.other, &c.other_prediction));
    *choice_p = c;
    return ULYX_SUCCESS;
}
