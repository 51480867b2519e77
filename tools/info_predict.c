/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx_info plan --nodes: what an exchange would cost on machines that are not
 * here: time, busbw and the link that bounds it, of the schedule that a plan
 * would choose and of the others, and where each parameter comes from. Also
 * writes schedules as GOAL. ulyx_info tuning checks tuning files.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"
#include "info.h"
#include "info_machine.h"
#include "topology/choose/choose.h"
#include "ulyx/ulyx.h"

struct options {
    struct uli_demand_shape shape;
    uint64_t operations; /* bits */
    const char *algo, *tuning, *export, *output;
    bool machine, local; /* given */
};

int
info_predict_usage(FILE *out, int code)
{
    fprintf(out,
        "ulyx_info plan --nodes N [--ranks-per-node G] [--seq S] [--batch B]\n"
        "               [--heads H] [--kv-heads HKV] [--dim D]\n"
        "               [--element-bytes E] [--local near|far|nvlink|pcie]\n"
        "               [--operation s2h,h2s,s2h_adj,h2s_adj | all]\n"
        "               [--algo %s] [--tuning FILE]\n"
        "               [--machine here] [--export goal [--output FILE]]\n"
        "\n"
        "What the exchange of q, k and v between N nodes of G ranks costs, by\n"
        "the cost model. Defaults: 8 ranks a node, sequence 32768, batch 1, "
        "64\n"
        "heads of 128, 8 KV heads, 2 bytes an element.\n"
        "\n"
        "  --operation     to head shards, to sequence shards, their adjoints; "
        "those\n"
        "                  named are chosen for together; s2h,s2h_adj\n"
        "  --local         what joins the ranks of a node; nvlink, or what "
        "the\n"
        "                  machine has\n"
        "  --machine here  rates of this machine's links, or of "
        "ULYX_TOPO_FILE\n"
        "  --export goal   the schedule for LogGOPSim and ATLAHS, in place of\n"
        "                  the prediction; of the first operation\n",
        &ULI_SCHEDULE_CHOICES[1]);
    return code;
}

static bool
parse_local(const char *text, enum uli_model_class *class_p)
{
    for (int class = 0; class < ULI_MODEL_NIC; class ++)
        if (strcmp(text, uli_model_class_name(class)) == 0) {
            *class_p = class;
            return true;
        }
    return false;
}

static bool
parse_number(const char *text, int64_t *value_p)
{
    char *end;

    errno = 0;
    *value_p = strtoll(text, &end, 10);
    return end != text && *end == 0 && errno == 0;
}

static const char *const operation_names[ULYX_OPERATIONS] = {
    [ULYX_SEQ_TO_HEAD] = "s2h",
    [ULYX_HEAD_TO_SEQ] = "h2s",
    [ULYX_SEQ_TO_HEAD_ADJOINT] = "s2h_adj",
    [ULYX_HEAD_TO_SEQ_ADJOINT] = "h2s_adj"};

static int
find_operation(const char *name, size_t length)
{
    int o = 0;

    while (
        o < ULYX_OPERATIONS && (strlen(operation_names[o]) != length ||
                                   strncmp(name, operation_names[o], length)))
        o++;
    return o;
}

static bool
parse_operations(const char *text, uint64_t *operations_p)
{
    uint64_t found = 0;

    if (strcmp(text, "all") == 0)
        text = "s2h,h2s,s2h_adj,h2s_adj";
    do {
        size_t length = strcspn(text, ",");
        int o = find_operation(text, length);

        if (o == ULYX_OPERATIONS)
            return false;
        found |= UINT64_C(1) << o;
        text += length;
    } while (*text++ == ',');
    *operations_p = found;
    return true;
}

static bool
parse_option(struct options *o, const char *name, const char *value)
{
    struct uli_demand_shape *s = &o->shape;
    struct {
        const char *name;
        int64_t *field;
    } numbers[] = {{"--nodes", &s->nodes},
        {"--ranks-per-node", &s->ranks_per_node}, {"--seq", &s->seq},
        {"--batch", &s->batch}, {"--heads", &s->heads},
        {"--kv-heads", &s->kv_heads}, {"--dim", &s->dim},
        {"--element-bytes", &s->element_bytes}};
    struct {
        const char *name;
        const char **field;
    } texts[] = {{"--algo", &o->algo}, {"--tuning", &o->tuning},
        {"--export", &o->export}, {"--output", &o->output}};

    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (strcmp(name, numbers[i].name) == 0)
            return parse_number(value, numbers[i].field);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        if (strcmp(name, texts[i].name) == 0) {
            *texts[i].field = value;
            return true;
        }
    if (strcmp(name, "--operation") == 0)
        return parse_operations(value, &o->operations);
    if (strcmp(name, "--machine") == 0)
        return o->machine = strcmp(value, "here") == 0;
    if (strcmp(name, "--local") == 0)
        return o->local = parse_local(value, &s->local);
    return false;
}

