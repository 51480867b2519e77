/* SPDX-License-Identifier: Apache-2.0
 *
 * See create.h. Nothing here speaks to other ranks.
 */
#include "comm/create.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/messages/batch.h"
#include "comm/device/gpu.h"
#include "comm/identity.h"
#include "comm/place.h"
#include "comm/memory/pool.h"
#include "comm/remote/remote.h"
#include "comm/service/service.h"
#include "comm/team.h"
#include "topology/choose/choose.h"
#include "topology/node.h"

/* Whether ranks of this process map each other's memory by its address. */
static bool
maps_addresses(const ulyx_comm_t *comm)
{
    const struct uli_identity *me = &comm->peers[comm->rank].identity;
    char why[512];
    const struct uli_tr_ops *map =
        uli_tr_select(&comm->settings, me, me, ULI_TR_MAP, why, sizeof(why));

    return map != NULL && map->maps_addresses;
}

static ulyx_status_t
create_segment(ulyx_comm_t *comm, bool shared)
{
    int64_t bytes = uli_control_bytes(comm->nranks);

    shared = shared || !maps_addresses(comm);
    ULI_TRY(uli_segment_create(
        bytes + comm->settings.arena_bytes, shared, false, &comm->segment));
    comm->control = comm->segment.address;
    comm->peers[comm->rank].control = comm->control;
    return uli_window_publish(
        comm, comm->rank, 0, comm->segment.address, comm->segment.bytes);
}

static void
init_fields(ulyx_comm_t *comm, int32_t nranks, int32_t rank,
    const ulyx_comm_params_t *params)
{
    const char *name = params->name != NULL ? params->name : "comm";

    comm->nranks = nranks;
    comm->rank = rank;
    comm->memory_kind = params->memory_kind;
    comm->device = params->device;
    comm->timeout_s =
        uli_timeout_or(params->timeout_s, comm->settings.timeout_s);
    comm->segment.fd = -1;
    atomic_init(&comm->failed_rank, -1);
    snprintf(comm->name, sizeof(comm->name), "%s", name);
    snprintf(
        comm->abort_text, sizeof(comm->abort_text), "rank %d aborted", rank);
    pthread_mutex_init(&comm->failure_lock, NULL);
    pthread_mutex_init(&comm->lock, NULL);
    uli_list_init(&comm->arenas);
    uli_list_init(&comm->attachments);
    uli_list_init(&comm->retired_plans);
    uli_list_init(&comm->registry);
}

static ulyx_status_t
load_planner(ulyx_comm_t *comm)
{
    comm->planner = calloc(1, sizeof(*comm->planner));
    if (comm->planner == NULL)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a communicator");
    return uli_planner_load(&comm->settings, comm->planner);
}

ulyx_status_t
uli_comm_new(int32_t nranks, int32_t rank, const ulyx_comm_params_t *params,
    const uint64_t *node_hash, bool shared, ulyx_comm_t **comm_p)
{
    ulyx_comm_t *comm = calloc(1, sizeof(*comm));
    struct uli_identity *identity;
    ulyx_status_t status;

    if (comm == NULL)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a communicator");
    status = uli_settings_load(&comm->settings);
    if (status == ULYX_SUCCESS)
        status = load_planner(comm);
    if (status != ULYX_SUCCESS) {
        free(comm->planner);
        free(comm);
        return status;
    }
    init_fields(comm, nranks, rank, params);
    comm->peers = calloc((size_t)nranks, sizeof(*comm->peers));
    if (comm->peers == NULL) {
        status = uli_error(
            ULYX_ERR_NO_MEMORY, "no memory for a table of %d ranks", nranks);
        goto err_free;
    }
    identity = &comm->peers[rank].identity;
    status = uli_identity_fill(
        &comm->settings, rank, params->memory_kind, params->device, identity);
    if (status == ULYX_SUCCESS && node_hash != NULL)
        memcpy(identity->node_hash, node_hash, sizeof(identity->node_hash));
    if (status == ULYX_SUCCESS)
        status = create_segment(comm, shared);
    if (status == ULYX_SUCCESS)
        status = uli_gpu_open(comm);
    if (status != ULYX_SUCCESS)
        goto err_free;
    if (comm->gpu == NULL)
        uli_place_own(comm);
    *comm_p = comm;
    return ULYX_SUCCESS;
err_free:
    uli_comm_free(comm);
    return status;
}

