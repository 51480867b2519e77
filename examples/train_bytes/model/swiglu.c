/* SPDX-License-Identifier: Apache-2.0
 *
 * SwiGLU: h = silu(gate) * up, silu(x) = x / (1 + exp(-x)).
 */
#include "parts.h"

#include <math.h>

static inline real
sigmoid_of(real x)
{
#ifdef TRAIN_F64
    return 1 / (1 + exp(-x));
#else
    return 1 / (1 + expf(-x));
#endif
}

void
swiglu_forward(int64_t count, const real *gate, const real *up, real *h)
{
    for (int64_t i = 0; i < count; i++)
        h[i] = gate[i] * sigmoid_of(gate[i]) * up[i];
}

void
swiglu_backward(int64_t count, const real *gate, const real *up, const real *dh,
    real *dgate, real *dup)
{
    for (int64_t i = 0; i < count; i++) {
        real s = sigmoid_of(gate[i]), d = dh[i];

        dgate[i] = d * up[i] * s * (1 + gate[i] * (1 - s));
        dup[i] = d * gate[i] * s;
    }
}
