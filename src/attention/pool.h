/* SPDX-License-Identifier: Apache-2.0
 *
 * The threads of one call. Each call starts its own threads and joins them
 * before it returns. Nothing is kept between calls, so there is no lock between
 * concurrent calls, no state that fork() would break, and no thread that
 * outlives the library. (An OpenMP runtime offers none of the three, and its
 * settings can be changed by other libraries of the process.) A thread costs
 * about 15 us to start, so a call starts only as many as its work pays for.
 * Results never depend on which thread computes them.
 */
#ifndef ULI_ATTENTION_POOL_H
#define ULI_ATTENTION_POOL_H

#include <stdint.h>

/* Cores that this process may use, at least 1. */
int uli_pool_cores(void);

/* Number of threads worth starting for `flops` operations: 1 to limit. */
int uli_pool_threads(double flops, int limit);

/* Runs body(context, thread) for thread 0 (the caller's) to threads - 1, and
 * returns when all have returned. When the system refuses to start a thread,
 * the others do its share: bodies must take their work from a shared
 * counter. */
void uli_pool_run(
    int threads, void (*body)(void *context, int thread), void *context);

#endif
