/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a communicator over a bootstrap. Creation takes two gathers, and
 * always both, whatever fails between them: first the identities, then the
 * outcome of every rank, so that one rank's failure becomes the same error on
 * all ranks. Where the identities show several nodes, a third gather, of
 * network addresses or of errors, stands between the two.
 */
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/handle.h"
#include "base/log.h"
#include "base/size.h"
#include "base/system/random.h"
#include "base/text.h"
#include "bootstrap/bootstrap.h"
#include "comm/create.h"
#include "comm/device/gpu.h"
#include "comm/identity.h"
#include "comm/memory/pool.h"
#include "comm/messages/batch.h"
#include "comm/place.h"
#include "comm/record/dump.h"
#include "comm/remote/remote.h"
#include "comm/service/service.h"
#include "comm/team.h"
#include "topology/choose/choose.h"
#include "topology/node.h"

/* ---- one rank alone: no exchange with other ranks ---- */

/* Whether ranks of this process map each other's memory by its address. */
static bool
comm_maps_addresses(const ulyx_comm_t *comm)
{
    const struct uli_identity *me = &comm->peers[comm->rank].identity;
    char why[512];
    const struct uli_tr_ops *map =
        uli_tr_select(&comm->settings, me, me, ULI_TR_MAP, why, sizeof(why));

    return map && map->maps_addresses;
}

static ulyx_status_t
comm_create_segment(ulyx_comm_t *comm, bool shared)
{
    int64_t bytes = uli_control_bytes(comm->nranks);

    shared = shared || !comm_maps_addresses(comm);
    ULI_TRY(uli_segment_create(
        bytes + comm->settings.arena_bytes, shared, false, &comm->segment));
    comm->control = comm->segment.address;
    uli_board_open(comm);
    comm->peers[comm->rank].control = comm->control;
    return uli_window_publish(
        comm, comm->rank, 0, comm->segment.address, comm->segment.bytes);
}

