/* SPDX-License-Identifier: Apache-2.0
 *
 * See semaphore.h. One word has the number of posts and, in its upper half, the
 * number of waiting threads. So the result of the addition in post shows
 * whether a thread must be woken, and post reads nothing afterwards: a futex
 * wake at an address that has been freed is harmless. Threads sleep on the half
 * with the posts while it is 0.
 */
#include "base/system/semaphore.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#include "base/system/clock.h"

#define WAITER (UINT64_C(1) << 32)

static uint32_t *
posts_word(struct uli_semaphore *semaphore)
{
    int upper_half_first = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    return (uint32_t *)(void *)&semaphore->state + upper_half_first;
}

/* Subtracts one post, and `less` (0, or WAITER for a thread that has been
 * waiting); false if there is no post. */
static bool
semaphore_take(struct uli_semaphore *semaphore, uint64_t less)
{
    uint64_t state = atomic_load(&semaphore->state);
    while ((uint32_t)state > 0)
        if (atomic_compare_exchange_weak(
                &semaphore->state, &state, state - 1 - less))
            return true;
    return false;
}

void
uli_semaphore_init(struct uli_semaphore *semaphore)
{
    atomic_init(&semaphore->state, 0);
}

void
uli_semaphore_post(struct uli_semaphore *semaphore)
{
    uint32_t *word = posts_word(semaphore);
    if (atomic_fetch_add(&semaphore->state, 1) >= WAITER)
        syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

bool
uli_semaphore_wait(struct uli_semaphore *semaphore, int64_t most_ns)
{
    int64_t end = most_ns < 0 ? 0 : uli_clock_ns() + most_ns;
    if (semaphore_take(semaphore, 0))
        return true;
    atomic_fetch_add(&semaphore->state, WAITER);
    while (!semaphore_take(semaphore, WAITER)) {
        int64_t left = most_ns < 0 ? 0 : end - uli_clock_ns();
        struct timespec wait = {left / 1000000000, left % 1000000000};
        if (most_ns >= 0 && left <= 0) {
            atomic_fetch_sub(&semaphore->state, WAITER);
            return false;
        }
        syscall(SYS_futex, posts_word(semaphore), FUTEX_WAIT_PRIVATE, 0,
            most_ns < 0 ? NULL : &wait, NULL, 0);
    }
    return true;
}
