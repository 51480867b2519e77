/* SPDX-License-Identifier: Apache-2.0
 *
 * Times the copy kernels beside memcpy and a streaming memcpy.
 */
#ifndef TESTS_COLLECTIVES_KERNELS_COPY_BENCH_H
#define TESTS_COLLECTIVES_KERNELS_COPY_BENCH_H

/* arguments: [MiB [kernel]].
 * returns the exit status. */
int copy_bench(int argc, char **argv);

#endif
