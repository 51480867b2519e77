/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx_info plan --nodes: what an exchange between nodes would cost: its time,
 * its busbw and the link that bounds it, for the schedule that a plan would
 * choose and for the other schedules, with the source of each parameter. One
 * number of nodes and one S are printed as text, several as rows
 * (info_sweep.c). Also writes schedules as GOAL.
 */
#include "info_predict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"
#include "base/text.h"
#include "info.h"
#include "info_goal.h"
#include "info_machine.h"
#include "info_options.h"
#include "ulyx/ulyx.h"

struct options {
    struct uli_demand_shape shape;
    uint64_t directions; /* bit per direction */
    const char *algo, *tuning, *export, *output, *nodes, *seq;
    const char *direction, *local, *machine;
    int64_t node_counts[INFO_SWEEP], seqs[INFO_SWEEP];
    int nnodes, nseqs;
    bool csv, json;
};

/* Finds the class that a word of --local names. */
static void
parse_local(const char *text, enum uli_model_class *class_p)
{
    for (int class = 0; class < ULI_MODEL_NIC; class ++)
        if (strcmp(text, uli_model_class_name(class)) == 0)
            *class_p = class;
}

static const char *const direction_names[ULYX_DIRECTIONS] = {
    [ULYX_SEQ_TO_HEAD] = "s2h",
    [ULYX_HEAD_TO_SEQ] = "h2s",
    [ULYX_SEQ_TO_HEAD_ADJOINT] = "s2h_adj",
    [ULYX_HEAD_TO_SEQ_ADJOINT] = "h2s_adj"};

const char *
info_operation_name(int direction)
{
    return direction_names[direction];
}

static int
find_direction(const char *name, size_t length)
{
    int o = 0;

    while (
        o < ULYX_DIRECTIONS && (strlen(direction_names[o]) != length ||
                                   strncmp(name, direction_names[o], length)))
        o++;
    return o;
}

static bool
parse_directions(const char *text, uint64_t *directions_p)
{
    uint64_t found = 0;

    if (strcmp(text, "all") == 0)
        text = "s2h,h2s,s2h_adj,h2s_adj";
    do {
        size_t length = strcspn(text, ",");
        int o = find_direction(text, length);

        if (o == ULYX_DIRECTIONS)
            return false;
        found |= UINT64_C(1) << o;
        text += length;
    } while (*text++ == ',');
    *directions_p = found;
    return true;
}

/* Parses the options that are words or lists of numbers, and checks that they
 * fit together.
 * returns -1 to go on, or an exit code. */
static int
options_settle(struct options *o)
{
    static const char name[] = "plan --nodes";

    o->nnodes = info_parse_numbers(o->nodes, o->node_counts, INFO_SWEEP);
    if (o->nnodes == 0)
        return info_reject(
            name, "--nodes %s: expected a number, 1,2,4 or 1-64", o->nodes);
    o->nseqs = info_parse_numbers(o->seq, o->seqs, INFO_SWEEP);
    if (o->nseqs == 0)
        return info_reject(
            name, "--seq %s: expected a number, 1,2,4 or 1-64", o->seq);
    if (!parse_directions(o->direction, &o->directions))
        return info_reject(name,
            "--operation %s: expected s2h, h2s, s2h_adj, h2s_adj or all",
            o->direction);
    if (o->local)
        parse_local(o->local, &o->shape.local);
    if (o->machine && strcmp(o->machine, "here") != 0)
        return info_reject(name, "--machine %s: expected here", o->machine);
    if (o->export && strcmp(o->export, "goal") != 0)
        return info_reject(name, "--export %s: expected goal", o->export);
    if (o->output && !o->export)
        return info_reject(name, "--output needs --export goal");
    if (o->csv + o->json + !!o->export > 1)
        return info_reject(
            name, "--csv, --json and --export exclude each other");
    if (o->export && o->nnodes * o->nseqs > 1)
        return info_reject(
            name, "--export needs one number of nodes and one S");
    return -1;
}

