/* SPDX-License-Identifier: Apache-2.0
 *
 * See residency.h. Claims are counted by class: how many blocks of the kernel
 * one multiprocessor (SM) holds. Let k be the smallest class of all claims.
 * Each block takes at most a k-th of an SM, so k blocks per SM fit, however
 * they are mixed and placed: while fewer run, some SM holds fewer than k.
 */
#include "comm/device/residency.h"

#include <pthread.h>
#include <string.h>
#include "base/size.h"
#include "comm/device/gpu.h"

enum { DEVICES = 64, MOST_PER_SM = 8 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int64_t claimed[DEVICES][MOST_PER_SM + 1]; /* blocks, under lock */

static int32_t
class_of(int32_t per_sm)
{
    return (int32_t)uli_max(uli_min(per_sm, MOST_PER_SM), 1);
}

bool
uli_residency_claim(
    int32_t device, int64_t multiprocessors, int32_t per_sm, int64_t blocks)
{
    int64_t total = blocks;
    int32_t k = class_of(per_sm);
    if (device < 0 || device >= DEVICES)
        return false;
    pthread_mutex_lock(&lock);
    for (int32_t i = MOST_PER_SM; i >= 1; i--) {
        total += claimed[device][i];
        k = claimed[device][i] && i < k ? i : k;
    }
    bool fits = (total + k - 1) / k <= multiprocessors;
    if (fits)
        claimed[device][class_of(per_sm)] += blocks;
    pthread_mutex_unlock(&lock);
    return fits;
}

void
uli_residency_release(int32_t device, int32_t per_sm, int64_t blocks)
{
    if (blocks <= 0)
        return;
    pthread_mutex_lock(&lock);
    claimed[device][class_of(per_sm)] -= blocks;
    pthread_mutex_unlock(&lock);
}

int32_t
uli_residency_sms(
    const ulyx_comm_t *comm, int32_t max_sms, int32_t multiprocessors)
{
    int32_t sharers = uli_max(uli_gpu_sharers(comm), 1);
    int64_t sms = max_sms ? max_sms : comm->settings.gpu_sms;
    return (int32_t)uli_min(sms, uli_max(multiprocessors / sharers, 1));
}

static int32_t
ranks_here(const ulyx_comm_t *comm)
{
    int32_t here = 0, me = comm->rank;
    for (int32_t p = 0; p < comm->nranks; p++)
        here +=
            comm->peers[p].same_process &&
            memcmp(comm->peers[p].identity.gpu, comm->peers[me].identity.gpu,
                sizeof(comm->peers[p].identity.gpu)) == 0;
    return here;
}

void
uli_residency_choose(
    const ulyx_comm_t *comm, int64_t blocks, struct uli_residency *room)
{
    int32_t here = ranks_here(comm);
    int64_t sharers = uli_max(uli_gpu_sharers(comm), 1);
    int64_t share = (int64_t)room->multiprocessors * here / sharers;
    room->shares_device = here > 1;
    room->claimed = 0;
    if (blocks > 0 &&
        uli_residency_claim(comm->gpu->device, share, room->per_sm, blocks))
        room->claimed = (int32_t)blocks;
}
