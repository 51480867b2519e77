/* SPDX-License-Identifier: Apache-2.0
 *
 * The update: gradients are clipped by the global norm; the learning rate grows
 * for WARMUP steps and is constant afterwards. AdamW decays matrices only.
 */
#include "optim.h"
#include "model/parts.h"
#include "model/values.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { WARMUP = 20 };

int
optimizer_create(struct optimizer *optimizer_p, const struct model *model)
{
    int64_t bytes = model->values * (int64_t)sizeof(real);

    memset(optimizer_p, 0, sizeof(*optimizer_p));
    if (model->options->sgd)
        return 0;
    optimizer_p->first = values_alloc(bytes);
    optimizer_p->second = values_alloc(bytes);
    if (optimizer_p->first && optimizer_p->second)
        return 0;
    fprintf(stderr, "train_bytes: no memory for the optimizer\n");
    optimizer_destroy(optimizer_p);
    return 3;
}

void
optimizer_destroy(struct optimizer *optimizer)
{
    values_free(optimizer->first);
    values_free(optimizer->second);
    memset(optimizer, 0, sizeof(*optimizer));
}

double
optimizer_norm(const struct model *model)
{
    return update_norm(model->values, model->gradient);
}

static void
adamw_update(struct optimizer *optimizer, struct model *model,
    const struct parameter *p, double rate, double scale, int64_t step)
{
    struct adamw by = {.rate = rate,
        .scale = scale,
        .decay = p->in > 1 ? model->options->decay : 0,
        .correct1 = 1 - pow(0.9, (double)step + 1),
        .correct2 = 1 - pow(0.95, (double)step + 1)};

    update_adamw(p->in * p->out, &by, model->gradient + p->at,
        optimizer->first + p->at, optimizer->second + p->at,
        model->value + p->at);
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
    update_sgd(model->values, rate * scale, model->gradient, model->value);
}
