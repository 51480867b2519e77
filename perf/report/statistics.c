/* SPDX-License-Identifier: Apache-2.0
 *
 * Statistics of a row's times: order, median, percentiles, spread.
 */
#include "perf.h"

#include <math.h>
#include <stdlib.h>

static int
doubles_ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

double
perf_median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), doubles_ascending);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/* The percentile by nearest rank: the least value such that at least `percent`
 * per cent of the values are not larger. */
static double
sorted_percentile(const double *sorted, int n, double percent)
{
    int at = (int)ceil(n * percent / 100 - 1e-9);

    return sorted[at < 1 ? 0 : at - 1];
}

struct perf_stat
perf_statistics(double *values, int n, const struct perf_options *options)
{
    double sum = 0, squares = 0;
    struct perf_stat s = {0};

    s.shown = s.median = perf_median(values, n);
    for (int i = 0; i < n; i++)
        sum += values[i];
    s.mean = sum / n;
    for (int i = 0; i < n; i++)
        squares += (values[i] - s.mean) * (values[i] - s.mean);
    s.minimum = values[0];
    s.maximum = values[n - 1];
    s.p99 = sorted_percentile(values, n, 99);
    s.cv = n > 1 && s.mean > 0 ? sqrt(squares / (n - 1)) / s.mean : 0;
    for (int i = 0; i < options->npercents; i++)
        s.percentiles[i] = sorted_percentile(values, n, options->percents[i]);
    return s;
}
