/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank's end of the network, and the thread that drives it while no thread
 * of the caller is in the library.
 *
 * The thread sleeps in the network's wait. After a put it calls progress every
 * millisecond until nothing has happened for a while, since a put may need
 * progress without any event; the first put of a burst wakes the thread. After
 * a thread of the caller has driven the network itself, this thread pauses for
 * a moment.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "base/size.h"
#include "base/system/thread.h"
#include "comm/place.h"
#include "comm/remote/remote_internal.h"
#include "comm/service/service.h"
#include "comm/agreement/survivors.h"

enum {
    SLEEP_MS = 50,
    ACTIVE_MS = 1,
    ACTIVE_LOOKS = 20, /* idle looks before a burst has ended */
};
#define ASIDE_NS 50000
/* How long a rank that leaves waits until its last messages are answered. If
 * the connection closes before a peer has read them and the peer then sends,
 * the peer takes the leaving rank for dead. So the wait is as long as a peer
 * may be silent (ULYX_KEEPALIVE), or the timeout if that is shorter, but at
 * least LEAST_S. After a failure it is FAILED_S, or a FAILED_PART-th of the
 * timeout if that is shorter. */
#define LEAST_S  2.0
#define FAILED_S 0.2
enum { FAILED_PART = 10 };

/* ---- progress ------------------------------------------------------------ */

static bool
remote_move(ulyx_comm_t *comm)
{
    struct uli_remote *remote = comm->remote;
    bool moved = remote->ops->progress(comm->net);
    uli_remote_flush(comm);
    return moved;
}

bool
uli_comm_progress(ulyx_comm_t *comm)
{
    if (!comm->net)
        return false;
    atomic_store_explicit(&comm->remote->callers, 1, memory_order_relaxed);
    return remote_move(comm);
}

static void *
thread_main(void *context)
{
    ulyx_comm_t *comm = context;
    struct uli_remote *remote = comm->remote;
    int idle = 0;
    pthread_setname_np(pthread_self(), "ulyx-net");
    while (!atomic_load(&remote->stop)) {
        bool active = atomic_load(&remote->active);
        if (atomic_exchange(&remote->callers, 0))
            uli_clock_sleep_ns(ASIDE_NS);
        if (remote_move(comm)) {
            idle = 0;
            continue;
        }
        if (active && ++idle > ACTIVE_LOOKS) {
            idle = 0;
            atomic_store(&remote->active, 0);
        }
        remote->ops->wait(comm->net, active ? ACTIVE_MS : SLEEP_MS);
    }
    return NULL;
}

static ulyx_status_t
start_thread(ulyx_comm_t *comm)
{
    struct uli_remote *remote = comm->remote;
    ULI_TRY(uli_thread_start("network", thread_main, comm, &remote->thread));
    remote->has_thread = true;
    uli_bind_thread(&comm->binding, remote->thread);
    return ULYX_SUCCESS;
}

/* ---- hooks --------------------------------------------------------------- */

static void *
hook_target(void *context, uint32_t window, int64_t offset, int64_t bytes)
{
    const ulyx_comm_t *comm = context;
    return uli_window_address(comm, comm->rank, window, offset, bytes);
}

static void
hook_arrived(void *context)
{
    uli_doorbell_ring(((ulyx_comm_t *)context)->control);
}

static void
hook_lost(void *context, int32_t peer, const char *how)
{
    ulyx_comm_t *comm = context;
    if (peer < 0 || peer >= comm->nranks)
        return;
    uli_comm_rank_died(comm, peer, how);
    uli_doorbell_ring(comm->control);
}

/* ---- opening ------------------------------------------------------------- */

/* The transport that puts to the first remote peer; NULL: no peer is remote.
 * uli_comm_connect has found one for each remote peer. */