/* ---- output -------------------------------------------------------------- */

static void
print_finding(void *context, int32_t line, bool is_error, const char *text)
{
    fprintf(stderr, "%s:%d: %s: %s\n", (const char *)context, line,
        is_error ? "error" : "warning", text);
}

static void
print_source(enum uli_model_source source)
{
    printf(" [%s%s]\n", uli_model_source_name(source),
        source == ULI_SOURCE_ASSUMED ? ", not measured" : "");
}

static void
print_link(const struct uli_model *model, enum uli_model_class class)
{
    const struct uli_model_link *link = &model->links[class];

    printf("  link %-6s latency %.2f us, a message %.2f us",
        uli_model_class_name(class), link->latency_s * 1e6, link->send_s * 1e6);
    for (int32_t i = 0; i < link->npoints; i++)
        printf(", %.0f B at %.2f GB/s", link->bytes[i],
            1e-9 / link->s_per_byte[i]);
    print_source(link->source);
}

/* The most bytes that a rank must receive from others, each once. */
static double
received_bytes(const struct uli_demand *x, ulyx_operation_t operation)
{
    const struct uli_factors f = uli_demand_factors(x, operation);
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
print_operation(const struct uli_demand *x, const struct uli_estimate *e, int o)
{
    const struct uli_schedule *s = &e->schedules[o];
    const struct uli_prediction *p = &e->predictions[o];

    printf("    %-7s %.1f us, busbw %.2f GB/s, %d chunk%s, %.3f GB between "
           "nodes\n"
           "            bottleneck: %s in phase %s, busy %.1f us (%.0f %%)\n",
        operation_names[o], p->time_s * 1e6,
        received_bytes(x, o) / p->time_s * 1e-9, s->chunks,
        s->chunks == 1 ? "" : "s", s->wire_bytes * 1e-9,
        uli_model_class_name(p->class), s->phases[p->phase].name,
        p->busy_s * 1e6, 100 * p->busy_s / p->time_s);
}

static void
print_estimate(const struct uli_demand *x, const struct uli_estimate *e)
{
    printf("%s: %.1f us", uli_algo_name(e->algo), e->time_s * 1e6);
    if (x->operations & (x->operations - 1))
        printf(", operations one after another");
    printf("\n");
    for (int o = 0; o < ULYX_OPERATIONS; o++)
        if (x->operations >> o & 1)
            print_operation(x, e, o);
}

static void
print_parameters(const struct uli_planner *planner, const struct uli_demand *x)
{
    const struct uli_model *model = &planner->model;

    printf("parameters\n");
    print_link(model, x->local);
    if (x->nodes > 1) {
        print_link(model, ULI_MODEL_NIC);
        print_link(model, ULI_MODEL_SPINE);
        printf("  fabric taper %.2f, efficiency %.2f, units of %lld nodes, ",
            model->taper, model->efficiency, (long long)model->unit_nodes);
        if (model->nics > 0)
            printf("%.0f NICs a node", model->nics);
        else
            printf("a NIC a rank");
        print_source(model->fabric_source);
    }
    printf("  host   launch %.2f us, hand-off %.2f us", model->launch_s * 1e6,
        model->handoff_s * 1e6);
    print_source(model->host_source);
    if (x->nodes > 1)
        printf("  pairwise sends to %lld ranks at a time%s, hier in chunks of "
               "at most %lld bytes\n",
            (long long)model->peers, model->peers == 0 ? " (all)" : "",
            (long long)planner->limits.chunk_bytes);
}

/* The chosen schedule, then the others as somebody who asked for them would
 * get them. */
static ulyx_status_t
print_prediction(const struct uli_planner *planner, const struct uli_demand *x,
    const struct uli_choice *c)
{
    printf("%d ranks, %d nodes of %d; a rank receives at most %.3f MB of q, k "
           "and v\n  ",
        x->nranks, x->nodes, x->ranks_per_node,
        received_bytes(x, ULYX_SEQ_TO_HEAD) * 1e-6);
    print_estimate(x, &c->best);
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
        print_estimate(x, &other.best);
    }
    print_parameters(planner, x);
    return ULYX_SUCCESS;
}

