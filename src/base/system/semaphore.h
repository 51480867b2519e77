/* SPDX-License-Identifier: Apache-2.0
 *
 * A semaphore for threads of one process whose waits use the monotonic clock,
 * which waits of older C libraries cannot. Post takes no lock, and does not
 * access the memory after the post is visible, so the thread that has waited
 * may free the semaphore.
 */
#ifndef ULI_BASE_SYSTEM_SEMAPHORE_H
#define ULI_BASE_SYSTEM_SEMAPHORE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct uli_semaphore {
    _Atomic uint64_t state; /* posts not yet taken; waiting threads << 32 */
};

void uli_semaphore_init(struct uli_semaphore *semaphore);
void uli_semaphore_post(struct uli_semaphore *semaphore);
/* Waits for a post and takes it. most_ns: how long it waits; < 0: without
 * limit. What was written before the post is visible after the wait. returns
 * false if no post came in time. */
bool uli_semaphore_wait(struct uli_semaphore *semaphore, int64_t most_ns);

#endif