static const struct uli_tr_ops *
find_transport(ulyx_comm_t *comm)
{
    char why[512];
    for (int32_t p = 0; p < comm->nranks; p++)
        if (uli_comm_is_remote(comm, p))
            return uli_tr_select(&comm->settings,
                &comm->peers[comm->rank].identity, &comm->peers[p].identity,
                ULI_TR_PUT, why, sizeof(why));
    return NULL;
}

static ulyx_status_t
open_net(ulyx_comm_t *comm, const struct uli_tr_ops *transport)
{
    struct uli_remote *remote = calloc(1, sizeof(*remote));
    if (!remote)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for remote peers");
    comm->remote = remote;
    remote->ops = transport->net;
    memcpy(&remote->token, comm->id, sizeof(remote->token));
    pthread_mutex_init(&remote->lock, NULL);
    uli_list_init(&remote->outbox);
    uli_list_init(&remote->calls);
    remote->peers = calloc((size_t)comm->nranks, sizeof(*remote->peers));
    if (!remote->peers)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for remote peers");
    ULI_TRY(uli_nodes_open(comm, &remote->nodes));
    struct uli_net_params params = {comm->rank, comm->nranks, &comm->settings,
        {comm, hook_target, hook_arrived, uli_remote_receive, hook_lost}, 0, 0};
    for (int32_t p = 0; p < comm->nranks; p++)
        if (comm->peers[p].node == comm->peers[comm->rank].node) {
            params.local_rank += p < comm->rank;
            params.local_nranks++;
        }
    ULI_TRY(remote->ops->open(&params, &comm->net));
    uli_place_net(comm);
    return remote->ops->window_add(
        comm->net, 0, comm->segment.address, comm->segment.bytes);
}

void
uli_remote_open(
    ulyx_comm_t *comm, ulyx_status_t status, struct uli_peer_address *address_p)
{
    size_t bytes = sizeof(address_p->content);
    memset(address_p, 0, sizeof(*address_p));
    const struct uli_tr_ops *transport =
        status == ULYX_SUCCESS ? find_transport(comm) : NULL;
    if (transport)
        status = open_net(comm, transport);
    if (transport && status == ULYX_SUCCESS)
        status =
            comm->remote->ops->address(comm->net, address_p->content, &bytes);
    address_p->status = status;
    address_p->segment_bytes = comm->segment.bytes;
    if (status != ULYX_SUCCESS)
        snprintf(address_p->content, sizeof(address_p->content), "%s",
            uli_error_text());
    else if (transport)
        address_p->address_bytes = (uint32_t)bytes;
}

/* Either all ranks have a network address or none has: the error names the
 * first rank with one and the first without. */
static ulyx_status_t
check_addresses(
    const ulyx_comm_t *comm, const struct uli_peer_address *addresses)
{
    int32_t with = -1, without = -1;
    for (int32_t p = comm->nranks - 1; p >= 0; p--)
        *(addresses[p].address_bytes ? &with : &without) = p;
    if (with < 0 || without < 0)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_UNSUPPORTED,
        "rank %d has remote peers and rank %d can map all of them: nodes with "
        "different transports cannot form one communicator",
        uli_comm_number(comm, with), uli_comm_number(comm, without));
}

ulyx_status_t
uli_remote_check(ulyx_comm_t *comm, const struct uli_peer_address *addresses)
{
    for (int32_t p = 0; p < comm->nranks; p++) {
        int text_bytes = (int)sizeof(addresses[p].content) - 1;
        if (addresses[p].address_bytes > sizeof(addresses[p].content))
            return uli_error(ULYX_ERR_VERSION,
                "rank %d: a network address of %u bytes",
                uli_comm_number(comm, p), addresses[p].address_bytes);
        if (addresses[p].status == ULYX_SUCCESS)
            continue;
        if (p == comm->rank)
            return uli_error_pass(addresses[p].status, addresses[p].content);
        return uli_error(addresses[p].status, "rank %d: %.*s",
            uli_comm_number(comm, p), text_bytes, addresses[p].content);
    }
    return check_addresses(comm, addresses);
}

