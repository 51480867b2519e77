/* SPDX-License-Identifier: Apache-2.0
 *
 * The update: clip by the global norm, warm up for WARMUP steps, then a
 * constant rate. AdamW: moments 0.9 and 0.95; decay of matrices only, separate
 * from the gradient.
 */
#include "optim.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WARMUP = 20 };

int
optimizer_create(struct optimizer *optimizer_p, const struct model *model)
{
    size_t values = (size_t)model->values;

    memset(optimizer_p, 0, sizeof(*optimizer_p));
    if (model->options->sgd)
        return 0;
    optimizer_p->first = calloc(values, sizeof(real));
    optimizer_p->second = calloc(values, sizeof(real));
    if (optimizer_p->first && optimizer_p->second)
        return 0;
    fprintf(stderr, "train_bytes: no memory for the optimizer\n");
    optimizer_destroy(optimizer_p);
    return 3;
}

void
optimizer_destroy(struct optimizer *optimizer)
{
    free(optimizer->first);
    free(optimizer->second);
    memset(optimizer, 0, sizeof(*optimizer));
}

double
optimizer_norm(const struct model *model)
{
    double squares = 0;

    for (int64_t i = 0; i < model->values; i++)
        squares += (double)model->gradient[i] * model->gradient[i];
    return sqrt(squares);
}

static void
adamw_update(struct optimizer *optimizer, struct model *model,
    const struct parameter *p, double rate, double scale, int64_t step)
{
    double correct1 = 1 - pow(0.9, (double)step + 1),
           correct2 = 1 - pow(0.95, (double)step + 1),
           decay = p->in > 1 ? model->options->decay : 0;

    for (int64_t i = p->at; i < p->at + p->in * p->out; i++) {
        double g = scale * model->gradient[i],
               m = 0.9 * optimizer->first[i] + 0.1 * g,
               v = 0.95 * optimizer->second[i] + 0.05 * g * g,
               move = m / correct1 / (sqrt(v / correct2) + 1e-8);

        optimizer->first[i] = (real)m;
        optimizer->second[i] = (real)v;
        model->value[i] =
            (real)(model->value[i] - rate * (move + decay * model->value[i]));
    }
}

void
optimizer_step(
    struct optimizer *optimizer, struct model *model, int64_t step, double norm)
{
    const struct options *o = model->options;
    double scale = o->clip > 0 && norm > o->clip ? o->clip / norm : 1;
    double rate = o->lr;

    if (step + 1 < WARMUP)
        rate *= (double)(step + 1) / WARMUP;
    if (!o->sgd) {
        for (int64_t i = 0; i < model->parameter_count; i++)
            adamw_update(
                optimizer, model, &model->parameters[i], rate, scale, step);
        return;
    }
    for (int64_t i = 0; i < model->values; i++)
        model->value[i] =
            (real)(model->value[i] - rate * scale * model->gradient[i]);
}