/* ---- work ---------------------------------------------------------------- */

static ulyx_status_t
export_goal(const struct uli_demand *x, const struct uli_estimate *e,
    const struct uli_planner *planner, const char *path)
{
    int operation = 0;
    FILE *file = path != NULL ? fopen(path, "we") : stdout;
    ulyx_status_t status;

    if (file == NULL) {
        fprintf(stderr, "ulyx_info: %s: %s\n", path, strerror(errno));
        return ULYX_ERR_SYSTEM;
    }
    while (!(x->operations >> operation & 1))
        operation++;
    status = uli_schedule_write_goal(
        x, operation, e->algo, planner->model.peers, file);
    if (path != NULL && fclose(file) != 0 && status == ULYX_SUCCESS)
        status = ULYX_ERR_SYSTEM;
    if (status != ULYX_SUCCESS)
        fprintf(stderr, "ulyx_info: %s: not written\n",
            path != NULL ? path : "the schedule");
    return status;
}

/* Model and rules: defaults, then the machine, then the file. */
static ulyx_status_t
prepare(struct options *o, struct uli_settings *settings,
    struct uli_planner *planner)
{
    struct uli_model *model = &planner->model;
    struct uli_topology *t = NULL;
    ulyx_status_t status = uli_settings_load(settings);
    const char *path = o->tuning ? o->tuning : settings->tuning;
    enum uli_algo algo;

    uli_model_defaults(model);
    memset(&planner->tuning, 0, sizeof(planner->tuning));
    uli_planner_obey(planner, settings);
    if (status == ULYX_SUCCESS && o->machine)
        status = uli_topology_load(settings, &t);
    if (t != NULL) {
        info_machine_rates(t, model);
        if (!o->local)
            o->shape.local = info_machine_local(t);
        uli_topology_free(t);
    }
    if (status == ULYX_SUCCESS && path[0] != 0)
        status = uli_tuning_read(path, model, &planner->tuning, print_finding,
            (void *)(uintptr_t)path);
    if (o->algo == NULL) /* carriers of device memory are none of the model's */
        o->algo = uli_algo_parse(settings->algo, &algo) ? settings->algo : "";
    return status;
}

static ulyx_status_t
predict(const struct options *o, const struct uli_planner *planner)
{
    struct uli_demand x;
    struct uli_choice choice;
    ulyx_status_t status = uli_demand_create(&o->shape, &x);

    if (status != ULYX_SUCCESS)
        return status;
    x.operations = o->operations;
    status = uli_choose(planner, &x, o->algo, &choice);
    if (status == ULYX_SUCCESS && o->export != NULL)
        status = export_goal(&x, &choice.best, planner, o->output);
    else if (status == ULYX_SUCCESS)
        status = print_prediction(planner, &x, &choice);
    uli_demand_destroy(&x);
    return status;
}

static int
finish(ulyx_status_t status)
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
        .operations = 1 << ULYX_SEQ_TO_HEAD | 1 << ULYX_SEQ_TO_HEAD_ADJOINT};
    struct uli_settings settings;
    struct uli_planner planner;
    ulyx_status_t status;

    for (int i = 0; i < argc; i += 2)
        if (i + 1 == argc || !parse_option(&o, argv[i], argv[i + 1]))
            return info_predict_usage(stderr, 6);
    if ((o.export != NULL && strcmp(o.export, "goal") != 0) ||
        (o.output != NULL && o.export == NULL))
        return info_predict_usage(stderr, 6);
    status = prepare(&o, &settings, &planner);
    if (status == ULYX_SUCCESS)
        status = predict(&o, &planner);
    return finish(status);
}

int
info_tuning(int argc, char **argv)
{
    struct uli_planner planner;
    ulyx_status_t status;

    if (argc != 1 || argv[0][0] == '-') {
        fprintf(stderr, "ulyx_info tuning FILE\n");
        return 6;
    }
    uli_model_defaults(&planner.model);
    status = uli_tuning_read(
        argv[0], &planner.model, &planner.tuning, print_finding, argv[0]);
    if (status == ULYX_SUCCESS)
        for (int class = 0; class < ULI_MODEL_CLASSES; class ++)
            print_link(&planner.model, class);
    return finish(status);
}