/* returns -1 to go on, or an exit code. */
static int
parse_options(int argc, char **argv, struct options *o)
{
    const int64_t most = INT64_C(1) << 40;
    struct uli_demand_shape *s = &o->shape;
    const struct info_option options[] = {
        {"--nodes", INFO_TEXT, &o->nodes, 0, 0,
            "numbers of nodes: 8; or 1,2,6; or 1-64, which is 1, 2, 4, ... 64"},
        {"--ranks-per-node", INFO_NUMBER, &s->ranks_per_node, 1, most,
            "ranks of each node (8)"},
        {"--seq", INFO_TEXT, &o->seq, 0, 0,
            "tokens; several in the form of --nodes (32768)"},
        {"--batch", INFO_NUMBER, &s->batch, 1, most, "batch items (1)"},
        {"--heads", INFO_NUMBER, &s->heads, 1, most, "query heads (64)"},
        {"--kv-heads", INFO_NUMBER, &s->kv_heads, 1, most, "KV heads (8)"},
        {"--dim", INFO_NUMBER, &s->dim, 1, most, "head dimension (128)"},
        {"--element-bytes", INFO_NUMBER, &s->element_bytes, 1, most,
            "bytes of an element (2)"},
        {"--local", INFO_TEXT, &o->local, 0, 0,
            "what connects the ranks of a node: near or far is host memory, "
            "nvlink or pcie (nvlink)",
            "near|far|nvlink|pcie"},
        {"--operation", INFO_TEXT, &o->direction, 0, 0,
            "s2h, h2s, s2h_adj, h2s_adj, with commas, or all: one schedule is "
            "chosen for all of them together; each moves q, k and v (h2s of "
            "ulyx_perf moves out alone) (s2h,s2h_adj)"},
        {"--algo", INFO_TEXT, &o->algo, 0, 0, &ULI_SCHEDULE_CHOICES[1],
            &ULI_SCHEDULE_CHOICES[1]},
        {"--tuning", INFO_TEXT, &o->tuning, 0, 0,
            "tuning file (the file of ULYX_TUNING)", "FILE"},
        {"--machine", INFO_TEXT, &o->machine, 0, 0,
            "here: with the rates of this machine's links, or of the machine "
            "in ULYX_TOPO_FILE",
            "here"},
        {"--csv", INFO_FLAG, &o->csv, 0, 0,
            "one row per schedule and operation"},
        {"--json", INFO_FLAG, &o->json, 0, 0, "the same rows as JSON"},
        {"--export", INFO_TEXT, &o->export, 0, 0,
            "goal: writes the schedule of the first operation in GOAL, for "
            "LogGOPSim and ATLAHS",
            "goal"},
        {"--output", INFO_TEXT, &o->output, 0, 0,
            "file of --export (standard output)", "FILE"}};
    const struct info_command command = {"plan --nodes N",
        "What the exchange of q, k and v between N nodes costs, by the cost "
        "model.\n",
        options, sizeof(options) / sizeof(options[0])};
    int code = info_options_read(&command, argc, argv);

    return code < 0 ? options_settle(o) : code;
}

/* ---- output -------------------------------------------------------------- */

void
info_print_finding(void *context, int32_t line, const char *text)
{
    fprintf(stderr, "%s:%d: %s\n", (const char *)context, line, text);
}

void
info_print_source(enum uli_model_source source)
{
    printf(" [%s%s]\n", uli_model_source_name(source),
        source == ULI_SOURCE_ASSUMED ? ", not measured" : "");
}

void
info_print_link(const struct uli_model *model, enum uli_model_class class)
{
    const struct uli_model_link *link = &model->links[class];

    printf("  link %-6s latency %.2f us, %.2f us per message",
        uli_model_class_name(class), link->latency_s * 1e6, link->send_s * 1e6);
    for (int32_t i = 0; i < link->npoints; i++)
        printf(", %.0f B at %.2f GB/s", link->bytes[i],
            1e-9 / link->s_per_byte[i]);
    info_print_source(link->source);
}

double
info_received_bytes(const struct uli_demand *x, ulyx_direction_t direction)
{
    const struct uli_factors f = uli_demand_factors(x, direction);
    double all = 0, most = 0;

    for (int32_t r = 0; r < x->nranks; r++)
        all += (double)uli_holding_all(&f.from, r);
    for (int32_t r = 0; r < x->nranks; r++) {
        double received = (all - (double)uli_holding_all(&f.from, r)) *
                          (double)uli_holding_all(&f.to, r);
        most = received > most ? received : most;
    }
    return most;
}

