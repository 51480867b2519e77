/* SPDX-License-Identifier: Apache-2.0
 *
 * Times the sums beside memcpy.
 */
#ifndef TESTS_COLLECTIVES_KERNELS_SUM_BENCH_H
#define TESTS_COLLECTIVES_KERNELS_SUM_BENCH_H

/* arguments: [kernel].
 * returns the exit status. */
int sum_bench(int argc, char **argv);

#endif