static void
comm_init_fields(ulyx_comm_t *comm, int32_t nranks, int32_t rank,
    const ulyx_comm_params_t *params)
{
    const char *name = params->name ? params->name : "comm";

    comm->nranks = nranks;
    comm->rank = rank;
    comm->memory_kind = params->memory_kind;
    comm->device = params->device;
    comm->flags = params->flags;
    comm->timeout_s =
        uli_timeout_or(params->timeout_s, comm->settings.timeout_s);
    comm->call_deadline = INT64_MAX;
    comm->meeting_awaits = -1;
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

/* numbers[p]: the number by which errors name rank p; NULL: that number is
 * p. */
static void
comm_number_ranks(ulyx_comm_t *comm, const int32_t *numbers)
{
    uli_service_lock(); /* the service thread reads them */
    for (int32_t p = 0; p < comm->nranks; p++) {
        int32_t number = numbers ? numbers[p] : p;

        atomic_store(&comm->peers[p].number, number);
        comm->peers[p].identity.rank = number;
    }
    uli_service_unlock();
}

static ulyx_status_t
comm_load_planner(ulyx_comm_t *comm)
{
    comm->planner = calloc(1, sizeof(*comm->planner));
    if (!comm->planner)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a communicator");
    return uli_planner_load(&comm->settings, comm->planner);
}

ulyx_status_t
uli_comm_new(int32_t nranks, int32_t rank, const ulyx_comm_params_t *params,
    const uint64_t *node_hash, bool shared, ulyx_comm_t **comm_p)
{
    ulyx_comm_t *comm = uli_handle_new(ULI_HANDLE_COMM, sizeof(*comm));
    struct uli_identity *identity;
    ulyx_status_t status;

    if (!comm)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a communicator");
    status = uli_settings_load(&comm->settings);
    if (status == ULYX_SUCCESS)
        status = comm_load_planner(comm);
    if (status != ULYX_SUCCESS) {
        free(comm->planner);
        uli_handle_free(comm);
        return status;
    }
    comm_init_fields(comm, nranks, rank, params);
    comm->peers = calloc((size_t)nranks, sizeof(*comm->peers));
    if (!comm->peers) {
        status = uli_error(ULYX_ERR_NO_MEMORY,
            "no memory for a table of %d rank%s", nranks, uli_plural(nranks));
        goto err_free;
    }
    comm_number_ranks(comm, NULL);
    identity = &comm->peers[rank].identity;
    status = uli_identity_fill(
        &comm->settings, rank, params->memory_kind, params->device, identity);
    if (status == ULYX_SUCCESS && node_hash)
        memcpy(identity->node_hash, node_hash, sizeof(identity->node_hash));
    if (status == ULYX_SUCCESS)
        status = comm_create_segment(comm, shared);
    if (status == ULYX_SUCCESS)
        status = uli_differ_open(comm);
    if (status == ULYX_SUCCESS)
        status = uli_dump_hold(comm);
    if (status == ULYX_SUCCESS)
        status = uli_gpu_open(comm);
    if (status != ULYX_SUCCESS)
        goto err_free;
    if (!comm->gpu)
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
    uli_dump_release(comm);
    uli_differ_close(comm);
    if (retired)
        uli_team_retire(comm->team, &comm->segment);
    else if (comm->control)
        uli_segment_destroy(&comm->segment);
    uli_team_leave(comm->team);
    uli_remote_free(comm);
    uli_gpu_close(comm);
    pthread_mutex_destroy(&comm->failure_lock);
    pthread_mutex_destroy(&comm->lock);
    free(comm->peers);
    free(comm->planner);
    free(atomic_load(&comm->copies));
    uli_handle_free(comm);
}

/* Numbers nodes from 0 in the order of their first ranks. A node is on one
 * machine, unless ULYX_HOSTID joins several machines. */
static void
comm_number_nodes(ulyx_comm_t *comm)
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

/* Chooses the transport to each peer. */
static ulyx_status_t
comm_choose_transports(ulyx_comm_t *comm)
{
    const struct uli_identity *me = &comm->peers[comm->rank].identity;
    char why[512], put_why[512];

    comm->by_address = comm->one_process;
    for (int32_t p = 0; p < comm->nranks; p++) {
        struct uli_peer *peer = &comm->peers[p];

        peer->map = uli_tr_select(
            &comm->settings, me, &peer->identity, ULI_TR_MAP, why, sizeof(why));
        comm->by_address =
            comm->by_address && (!peer->map || peer->map->maps_addresses);
        if (!peer->map && !uli_tr_select(&comm->settings, me, &peer->identity,
                              ULI_TR_PUT, put_why, sizeof(put_why)))
            return uli_error(ULYX_ERR_UNSUPPORTED,
                "no transport reaches rank %d on %s from rank %d on %s: to map "
                "its memory: %.250s; to put into it: %.250s",
                uli_comm_number(comm, p), peer->identity.host,
                uli_comm_number(comm, comm->rank), me->host, why, put_why);
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_comm_connect(ulyx_comm_t *comm)
{
    const struct uli_identity *me = &comm->peers[comm->rank].identity;
    int32_t sharing = 0; /* ranks of this machine on the same cores */
    const struct uli_recorder_owner owner = {
        comm->rank, comm->nranks, me->pid, comm->id, comm->name, me->host};
    ulyx_status_t status;

    comm_number_nodes(comm);
    uli_recorder_open(&comm->control->recorder, &owner);
    comm->one_process = true;
    for (int32_t p = 0; p < comm->nranks; p++) {
        struct uli_peer *peer = &comm->peers[p];

        peer->same_process = memcmp(me->process, peer->identity.process,
                                 sizeof(me->process)) == 0;
        comm->one_process = comm->one_process && peer->same_process;
        sharing += peer->identity.machine_hash == me->machine_hash &&
                   peer->identity.cores_hash == me->cores_hash;
    }
    status = comm_choose_transports(comm);
    /* Set after a failure too: a peer that delivers a window is answered at
     * once. */
    atomic_store(&comm->connected, true);
    ULI_TRY(status);
    int64_t spin_us =
        comm->nnodes > 1 ? comm->settings.net_spin_us : comm->settings.spin_us;
    int32_t cores = uli_node_cores();
    comm->shares_cores = sharing > cores;
    comm->spin_ns = comm->shares_cores && comm->nnodes > 1 ? 0 : spin_us * 1000;
    comm->cores = (int32_t)uli_max(cores / sharing, 1);
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

/* ---- with the other ranks ---- */

/* The most time that is kept for the last gather. */
#define OUTCOME_NS INT64_C(2000000000)

/* The record of each rank in the first gather, and in the last. */
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
    char unmapped[200]; /* why device memory cannot be mapped; "": it can */
};

/* The record of any of the gathers; one gather runs at a time. The memory is
 * allocated before the first gather: a rank that fails between two gathers must
 * still take part in the next, because others may wait in it.
 */
union record {
    struct hello hello;
    struct uli_peer_address address;
    struct outcome outcome;
};

static union record *
new_table(int32_t nranks)
{
    union record *table = calloc((size_t)nranks + 1, sizeof(*table));

    if (!table)
        uli_error(ULYX_ERR_NO_MEMORY, "no memory for %d rank%s", nranks,
            uli_plural(nranks));
    return table;
}

static int32_t
meeting_number(const struct uli_bootstrap *bootstrap, int32_t rank)
{
    return bootstrap->numbers ? bootstrap->numbers[rank] : rank;
}

/* An error where rank p gave one in a gather, with its rank and text: equal on
 * all ranks. */
static ulyx_status_t
first_bad(const struct uli_bootstrap *bootstrap, int32_t p, int32_t status,
    const char *text)
{
    if (status == ULYX_SUCCESS)
        return ULYX_SUCCESS;
    if (p == bootstrap->rank)
        return uli_error_pass(status, text);
    return uli_error(status, "rank %d: %s", meeting_number(bootstrap, p), text);
}

static ulyx_status_t
check_hello(const struct uli_bootstrap *bootstrap, const struct hello *all)
{
    for (int32_t p = 0; p < bootstrap->nranks; p++) {
        if (all[p].identity.protocol != ULI_PROTOCOL)
            return uli_error(ULYX_ERR_VERSION,
                "rank %d speaks protocol %u, rank %d protocol %d",
                meeting_number(bootstrap, p), all[p].identity.protocol,
                meeting_number(bootstrap, bootstrap->rank), ULI_PROTOCOL);
        ULI_TRY(first_bad(bootstrap, p, all[p].status, all[p].text));
        if (all[p].identity.memory_kind != all[0].identity.memory_kind)
            return uli_error(ULYX_ERR_MISMATCH,
                "rank %d has memory kind %d, rank %d has %d",
                meeting_number(bootstrap, p), all[p].identity.memory_kind,
                meeting_number(bootstrap, 0), all[0].identity.memory_kind);
    }
    return ULYX_SUCCESS;
}

/* This rank cannot continue, because of its last error, and takes part in no
 * more gathers. Returns the error of all ranks, where the meeting can spread
 * it. */
static ulyx_status_t
meeting_give_up(struct uli_bootstrap *bootstrap, ulyx_status_t status,
    uli_deadline_t deadline)
{
    char text[256];

    if (!bootstrap->ops->give_up)
        return status;
    snprintf(text, sizeof(text), "%s", uli_error_text());
    return bootstrap->ops->give_up(bootstrap, status, text, deadline);
}

/* The first gather. comm may be NULL with an error as status: a rank that could
 * not allocate takes part all the same, so that no rank waits for it. */
static ulyx_status_t
exchange_hello(ulyx_comm_t *comm, struct uli_bootstrap *bootstrap,
    union record *table, ulyx_status_t status, uli_deadline_t deadline)
{
    int32_t nranks = bootstrap->nranks;
    struct hello *all = (struct hello *)table;
    struct hello *mine = all + nranks;
    ulyx_status_t gathered;

    if (!table)
        return meeting_give_up(bootstrap, ULYX_ERR_NO_MEMORY, deadline);
    if (comm)
        mine->identity = comm->peers[comm->rank].identity;
    mine->identity.protocol = ULI_PROTOCOL;
    mine->nranks = nranks;
    mine->status = status;
    snprintf(mine->text, sizeof(mine->text), "%s", ulyx_last_error());
    if (status == ULYX_SUCCESS)
        mine->status = uli_random_bytes(mine->id, sizeof(mine->id));
    gathered =
        bootstrap->ops->gather(bootstrap, mine, sizeof(*mine), all, deadline);
    if (gathered == ULYX_SUCCESS && comm)
        gathered = check_hello(bootstrap, all);
    if (gathered == ULYX_SUCCESS && comm) {
        memcpy(comm->id, all[0].id, sizeof(comm->id));
        uli_service_lock(); /* the service thread reads them */
        for (int32_t p = 0; p < nranks; p++)
            comm->peers[p].identity = all[p].identity;
        uli_service_unlock();
    }
    return status != ULYX_SUCCESS ? status : gathered;
}

static ulyx_status_t
exchange_outcome(ulyx_comm_t *comm, struct uli_bootstrap *bootstrap,
    union record *table, ulyx_status_t status, uli_deadline_t deadline)
{
    struct outcome mine = {status, "", ""};
    struct outcome *all = (struct outcome *)table;
    ulyx_status_t gathered;

    snprintf(mine.text, sizeof(mine.text), "%s", ulyx_last_error());
    if (comm->gpu)
        memcpy(mine.unmapped, comm->gpu->unmapped, sizeof(mine.unmapped));
    gathered =
        bootstrap->ops->gather(bootstrap, &mine, sizeof(mine), all, deadline);
    for (int32_t p = 0; gathered == ULYX_SUCCESS && p < comm->nranks; p++)
        gathered = first_bad(bootstrap, p, all[p].status, all[p].text);
    /* The reason of the lowest rank is taken last, so it stays. */
    for (int32_t p = comm->nranks - 1; gathered == ULYX_SUCCESS && p >= 0; p--)
        uli_gpu_adopt(comm, p, all[p].unmapped);
    return gathered;
}

/* The gather of addresses, with the error so far. Its result is the same on all
 * ranks. */
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

/* Between the gathers: all steps that can fail at one rank alone. A rank that
 * has passed them may own the communicator: it has no failure by then, and
 * errors of a later failure name the communicator's own ranks. */
static ulyx_status_t
attach_peers(ulyx_comm_t *comm, const struct uli_peer_address *addresses,
    uli_deadline_t deadline)
{
    ULI_TRY(uli_remote_connect(comm, addresses));
    ULI_TRY(uli_team_join(comm->id, &comm->team));
    ULI_TRY(uli_windows_deliver_control(comm, deadline));
    ULI_TRY(uli_remote_ready(comm, deadline));
    ULI_TRY(uli_service_watch(comm));
    ULI_TRY(uli_gpu_meet(comm));
    comm_number_ranks(comm, NULL);
    return uli_comm_check(comm);
}

/* Leaves time for the last gather, so that a rank that waited in vain can name
 * the missing rank there before the deadlines of the others. */
static uli_deadline_t
attach_deadline(uli_deadline_t deadline)
{
    int64_t left = uli_sat_sub(deadline, uli_clock_ns());

    return deadline - uli_min(uli_max(left, 0) / 8, OUTCOME_NS);
}

/* Whether this rank spreads its own failure now, because others may wait for
 * this rank; not where the meeting has failed already. */
static bool
meeting_may_give_up(const ulyx_comm_t *comm, struct uli_bootstrap *bootstrap)
{
    return comm->nranks > 1 && bootstrap->ops->give_up &&
           !bootstrap->ops->broken(bootstrap);
}

/* All of creation after the first gather. */
static ulyx_status_t
join_peers(ulyx_comm_t *comm, struct uli_bootstrap *bootstrap,
    union record *table, uli_deadline_t deadline)
{
    ulyx_status_t status = uli_comm_connect(comm), gathered = ULYX_SUCCESS;
    struct uli_peer_address *addresses = (struct uli_peer_address *)table;

    if (comm->nnodes > 1)
        gathered =
            exchange_addresses(comm, bootstrap, status, deadline, addresses);
    if (gathered == ULYX_SUCCESS) {
        comm->meeting = bootstrap;
        if (status == ULYX_SUCCESS)
            status = attach_peers(comm, addresses, attach_deadline(deadline));
        comm->meeting = NULL;
        gathered =
            status != ULYX_SUCCESS && meeting_may_give_up(comm, bootstrap)
                ? meeting_give_up(bootstrap, status, deadline)
                : exchange_outcome(comm, bootstrap, table, status, deadline);
    }
    return gathered;
}

ulyx_status_t
uli_comm_create(struct uli_bootstrap *bootstrap, int32_t nranks, int32_t rank,
    const ulyx_comm_params_t *params, uli_deadline_t deadline,
    ulyx_comm_t **comm_p)
{
    union record *table = new_table(nranks);
    ulyx_comm_t *comm = NULL;
    ulyx_status_t status = table ? ULYX_SUCCESS : ULYX_ERR_NO_MEMORY;

    if (status == ULYX_SUCCESS)
        status = uli_comm_new(
            nranks, rank, params, bootstrap->node_hash, true, &comm);
    if (status == ULYX_SUCCESS) {
        comm->call_deadline = deadline;
        comm_number_ranks(comm, bootstrap->numbers);
        status = uli_comm_serve(comm);
    }
    status = exchange_hello(comm, bootstrap, table, status, deadline);
    if (status == ULYX_SUCCESS)
        status = join_peers(comm, bootstrap, table, deadline);
    free(table);
    if (status == ULYX_SUCCESS) {
        uli_comm_call_end(comm, INT64_MAX);
        atomic_store(&comm->made, true);
        ULI_INFO(ULI_LOG_INIT, rank, "%s: rank %d of %d on %d node%s, %s",
            comm->name, rank, nranks, comm->nnodes, uli_plural(comm->nnodes),
            comm->binding.text);
        *comm_p = comm;
        return ULYX_SUCCESS;
    }
    if (comm) {
        /* The creation fails on all ranks: none waits for another to leave. */
        atomic_store(&comm->failed, status);
        uli_comm_unserve(comm);
        uli_comm_free(comm);
    }
    return status;
}

ulyx_status_t
uli_comm_refuse(struct uli_bootstrap *bootstrap, ulyx_status_t outcome,
    uli_deadline_t deadline)
{
    char text[256];
    union record *table;

    snprintf(text, sizeof(text), "%s", ulyx_last_error());
    table = new_table(bootstrap->nranks);
    exchange_hello(NULL, bootstrap, table, outcome, deadline);
    free(table);
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

/* Posts to mapped peers how this rank leaves. The first post stays. */
static void
comm_notify_node(ulyx_comm_t *comm, enum uli_left how)
{
    if (atomic_load(&comm->leaves) != ULI_STAYS)
        return;
    atomic_store(&comm->leaves, how);
    for (int32_t p = 0; p < comm->nranks; p++) {
        struct uli_control *control = uli_comm_mapped_control(comm, p);

        if (p == comm->rank || !control)
            continue;
        atomic_store(&control->left[comm->rank], how);
        uli_doorbell_ring(control);
    }
}

ulyx_status_t
uli_comm_destroy(ulyx_comm_t *comm)
{
    ULI_TRY(check_idle(comm));
    if (atomic_load(&comm->failed) != 0)
        uli_dump_settle(comm); /* an abort does not wait for the dump */
    if (comm->alltoall_destroy)
        comm->alltoall_destroy(comm);
    if (comm->retired_destroy)
        comm->retired_destroy(comm);
    if (comm->ring_pool_destroy)
        comm->ring_pool_destroy(comm);
    uli_comm_acknowledge(comm);
    uli_comm_log_abort(comm);
    comm_notify_node(comm, ULI_LEFT_BY_DESTROY);
    uli_remote_leave(comm);
    uli_comm_unserve(comm);
    uli_comm_free(comm);
    return ULYX_SUCCESS;
}

/* ---- the end of the process ---------------------------------------------- */

bool
uli_comm_may_exit(const ulyx_comm_t *comm)
{
    return atomic_load(&comm->made) && !comm->one_process && !comm->gpu &&
           atomic_load(&comm->failed) == 0 &&
           atomic_load(&comm->control->poison) == 0 &&
           atomic_load(&comm->nops) == 0 &&
           atomic_load(&comm->leaves) == ULI_STAYS &&
           comm->peers[comm->rank].identity.pid == (int32_t)getpid() &&
           !uli_service_forked();
}

void
uli_comm_exit_node(ulyx_comm_t *comm)
{
    comm_notify_node(comm, ULI_LEFT_BY_EXIT);
}

void
uli_comm_exit_net(ulyx_comm_t *comm)
{
    uli_remote_leave(comm);
    uli_remote_close(comm);
}

const char *
uli_left_text(enum uli_left how)
{
    return how == ULI_LEFT_BY_EXIT ? "has left: its process has exited"
                                   : "has destroyed its communicator";
}

int64_t
uli_comm_bytes(ulyx_comm_t *comm)
{
    int64_t mapped = 0;

    for (int32_t p = 0; p < comm->nranks; p++)
        if (p != comm->rank && uli_comm_mapped_control(comm, p) &&
            !comm->peers[p].map->maps_addresses)
            mapped += comm->segment.bytes; /* all segments have one size */
    return (int64_t)sizeof(*comm) +
           comm->nranks * (int64_t)sizeof(*comm->peers) + comm->segment.bytes +
           mapped + uli_arena_bytes(comm) + uli_remote_bytes(comm);
}
