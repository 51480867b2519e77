/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of a communicator over a bootstrap. Creation takes two gathers and
 * always takes both, whatever fails between them: identities first, then
 * everybody's outcome, so that one rank's failure becomes the same error on
 * all of them. Where the identities show several nodes, a gather of network
 * addresses, or of what went wrong, comes between the two.
 */
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/random.h"
#include "base/text.h"
#include "bootstrap/bootstrap.h"
#include "comm/create.h"
#include "comm/device/gpu.h"
#include "comm/remote/remote.h"
#include "comm/service/service.h"
#include "comm/team.h"

/* What each rank brings to the first gather, and to the second. */
struct hello {
    struct uli_identity identity;
    unsigned char id[16]; /* rank 0's becomes the communicator's */
    int32_t nranks;
    int32_t status;
    char text[256];
};
struct outcome {
    int32_t status;
    char text[256];
    char unmapped[200]; /* of device memory; "" = all of it can be mapped */
};

/* The first bad status of a gather, with its rank and text: equal on all. */
static ulyx_status_t
first_bad(ulyx_comm_t *comm, int32_t p, int32_t status, const char *text)
{
    if (status == ULYX_SUCCESS)
        return ULYX_SUCCESS;
    if (p == comm->rank)
        return uli_error_pass(status, text);
    return uli_error(status, "rank %d: %s", p, text);
}

static ulyx_status_t
check_hello(ulyx_comm_t *comm, const struct hello *all)
{
    for (int32_t p = 0; p < comm->nranks; p++) {
        if (all[p].identity.protocol != ULI_PROTOCOL)
            return uli_error(ULYX_ERR_VERSION,
                "rank %d speaks protocol %u, rank %d protocol %d", p,
                all[p].identity.protocol, comm->rank, ULI_PROTOCOL);
        ULI_TRY(first_bad(comm, p, all[p].status, all[p].text));
        if (all[p].identity.memory_kind != all[0].identity.memory_kind)
            return uli_error(ULYX_ERR_MISMATCH,
                "rank %d has memory kind %d, rank 0 has %d", p,
                all[p].identity.memory_kind, all[0].identity.memory_kind);
    }
    return ULYX_SUCCESS;
}

/* First gather. comm may be NULL with a status: a rank that could not even
 * allocate takes part all the same, so that nobody waits for it. */
static ulyx_status_t
exchange_hello(ulyx_comm_t *comm, struct uli_bootstrap *bootstrap,
    ulyx_status_t status, uli_deadline_t deadline)
{
    int32_t nranks = bootstrap->nranks;
    struct hello *all = calloc((size_t)nranks + 1, sizeof(*all));
    struct hello *mine = all + nranks;
    ulyx_status_t gathered;

    if (all == NULL)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for %d ranks", nranks);
    if (comm != NULL)
        mine->identity = comm->peers[comm->rank].identity;
    mine->identity.protocol = ULI_PROTOCOL;
    mine->nranks = nranks;
    mine->status = status;
    snprintf(mine->text, sizeof(mine->text), "%s", ulyx_last_error());
    if (status == ULYX_SUCCESS)
        mine->status = uli_random_bytes(mine->id, sizeof(mine->id));
    gathered =
        bootstrap->ops->gather(bootstrap, mine, sizeof(*mine), all, deadline);
    if (gathered == ULYX_SUCCESS && comm != NULL)
        gathered = check_hello(comm, all);
    if (gathered == ULYX_SUCCESS && comm != NULL) {
        memcpy(comm->id, all[0].id, sizeof(comm->id));
        uli_service_lock(); /* its thread reads identities */
        for (int32_t p = 0; p < nranks; p++)
            comm->peers[p].identity = all[p].identity;
        uli_service_unlock();
    }
    free(all);
    return status != ULYX_SUCCESS ? status : gathered;
}

static ulyx_status_t
exchange_outcome(ulyx_comm_t *comm, struct uli_bootstrap *bootstrap,
    ulyx_status_t status, uli_deadline_t deadline)
{
    struct outcome mine = {status, "", ""};
    struct outcome *all = calloc((size_t)bootstrap->nranks, sizeof(*all));
    ulyx_status_t gathered;

    if (all == NULL)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for outcomes");
    snprintf(mine.text, sizeof(mine.text), "%s", ulyx_last_error());
    if (comm->gpu != NULL)
        memcpy(mine.unmapped, comm->gpu->unmapped, sizeof(mine.unmapped));
    gathered =
        bootstrap->ops->gather(bootstrap, &mine, sizeof(mine), all, deadline);
    for (int32_t p = 0; gathered == ULYX_SUCCESS && p < comm->nranks; p++)
        gathered = first_bad(comm, p, all[p].status, all[p].text);
    /* The lowest rank's reason is the last one to be taken. */
    for (int32_t p = comm->nranks - 1; gathered == ULYX_SUCCESS && p >= 0; p--)
        uli_gpu_adopt(comm, p, all[p].unmapped);
    free(all);
    return gathered;
}

/* The gather of addresses, with what has gone wrong so far. SUCCESS or an error
 * are the same on all ranks. */
static ulyx_status_t
exchange_addresses(ulyx_comm_t *comm, struct uli_bootstrap *bootstrap,
    ulyx_status_t status, uli_deadline_t deadline,
    struct uli_peer_address *addresses)
{
    struct uli_peer_address *mine = addresses + comm->nranks;

    uli_remote_open(comm, status, mine);
    ULI_TRY(bootstrap->ops->gather(
        bootstrap, mine, sizeof(*mine), addresses, deadline));
    return uli_remote_check(comm, addresses);
}

