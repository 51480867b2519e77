/* SPDX-License-Identifier: Apache-2.0
 *
 * Link parameters and the evaluation of phases; see model.h.
 */
#include "topology/model/model.h"

#include <math.h>
#include <string.h>

const char *uli_model_class_name(enum uli_model_class class)
{
    static const char *const names[ULI_MODEL_CLASSES] = {
        "near", "far", "nvlink", "pcie", "nic", "spine"};
    return names[class];
}

const char *
uli_model_source_name(enum uli_model_source source)
{
    static const char *const names[ULI_SOURCES] = {
        "assumed", "topology", "tuning file", "measured"};
    return names[source];
}

static void
set_link(struct uli_model *model, enum uli_model_class class, double latency_us,
    double overhead_us, double gigabytes_per_s)
{
    struct uli_model_link *link = &model->links[class];
    link->latency_s = latency_us * 1e-6;
    link->send_s = link->receive_s = overhead_us * 1e-6;
    link->npoints = 1;
    link->bytes[0] = 65536;
    link->s_per_byte[0] = 1e-9 / gigabytes_per_s;
}

void
uli_model_defaults(struct uli_model *model_p)
{
    memset(model_p, 0, sizeof(*model_p));
    set_link(model_p, ULI_MODEL_NEAR, 0.5, 0.05, 10);
    set_link(model_p, ULI_MODEL_FAR, 0.8, 0.05, 6);
    set_link(model_p, ULI_MODEL_NVLINK, 1, 0.35, 360);
    set_link(model_p, ULI_MODEL_PCIE, 1.5, 0.35, 50);
    set_link(model_p, ULI_MODEL_NIC, 4, 0.35, 46);
    set_link(model_p, ULI_MODEL_SPINE, 5, 0.35, 46);
    model_p->launch_s = 2e-6;
    model_p->handoff_s = 6e-6;
    model_p->taper = 1;
    model_p->efficiency = 0.7;
    model_p->unit_nodes = 32;
    model_p->peers = 8;
}

/* ---- evaluation ---------------------------------------------------------- */

double
uli_model_message_time(const struct uli_model_link *link, double bytes)
{
    int32_t last = link->npoints - 1, i = 0;
    if (bytes <= link->bytes[0] || last == 0)
        return bytes * link->s_per_byte[0];
    if (bytes >= link->bytes[last])
        return bytes * link->s_per_byte[last];
    while (bytes > link->bytes[i + 1])
        i++;
    double from = link->bytes[i] * link->s_per_byte[i];
    double to = link->bytes[i + 1] * link->s_per_byte[i + 1];
    double part =
        (bytes - link->bytes[i]) / (link->bytes[i + 1] - link->bytes[i]);
    return from + part * (to - from);
}

/* The time of two activities that run in parallel: between the larger time and
 * the sum, and near the larger unless the two are about equal. */
static double
flows_together(double a, double b)
{
    return cbrt(a * a * a + b * b * b);
}

/* The occupancy of a flow, each of whose messages takes bytes_s for its
 * bytes. */
static double
flow_occupancy(const struct uli_model_link *link, const struct uli_flow *flow,
    double bytes_s)
{
    double each = fmax(link->send_s, link->gap_s);
    double shared = flow->congestion * fmax(1, flow->idle);
    return flow->messages * flows_together(each, shared * bytes_s);
}

double
uli_model_occupancy(const struct uli_model *model, const struct uli_flow *flow)
{
    const struct uli_model_link *link = &model->links[flow->class];
    if (flow->messages <= 0)
        return 0;
    double bytes = uli_model_message_time(link, flow->bytes / flow->messages);
    return flow_occupancy(link, flow, bytes);
}

/* The `waits` of model.h: for latencies, if only `window` messages may be in
 * flight. */
static double
window_waits(const struct uli_model *model, struct uli_flow flow)
{
    const double latency = model->links[flow.class].latency_s;
    if (flow.window <= 0 || flow.messages <= flow.window)
        return 0;
    flow.idle = 0;
    double each = uli_model_occupancy(model, &flow) / flow.messages;
    double turn = latency + each, filled = flow.window * each;
    if (filled >= turn)
        return 0;
    return (flow.messages / flow.window * turn + filled) *
           (1 - pow(filled / turn, 6));
}

/* The time of a flow from its first send to its last receive. */
static double
flow_time(
    const struct uli_model *model, const struct uli_flow *flow, double busy)
{
    const struct uli_model_link *link = &model->links[flow->class];
    return hypot(link->latency_s + busy, window_waits(model, *flow)) +
           link->receive_s;
}

/* The `stream` of model.h: how long all chunks of a flow keep its link busy.
 * chunk_s: how long one chunk alone keeps the link busy. Returns the less of
 * two times: each chunk costs chunk_s; or the bytes cost what they cost in one
 * message, and only the overhead counts per chunk. */
static double
stream_occupancy(const struct uli_model *model, struct uli_flow flow,
    double chunks, double chunk_s)
{
    if (flow.messages <= 0)
        return 0;
    const struct uli_model_link *link = &model->links[flow.class];
    double whole = uli_model_message_time(link, flow.bytes / flow.messages);
    return fmin(
        chunks * chunk_s, chunks * flow_occupancy(link, &flow, whole / chunks));
}

struct phase_cost {
    double first_s; /* of one chunk, from its first send to its last receive */
    double rest_s;  /* of the other chunks after it, if no other phase is
                     * slower */
    double busy_s;  /* how long all chunks keep their link busy */
    enum uli_model_class class;
};

/* The cost of a phase: each value is that of its slowest flow. */
static struct phase_cost
evaluate_phase(
    const struct uli_model *model, const struct uli_phase *phase, double chunks)
{
    struct phase_cost cost = {0, 0, 0, ULI_MODEL_NEAR};
    for (int32_t i = 0; i < phase->nflows; i++) {
        struct uli_flow flow = phase->flows[i];
        if (flow.messages <= 0)
            continue;
        flow.bytes /= chunks;
        double chunk = uli_model_occupancy(model, &flow);
        double first = flow_time(model, &flow, chunk);
        double all = stream_occupancy(model, phase->flows[i], chunks, chunk);
        cost.first_s = fmax(cost.first_s, first);
        cost.rest_s = fmax(cost.rest_s, all - chunk);
        if (all > cost.busy_s) {
            cost.busy_s = all;
            cost.class = flow.class;
        }
    }
    return cost;
}

void
uli_model_evaluate(const struct uli_model *model,
    const struct uli_schedule *schedule, struct uli_prediction *prediction_p)
{
    struct uli_prediction p = {
        model->launch_s + (schedule->leaves_node ? model->handoff_s : 0), 0,
        ULI_MODEL_NEAR, 0};
    double slowest = 0;
    for (int32_t i = 0; i < schedule->nphases; i++) {
        struct phase_cost cost =
            evaluate_phase(model, &schedule->phases[i], schedule->chunks);
        p.time_s += cost.first_s;
        slowest = fmax(slowest, cost.rest_s);
        if (cost.busy_s > p.busy_s) {
            p.phase = i;
            p.class = cost.class;
            p.busy_s = cost.busy_s;
        }
    }
    p.time_s += slowest;
    *prediction_p = p;
}
