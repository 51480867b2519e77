/* SPDX-License-Identifier: Apache-2.0
 *
 * Threads of one call. Each call starts its own and joins them before it
 * returns: nothing is kept between calls, so there is no lock between
 * concurrent calls, no state that fork() would break and no thread that
 * outlives the library (an OpenMP runtime gives none of the three, and would
 * be a dependency whose settings other libraries of the process change). A
 * thread costs about 15 us to start, so a call takes no more of them than its
 * work pays for. What a thread computes never depends on which thread it is.
 */
#ifndef ULI_ATTENTION_POOL_H
#define ULI_ATTENTION_POOL_H

#include <stdint.h>

/* Cores that this process may use, at least 1. */
int uli_pool_cores(void);

/* Threads worth starting for `flops` operations: 1 to limit. */
int uli_pool_threads(double flops, int limit);

/* Runs body(context, thread) for thread 0 (the caller's) to threads - 1 and
 * returns when all have returned. When the system refuses a thread, its share
 * is left to the others: bodies must take their work from a shared counter. */
void uli_pool_run(
    int threads, void (*body)(void *context, int thread), void *context);

#endif
