/* SPDX-License-Identifier: Apache-2.0
 *
 * The median of measured values.
 */
#ifndef TESTS_SUPPORT_MEDIAN_H
#define TESTS_SUPPORT_MEDIAN_H

#include <stddef.h>

/* Sorts the values. Of an even number, returns the upper of the middle two. */
double median_of(double *values, size_t count);

#endif
