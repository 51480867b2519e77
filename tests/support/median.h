/* SPDX-License-Identifier: Apache-2.0
 *
 * The median of what benchmarks have measured.
 */
#ifndef TESTS_SUPPORT_MEDIAN_H
#define TESTS_SUPPORT_MEDIAN_H

#include <stddef.h>

/* Sorts the values; of an even number the upper of the middle two. */
double median_of(double *values, size_t count);

#endif
