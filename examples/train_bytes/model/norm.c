/* SPDX-License-Identifier: Apache-2.0
 *
 * RMSNorm. With u = x * inverse, y = gain * u:
 *   dx = inverse * (gain * dy - u * mean(gain * dy * u))
 * Sums over columns and rows are in double, because their rounding makes
 * gradients on P ranks differ from those on one rank.
 */
#include "parts.h"

#include <math.h>
#include <string.h>

void
norm_forward(int64_t rows, int64_t dim, const real *x, const real *gain,
    real *inverse, real *y)
{
    for (int64_t i = 0; i < rows; i++, x += dim, y += dim) {
        double squares = 0;

        for (int64_t c = 0; c < dim; c++)
            squares += (double)x[c] * x[c];
        inverse[i] = (real)(1 / sqrt(squares / (double)dim + 1e-6));
        for (int64_t c = 0; c < dim; c++)
            y[c] = x[c] * inverse[i] * gain[c];
    }
}

void
norm_backward(int64_t rows, int64_t dim, const real *x, const real *gain,
    const real *inverse, const real *dy, real *dx, real *dgain, double *sums)
{
    memset(sums, 0, (size_t)dim * sizeof(*sums));
    for (int64_t i = 0; i < rows; i++, x += dim, dy += dim, dx += dim) {
        double dot = 0;
        real mean;

        for (int64_t c = 0; c < dim; c++) {
            double part = (double)dy[c] * x[c] * inverse[i];

            sums[c] += part;
            dot += part * gain[c];
        }
        mean = (real)(dot / (double)dim);
        for (int64_t c = 0; c < dim; c++)
            dx[c] += inverse[i] * (gain[c] * dy[c] - x[c] * inverse[i] * mean);
    }
    for (int64_t c = 0; c < dim; c++)
        dgain[c] += (real)sums[c];
}