static void
print_direction(const struct uli_model *model, const struct uli_demand *x,
    const struct uli_estimate *e, int o)
{
    const struct uli_schedule *s = &e->schedules[o];
    const struct uli_prediction *p = &e->predictions[o];
    double busbw = info_received_bytes(x, o) / p->time_s;

    printf("    %-7s %.1f us, busbw %.2f GB/s, %d chunk%s\n"
           "            bottleneck: %s in phase %s, busy %.1f us (%.0f %%)\n",
        direction_names[o], p->time_s * 1e6, busbw * 1e-9, s->chunks,
        s->chunks == 1 ? "" : "s", uli_model_class_name(p->class),
        s->phases[p->phase].name, p->busy_s * 1e6, 100 * p->busy_s / p->time_s);
    if (s->leaves_node)
        printf("            %.3f GB between nodes, %.2f GB/s per NIC\n",
            s->wire_bytes * 1e-9, info_nic_rate(model, x, s, p->time_s) * 1e-9);
}

static void
print_estimate(const struct uli_model *model, const struct uli_demand *x,
    const struct uli_estimate *e)
{
    printf("%s: %.1f us", uli_algo_name(e->algo), e->time_s * 1e6);
    if (x->directions & (x->directions - 1))
        printf(", operations one after another");
    printf("\n");
    for (int o = 0; o < ULYX_DIRECTIONS; o++)
        if (x->directions >> o & 1)
            print_direction(model, x, e, o);
}

double
info_nic_rate(const struct uli_model *model, const struct uli_demand *x,
    const struct uli_schedule *schedule, double time_s)
{
    double nics = model->nics > 0 ? model->nics * x->nodes : x->nranks;

    return schedule->wire_bytes / nics / time_s;
}

void
info_print_fabric(const struct uli_model *model)
{
    printf("  fabric taper %.2f, efficiency %.2f, units of %lld nodes, ",
        model->taper, model->efficiency, (long long)model->unit_nodes);
    if (model->nics > 0)
        printf("%.0f NICs per node", model->nics);
    else
        printf("one NIC per rank");
    info_print_source(model->fabric_source);
}

void
info_print_host(const struct uli_model *model)
{
    printf("  host   launch %.2f us, hand-off %.2f us", model->launch_s * 1e6,
        model->handoff_s * 1e6);
    info_print_source(model->host_source);
}

static void
print_parameters(const struct uli_planner *planner, const struct uli_demand *x)
{
    const struct uli_model *model = &planner->model;

    printf("parameters\n");
    info_print_link(model, x->local);
    if (x->nodes > 1) {
        info_print_link(model, ULI_MODEL_NIC);
        info_print_link(model, ULI_MODEL_SPINE);
        info_print_fabric(model);
    }
    info_print_host(model);
    if (x->nodes > 1)
        printf("  pairwise sends to %lld ranks at a time%s, hier in chunks of "
               "at most %lld bytes\n",
            (long long)model->peers, model->peers == 0 ? " (all)" : "",
            (long long)planner->limits.chunk_bytes);
}

/* Prints the estimate of the chosen schedule, then of each other schedule as if
 * the caller had requested it. */
static ulyx_status_t
print_prediction(const struct uli_planner *planner, const struct uli_demand *x,
    const struct uli_choice *c)
{
    printf("%d rank%s, %d node%s of %d; a rank receives at most %.3f MB of q, "
           "k and v\n  ",
        x->nranks, uli_plural(x->nranks), x->nodes, uli_plural(x->nodes),
        x->ranks_per_node, info_received_bytes(x, ULYX_SEQ_TO_HEAD) * 1e-6);
    print_estimate(&planner->model, x, &c->best);
    printf("    chosen: %s\n", c->reason);
    for (int algo = 0; algo < ULI_ALGOS; algo++) {
        struct uli_choice other;
        char why[ULI_WHY_BYTES];
        ulyx_status_t status;

        if (algo == (int)c->algo)
            continue;
        if (!uli_can_choose(x, algo, why, sizeof(why))) {
            printf("  not %s: %s\n", uli_algo_name(algo), why);
            continue;
        }
        status = uli_choose(planner, x, uli_algo_name(algo), &other);
        if (status != ULYX_SUCCESS)
            return status;
        printf("  not ");
        print_estimate(&planner->model, x, &other.best);
    }
    if (x->nodes > 1)
        printf("busbw counts a byte once for every rank that reads it, also "
               "within a node and where\nhier sends it to a node only once: "
               "busbw may exceed the rate of the NICs\n");
    print_parameters(planner, x);
    return ULYX_SUCCESS;
}

/* ---- work ---------------------------------------------------------------- */