/* Between the gathers: everything that can fail at one rank alone. */
static ulyx_status_t
attach_peers(ulyx_comm_t *comm, const struct uli_peer_address *addresses,
    uli_deadline_t deadline)
{
    ULI_TRY(uli_remote_connect(comm, addresses));
    ULI_TRY(uli_team_join(comm->id, &comm->team));
    ULI_TRY(uli_windows_deliver_control(comm, deadline));
    ULI_TRY(uli_remote_ready(comm, deadline));
    ULI_TRY(uli_service_watch(comm));
    return uli_gpu_meet(comm);
}

/* From the identities on. */
static ulyx_status_t
join_peers(
    ulyx_comm_t *comm, struct uli_bootstrap *bootstrap, uli_deadline_t deadline)
{
    ulyx_status_t status = uli_comm_connect(comm), gathered = ULYX_SUCCESS;
    struct uli_peer_address *addresses = NULL;

    if (comm->nnodes > 1) {
        addresses = calloc((size_t)comm->nranks + 1, sizeof(*addresses));
        if (addresses == NULL)
            return uli_error(
                ULYX_ERR_NO_MEMORY, "no memory for %d ranks", comm->nranks);
        gathered =
            exchange_addresses(comm, bootstrap, status, deadline, addresses);
    }
    if (gathered == ULYX_SUCCESS) {
        comm->meeting = bootstrap;
        if (status == ULYX_SUCCESS)
            status = attach_peers(comm, addresses, deadline);
        comm->meeting = NULL;
        gathered = exchange_outcome(comm, bootstrap, status, deadline);
    }
    free(addresses);
    return gathered;
}

ulyx_status_t
uli_comm_create(struct uli_bootstrap *bootstrap, int32_t nranks, int32_t rank,
    const ulyx_comm_params_t *params, double timeout_s, ulyx_comm_t **comm_p)
{
    uli_deadline_t deadline = uli_deadline_in(timeout_s);
    ulyx_comm_t *comm = NULL;
    ulyx_status_t status;

    status =
        uli_comm_new(nranks, rank, params, bootstrap->node_hash, true, &comm);
    if (status == ULYX_SUCCESS)
        status = uli_comm_serve(comm);
    status = exchange_hello(comm, bootstrap, status, deadline);
    if (status == ULYX_SUCCESS)
        status = join_peers(comm, bootstrap, deadline);
    if (status == ULYX_SUCCESS) {
        ULI_INFO(ULI_LOG_INIT, rank, "%s: rank %d of %d on %d node%s, %s",
            comm->name, rank, nranks, comm->nnodes, uli_plural(comm->nnodes),
            comm->binding.text);
        *comm_p = comm;
        return ULYX_SUCCESS;
    }
    if (comm != NULL) {
        /* The creation fails on all ranks: none waits for another's leaving. */
        atomic_store(&comm->failed, status);
        uli_comm_unserve(comm);
        uli_comm_free(comm);
    }
    return status;
}

ulyx_status_t
uli_comm_refuse(
    struct uli_bootstrap *bootstrap, ulyx_status_t outcome, double timeout_s)
{
    char text[256];

    snprintf(text, sizeof(text), "%s", ulyx_last_error());
    exchange_hello(NULL, bootstrap, outcome, uli_deadline_in(timeout_s));
    return uli_error_pass(outcome, text);
}

static ulyx_status_t
check_idle(ulyx_comm_t *comm)
{
    int32_t attached, plans = atomic_load(&comm->nplans);

    pthread_mutex_lock(&comm->lock);
    attached = comm->nattached;
    pthread_mutex_unlock(&comm->lock);
    int32_t nops = atomic_load(&comm->nops);
    if (nops != 0)
        return uli_error(ULYX_ERR_BUSY,
            "%d operation%s in flight, to be waited for before destroy", nops,
            uli_plural(nops));
    if (uli_gpu_in_flight(comm))
        return uli_error(ULYX_ERR_BUSY,
            "operations are in flight on device %d: wait for their streams "
            "before destroy",
            comm->gpu->device);
    if (plans != 0)
        return uli_error(ULYX_ERR_BUSY,
            "%d plan%s left, to be destroyed before the communicator", plans,
            uli_plural(plans));
    if (attached != 0 && atomic_load(&comm->failed) == 0)
        return uli_error(ULYX_ERR_BUSY,
            "%d window%s attached, to be detached before destroy", attached,
            uli_plural(attached));
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_comm_destroy(ulyx_comm_t *comm)
{
    ULI_TRY(check_idle(comm));
    if (comm->alltoall_destroy != NULL)
        comm->alltoall_destroy(comm);
    if (comm->retired_destroy != NULL)
        comm->retired_destroy(comm);
    uli_comm_acknowledge(comm);
    uli_comm_say_abort(comm);
    for (int32_t p = 0; p < comm->nranks; p++) {
        struct uli_control *control = comm->peers[p].control;

        if (p == comm->rank || control == NULL || uli_comm_is_remote(comm, p))
            continue;
        atomic_store(&control->left[comm->rank], 1);
        uli_doorbell_ring(control);
    }
    uli_remote_leave(comm);
    uli_comm_unserve(comm);
    uli_comm_free(comm);
    return ULYX_SUCCESS;
}

int64_t
uli_comm_bytes(ulyx_comm_t *comm)
{
    int64_t mapped = 0;

    for (int32_t p = 0; p < comm->nranks; p++)
        if (p != comm->rank && comm->peers[p].control != NULL &&
            !uli_comm_is_remote(comm, p) && !comm->peers[p].map->maps_addresses)
            mapped += comm->segment.bytes; /* all ranks' are of one size */
    return (int64_t)sizeof(*comm) +
           comm->nranks * (int64_t)sizeof(*comm->peers) + comm->segment.bytes +
           mapped + uli_arena_bytes(comm) + uli_remote_bytes(comm);
}
