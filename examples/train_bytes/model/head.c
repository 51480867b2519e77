/* SPDX-License-Identifier: Apache-2.0
 *
 * Output head and cross entropy, forward and backward in one pass over blocks
 * of rows: loss = lse(logits) - logits[label], and its gradient is the softmax,
 * less 1 at the label. The caller's scale is 1 / (number of tokens that are
 * predicted on all ranks). So the sum of gradients over ranks is the gradient
 * of the mean over all tokens, even if ranks have different numbers of tokens.
 */
#include "parts.h"
#include "data.h"

#include <math.h>
#include <string.h>

/* Turns a row's logits into its gradient and returns its cross entropy. */
static double
row_step(real *logits, int32_t label, double scale)
{
    double most = logits[0], sum = 0, loss;

    if (label < 0) {
        memset(logits, 0, VOCABULARY * sizeof(*logits));
        return 0;
    }
    for (int c = 1; c < VOCABULARY; c++)
        most = logits[c] > most ? (double)logits[c] : most;
    for (int c = 0; c < VOCABULARY; c++)
        sum += exp((double)logits[c] - most);
    loss = most + log(sum) - (double)logits[label];
    for (int c = 0; c < VOCABULARY; c++)
        logits[c] = (real)(scale * (exp((double)logits[c] - most) / sum -
                                       (c == label)));
    return loss;
}

double
head_step(int64_t rows, int64_t dim, const real *x, const int32_t *labels,
    const real *w, double scale, real *dx, real *dw, real *logits)
{
    double loss = 0;

    for (int64_t at = 0; at < rows; at += HEAD_ROWS) {
        int64_t n = rows - at < HEAD_ROWS ? rows - at : HEAD_ROWS;

        linear_output(n, dim, VOCABULARY, x + at * dim, w, logits);
        for (int64_t i = 0; i < n; i++)
            loss += row_step(logits + i * VOCABULARY, labels[at + i], scale);
        linear_input(n, dim, VOCABULARY, logits, w, 0, dx + at * dim);
        linear_weight(n, dim, VOCABULARY, x + at * dim, logits, dw);
    }
    return loss;
}
