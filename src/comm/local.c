/* SPDX-License-Identifier: Apache-2.0
 *
 * All ranks of a communicator within one process: no bootstrap, no service
 * thread, every block and window known by address. Two exceptions: where a
 * setting makes nodes, these meet over the network; for CUDA memory, the
 * service thread checks for poison, because no thread waits on the host.
 */
#include <stdlib.h>
#include <string.h>

#include "base/system/random.h"
#include "base/text.h"
#include "comm/comm.h"
#include "comm/create.h"
#include "comm/device/gpu.h"
#include "comm/remote/remote.h"
#include "comm/service/service.h"
#include "comm/team.h"
#include "comm/memory/windows.h"

/* Builds the ranks of one communicator; they are not connected yet. */
static ulyx_status_t
local_build(
    int32_t nranks, const ulyx_comm_params_t *params, ulyx_comm_t **comms)
{
    unsigned char process[16];

    ULI_TRY(uli_random_bytes(process, sizeof(process)));
    for (int32_t r = 0; r < nranks; r++) {
        ULI_TRY(uli_comm_new(nranks, r, params, NULL, false, &comms[r]));
        memcpy(comms[r]->peers[r].identity.process, process, sizeof(process));
        if (comms[r]->gpu)
            ULI_TRY(uli_comm_serve(comms[r]));
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
local_introduce(int32_t nranks, int32_t r, const unsigned char id[16],
    ulyx_comm_t *const *comms)
{
    ulyx_comm_t *comm = comms[r];

    memcpy(comm->id, id, sizeof(comm->id));
    uli_service_lock(); /* the service thread reads them */
    for (int32_t p = 0; p < nranks; p++)
        comm->peers[p].identity = comms[p]->peers[p].identity;
    uli_service_unlock();
    ULI_TRY(uli_comm_connect(comm));
    for (int32_t p = 0; p < nranks; p++) {
        const struct uli_segment *segment = &comms[p]->segment;
        const struct uli_tr_handle handle = {
            segment->fd, segment->address, segment->bytes, NULL};

        if (p != r && !uli_comm_is_remote(comm, p))
            ULI_TRY(uli_window_map(comm, p, 0, &handle));
    }
    return ULYX_SUCCESS;
}

/* Connects nodes that a setting makes by the network, as real nodes. */
static ulyx_status_t
meet_remote(int32_t nranks, ulyx_comm_t *const *comms)
{
    struct uli_peer_address *addresses =
        calloc((size_t)nranks, sizeof(*addresses));
    ulyx_status_t status = ULYX_SUCCESS;

    if (!addresses)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for %d rank%s", nranks,
            uli_plural(nranks));
    for (int32_t r = 0; r < nranks; r++)
        uli_remote_open(comms[r], ULYX_SUCCESS, &addresses[r]);
    status = uli_remote_check(comms[0], addresses);
    for (int32_t r = 0; r < nranks && status == ULYX_SUCCESS; r++)
        status = uli_remote_connect(comms[r], addresses);
    free(addresses);
    uli_deadline_t deadline = uli_deadline_in(comms[0]->timeout_s);
    for (int32_t r = 0; r < nranks && status == ULYX_SUCCESS; r++)
        status = uli_remote_ready(comms[r], deadline);
    return status;
}

static ulyx_status_t
join_team(ulyx_comm_t *comm)
{
    ULI_TRY(uli_team_join(comm->id, &comm->team));
    return comm->served ? ULYX_SUCCESS : uli_service_add(comm);
}

/* If one rank cannot have its device memory mapped, its reason holds for
 * all. */
static ulyx_status_t
meet_devices(int32_t nranks, ulyx_comm_t *const *comms)
{
    char reason[sizeof(comms[0]->gpu->unmapped)];
    int32_t first = -1;

    for (int32_t r = 0; r < nranks; r++)
        ULI_TRY(uli_gpu_meet(comms[r]));
    for (int32_t r = nranks - 1; r >= 0; r--)
        if (comms[r]->gpu && comms[r]->gpu->unmapped[0] != 0)
            first = r;
    if (first < 0)
        return ULYX_SUCCESS;
    memcpy(reason, comms[first]->gpu->unmapped, sizeof(reason));
    for (int32_t r = 0; r < nranks; r++)
        uli_gpu_adopt(comms[r], first, reason);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_comm_create_local(
    int32_t nranks, const ulyx_comm_params_t *params, ulyx_comm_t **comms_p)
{
    ulyx_comm_t **comms = calloc((size_t)nranks, sizeof(ulyx_comm_t *));
    unsigned char id[16];
    ulyx_status_t status;

    if (!comms)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for %d rank%s", nranks,
            uli_plural(nranks));
    status = uli_random_bytes(id, sizeof(id));
    if (status == ULYX_SUCCESS)
        status = local_build(nranks, params, comms);
    for (int32_t r = 0; r < nranks && status == ULYX_SUCCESS; r++)
        status = local_introduce(nranks, r, id, comms);
    for (int32_t r = 0; r < nranks && status == ULYX_SUCCESS; r++)
        status = join_team(comms[r]);
    if (status == ULYX_SUCCESS && comms[0]->nnodes > 1)
        status = meet_remote(nranks, comms);
    if (status == ULYX_SUCCESS)
        status = meet_devices(nranks, comms);
    for (int32_t r = 0; r < nranks; r++) {
        if (status == ULYX_SUCCESS)
            comms_p[r] = comms[r];
        else if (comms[r]) {
            uli_comm_unserve(comms[r]);
            uli_comm_free(comms[r]);
        }
    }
    free(comms);
    return status;
}
