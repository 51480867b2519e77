/* SPDX-License-Identifier: Apache-2.0
 *
 * See residency.h. Claims are counted by class: how many blocks of the kernel
 * one multiprocessor (SM) holds. Let k be the smallest class of all claims.
 * Each block takes at most a k-th of an SM, so k blocks per SM fit, however
 * they are mixed and placed: while fewer run, some SM holds fewer than k. A
 * launch of one warp that waits counts as a whole block, because an SM that is
 * full of the largest blocks has no room for even one warp.
 */
#include "comm/device/residency.h"

#include <pthread.h>
#include <string.h>
#include "base/log.h"
#include "base/settings.h"
#include "base/size.h"
#include "comm/device/gpu.h"

enum {
    DEVICES = 64,
    MOST_PER_SM = 8,
    SPARE = 1, /* blocks never claimed, so that the first wait finds room */
    SMS_OF_ONE = 32,     /* of a launch of the only rank on its device */
    STREAMS_OF_RANK = 3, /* the communicator's, a plan's, the caller's */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* Under lock: blocks by class, and launches of one warp that wait. */
static struct claims {
    int64_t blocks[MOST_PER_SM + 1], waits;
} claims[DEVICES];

static int32_t
class_of(int32_t per_sm)
{
    return (int32_t)uli_max(uli_min(per_sm, MOST_PER_SM), 1);
}

/* Whether all claims have room at one time, with `more` blocks of class k
 * (none: MOST_PER_SM) and `waits` launches of one warp. */
static bool
claims_fit(const struct claims *all, int64_t multiprocessors, int32_t k,
    int64_t more, int64_t waits)
{
    int64_t total = more + waits;
    for (int32_t i = MOST_PER_SM; i >= 1; i--) {
        total += all->blocks[i];
        k = all->blocks[i] && i < k ? i : k;
    }
    return (total + k - 1) / k <= multiprocessors;
}

bool
uli_residency_claim(
    int32_t device, int64_t multiprocessors, int32_t per_sm, int64_t blocks)
{
    int32_t k = class_of(per_sm);
    if (device < 0 || device >= DEVICES)
        return false;
    pthread_mutex_lock(&lock);
    struct claims *all = &claims[device];
    bool fits =
        claims_fit(all, multiprocessors, k, blocks, uli_max(all->waits, SPARE));
    if (fits)
        all->blocks[k] += blocks;
    pthread_mutex_unlock(&lock);
    return fits;
}

bool
uli_residency_wait(int32_t device, int64_t multiprocessors, int64_t waits)
{
    if (device < 0 || device >= DEVICES)
        return false;
    pthread_mutex_lock(&lock);
    struct claims *all = &claims[device];
    all->waits += waits;
    bool fits = claims_fit(all, multiprocessors, MOST_PER_SM, 0, all->waits);
    pthread_mutex_unlock(&lock);
    return fits;
}

void
uli_residency_release(int32_t device, const struct uli_residency *room)
{
    if (device < 0 || device >= DEVICES)
        return;
    pthread_mutex_lock(&lock);
    claims[device].blocks[class_of(room->per_sm)] -= room->claimed;
    claims[device].waits -= room->waits;
    pthread_mutex_unlock(&lock);
}

int32_t
uli_residency_sms(
    const ulyx_comm_t *comm, int32_t max_sms, int32_t multiprocessors)
{
    int32_t sharers = uli_max(uli_gpu_sharers(comm), 1);
    int64_t part = multiprocessors / sharers - (sharers > 1 ? SPARE : 0);
    int64_t sms = max_sms ? max_sms : comm->settings.gpu_sms;
    if (sms == 0)
        sms = sharers > 1 ? part : SMS_OF_ONE;
    return (int32_t)uli_max(uli_min(sms, part), 1);
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
uli_residency_warn(const ulyx_comm_t *comm)
{
    int32_t here = ranks_here(comm), queues = uli_settings_cuda_connections();
    if (here < 2 || here * STREAMS_OF_RANK <= queues)
        return;
    ULI_WARN(ULI_LOG_INIT, comm->rank,
        "%s: %d ranks of this process share CUDA device %d, with %d streams "
        "each or more: beyond %d a stream may wait for the kernel of another "
        "rank that waits for it; set CUDA_DEVICE_MAX_CONNECTIONS=32 before the "
        "process starts, or make the ranks processes",
        comm->name, here, comm->gpu->device, STREAMS_OF_RANK, queues);
}

void
uli_residency_choose(const ulyx_comm_t *comm, int64_t blocks, int32_t waits,
    struct uli_residency *room)
{
    int32_t here = ranks_here(comm), device = comm->gpu->device;
    int64_t sharers = uli_max(uli_gpu_sharers(comm), 1);
    int64_t share = (int64_t)room->multiprocessors * here / sharers;
    room->shares_device = here > 1;
    room->claimed = room->waits = 0;
    room->crowded = false;
    if (blocks > 0 && uli_residency_claim(device, share, room->per_sm, blocks))
        room->claimed = (int32_t)blocks;
    if (room->claimed == 0) {
        room->waits = waits;
        room->crowded = !uli_residency_wait(device, share, waits);
    }
}
