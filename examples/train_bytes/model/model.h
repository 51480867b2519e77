/* SPDX-License-Identifier: Apache-2.0
 *
 * A decoder-only transformer over bytes, on this rank's tokens. Parameters are
 * replicated: every rank has all of them. A gradient here comes from this
 * rank's tokens; the sum over ranks is the gradient of the loss.
 *
 * Forward keeps for backward, per layer and token: the layer's input and its
 * middle (dim each), the output of attention (dim), gate and up (hidden each),
 * the inverses of two norms, and q, k, v unless attention keeps them.
 */
#ifndef EXAMPLES_TRAIN_BYTES_MODEL_MODEL_H
#define EXAMPLES_TRAIN_BYTES_MODEL_MODEL_H

#include "attend.h"
#include "data.h"
#include "options.h"
#include "real.h"
#include "train.h"

/* The parameters of a layer, in their order. */
enum layer_parameter {
    NORM1,
    WQ,
    WK,
    WV,
    WO,
    NORM2,
    GATE,
    UP,
    DOWN,
    LAYER_PARAMETERS
};

struct activations {
    real *x, *middle;          /* [rows][dim] */
    real *q, *k, *v;           /* [rows][heads or kv_heads][head_dim] */
    real *out;                 /* [rows][dim] */
    real *gate, *up;           /* [rows][hidden] */
    real *inverse1, *inverse2; /* [rows] */
};

/* Memory that is used within a layer, and that all layers share. */
struct scratch {
    real *normed, *d_normed, *d_out; /* [rows][dim] */
    real *wide1, *wide2;             /* [rows][hidden] */
    real *q, *k, *v, *dq, *dk, *dv;
    real *logits, *table; /* [HEAD_ROWS][256], [rows][head_dim / 2][2] */
    double *sums;         /* [dim] */
};

struct model {
    const struct options *options;
    struct attend *attend;
    int64_t rows, head_dim, kv_dim;
    int64_t parameter_count, values; /* values: of all parameters together */
    struct parameter *parameters;
    real *value, *gradient; /* [values] */
    struct activations *layers;
    real *x, *dx; /* [rows][dim]: after the last layer; its gradient */
    real *final_inverse;
    struct scratch scratch;
    unsigned char *tokens; /* [rows], of the current batch */
    int32_t *labels;
    int64_t *positions;
    struct { /* copies of the three arrays in the memory of the values */
        unsigned char *tokens;
        int32_t *labels;
        int64_t *positions;
    } there;
    struct memory memory; /* of all reals above, but value and gradient */
    int64_t memory_bytes;
};

/* attend has the rows of this rank, and must outlive the model. Weights depend
 * only on the options' seed. returns: 0, or 3 after a message. */
int model_create(struct model *model_p, const struct options *options,
    struct attend *attend);
void model_destroy(struct model *model);

/* Forward and backward of this rank's rows of the batch. *loss_p: the sum of
 * the rows' cross entropies. model->gradient: what these rows contribute to the
 * gradient of the mean over all predicted tokens. returns: 0, or non-zero after
 * a message. */
int model_step(struct model *model, const struct batch *batch, double *loss_p);

/* One layer: y[rows][dim] from layers[index].x. Backward replaces d, the
 * gradient of y, by the gradient of x. */
int layer_forward(struct model *model, int64_t index, real *y);
int layer_backward(struct model *model, int64_t index, real *d);

#endif
