/* SPDX-License-Identifier: Apache-2.0
 *
 * Which geometries, and which sizes of each.
 */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
add_cases(struct perf_run *run, const char *name, int64_t heads,
    int64_t kv_heads, int64_t dim_qk, int64_t dim_v)
{
    for (int op = 0; op < ULYX_OPERATIONS && run->ncases < PERF_MAX_CASES;
         op++) {
        struct perf_case *one = &run->cases[run->ncases];

        if ((run->options.operations >> op & 1) == 0)
            continue;
        *one = (struct perf_case){.heads = heads,
            .kv_heads = kv_heads,
            .dim_qk = dim_qk,
            .dim_v = dim_v,
            .operation = op};
        snprintf(one->name, sizeof(one->name), "%s", name);
        run->ncases++;
    }
}

static bool
add_model(struct perf_run *run, const char *name)
{
    const struct perf_model *model = perf_model_find(name);
    int before = run->ncases;

    for (int c = 0; c < run->ncases; c++)
        if (strcmp(run->cases[c].name, name) == 0) {
            fprintf(stderr, "ulyx_perf: --model: %s is there twice\n", name);
            return false;
        }
    if (model == NULL) {
        fprintf(stderr, "ulyx_perf: --model %s is unknown; known: all",
            name[0] != 0 ? name : "''");
        model = perf_models(&before);
        for (int i = 0; i < before; i++)
            fprintf(stderr, " %s", model[i].name);
        fprintf(stderr, "\n");
        return false;
    }
    add_cases(
        run, name, model->heads, model->kv_heads, model->dim_qk, model->dim_v);
    return true;
}

bool
perf_run_choose(struct perf_run *run)
{
    const struct perf_options *o = &run->options;
    const char *at = o->model;
    int count;
    const struct perf_model *models = perf_models(&count);

    if (at == NULL) {
        add_cases(run, "shape", o->heads, o->kv_heads, o->dim, o->dim_v);
        return true;
    }
    if (strcmp(at, "all") == 0) {
        for (int i = 0; i < count; i++)
            add_model(run, models[i].name);
        return true;
    }
    for (;;) {
        char name[64];
        size_t length = strcspn(at, ",");

        snprintf(name, sizeof(name), "%.*s", (int)length, at);
        if (!add_model(run, name))
            return false;
        if (at[length] == 0)
            return true;
        at += length + 1;
    }
}

/* What a row takes on a machine that holds all ranks: three sides of all sets,
 * one of which may be of fp32, with room for what comparators pack. */
static double
memory_of(const struct perf_shape *shape)
{
    return 5.0 * shape->sets * (double)shape->full_bytes;
}

static bool
fits(const struct perf_run *run, const struct perf_case *one,
    int64_t memory_bytes, struct perf_sweep *sweep)
{
    struct perf_shape shape;

    perf_shape_fill(&run->options, one, sweep->seq, run->nranks, &shape);
    if (memory_of(&shape) <= (double)memory_bytes)
        return true;
    sweep->left_out_bytes =
        perf_shape_bytes(&run->options, one, sweep->seq, run->nranks);
    return false;
}

bool
perf_sweep_next(const struct perf_run *run, const struct perf_case *one,
    int64_t memory_bytes, struct perf_sweep *sweep)
{
    const struct perf_options *o = &run->options;
    int64_t before = sweep->seq;

    if (o->seq > 0) {
        if (sweep->begun)
            return false;
        sweep->begun = true;
        sweep->seq = o->seq;
        return fits(run, one, memory_bytes, sweep);
    }
    while (sweep->seq == before) {
        if (!sweep->begun)
            sweep->bytes = (double)o->min_bytes;
        else if (o->step_factor > 0)
            sweep->bytes *= o->step_factor;
        else
            sweep->bytes += (double)o->step_bytes;
        sweep->begun = true;
        if (sweep->bytes > (double)o->max_bytes + 0.5)
            return false;
        sweep->seq = perf_shape_seq(o, one, (int64_t)sweep->bytes, run->nranks);
    }
    return fits(run, one, memory_bytes, sweep);
}
