/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of a schedule; see choose.h.
 */
#include "topology/choose/choose.h"

#include "base/log.h"
#include "base/status.h"
#include "topology/model/schedule_model.h"
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { CUTS_MAX = 16 };

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
        reads += (double)uli_holding_all(&x->reads, r);
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

/* ---- all directions by one schedule -------------------------------------- */

static bool
is_used(const struct uli_demand *x, int direction)
{
    return x->directions >> direction & 1;
}

static ulyx_status_t
build_all(const struct uli_planner *planner, const struct uli_demand *x,
    struct uli_estimate *e)
{
    for (int o = 0; o < ULYX_DIRECTIONS; o++)
        if (is_used(x, o))
            ULI_TRY(uli_schedule_build(
                x, o, &planner->model, e->algo, 1, &e->schedules[o]));
    return ULYX_SUCCESS;
}

static void
evaluate_all(const struct uli_planner *planner, const struct uli_demand *x,
    struct uli_estimate *e)
{
    double most = -1;
    e->time_s = 0;
    for (int o = 0; o < ULYX_DIRECTIONS; o++) {
        if (!is_used(x, o))
            continue;
        uli_model_evaluate(
            &planner->model, &e->schedules[o], &e->predictions[o]);
        e->time_s += e->predictions[o].time_s;
        if (e->predictions[o].time_s > most) {
            most = e->predictions[o].time_s;
            e->slowest = o;
        }
    }
}

/* For a schedule in chunks: the longest stream of all directions is cut into
 * `cuts` chunks, within the limits. The streams of the other directions are cut
 * into chunks of that size. */
static void
estimate_cut(const struct uli_planner *planner, const struct uli_demand *x,
    int32_t cuts, struct uli_estimate *e)
{
    const struct uli_schedule_model *schedule = uli_schedule_model_of(e->algo);
    double stream[ULYX_DIRECTIONS] = {0}, longest = 0;
    for (int o = 0; o < ULYX_DIRECTIONS; o++)
        if (is_used(x, o)) {
            stream[o] = schedule->stream_bytes(x, &e->schedules[o]);
            longest = fmax(longest, stream[o]);
        }
    e->chunk_bytes = schedule->chunk_bytes(x, &planner->limits, longest, cuts);
    for (int o = 0; o < ULYX_DIRECTIONS; o++)
        e->schedules[o].chunks =
            (int32_t)fmax(1, ceil(stream[o] / (double)e->chunk_bytes));
}

/* Estimates the cost by one schedule. cuts 0, for a schedule in chunks: the
 * best of 1, 2, 4, ... */
static ulyx_status_t
planner_estimate(const struct uli_planner *planner, const struct uli_demand *x,
    enum uli_algo algo, int32_t cuts, struct uli_estimate *best_p)
{
    bool in_chunks = uli_schedule_model_of(algo)->chunk_bytes != NULL;
    struct uli_estimate e = {.algo = algo};
    ULI_TRY(build_all(planner, x, &e));
    if (in_chunks)
        estimate_cut(planner, x, cuts > 0 ? cuts : 1, &e);
    evaluate_all(planner, x, &e);
    *best_p = e;
    for (int32_t p = 2; in_chunks && cuts == 0 && p <= CUTS_MAX; p *= 2) {
        estimate_cut(planner, x, p, &e);
        evaluate_all(planner, x, &e);
        if (e.time_s < best_p->time_s)
            *best_p = e;
    }
    return ULYX_SUCCESS;
}

/* ---- sets of schedules --------------------------------------------------- */

/* A schedule's bit in a set of schedules. */
static uint32_t
schedule_bit(enum uli_algo algo)
{
    return UINT32_C(1) << algo;
}

bool
uli_can_choose(const struct uli_demand *demand, enum uli_algo algo, char *why_p,
    size_t bytes)
{
    const struct uli_schedule_model *schedule = uli_schedule_model_of(algo);
    return !schedule->applicable || schedule->applicable(demand, why_p, bytes);
}

/* The schedules that can be chosen for the exchange. */
static uint32_t
demand_possible(const struct uli_demand *x)
{
    uint32_t set = 0;
    for (int algo = 0; algo < ULI_ALGOS; algo++)
        set |= uli_can_choose(x, algo, NULL, 0) ? schedule_bit(algo) : 0;
    return set;
}

