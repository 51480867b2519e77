/* SPDX-License-Identifier: Apache-2.0
 *
 * Which cases to sweep, and which sizes of each.
 */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "options.h"

/* Adds a case per requested operation and type of one geometry; adjoints are
 * left out for the types that ulyx cannot add. */
static void
add_cases(struct perf_run *run, const char *name, int64_t heads,
    int64_t kv_heads, int64_t dim_qk, int64_t dim_v)
{
    const struct perf_options *o = &run->options;

    for (int i = 0; i < o->ndtypes * ULYX_DIRECTIONS; i++) {
        const struct perf_dtype *dtype = &o->dtypes[i / ULYX_DIRECTIONS];
        int op = i % ULYX_DIRECTIONS;
        struct perf_case *one = &run->cases[run->ncases];

        if ((o->directions >> op & 1) == 0 || run->ncases == PERF_MAX_CASES ||
            (op > 1 && dtype->code >= ULYX_DTYPE_F8_E4M3))
            continue;
        *one = (struct perf_case){.heads = heads,
            .kv_heads = kv_heads,
            .dim_qk = dim_qk,
            .dim_v = dim_v,
            .direction = op,
            .dtype = *dtype};
        snprintf(one->name, sizeof(one->name), "%s", name);
        run->ncases++;
    }
}

static bool
add_model(struct perf_run *run, const char *name)
{
    const struct perf_model *model = perf_model_find(name);
    int count;
    char known[512] = "all";

    for (int c = 0; c < run->ncases; c++)
        if (strcmp(run->cases[c].name, name) == 0)
            return perf_reject("--model: %s is named twice", name);
    if (!model) {
        model = perf_models(&count);
        for (int i = 0; i < count; i++) {
            size_t length = strlen(known);

            snprintf(
                known + length, sizeof(known) - length, " %s", model[i].name);
        }
        return perf_reject("--model %s is unknown; known: %s",
            name[0] != 0 ? name : "''", known);
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

    if (!at) {
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

/* Bytes that a row needs on a machine that has all ranks: three sides of all
 * sets, of which one may be fp32, and buffers of comparators. */
static double
memory_of(const struct perf_shape *shape)
{
    return 5.0 * shape->sets * (double)shape->full_bytes;
}

/* Sets sweep->one: the case, with fewer heads and elements as in run.h. */
static void
case_shrink(const struct perf_run *run, const struct perf_case *one,
    struct perf_sweep *sweep)
{
    const struct perf_options *o = &run->options;
    int64_t elements = (int64_t)sweep->bytes / (o->batch * one->dtype.bytes);
    bool chosen = o->model || perf_option_given(o, "--heads") ||
                  perf_option_given(o, "--kv-heads") ||
                  perf_option_given(o, "--dim") ||
                  perf_option_given(o, "--dim-v") || o->replicated > 0;

    sweep->one = *one;
    if (!o->nccl_format || chosen || one->direction == ULYX_SEQ_TO_HEAD ||
        one->direction == ULYX_SEQ_TO_HEAD_ADJOINT ||
        elements >= one->heads * one->dim_v)
        return;
    if (elements < one->heads)
        sweep->one.heads = elements > run->nranks ? elements : run->nranks;
    sweep->one.dim_v = elements / sweep->one.heads;
    if (sweep->one.dim_v < 1)
        sweep->one.dim_v = 1;
    sweep->one.kv_heads = sweep->one.heads;
    sweep->one.dim_qk = sweep->one.dim_v;
}

static bool
case_fits(
    const struct perf_run *run, int64_t memory_bytes, struct perf_sweep *sweep)
{
    const struct perf_case *one = &sweep->one;
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
    int64_t before = 0, bytes = 0;

    if (o->seq > 0) {
        if (sweep->begun)
            return false;
        sweep->begun = true;
        sweep->seq = o->seq;
        sweep->one = *one;
        return case_fits(run, memory_bytes, sweep);
    }
    if (sweep->begun)
        before = perf_shape_bytes(o, &sweep->one, sweep->seq, run->nranks);
    do {
        if (!sweep->begun)
            sweep->bytes = (double)o->min_bytes;
        else if (o->step_factor > 0)
            sweep->bytes *= o->step_factor;
        else
            sweep->bytes += (double)o->step_bytes;
        sweep->begun = true;
        if (sweep->bytes > (double)o->max_bytes + 0.5)
            return false;
        case_shrink(run, one, sweep);
        sweep->seq =
            perf_shape_seq(o, &sweep->one, (int64_t)sweep->bytes, run->nranks);
        bytes = perf_shape_bytes(o, &sweep->one, sweep->seq, run->nranks);
        sweep->requested++;
        sweep->exact += bytes == (int64_t)sweep->bytes;
    } while (bytes == before);
    return case_fits(run, memory_bytes, sweep);
}
