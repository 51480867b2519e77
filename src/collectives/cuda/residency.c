/* SPDX-License-Identifier: Apache-2.0
 *
 * See residency.h.
 */
#include "collectives/cuda/residency.h"

#include <stdatomic.h>

enum { DEVICES = 64 };

static _Atomic int64_t claimed[DEVICES];

bool
uli_residency_claim(int32_t device, int64_t capacity, int64_t blocks)
{
    if (device < 0 || device >= DEVICES)
        return false;
    int64_t now = atomic_load(&claimed[device]);
    while (now + blocks <= capacity)
        if (atomic_compare_exchange_weak(&claimed[device], &now, now + blocks))
            return true;
    return false;
}

void
uli_residency_release(int32_t device, int64_t blocks)
{
    if (blocks > 0)
        atomic_fetch_sub(&claimed[device], blocks);
}
