/* SPDX-License-Identifier: Apache-2.0
 *
 * See median.h.
 */
#include "support/median.h"

#include <stdlib.h>

static int
doubles_ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double
median_of(double *values, size_t count)
{
    qsort(values, count, sizeof(*values), doubles_ascending);
    return values[count / 2];
}