/* Of most replicas only a few words are ever written, and untouched pages cost
 * nothing. */
static ulyx_status_t
make_replicas(ulyx_comm_t *comm)
{
    struct uli_remote *remote = comm->remote;
    int64_t stride = uli_round_up(sizeof(struct uli_control), ULI_LINE), at = 0;
    remote->replica_bytes = (size_t)(stride * comm->nranks);
    void *memory = mmap(NULL, remote->replica_bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return uli_error_errno("%zu bytes for remote peers' control blocks",
            remote->replica_bytes);
    remote->replicas = memory;
    uli_bind_memory(&comm->binding, memory, (int64_t)remote->replica_bytes);
    for (int32_t p = 0; p < comm->nranks; p++) {
        if (!uli_comm_is_remote(comm, p))
            continue;
        comm->peers[p].control = (void *)(remote->replicas + at);
        at += stride;
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_remote_connect(ulyx_comm_t *comm, const struct uli_peer_address *addresses)
{
    if (!comm->net)
        return ULYX_SUCCESS;
    ULI_TRY(make_replicas(comm));
    for (int32_t p = 0; p < comm->nranks; p++) {
        if (!uli_comm_is_remote(comm, p))
            continue;
        ulyx_status_t status = comm->remote->ops->connect(
            comm->net, p, addresses[p].content, addresses[p].address_bytes);
        if (status != ULYX_SUCCESS)
            return uli_error(status, "rank %d: %s", uli_comm_number(comm, p),
                uli_error_text());
        ULI_TRY(uli_window_note(comm, p, 0, addresses[p].segment_bytes));
    }
    return start_thread(comm);
}

static bool
is_guarded(void *context)
{
    return atomic_load(&((ulyx_comm_t *)context)->remote->guarded);
}

/* Each rank watches the next remote rank, so the first rank of every run of
 * ranks of one node is watched by the run before it; within a node ranks watch
 * each other. The answer proves, while creation can still fail naming the rank,
 * that the network carries messages. */
static ulyx_status_t
watch_next_node(ulyx_comm_t *comm, uli_deadline_t deadline)
{
    struct uli_message guard = {.head.kind = ULI_MESSAGE_GUARD, .value = 1};
    int32_t p = (comm->rank + 1) % comm->nranks;
    while (!uli_comm_is_remote(comm, p)) /* some peer is remote */
        p = (p + 1) % comm->nranks;
    uli_comm_notify_meeting(comm, p);
    comm->remote->ops->watch(comm->net, p);
    uli_remote_send_message(comm, p, &guard, NULL, 0);
    ulyx_status_t status = uli_comm_wait(comm, is_guarded, comm, deadline);
    if (status != ULYX_ERR_TIMEOUT)
        return status;
    struct uli_late late = uli_late_one(ULI_LATE_ANSWER, p);
    return uli_comm_late_error(comm, &late, "connecting over the network");
}

/* The ranks that watch this rank must receive its leaving, also when this rank
 * leaves before their first message has arrived. */
static void
note_watchers(ulyx_comm_t *comm)
{
    int32_t before = (comm->rank + comm->nranks - 1) % comm->nranks;
    for (int32_t i = 0; i < comm->nranks; i++) {
        int32_t p = (before - i + comm->nranks) % comm->nranks;
        if (!uli_comm_is_remote(comm, p) ||
            comm->peers[p].node != comm->peers[before].node)
            return;
        atomic_store(&comm->remote->peers[p].contacted, true);
    }
}

ulyx_status_t
uli_remote_ready(ulyx_comm_t *comm, uli_deadline_t deadline)
{
    if (!comm->net)
        return ULYX_SUCCESS;
    note_watchers(comm);
    ULI_TRY(uli_nodes_share(comm));
    return watch_next_node(comm, deadline);
}

/* ---- puts ---------------------------------------------------------------- */

static void
keep_moving(ulyx_comm_t *comm)
{
    if (!atomic_exchange(&comm->remote->active, 1))
        comm->remote->ops->wake(comm->net);
}

ulyx_status_t
uli_remote_put(ulyx_comm_t *comm, int32_t peer, const struct uli_net_put *put)
{
    struct uli_remote *remote = comm->remote;
    if (!uli_remote_window_holds(
            comm, peer, put->window, put->offset, put->bytes))
        return uli_comm_fail(comm, ULYX_ERR_ABORTED, peer,
            "rank %d has taken back window %u while it was in use", peer,
            put->window);
    atomic_store_explicit(
        &remote->peers[peer].contacted, true, memory_order_relaxed);
    ulyx_status_t status = remote->ops->put(comm->net, peer, put);
    if (status != ULYX_SUCCESS)
        return uli_remote_dropped(comm, peer, status);
    keep_moving(comm);
    return ULYX_SUCCESS;
}

void
uli_remote_describe(
    ulyx_comm_t *comm, int32_t peer, char *text_p, size_t text_bytes)
{
    if (comm->net)
        comm->remote->ops->describe(comm->net, peer, text_p, text_bytes);
    else if (text_bytes)
        text_p[0] = 0;
}

/* ---- the end ------------------------------------------------------------- */

void
uli_remote_leave(ulyx_comm_t *comm)
{
    if (!comm->net || uli_service_forked())
        return;
    uli_remote_flush(comm);
    uli_survivors_farewell(comm);
    for (int32_t p = 0; p < comm->nranks; p++)
        if (uli_comm_is_remote(comm, p) &&
            atomic_load(&comm->remote->peers[p].contacted) &&
            !atomic_load(&comm->peers[p].dead))
            uli_remote_send_left(comm, p);
}

static double
patience_s(const ulyx_comm_t *comm)
{
    double patience = comm->settings.keepalive_s;
    if (atomic_load(&comm->failed))
        return comm->timeout_s / FAILED_PART < FAILED_S
                   ? comm->timeout_s / FAILED_PART
                   : FAILED_S;
    if (patience > comm->timeout_s)
        patience = comm->timeout_s;
    return patience > LEAST_S ? patience : LEAST_S;
}

/* A forked child has a copy of the network without the thread. The copy is not
 * touched. */
void
uli_remote_close(ulyx_comm_t *comm)
{
    struct uli_remote *remote = comm->remote;
    if (!comm->net || uli_service_forked())
        return;
    if (remote->has_thread) {
        atomic_store(&remote->stop, true);
        remote->ops->wake(comm->net);
        pthread_join(remote->thread, NULL);
    }
    uli_remote_flush(comm);
    remote->ops->close(comm->net, uli_deadline_in(patience_s(comm)));
    comm->net = NULL;
}

static void
free_outbox(struct uli_remote *remote)
{
    while (!uli_list_empty(&remote->outbox)) {
        struct uli_list *node = remote->outbox.next;
        uli_list_remove(node);
        free(node); /* the first member of remote_message.c's struct */
    }
}

void
uli_remote_free(ulyx_comm_t *comm)
{
    struct uli_remote *remote = comm->remote;
    if (!remote)
        return;
    if (remote->replicas)
        munmap(remote->replicas, remote->replica_bytes);
    free_outbox(remote);
    uli_nodes_close(&remote->nodes);
    pthread_mutex_destroy(&remote->lock);
    free(remote->peers);
    free(remote);
    comm->remote = NULL;
}

int64_t
uli_remote_bytes(const ulyx_comm_t *comm)
{
    const struct uli_remote *remote = comm->remote;
    if (!remote)
        return 0;
    return (int64_t)sizeof(*remote) + (int64_t)remote->replica_bytes +
           comm->nranks * (int64_t)(sizeof(*remote->peers) + sizeof(int32_t)) +
           (comm->nnodes + 1) * (int64_t)sizeof(int32_t);
}
