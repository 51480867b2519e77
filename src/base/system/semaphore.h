/* SPDX-License-Identifier: Apache-2.0
 *
 * A semaphore within a process whose waits end by the monotonic clock, which
 * those of the C library do only in newer ones. Post takes no lock and may be
 * the poster's last touch of the memory: the thread that has waited may free
 * it.
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
/* Takes a post. most_ns < 0: waits for one however long. returns false when
 * none came in time; what was written before the post is visible after it. */
bool uli_semaphore_wait(struct uli_semaphore *semaphore, int64_t most_ns);

#endif
