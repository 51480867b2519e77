/* SPDX-License-Identifier: Apache-2.0
 *
 * The update of each value by the optimizer: moments with 0.9 and 0.95, and
 * weight decay that is separate from the gradient.
 */
#include "parts.h"

#include <math.h>

void
update_adamw(int64_t count, const struct adamw *by, const real *gradient,
    real *first, real *second, real *value)
{
    for (int64_t i = 0; i < count; i++) {
        double g = by->scale * gradient[i], m = 0.9 * first[i] + 0.1 * g,
               v = 0.95 * second[i] + 0.05 * g * g,
               move = m / by->correct1 / (sqrt(v / by->correct2) + 1e-8);

        first[i] = (real)m;
        second[i] = (real)v;
        value[i] = (real)(value[i] - by->rate * (move + by->decay * value[i]));
    }
}

void
update_sgd(int64_t count, double step, const real *gradient, real *value)
{
    for (int64_t i = 0; i < count; i++)
        value[i] = (real)(value[i] - step * gradient[i]);
}

double
update_norm(int64_t count, const real *gradient)
{
    double squares = 0;

    for (int64_t i = 0; i < count; i++)
        squares += (double)gradient[i] * gradient[i];
    return sqrt(squares);
}
