/* SPDX-License-Identifier: Apache-2.0
 *
 * The loop: draw the batch, forward and backward on this rank's tokens, sum
 * gradients and losses over ranks, update. Gradients were divided by the number
 * of tokens that are predicted on all ranks, so sums are enough: there is no
 * average and no factor P.
 */
#include "model/model.h"
#include "model/values.h"
#include "optim.h"
#include "reduce.h"
#include "report.h"
#include "train.h"

#include <stdio.h>
#include <stdlib.h>

struct run {
    const struct train_rank *self;
    struct attend attend;
    struct model model;
    struct optimizer optimizer;
    struct batch batch;
    struct report report;
    int64_t sum_bytes;
    double loss, *sums_there; /* [ranks + 2], for sums over ranks */
};

static bool
rank_prints(const struct train_rank *self)
{
    return self->rank == 0 && !self->quiet;
}

/* Sums numbers in host memory over ranks, through memory of the device if that
 * is where values are. */
static int
run_sum(struct run *run, int64_t count, double *sums, int64_t *sent_p)
{
    const struct train_rank *self = run->self;
    int64_t bytes = count * (int64_t)sizeof(*sums);
    int error;

    values_upload(run->sums_there, sums, bytes);
    error = reduce_sum(self->comm, ULYX_DTYPE_F64, count, run->sums_there,
        values_stream(), sent_p);
    values_download(sums, run->sums_there, bytes);
    return error != 0 ? error : values_wait();
}

static int
run_step(struct run *run, int64_t index)
{
    const struct train_rank *self = run->self;
    struct model *model = &run->model;
    double begin_s = report_clock_s(), norm;
    int error;

    batch_draw(&run->batch, self->corpus, self->options->seed, index);
    error = model_step(model, &run->batch, &run->loss);
    if (error == 0)
        error = reduce_sum(self->comm, REAL_DTYPE, model->values,
            model->gradient, values_stream(), &run->sum_bytes);
    if (error == 0)
        error = run_sum(run, 1, &run->loss, &run->sum_bytes);
    if (error != 0)
        return error;
    run->loss /= (double)run->batch.predicted;
    norm = optimizer_norm(model);
    if (self->hook) {
        struct train_view view = {index, self->rank, run->loss, norm,
            model->parameters, model->parameter_count, model->gradient};

        self->hook(self->context, &view);
    }
    optimizer_step(&run->optimizer, model, index, norm);
    if (rank_prints(self))
        report_step(
            &run->report, index, run->loss, norm, report_clock_s() - begin_s);
    return 0;
}

/* Gathers the results of all ranks: a sum over ranks, in which each rank's peak
 * memory has an element of its own. */
static int
run_summary(struct run *run)
{
    const struct train_rank *self = run->self;
    int64_t ranks = self->options->ranks, unused = 0;
    double *sums = calloc((size_t)ranks + 2, sizeof(*sums));
    int error = 3;

    if (!sums)
        return error;
    sums[0] = (double)run->attend.exchanged_bytes;
    sums[1] = (double)run->sum_bytes;
    sums[2 + self->rank] = report_peak_bytes();
    error = run_sum(run, ranks + 2, sums, &unused);
    if (error == 0 && rank_prints(self)) {
        struct report_totals totals = {
            run->loss, self->corpus->entropy, sums[0], sums[1], sums + 2};

        report_end(&run->report, &totals);
    }
    free(sums);
    return error;
}

static int
run_steps(struct run *run)
{
    const struct train_rank *self = run->self;
    int error = 0;

    if (rank_prints(self))
        report_begin(&run->report, self->options, run->model.values,
            self->corpus->entropy, self->corpus->count);
    for (int64_t i = 0; i < self->options->steps && error == 0; i++)
        error = run_step(run, i);
    return error != 0 ? error : run_summary(run);
}

int
REAL_NAME(train_rank)(const struct train_rank *self)
{
    const struct options *options = self->options;
    struct run run = {.self = self};
    int error = batch_create(&run.batch, options->seq, options->docs);

    if (error != 0)
        return error;
    error = values_open();
    if (error == 0)
        run.sums_there = values_alloc(
            (options->ranks + 2) * (int64_t)sizeof(*run.sums_there));
    if (error == 0 && !run.sums_there)
        error = 3;
    if (error == 0)
        error = attend_create(&run.attend, options, self->comm, self->threads);
    if (error == 0)
        error = model_create(&run.model, options, &run.attend);
    if (error == 0)
        error = optimizer_create(&run.optimizer, &run.model);
    if (error == 0)
        error = run_steps(&run);
    if (error != 0 && self->comm)
        ulyx_comm_abort(self->comm); /* the others need not wait */
    values_wait();
    optimizer_destroy(&run.optimizer);
    model_destroy(&run.model);
    attend_destroy(&run.attend);
    values_free(run.sums_there);
    values_close();
    batch_free(&run.batch);
    return error;
}
