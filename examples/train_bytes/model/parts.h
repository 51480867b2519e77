/* SPDX-License-Identifier: Apache-2.0
 *
 * The parts of a layer that work on each token separately. None depends on
 * ranks, because tokens are sharded: the code is the same on 1 rank and on 64.
 * Arrays are in the memory of values.h.
 */
#ifndef EXAMPLES_TRAIN_BYTES_MODEL_PARTS_H
#define EXAMPLES_TRAIN_BYTES_MODEL_PARTS_H

#include "real.h"

/* Products of dense row-major matrices:
 * y[rows][out] = x[rows][in] w[in][out] */
void linear_output(int64_t rows, int64_t in, int64_t out, const real *x,
    const real *w, real *y);
/* dx[rows][in] = keep * dx + dy[rows][out] w[in][out]^T */
void linear_input(int64_t rows, int64_t in, int64_t out, const real *dy,
    const real *w, real keep, real *dx);
/* dw[in][out] += x[rows][in]^T dy[rows][out] */
void linear_weight(int64_t rows, int64_t in, int64_t out, const real *x,
    const real *dy, real *dw);

void vectors_add(int64_t count, const real *a, const real *b, real *sum);

/* The embedding. Forward: x[rows][dim] = table[token]. Backward: dtable[token]
 * += dx, in the order of rows. */
void rows_take(int64_t rows, int64_t dim, const unsigned char *tokens,
    const real *table, real *x);
void rows_give(int64_t rows, int64_t dim, const unsigned char *tokens,
    const real *dx, real *dtable);

/* RMSNorm: y = x * inverse * gain. inverse[rows] = 1 / rms(x), which backward
 * needs too. */
void norm_forward(int64_t rows, int64_t dim, const real *x, const real *gain,
    real *inverse, real *y);
/* Adds the gradients of the norm to dx and dgain; sums[dim] is scratch. */
void norm_backward(int64_t rows, int64_t dim, const real *x, const real *gain,
    const real *inverse, const real *dy, real *dx, real *dgain, double *sums);

/* table[rows][dim / 2][2]: cosine and sine of the rows' positions. */
void rope_table(
    int64_t rows, int64_t dim, const int64_t *positions, real *table);
/* Rotates x[rows][heads][dim] in place. sign -1 rotates back; the gradient is
 * rotated back too, because rotations are orthogonal. */
void rope_rotate(int64_t rows, int64_t heads, int64_t dim, const real *table,
    int sign, real *x);

/* h = silu(gate) * up */
void swiglu_forward(int64_t count, const real *gate, const real *up, real *h);
/* dgate and dup from dh; dup may be dh itself. */
void swiglu_backward(int64_t count, const real *gate, const real *up,
    const real *dh, real *dgate, real *dup);

/* Output head and loss. Returns the sum of the rows' cross entropies (nats,
 * unscaled). Gradients are multiplied by `scale`; dx[rows][dim] is written, and
 * the gradient of w is added to dw. Rows with a negative label do not count.
 * w[dim][VOCABULARY]; logits is scratch memory for HEAD_ROWS rows, so that
 * memory does not grow with the sequence. */
enum { HEAD_ROWS = 1024 };
double head_step(int64_t rows, int64_t dim, const real *x,
    const int32_t *labels, const real *w, double scale, real *dx, real *dw,
    real *logits);

/* An update of `count` values: gradients are multiplied by `scale`, the step by
 * `rate`. */
struct adamw {
    double rate, scale, decay;
    double correct1, correct2; /* 1 - beta^(step + 1) of the moments */
};
void update_adamw(int64_t count, const struct adamw *by, const real *gradient,
    real *first, real *second, real *value);
void update_sgd(int64_t count, double step, const real *gradient, real *value);
/* The root of the sum of squares. */
double update_norm(int64_t count, const real *gradient);

#endif