static ulyx_status_t
export_goal(const struct uli_demand *x, const struct uli_estimate *e,
    const struct uli_planner *planner, const char *path)
{
    int direction = 0;
    FILE *file = path ? fopen(path, "we") : stdout;
    ulyx_status_t status;

    if (!file) {
        fprintf(stderr, "ulyx_info: %s: %s\n", path, strerror(errno));
        return ULYX_ERR_SYSTEM;
    }
    while (!(x->directions >> direction & 1))
        direction++;
    status = info_write_goal(x, direction, e->algo, planner->model.peers, file);
    if (path && fclose(file) != 0 && status == ULYX_SUCCESS)
        status = ULYX_ERR_SYSTEM;
    if (status != ULYX_SUCCESS)
        fprintf(stderr, "ulyx_info: %s: not written\n",
            path ? path : "the schedule");
    return status;
}

/* Sets the model and the rules: first the defaults, then the rates of the
 * machine, then the tuning file. */
static ulyx_status_t
planner_prepare(struct options *o, struct uli_settings *settings,
    struct uli_planner *planner)
{
    struct uli_model *model = &planner->model;
    struct uli_topology *t = NULL;
    ulyx_status_t status = uli_settings_load(settings);
    const char *path = o->tuning ? o->tuning : settings->tuning;
    enum uli_algo algo;

    uli_model_defaults(model);
    memset(&planner->tuning, 0, sizeof(planner->tuning));
    uli_planner_apply(planner, settings);
    if (status == ULYX_SUCCESS && o->machine)
        status = uli_topology_load(settings, &t);
    if (t) {
        info_machine_rates(t, model);
        if (!o->local)
            o->shape.local = info_machine_local(t);
        uli_topology_free(t);
    }
    if (status == ULYX_SUCCESS && path[0] != 0)
        status = uli_tuning_read(path, model, &planner->tuning, NULL, NULL);
    if (!o->algo) /* ULYX_ALGO may be a batch transport: not in the model */
        o->algo = uli_algo_parse(settings->algo, &algo) ? settings->algo : "";
    return status;
}

/* Predicts for one number of nodes and one S: as text, or as GOAL. */
static ulyx_status_t
predict_one(const struct options *o, const struct uli_planner *planner,
    const struct uli_demand *x)
{
    struct uli_choice choice;
    ulyx_status_t status = uli_choose(planner, x, o->algo, &choice);

    if (status == ULYX_SUCCESS && o->export)
        return export_goal(x, &choice.best, planner, o->output);
    return status == ULYX_SUCCESS ? print_prediction(planner, x, &choice)
                                  : status;
}

static ulyx_status_t
options_predict(const struct options *o, const struct uli_planner *planner,
    struct info_sweep *sweep)
{
    ulyx_status_t status = ULYX_SUCCESS;

    for (int i = 0; i < o->nnodes * o->nseqs && status == ULYX_SUCCESS; i++) {
        struct uli_demand_shape shape = o->shape;
        struct uli_demand x;

        shape.nodes = o->node_counts[i / o->nseqs];
        shape.seq = o->seqs[i % o->nseqs];
        status = uli_demand_create(&shape, &x);
        if (status != ULYX_SUCCESS)
            return status;
        x.directions = o->directions;
        status = !sweep ? predict_one(o, planner, &x)
                        : info_sweep_add(sweep, planner, &shape, &x, o->algo);
        uli_demand_destroy(&x);
    }
    return status;
}

int
info_finish(ulyx_status_t status)
{
    if (status != ULYX_SUCCESS)
        fprintf(stderr, "ulyx_info: %s\n", ulyx_last_error());
    return status == ULYX_SUCCESS ? 0 : 1;
}

int
info_predict(int argc, char **argv)
{
    struct options o = {
        .shape = {2, 8, 32768, 1, 64, 8, 128, 2, ULI_MODEL_NVLINK},
        .seq = "32768",
        .direction = "s2h,s2h_adj"};
    struct uli_settings settings;
    struct uli_planner planner;
    struct info_sweep *sweep = NULL;
    ulyx_status_t status;
    int code = parse_options(argc, argv, &o);

    if (code >= 0)
        return code;
    status = planner_prepare(&o, &settings, &planner);
    if (status == ULYX_SUCCESS && (o.csv || o.json || o.nnodes * o.nseqs > 1))
        status = info_sweep_open(o.csv    ? INFO_CSV
                                 : o.json ? INFO_JSON
                                          : INFO_TABLE,
            &sweep);
    if (status == ULYX_SUCCESS)
        status = options_predict(&o, &planner, sweep);
    if (sweep)
        info_sweep_close(sweep);
    return info_finish(status);
}