static uint32_t
with_trait(enum uli_schedule_trait trait)
{
    uint32_t set = 0;
    for (int algo = 0; algo < ULI_ALGOS; algo++)
        set |= uli_schedule_model_of(algo)->traits & trait ? schedule_bit(algo)
                                                           : 0;
    return set;
}

/* The only schedule with this trait. */
static enum uli_algo
the_one(enum uli_schedule_trait trait)
{
    int algo = 0;
    while (algo < ULI_ALGOS - 1 && !(with_trait(trait) & schedule_bit(algo)))
        algo++;
    return (enum uli_algo)algo;
}

/* The cost of each schedule of a set, by the model. */
static ulyx_status_t
estimate_set(const struct uli_planner *planner, const struct uli_demand *x,
    uint32_t set, struct uli_estimate all_p[ULI_ALGOS])
{
    for (int algo = 0; algo < ULI_ALGOS; algo++)
        if (set & schedule_bit(algo))
            ULI_TRY(planner_estimate(planner, x, algo, 0, &all_p[algo]));
    return ULYX_SUCCESS;
}

/* The fastest schedule of a set that is not empty. */
static enum uli_algo
estimate_fastest(const struct uli_estimate all[ULI_ALGOS], uint32_t set)
{
    int best = -1;
    for (int algo = 0; algo < ULI_ALGOS; algo++)
        if (set & schedule_bit(algo) &&
            (best < 0 || all[algo].time_s < all[best].time_s))
            best = algo;
    return (enum uli_algo)best;
}

/* ---- unknown links ------------------------------------------------------- */

static bool
links_assumed(const struct uli_model *model)
{
    return model->links[ULI_MODEL_NIC].source == ULI_SOURCE_ASSUMED &&
           model->links[ULI_MODEL_SPINE].source == ULI_SOURCE_ASSUMED;
}

/* Makes the links between nodes those of TCP at 10 Gb/s. */
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

/* Considers the schedules without bursts. Chooses the fastest one by `all`, the
 * estimates on the assumed links, if it is also the fastest one on slow links;
 * otherwise the safe schedule. */
static ulyx_status_t
choose_on_assumptions(const struct uli_planner *planner,
    const struct uli_demand *x, const struct uli_estimate all[ULI_ALGOS],
    enum uli_algo *algo_p)
{
    const uint32_t set = demand_possible(x) & ~with_trait(ULI_SCHEDULE_BURSTS);
    struct uli_planner slow = *planner;
    struct uli_estimate slower[ULI_ALGOS];
    slow_down(&slow.model);
    ULI_TRY(estimate_set(&slow, x, set, slower));
    enum uli_algo algo = estimate_fastest(all, set);
    *algo_p = estimate_fastest(slower, set) == algo
                  ? algo
                  : the_one(ULI_SCHEDULE_SAFE);
    return ULYX_SUCCESS;
}

/* ---- who decides --------------------------------------------------------- */

/* Sets the reason. A rule whose schedule cannot be chosen gives the safe
 * schedule, with the rule's number of chunks. */
static void
choice_note_rule(struct uli_choice *c, const struct uli_tuning_rule *rule,
    const struct uli_demand *x)
{
    char why[ULI_WHY_BYTES];
    int at = snprintf(c->reason, sizeof(c->reason),
        "rule on line %" PRId32 " of the tuning file", rule->line);
    if (uli_can_choose(x, rule->algo, why, sizeof(why)))
        return;
    c->algo = the_one(ULI_SCHEDULE_SAFE);
    snprintf(c->reason + at, sizeof(c->reason) - (size_t)at,
        ", but %s needs %s", uli_algo_name(rule->algo), why);
}

/* Decides without the model if possible, and then sets the schedule, the reason
 * and the cuts (0: the best number). False: the model must decide. */
static bool
is_settled(const struct uli_planner *planner, const struct uli_demand *x,
    const char *algo, struct uli_choice *c, int32_t *cuts_p)
{
    const struct uli_tuning_rule *rule = find_rule(&planner->tuning, x);
    bool links_unknown = x->one_machine && links_assumed(&planner->model);
    *cuts_p = links_unknown ? ULI_CHOOSE_CHUNKS : 0;
    if (algo && algo[0]) {
        snprintf(c->reason, sizeof(c->reason), "asked for");
    } else if (x->nodes == 1) {
        c->algo = the_one(ULI_SCHEDULE_PLAIN);
        snprintf(c->reason, sizeof(c->reason), "one node");
    } else if (rule) {
        c->algo = rule->algo;
        *cuts_p = rule->chunks ? rule->chunks : *cuts_p;
        choice_note_rule(c, rule, x);
    } else if (links_unknown) {
        c->algo = the_one(ULI_SCHEDULE_SAFE);
        snprintf(c->reason, sizeof(c->reason),
            "nodes share a machine, links between them are not known");
    } else {
        return false;
    }
    return true;
}

