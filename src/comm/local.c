/* SPDX-License-Identifier: Apache-2.0
 *
 * All ranks of a communicator within one process: no bootstrap, no service
 * thread, every block and window known by address.
 */
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "comm/comm.h"
#include "comm/create.h"
#include "comm/service.h"
#include "comm/team.h"

/* Ranks of one communicator that were built but do not know each other. */
static ulyx_status_t
build(int32_t nranks, const ulyx_comm_params_t *params, ulyx_comm_t **comms)
{
    unsigned char process[16];

    ULI_TRY(uli_random_bytes(process, sizeof(process)));
    for (int32_t r = 0; r < nranks; r++) {
        ULI_TRY(uli_comm_new(nranks, r, params, false, &comms[r]));
        memcpy(comms[r]->peers[r].identity.process, process, sizeof(process));
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
introduce(int32_t nranks, int32_t r, const unsigned char id[16],
    ulyx_comm_t *const *comms)
{
    ulyx_comm_t *comm = comms[r];

    memcpy(comm->id, id, sizeof(comm->id));
    for (int32_t p = 0; p < nranks; p++) {
        ulyx_comm_t *peer = comms[p];

        comm->peers[p].identity = peer->peers[p].identity;
        comm->peers[p].control = peer->control;
        if (p != r)
            ULI_TRY(uli_window_publish(
                comm, p, 0, peer->segment.address, peer->segment.bytes));
    }
    return uli_comm_connect(comm);
}

ulyx_status_t
uli_comm_create_local(
    int32_t nranks, const ulyx_comm_params_t *params, ulyx_comm_t **comms_p)
{
    ulyx_comm_t **comms = calloc((size_t)nranks, sizeof(ulyx_comm_t *));
    unsigned char id[16];
    ulyx_status_t status;

    if (comms == NULL)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for %d ranks", nranks);
    status = uli_random_bytes(id, sizeof(id));
    if (status == ULYX_SUCCESS)
        status = build(nranks, params, comms);
    for (int32_t r = 0; r < nranks && status == ULYX_SUCCESS; r++)
        status = introduce(nranks, r, id, comms);
    for (int32_t r = 0; r < nranks && status == ULYX_SUCCESS; r++) {
        status = uli_team_join(id, &comms[r]->team);
        if (status == ULYX_SUCCESS)
            status = uli_team_reserve(comms[r]->team);
        if (status == ULYX_SUCCESS)
            status = uli_service_add(comms[r]);
    }
    for (int32_t r = 0; r < nranks; r++) {
        if (status == ULYX_SUCCESS)
            comms_p[r] = comms[r];
        else if (comms[r] != NULL)
            uli_comm_free(comms[r]);
    }
    free(comms);
    return status;
}
