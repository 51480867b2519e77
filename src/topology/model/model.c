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
    static const char *const names[] = {
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

/* The time of two things that run side by side: between the larger and the sum,
 * near the larger unless they are alike. */
static double
flows_together(double a, double b)
{
    return cbrt(a * a * a + b * b * b);
}

double
uli_model_occupancy(const struct uli_model *model, const struct uli_flow *flow)
{
    const struct uli_model_link *link = &model->links[flow->class];
    if (flow->messages <= 0)
        return 0;
    double each = fmax(link->send_s, link->gap_s);
    double bytes = uli_model_message_time(link, flow->bytes / flow->messages);
    return flow->messages *
           flows_together(each, flow->congestion * fmax(1, flow->idle) * bytes);
}

/* For the latencies of a flow's windows. */
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

/* From the first send to the last receive. */
static double
flow_time(
    const struct uli_model *model, const struct uli_flow *flow, double busy)
{
    const struct uli_model_link *link = &model->links[flow->class];
    return hypot(link->latency_s + busy, window_waits(model, *flow)) +
           link->receive_s;
}

struct phase_cost {
    double time_s, busy_s;
    enum uli_model_class class;
};

/* One chunk of a phase: its slowest flow. */
static struct phase_cost
evaluate_phase(
    const struct uli_model *model, const struct uli_phase *phase, double chunks)
{
    struct phase_cost cost = {0, 0, ULI_MODEL_NEAR};
    for (int32_t i = 0; i < phase->nflows; i++) {
        struct uli_flow flow = phase->flows[i];
        flow.bytes /= chunks;
        double busy = uli_model_occupancy(model, &flow);
        double time = flow.messages > 0 ? flow_time(model, &flow, busy) : 0;
        if (time > cost.time_s)
            cost = (struct phase_cost){time, busy, flow.class};
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
    double chunks = schedule->chunks, slowest = 0;
    for (int32_t i = 0; i < schedule->nphases; i++) {
        struct phase_cost cost =
            evaluate_phase(model, &schedule->phases[i], chunks);
        p.time_s += cost.time_s;
        slowest = fmax(slowest, cost.busy_s);
        if (cost.busy_s * chunks > p.busy_s) {
            p.phase = i;
            p.class = cost.class;
            p.busy_s = cost.busy_s * chunks;
        }
    }
    p.time_s += (chunks - 1) * slowest;
    *prediction_p = p;
}