static int
count_directions(const struct uli_demand *x)
{
    int count = 0;
    for (int o = 0; o < ULYX_DIRECTIONS; o++)
        count += is_used(x, o);
    return count;
}

/* "fastest by the model: 84.0 us for 2 directions, hier 120.1 us, bound by nic
 * (measured)"; "links assumed, careful choice: 84.0 us, ..." */
static void
choice_note_model(struct uli_choice *c, const struct uli_model *model,
    const struct uli_demand *x, bool assumed)
{
    const struct uli_prediction *p = &c->best.predictions[c->best.slowest];
    int directions = count_directions(x);
    char several[32] = "";
    if (directions > 1)
        snprintf(several, sizeof(several), " for %d directions", directions);
    snprintf(c->reason, sizeof(c->reason),
        "%s: %.1f us%s, %s %.1f us, bound by %s (%s)",
        assumed ? "links assumed, careful choice" : "fastest by the model",
        c->best.time_s * 1e6, several, uli_algo_name(c->other.algo),
        c->other.time_s * 1e6, uli_model_class_name(p->class),
        uli_model_source_name(model->links[p->class].source));
}

/* For an exchange about which neither the caller nor a rule decides: the
 * model's choice, which is careful if the links are assumed, and the best of
 * the other schedules. */
static ulyx_status_t
choose_by_model(const struct uli_planner *planner, const struct uli_demand *x,
    struct uli_choice *c)
{
    const uint32_t set = demand_possible(x);
    bool assumed = links_assumed(&planner->model);
    struct uli_estimate all[ULI_ALGOS];
    ULI_TRY(estimate_set(planner, x, set, all));
    c->algo = estimate_fastest(all, set);
    if (assumed)
        ULI_TRY(choose_on_assumptions(planner, x, all, &c->algo));
    c->best = all[c->algo];
    c->other = all[estimate_fastest(all, set & ~schedule_bit(c->algo))];
    choice_note_model(c, &planner->model, x, assumed);
    return ULYX_SUCCESS;
}

static ulyx_status_t
take_algo_of_caller(
    const struct uli_demand *x, const char *name, enum uli_algo *algo_p)
{
    char text[128];
    uli_algo_names(text, sizeof(text));
    if (!uli_algo_parse(name, algo_p))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "algo is \"%s\", must be %s", name, text);
    if (!uli_can_choose(x, *algo_p, text, sizeof(text)))
        return uli_error(
            ULYX_ERR_UNSUPPORTED, "algo is \"%s\", which needs %s", name, text);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_choose(const struct uli_planner *planner, const struct uli_demand *x,
    const char *algo, struct uli_choice *choice_p)
{
    struct uli_choice c = {0};
    int32_t cuts;
    if (algo && algo[0])
        ULI_TRY(take_algo_of_caller(x, algo, &c.algo));
    if (is_settled(planner, x, algo, &c, &cuts))
        ULI_TRY(planner_estimate(planner, x, c.algo, cuts, &c.best));
    else
        ULI_TRY(choose_by_model(planner, x, &c));
    *choice_p = c;
    return ULYX_SUCCESS;
}

void
uli_planner_apply(
    struct uli_planner *planner, const struct uli_settings *settings)
{
    planner->model.peers = settings->net_peers;
    planner->limits = (struct uli_chunk_limits){
        settings->net_chunk_bytes, settings->net_flight_bytes};
}

ulyx_status_t
uli_planner_load(
    const struct uli_settings *settings, struct uli_planner *planner_p)
{
    struct uli_planner planner;
    memset(&planner, 0, sizeof(planner));
    uli_model_defaults(&planner.model);
    uli_planner_apply(&planner, settings);
    if (settings->tuning[0])
        ULI_TRY(uli_tuning_read(
            settings->tuning, &planner.model, &planner.tuning, NULL, NULL));
    *planner_p = planner;
    return ULYX_SUCCESS;
}
