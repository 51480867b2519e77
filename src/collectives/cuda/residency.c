/* SPDX-License-Identifier: Apache-2.0
 *
 * See residency.h.
 */
#include "collectives/cuda/residency.h"

#include <stdatomic.h>
#include <string.h>
#include "base/size.h"
#include "comm/gpu.h"

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

int32_t
uli_residency_sms(
    const ulyx_comm_t *comm, int32_t max_sms, int32_t multiprocessors)
{
    int32_t sharers = uli_max(uli_gpu_sharers(comm), 1);
    int64_t sms = max_sms ? max_sms : comm->settings.gpu_sms;
    return (int32_t)uli_min(sms, uli_max(multiprocessors / sharers, 1));
}

void
uli_residency_choose(const ulyx_comm_t *comm, int32_t per_sm, int32_t max_sms,
    struct uli_residency *room)
{
    int32_t here = 0, me = comm->rank;
    for (int32_t p = 0; p < comm->nranks; p++)
        here +=
            comm->peers[p].same_process &&
            memcmp(comm->peers[p].identity.gpu, comm->peers[me].identity.gpu,
                sizeof(comm->peers[p].identity.gpu)) == 0;
    int64_t sharers = uli_max(uli_gpu_sharers(comm), 1);
    int64_t capacity = (int64_t)room->multiprocessors * per_sm * here / sharers;
    room->shares_device = here > 1;
    room->blocks = uli_residency_sms(comm, max_sms, room->multiprocessors);
    room->claimed = 0;
    if (room->waits &&
        uli_residency_claim(room->device, capacity, room->blocks))
        room->claimed = room->blocks;
}
