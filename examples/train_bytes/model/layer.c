/* SPDX-License-Identifier: Apache-2.0
 *
 * One layer: middle = x + attention(norm(x)), y = middle +
 * swiglu(norm(middle)). Backward computes the outputs of norms and SwiGLU
 * again, which costs little, from what forward has kept. Every matrix product
 * is over this rank's tokens only.
 */
#include "model.h"
#include "parts.h"

static const real *
layer_weight(
    const struct model *model, int64_t layer, enum layer_parameter which)
{
    /* The embedding comes first. */
    int64_t index = 1 + layer * LAYER_PARAMETERS + which;

    return model->value + model->parameters[index].at;
}

static real *
layer_gradient(
    const struct model *model, int64_t layer, enum layer_parameter which)
{
    int64_t index = 1 + layer * LAYER_PARAMETERS + which;

    return model->gradient + model->parameters[index].at;
}

static int
attention_forward(struct model *model, int64_t index)
{
    const struct activations *a = &model->layers[index];
    struct scratch *s = &model->scratch;
    int64_t n = model->rows, dim = model->options->dim;
    int error;

    norm_forward(n, dim, a->x, layer_weight(model, index, NORM1), a->inverse1,
        s->normed);
    linear_output(n, dim, dim, s->normed, layer_weight(model, index, WQ), a->q);
    linear_output(
        n, dim, model->kv_dim, s->normed, layer_weight(model, index, WK), a->k);
    linear_output(
        n, dim, model->kv_dim, s->normed, layer_weight(model, index, WV), a->v);
    rope_rotate(n, model->options->heads, model->head_dim, s->table, 1, a->q);
    rope_rotate(
        n, model->options->kv_heads, model->head_dim, s->table, 1, a->k);
    error = attend_forward(model->attend, index, a->q, a->k, a->v, a->out);
    if (error != 0)
        return error;
    linear_output(
        n, dim, dim, a->out, layer_weight(model, index, WO), a->middle);
    vectors_add(n * dim, a->x, a->middle, a->middle);
    return 0;
}

int
layer_forward(struct model *model, int64_t index, real *y)
{
    const struct activations *a = &model->layers[index];
    struct scratch *s = &model->scratch;
    int64_t n = model->rows, dim = model->options->dim,
            hidden = model->options->hidden;
    int error = attention_forward(model, index);

    if (error != 0)
        return error;
    norm_forward(n, dim, a->middle, layer_weight(model, index, NORM2),
        a->inverse2, s->normed);
    linear_output(
        n, dim, hidden, s->normed, layer_weight(model, index, GATE), a->gate);
    linear_output(
        n, dim, hidden, s->normed, layer_weight(model, index, UP), a->up);
    swiglu_forward(n * hidden, a->gate, a->up, s->wide1);
    linear_output(
        n, hidden, dim, s->wide1, layer_weight(model, index, DOWN), y);
    vectors_add(n * dim, a->middle, y, y);
    return 0;
}

/* d: gradient of the layer's output, then of its middle. */
static void
swiglu_part_backward(struct model *model, int64_t index, real *d)
{
    const struct activations *a = &model->layers[index];
    struct scratch *s = &model->scratch;
    int64_t n = model->rows, dim = model->options->dim,
            hidden = model->options->hidden;

    swiglu_forward(n * hidden, a->gate, a->up, s->wide1);
    linear_weight(
        n, hidden, dim, s->wide1, d, layer_gradient(model, index, DOWN));
    linear_input(
        n, hidden, dim, d, layer_weight(model, index, DOWN), 0, s->wide2);
    swiglu_backward(n * hidden, a->gate, a->up, s->wide2, s->wide1, s->wide2);
    norm_forward(n, dim, a->middle, layer_weight(model, index, NORM2),
        a->inverse2, s->normed);
    linear_weight(n, dim, hidden, s->normed, s->wide1,
        layer_gradient(model, index, GATE));
    linear_weight(
        n, dim, hidden, s->normed, s->wide2, layer_gradient(model, index, UP));
    linear_input(n, dim, hidden, s->wide1, layer_weight(model, index, GATE), 0,
        s->d_normed);
    linear_input(n, dim, hidden, s->wide2, layer_weight(model, index, UP), 1,
        s->d_normed);
    norm_backward(n, dim, a->middle, layer_weight(model, index, NORM2),
        a->inverse2, s->d_normed, d, layer_gradient(model, index, NORM2),
        s->sums);
}

/* Computes the gradient of norm(x) from the gradients of v and of the rotated q
 * and k. */
static void
projections_backward(struct model *model, int64_t index)
{
    static const enum layer_parameter which[] = {WQ, WK, WV};
    const struct activations *a = &model->layers[index];
    struct scratch *s = &model->scratch;
    const real *gradients[] = {s->dq, s->dk, s->dv};
    int64_t n = model->rows, dim = model->options->dim;

    rope_rotate(n, model->options->heads, model->head_dim, s->table, -1, s->dq);
    rope_rotate(
        n, model->options->kv_heads, model->head_dim, s->table, -1, s->dk);
    norm_forward(n, dim, a->x, layer_weight(model, index, NORM1), a->inverse1,
        s->normed);
    for (int i = 0; i < 3; i++) {
        int64_t out = i == 0 ? dim : model->kv_dim;

        linear_weight(n, dim, out, s->normed, gradients[i],
            layer_gradient(model, index, which[i]));
        linear_input(n, dim, out, gradients[i],
            layer_weight(model, index, which[i]), i > 0, s->d_normed);
    }
}

int
layer_backward(struct model *model, int64_t index, real *d)
{
    const struct activations *a = &model->layers[index];
    struct scratch *s = &model->scratch;
    int64_t n = model->rows, dim = model->options->dim;
    int error;

    swiglu_part_backward(model, index, d);
    linear_weight(n, dim, dim, a->out, d, layer_gradient(model, index, WO));
    linear_input(n, dim, dim, d, layer_weight(model, index, WO), 0, s->d_out);
    error = attend_backward(model->attend, index, a->q, a->k, a->v, a->out,
        s->d_out, s->dq, s->dk, s->dv);
    if (error != 0)
        return error;
    projections_backward(model, index);
    norm_backward(n, dim, a->x, layer_weight(model, index, NORM1), a->inverse1,
        s->d_normed, d, layer_gradient(model, index, NORM1), s->sums);
    return 0;
}
