/* SPDX-License-Identifier: Apache-2.0
 *
 * Predictions as rows: a table for readers, CSV and JSON for programs that plot
 * or compare them. CSV and JSON have a row per number of nodes, S, schedule and
 * operation, and share one list of fields, whose names are an interface.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "info_predict.h"

struct info_sweep {
    enum info_form form;
    int rows;
};

enum field_kind { NUMBER, REAL, TEXT };

struct field {
    const char *name;
    enum field_kind kind;
    int64_t number;
    double real;
    const char *text; /* plain words that need no quotes */
};

enum { FIELDS = 17 };

struct row {
    const struct uli_planner *planner;
    const struct uli_demand_shape *shape;
    const struct uli_demand *x;
    const struct uli_estimate *e;
    int direction;
    bool chosen;
};

/* Bytes of the sequence-sharded q, k and v at the rank with the most tokens. */
static int64_t
row_size_bytes(const struct row *r)
{
    int64_t most = 0;

    for (int32_t p = 0; p < r->x->nranks; p++)
        most = r->x->rows[p] > most ? r->x->rows[p] : most;
    return most * r->shape->batch * (r->shape->heads + 2 * r->shape->kv_heads) *
           r->shape->dim * r->shape->element_bytes;
}

static void
row_fill(const struct row *r, struct field fields[FIELDS])
{
    const struct uli_demand *x = r->x;
    const struct uli_prediction *p = &r->e->predictions[r->direction];
    const struct uli_schedule *s = &r->e->schedules[r->direction];
    const struct uli_model *model = &r->planner->model;
    double received = info_received_bytes(x, r->direction);
    const struct field all[FIELDS] = {{"nodes", NUMBER, x->nodes, 0, NULL},
        {"ranks", NUMBER, x->nranks, 0, NULL},
        {"schedule", TEXT, 0, 0, uli_algo_name(r->e->algo)},
        {"size_bytes", NUMBER, row_size_bytes(r), 0, NULL},
        {"time_us", REAL, 0, p->time_s * 1e6, NULL},
        {"busbw_GBps", REAL, 0, received / p->time_s * 1e-9, NULL},
        {"operation", TEXT, 0, 0, info_operation_name(r->direction)},
        {"chosen", NUMBER, r->chosen, 0, NULL},
        {"seq", NUMBER, r->shape->seq, 0, NULL},
        {"ranks_per_node", NUMBER, x->ranks_per_node, 0, NULL},
        {"received_bytes", NUMBER, (int64_t)received, 0, NULL},
        {"wire_bytes", NUMBER, (int64_t)s->wire_bytes, 0, NULL},
        {"nic_GBps", REAL, 0, info_nic_rate(model, x, s, p->time_s) * 1e-9,
            NULL},
        {"chunks", NUMBER, s->chunks, 0, NULL},
        {"bottleneck", TEXT, 0, 0, uli_model_class_name(p->class)},
        {"phase", TEXT, 0, 0, s->phases[p->phase].name},
        {"source", TEXT, 0, 0,
            uli_model_source_name(model->links[p->class].source)}};

    memcpy(fields, all, sizeof(all));
}

static void
field_print(const struct field *f, const char *quote)
{
    if (f->kind == TEXT)
        printf("%s%s%s", quote, f->text, quote);
    else if (f->kind == REAL)
        printf("%.4f", f->real);
    else
        printf("%" PRId64, f->number);
}

static void
sweep_print_row(struct info_sweep *sweep, const struct row *row)
{
    bool json = sweep->form == INFO_JSON;
    struct field fields[FIELDS];

    row_fill(row, fields);
    for (int f = 0; !json && sweep->rows == 0 && f < FIELDS; f++)
        printf("%s%s", fields[f].name, f + 1 < FIELDS ? "," : "\n");
    if (json)
        printf("%s{", sweep->rows > 0 ? ",\n  " : "\n  ");
    for (int f = 0; f < FIELDS; f++) {
        printf("%s", f > 0 ? json ? ", " : "," : "");
        if (json)
            printf("\"%s\": ", fields[f].name);
        field_print(&fields[f], json ? "\"" : "");
    }
    printf(json ? "}" : "\n");
    sweep->rows++;
}

static void
sweep_print_line(struct info_sweep *sweep, const struct uli_demand_shape *shape,
    const struct uli_demand *x, const struct uli_planner *planner,
    const struct uli_estimate *e)
{
    const struct uli_prediction *p = &e->predictions[e->slowest];
    const struct uli_schedule *s = &e->schedules[e->slowest];

    if (sweep->rows++ == 0)
        printf("%6s %6s %10s %-9s %12s %-8s %10s %9s  %s\n", "nodes", "ranks",
            "S", "schedule", "time (us)", "slowest", "busbw", "NIC",
            "bottleneck");
    printf("%6d %6d %10" PRId64 " %-9s %12.1f %-8s %10.2f %9.2f  %s in %s\n",
        x->nodes, x->nranks, shape->seq, uli_algo_name(e->algo),
        e->time_s * 1e6, info_operation_name(e->slowest),
        info_received_bytes(x, e->slowest) / p->time_s * 1e-9,
        info_nic_rate(&planner->model, x, s, p->time_s) * 1e-9,
        uli_model_class_name(p->class), s->phases[p->phase].name);
}

ulyx_status_t
info_sweep_open(enum info_form form, struct info_sweep **sweep_p)
{
    struct info_sweep *sweep = calloc(1, sizeof(*sweep));

    if (!sweep)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for rows");
    sweep->form = form;
    if (form == INFO_JSON)
        printf("{\"plans\": [");
    *sweep_p = sweep;
    return ULYX_SUCCESS;
}

/* Adds the rows of one schedule. */
static void
sweep_add_estimate(struct info_sweep *sweep, struct row *row,
    const struct uli_choice *choice, bool chosen)
{
    row->e = &choice->best;
    row->chosen = chosen;
    for (row->direction = 0; row->direction < ULYX_DIRECTIONS; row->direction++)
        if (row->x->directions >> row->direction & 1)
            sweep_print_row(sweep, row);
}

ulyx_status_t
info_sweep_add(struct info_sweep *sweep, const struct uli_planner *planner,
    const struct uli_demand_shape *shape, const struct uli_demand *x,
    const char *algo)
{
    struct row row = {.planner = planner, .shape = shape, .x = x};
    struct uli_choice choice, other;
    ulyx_status_t status = uli_choose(planner, x, algo, &choice);

    if (status != ULYX_SUCCESS)
        return status;
    if (sweep->form == INFO_TABLE) {
        sweep_print_line(sweep, shape, x, planner, &choice.best);
        return ULYX_SUCCESS;
    }
    for (int a = 0; a < ULI_ALGOS; a++) {
        bool chosen = a == (int)choice.algo;

        if (!chosen && (algo[0] != 0 || !uli_can_choose(x, a, NULL, 0)))
            continue;
        status = chosen ? ULYX_SUCCESS
                        : uli_choose(planner, x, uli_algo_name(a), &other);
        if (status != ULYX_SUCCESS)
            return status;
        sweep_add_estimate(sweep, &row, chosen ? &choice : &other, chosen);
    }
    return ULYX_SUCCESS;
}

void
info_sweep_close(struct info_sweep *sweep)
{
    if (sweep->form == INFO_JSON)
        printf("\n]}\n");
    else if (sweep->form == INFO_TABLE)
        printf("busbw, and the rate of one NIC, in GB/s in the slowest "
               "operation. busbw counts a byte once\nfor every rank that reads "
               "it, also within a node: it may exceed the rate of the NIC\n");
    free(sweep);
}
