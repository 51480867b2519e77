/* SPDX-License-Identifier: Apache-2.0
 *
 * The model: parameters, memory, and forward and backward of a step. All
 * activations are in one allocation. model_place runs twice: first without
 * memory, to add up the size, then to place the activations.
 */
#include "model.h"
#include "parts.h"
#include "values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
add_parameter(struct model *model, const char *name, int64_t layer, int64_t in,
    int64_t out)
{
    struct parameter *p = &model->parameters[model->parameter_count++];

    if (layer < 0)
        snprintf(p->name, sizeof(p->name), "%s", name);
    else
        snprintf(p->name, sizeof(p->name), "%s.%d", name, (int)layer);
    p->in = in;
    p->out = out;
    p->at = model->values;
    model->values += in * out;
}

static int
list_parameters(struct model *model)
{
    const struct options *o = model->options;
    const struct {
        const char *name;
        int64_t in, out;
    } each[LAYER_PARAMETERS] = {{"norm1", 1, o->dim}, {"wq", o->dim, o->dim},
        {"wk", o->dim, model->kv_dim}, {"wv", o->dim, model->kv_dim},
        {"wo", o->dim, o->dim}, {"norm2", 1, o->dim},
        {"gate", o->dim, o->hidden}, {"up", o->dim, o->hidden},
        {"down", o->hidden, o->dim}};

    model->parameters = calloc(
        (size_t)o->layers * LAYER_PARAMETERS + 3, sizeof(*model->parameters));
    if (!model->parameters)
        return -1;
    add_parameter(model, "embedding", -1, VOCABULARY, o->dim);
    for (int64_t layer = 0; layer < o->layers; layer++)
        for (int i = 0; i < LAYER_PARAMETERS; i++)
            add_parameter(model, each[i].name, layer, each[i].in, each[i].out);
    add_parameter(model, "norm", -1, 1, o->dim);
    add_parameter(model, "head", -1, o->dim, VOCABULARY);
    return 0;
}

/* Standard deviations: gains are 1; matrices 1 / sqrt(in), divided by
 * sqrt(2 * layers) if they write to the residual stream; the embedding 0.2; the
 * head 0.02, so that the first loss is near ln(256). */
static double
deviation_of(const struct model *model, const struct parameter *p)
{
    double deviation = 1 / sqrt((double)p->in);

    if (strcmp(p->name, "embedding") == 0)
        return 0.2;
    if (strcmp(p->name, "head") == 0)
        return 0.02;
    if (strncmp(p->name, "wo", 2) == 0 || strncmp(p->name, "down", 4) == 0)
        deviation /= sqrt(2.0 * (double)model->options->layers);
    return deviation;
}

static int
model_initialise(struct model *model)
{
    uint64_t state = (uint64_t)model->options->seed;
    real *values = calloc((size_t)model->values, sizeof(*values));

    if (!values)
        return -1;

    for (int64_t i = 0; i < model->parameter_count; i++) {
        const struct parameter *p = &model->parameters[i];
        double deviation = deviation_of(model, p);
        real *value = values + p->at;

        for (int64_t j = 0; j < p->in * p->out; j++)
            value[j] =
                p->in == 1 ? 1 : (real)(deviation * random_normal(&state));
    }
    values_upload(
        model->value, values, model->values * (int64_t)sizeof(*values));
    free(values);
    return 0;
}

/* Takes [rows][width] reals at base + *at, and advances *at. base NULL: only
 * advances *at. */
static real *
model_take(char *base, int64_t *at, int64_t rows, int64_t width)
{
    int64_t here = *at;

    *at = here + (rows * width * (int64_t)sizeof(real) + 63) / 64 * 64;
    return !base ? NULL : (real *)(void *)(base + here);
}

static void
place_scratch(struct model *model, char *base, int64_t *at)
{
    const struct options *o = model->options;
    struct scratch *s = &model->scratch;
    int64_t n = model->rows;

    s->normed = model_take(base, at, n, o->dim);
    s->d_normed = model_take(base, at, n, o->dim);
    s->d_out = model_take(base, at, n, o->dim);
    s->wide1 = model_take(base, at, n, o->hidden);
    s->wide2 = model_take(base, at, n, o->hidden);
    s->dq = model_take(base, at, n, o->dim);
    s->dk = model_take(base, at, n, model->kv_dim);
    s->dv = model_take(base, at, n, model->kv_dim);
    if (model->attend->keeps_inputs) {
        s->q = model_take(base, at, n, o->dim);
        s->k = model_take(base, at, n, model->kv_dim);
        s->v = model_take(base, at, n, model->kv_dim);
    }
    s->table = model_take(base, at, n, model->head_dim);
    s->logits = model_take(base, at, HEAD_ROWS, VOCABULARY);
    s->sums = (double *)(void *)model_take(
        base, at, o->dim, (int64_t)(sizeof(double) / sizeof(real)));
}