void
uli_comm_free(ulyx_comm_t *comm)
{
    bool retired = comm->team != NULL;

    uli_pool_forget(comm);
    uli_comm_batch_close(comm);
    uli_remote_close(comm);
    uli_windows_close(comm);
    if (retired)
        uli_team_retire(comm->team, &comm->segment);
    else if (comm->control != NULL)
        uli_segment_destroy(&comm->segment);
    uli_team_leave(comm->team);
    uli_remote_free(comm);
    uli_gpu_close(comm);
    pthread_mutex_destroy(&comm->failure_lock);
    pthread_mutex_destroy(&comm->lock);
    free(comm->peers);
    free(comm->planner);
    free(comm);
}

/* Dense node numbers in order of each node's first rank. A node is on one
 * machine, but for those that ULYX_HOSTID puts together. */
static void
number_nodes(ulyx_comm_t *comm)
{
    comm->nnodes = 0;
    comm->one_machine = false;
    for (int32_t p = 0; p < comm->nranks; p++) {
        const uint64_t *hash = comm->peers[p].identity.node_hash;
        int32_t before = p - 1;

        while (
            before >= 0 && memcmp(comm->peers[before].identity.node_hash, hash,
                               sizeof(comm->peers[p].identity.node_hash)) != 0)
            before--;
        comm->peers[p].node =
            before >= 0 ? comm->peers[before].node : comm->nnodes++;
        for (int32_t q = 0; before < 0 && q < p; q++)
            comm->one_machine |= comm->peers[q].identity.machine_hash ==
                                 comm->peers[p].identity.machine_hash;
    }
}

/* The transport to each peer. */
static ulyx_status_t
choose_transports(ulyx_comm_t *comm)
{
    const struct uli_identity *me = &comm->peers[comm->rank].identity;
    char why[512], put_why[512];

    comm->by_address = comm->one_process;
    for (int32_t p = 0; p < comm->nranks; p++) {
        struct uli_peer *peer = &comm->peers[p];

        peer->map = uli_tr_select(
            &comm->settings, me, &peer->identity, ULI_TR_MAP, why, sizeof(why));
        comm->by_address = comm->by_address &&
                           (peer->map == NULL || peer->map->maps_addresses);
        if (peer->map == NULL &&
            uli_tr_select(&comm->settings, me, &peer->identity, ULI_TR_PUT,
                put_why, sizeof(put_why)) == NULL)
            return uli_error(ULYX_ERR_UNSUPPORTED,
                "no transport reaches rank %d on %s from rank %d on %s: to map "
                "its memory: %.250s; to put into it: %.250s",
                p, peer->identity.host, comm->rank, me->host, why, put_why);
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_comm_connect(ulyx_comm_t *comm)
{
    const struct uli_identity *me = &comm->peers[comm->rank].identity;
    int32_t sharing = 0; /* ranks of this machine on the same cores */
    ulyx_status_t status;

    number_nodes(comm);
    comm->one_process = true;
    for (int32_t p = 0; p < comm->nranks; p++) {
        struct uli_peer *peer = &comm->peers[p];

        peer->same_process = memcmp(me->process, peer->identity.process,
                                 sizeof(me->process)) == 0;
        comm->one_process = comm->one_process && peer->same_process;
        sharing += peer->identity.machine_hash == me->machine_hash &&
                   peer->identity.cores_hash == me->cores_hash;
    }
    status = choose_transports(comm);
    /* Also where it has failed: who delivers a window hears so at once. */
    atomic_store(&comm->connected, true);
    ULI_TRY(status);
    int64_t spin_us =
        comm->nnodes > 1 ? comm->settings.net_spin_us : comm->settings.spin_us;
    comm->spin_ns = sharing > uli_node_cores() ? 0 : spin_us * 1000;
    return uli_gpu_connect(comm);
}

ulyx_status_t
uli_comm_serve(ulyx_comm_t *comm)
{
    struct uli_identity *identity = &comm->peers[comm->rank].identity;
    ulyx_status_t status;

    ULI_TRY(uli_service_hold(identity->process, identity->service));
    status = uli_service_add(comm);
    if (status != ULYX_SUCCESS)
        uli_service_release();
    comm->served = status == ULYX_SUCCESS;
    if (comm->served)
        uli_service_bind(comm);
    return status;
}

void
uli_comm_unserve(ulyx_comm_t *comm)
{
    if (!comm->served)
        return;
    uli_service_remove(comm);
    uli_service_release();
    comm->served = false;
}
