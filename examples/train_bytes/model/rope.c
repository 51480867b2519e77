/* SPDX-License-Identifier: Apache-2.0
 *
 * Rotary positions: columns c and c + dim / 2 of a head are rotated by position
 * / 10000^(2c / dim). The position is that of the token in its document, on any
 * rank. Angles are computed in double, so that they are accurate at any length.
 */
#include "parts.h"

#include <math.h>

void
rope_table(int64_t rows, int64_t dim, const int64_t *positions, real *table)
{
    int64_t half = dim / 2;

    for (int64_t c = 0; c < half; c++) {
        double frequency = pow(10000, -2.0 * (double)c / (double)dim);

        for (int64_t i = 0; i < rows; i++) {
            double angle = (double)positions[i] * frequency;

            table[(i * half + c) * 2] = (real)cos(angle);
            table[(i * half + c) * 2 + 1] = (real)sin(angle);
        }
    }
}

void
rope_rotate(int64_t rows, int64_t heads, int64_t dim, const real *table,
    int sign, real *x)
{
    int64_t half = dim / 2;

    for (int64_t i = 0; i < rows; i++, table += dim)
        for (int64_t head = 0; head < heads; head++, x += dim)
            for (int64_t c = 0; c < half; c++) {
                real cosine = table[2 * c],
                     sine = table[2 * c + 1] * (real)sign;
                real low = x[c], high = x[c + half];

                x[c] = low * cosine - high * sine;
                x[c + half] = high * cosine + low * sine;
            }
}