static int64_t
model_place(struct model *model, char *base)
{
    const struct options *o = model->options;
    struct scratch *s = &model->scratch;
    int64_t n = model->rows, at = 0;

    place_scratch(model, base, &at);
    for (int64_t layer = 0; layer < o->layers; layer++) {
        struct activations *a = &model->layers[layer];
        bool shared = model->attend->keeps_inputs;

        a->x = model_take(base, &at, n, o->dim);
        a->middle = model_take(base, &at, n, o->dim);
        a->out = model_take(base, &at, n, o->dim);
        a->gate = model_take(base, &at, n, o->hidden);
        a->up = model_take(base, &at, n, o->hidden);
        a->inverse1 = model_take(base, &at, n, 1);
        a->inverse2 = model_take(base, &at, n, 1);
        a->q = shared ? s->q : model_take(base, &at, n, o->dim);
        a->k = shared ? s->k : model_take(base, &at, n, model->kv_dim);
        a->v = shared ? s->v : model_take(base, &at, n, model->kv_dim);
    }
    model->x = model_take(base, &at, n, o->dim);
    model->dx = model_take(base, &at, n, o->dim);
    model->final_inverse = model_take(base, &at, n, 1);
    return at;
}

static int
model_allocate(struct model *model)
{
    size_t rows = (size_t)model->rows + 1;
    int64_t bytes;

    model->layers =
        calloc((size_t)model->options->layers, sizeof(*model->layers));
    if (!model->layers || list_parameters(model) != 0)
        return -1;
    bytes = model->values * (int64_t)sizeof(real);
    model->value = values_alloc(bytes);
    model->gradient = values_alloc(bytes);
    model->tokens = malloc(rows);
    model->labels = calloc(rows, sizeof(*model->labels));
    model->positions = calloc(rows, sizeof(*model->positions));
    model->there.tokens = values_alloc((int64_t)rows);
    model->there.labels =
        values_alloc((int64_t)(rows * sizeof(*model->labels)));
    model->there.positions =
        values_alloc((int64_t)(rows * sizeof(*model->positions)));
    model->memory_bytes = model_place(model, NULL);
    if (attend_take(model->attend, model->memory_bytes, &model->memory) != 0 ||
        !model->value || !model->gradient || !model->tokens || !model->labels ||
        !model->positions || !model->there.tokens || !model->there.labels ||
        !model->there.positions)
        return -1;
    model_place(model, model->memory.at);
    return model_initialise(model);
}

int
model_create(
    struct model *model_p, const struct options *options, struct attend *attend)
{
    memset(model_p, 0, sizeof(*model_p));
    model_p->options = options;
    model_p->attend = attend;
    model_p->rows = attend->rows;
    model_p->head_dim = attend->head_dim;
    model_p->kv_dim = options->kv_heads * attend->head_dim;
    if (model_allocate(model_p) != 0) {
        fprintf(stderr,
            "train_bytes: no memory for %lld values and %lld bytes of "
            "activations\n",
            (long long)model_p->values, (long long)model_p->memory_bytes);
        model_destroy(model_p);
        return 3;
    }
    return 0;
}

void
model_destroy(struct model *model)
{
    free(model->layers);
    free(model->parameters);
    values_free(model->value);
    values_free(model->gradient);
    values_free(model->there.tokens);
    values_free(model->there.labels);
    values_free(model->there.positions);
    free(model->tokens);
    free(model->labels);
    free(model->positions);
    if (model->attend)
        attend_give_back(model->attend, &model->memory);
    memset(model, 0, sizeof(*model));
}

/* Takes this rank's rows of the batch. Labels were shifted on the whole
 * sequence before, and positions are those in the documents. */
static void
model_slice(struct model *model, const struct batch *batch)
{
    size_t n = (size_t)model->rows;

    for (int64_t i = 0; i < model->rows; i++) {
        int64_t row = model->attend->positions[i];

        model->tokens[i] = batch->tokens[row];
        model->labels[i] = batch->labels[row];
        model->positions[i] = batch->positions[row];
    }
    values_upload(model->there.tokens, model->tokens, (int64_t)n);
    values_upload(model->there.labels, model->labels,
        (int64_t)(n * sizeof(*model->labels)));
    values_upload(model->there.positions, model->positions,
        (int64_t)(n * sizeof(*model->positions)));
    rope_table(model->rows, model->head_dim, model->there.positions,
        model->scratch.table);
}

int
model_step(struct model *model, const struct batch *batch, double *loss_p)
{
    const struct options *o = model->options;
    const struct parameter *norm =
                               &model->parameters[model->parameter_count - 2],
                           *head = norm + 1;
    struct scratch *s = &model->scratch;
    int64_t n = model->rows, dim = o->dim;
    int64_t row_bytes = dim * (int64_t)sizeof(real);
    int error = attend_step(model->attend, batch);

    model_slice(model, batch);
    values_clear(model->gradient, model->values * (int64_t)sizeof(real));
    rows_take(n, dim, model->there.tokens, model->value, model->layers[0].x);
    for (int64_t layer = 0; layer < o->layers && error == 0; layer++)
        error = layer_forward(model, layer,
            layer + 1 < o->layers ? model->layers[layer + 1].x : model->x);
    if (error != 0)
        return error;
    norm_forward(n, dim, model->x, model->value + norm->at,
        model->final_inverse, s->normed);
    *loss_p = head_step(n, dim, s->normed, model->there.labels,
        model->value + head->at, 1 / (double)batch->predicted, s->d_normed,
        model->gradient + head->at, s->logits);
    values_clear(model->dx, n * row_bytes);
    norm_backward(n, dim, model->x, model->value + norm->at,
        model->final_inverse, s->d_normed, model->dx,
        model->gradient + norm->at, s->sums);
    for (int64_t layer = o->layers - 1; layer >= 0 && error == 0; layer--)
        error = layer_backward(model, layer, model->dx);
    rows_give(n, dim, model->there.tokens, model->dx, model->gradient);
    return error;
}
