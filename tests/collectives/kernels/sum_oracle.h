/* SPDX-License-Identifier: Apache-2.0
 *
 * The right result of a sum, computed the slow way: every element is decoded to
 * an exact double, additions round to the accumulator's precision one by one,
 * and the result is rounded by scaling to an integer. Shares no code and no bit
 * trick with the kernels.
 */
#ifndef TESTS_COLLECTIVES_KERNELS_SUM_ORACLE_H
#define TESTS_COLLECTIVES_KERNELS_SUM_ORACLE_H

#include <stdbool.h>
#include <stdint.h>

/* Returns the value of the element of dtype at p, which is exact for all
 * types. */
double oracle_decode(int32_t dtype, const void *p);

/* Stores value at p as dtype, rounded once, to nearest even. */
void oracle_encode(int32_t dtype, double value, void *p);

/* Adds a and b as one addition in float, or in double when wide. */
double oracle_add(double a, double b, bool wide);

#endif
