/* SPDX-License-Identifier: Apache-2.0
 *
 * The median of measured values.
 */
#ifndef TESTS_SUPPORT_MEDIAN_H
#define TESTS_SUPPORT_MEDIAN_H

#include <stddef.h>

/* Sorts the values. Where their number is even, returns the upper of the two in
 * the middle. */
double median_of(double *values, size_t count);

#endif
