/* SPDX-License-Identifier: Apache-2.0
 *
 * Remote peers: ranks whose memory cannot be mapped here (peer->map is NULL).
 * Messages between nodes do what the control block does within a node: each
 * rank keeps a replica of every remote peer's control block, and the peer's
 * messages fill in the replica (posts of a shrink) or this rank's own block
 * (poison, left), so that the code of failures and of waits reads the same
 * fields for a remote peer as for a mapped one. A replica has no left[]: the
 * message of a peer that leaves sets left[] of this rank's own block. Windows
 * of remote peers are known by number and size only; bytes go into them by
 * uli_remote_put.
 */
#ifndef ULI_COMM_REMOTE_REMOTE_H
#define ULI_COMM_REMOTE_REMOTE_H

#include "comm/comm.h"
#include "transport/net.h"

struct uli_bootstrap;

/* Whether the rank's memory is not mapped here, so that only puts and messages
 * reach the rank. */
static inline bool
uli_comm_is_remote(const ulyx_comm_t *comm, int32_t p)
{
    return !comm->peers[p].map;
}

/* The control block of a rank whose memory is mapped here, this rank included.
 * NULL for a remote rank, and until the service has mapped the peer's block.
 * Any thread, also while the communicator is being created: the peer's block is
 * stored after the peer's `map` is set, so whoever finds the block finds `map`
 * too; this rank's own `map` is not read. */
static inline struct uli_control *
uli_comm_mapped_control(const ulyx_comm_t *comm, int32_t p)
{
    struct uli_control *control = atomic_load(&comm->peers[p].control);

    if (p == comm->rank)
        return control;
    return control && !uli_comm_is_remote(comm, p) ? control : NULL;
}

/* Drives the network; every wait loop and every drive of operations calls it.
 * True when something happened. Does nothing without remote peers. */
bool uli_comm_progress(ulyx_comm_t *comm);

/* Puts data and a signal into windows of a remote peer; the rules are those of
 * net.h. A put to a lost peer is dropped, returns SUCCESS and leaves
 * *put->pending untouched. The communicator then fails soon, unless the peer
 * has left in good order, so that this put only came too late. Any thread, but
 * not from a hook of the network. Errors: the communicator's failure. */
ulyx_status_t uli_remote_put(
    ulyx_comm_t *comm, int32_t peer, const struct uli_net_put *put);

/* Whether [offset, offset + bytes) lies in a window that the remote peer has
 * attached; for mapped peers, uli_window_address answers that. Lock-free. */
bool uli_remote_window_holds(const ulyx_comm_t *comm, int32_t rank,
    uint32_t window, int64_t offset, int64_t bytes);

/* One line about the network path to a remote peer, for plan_describe. */
void uli_remote_describe(
    ulyx_comm_t *comm, int32_t peer, char *text_p, size_t text_bytes);

/* ---- for the rest of this layer ------------------------------------------ */

/* A rank's record in the gather of addresses. */
struct uli_peer_address {
    int32_t status;
    uint32_t address_bytes; /* 0: all ranks can be mapped, no network */
    int64_t segment_bytes;  /* of window 0 */
    char content[ULI_NET_ADDRESS_BYTES]; /* address, or text of status */
};

/* Opens this rank's end of the network where a peer is remote, and fills its
 * address record. The record carries `status` (an error so far) or the error of
 * opening. */
void uli_remote_open(ulyx_comm_t *comm, ulyx_status_t status,
    struct uli_peer_address *address_p);
/* The first error in the address records, the same on all ranks. */
ulyx_status_t uli_remote_check(
    ulyx_comm_t *comm, const struct uli_peer_address *addresses);
/* Takes the peers' addresses, makes their replicas and starts the thread.
 * Errors: NO_MEMORY, SYSTEM, INVALID_ARGUMENT. */
ulyx_status_t uli_remote_connect(
    ulyx_comm_t *comm, const struct uli_peer_address *addresses);
/* At a leader, makes the table from which its node's ranks read the posts of
 * other nodes (nodes.h). Then makes the connection by which this rank finds out
 * that another node has vanished. Called when windows can be given to this
 * node's ranks. Errors: TIMEOUT naming the rank that did not answer over the
 * network, the communicator's failure, and those of arenas. */
ulyx_status_t uli_remote_ready(ulyx_comm_t *comm, uli_deadline_t deadline);
/* Sends a remote peer the notice that this rank is going to refuse an agreement
 * round. The refusal itself arrives only in the round, in which the peer must
 * take part. If the peer still waits for this rank elsewhere (split.c), the
 * notice ends that wait. */
void uli_remote_refuse(ulyx_comm_t *comm, int32_t peer, uint64_t round);
/* Whether the peer's notice for this round has arrived. Any thread. */
bool uli_remote_refused(const ulyx_comm_t *comm, int32_t peer, uint64_t round);
/* Sends to remote peers that this rank leaves in good order. */
void uli_remote_leave(ulyx_comm_t *comm);
/* Ends the thread and the network: no hook is called afterwards. May be called
 * twice. */
void uli_remote_close(ulyx_comm_t *comm);
/* Frees the rest, replicas included. */
void uli_remote_free(ulyx_comm_t *comm);
/* Bytes held on the host, without those of the network transport. */
int64_t uli_remote_bytes(const ulyx_comm_t *comm);

/* Has the poison (control.h) sent to remote peers, once, by the next thread
 * that drives the network. Any thread, hooks too. */
void uli_remote_send_poison(ulyx_comm_t *comm, uint64_t poison);
/* The poison of the first call of uli_remote_send_poison; 0 = none. Any
 * thread. */
uint64_t uli_remote_poison(const ulyx_comm_t *comm);

/* Announces a window of this rank (give), or that the window is taken back
 * (take). On success all remote peers that have not gone have answered.
 * recorded: the number of the call in the flight recorder, so that the recorder
 * gets the awaited rank; or 0. Errors: those of a peer, naming it; TIMEOUT
 * without a text, with *late_p the ranks that did not answer; the
 * communicator's failure. */
ulyx_status_t uli_remote_windows_give(ulyx_comm_t *comm, uint32_t window,
    int64_t bytes, uint64_t recorded, uli_deadline_t deadline,
    struct uli_late *late_p);
ulyx_status_t uli_remote_windows_take(ulyx_comm_t *comm, uint32_t window,
    uint64_t recorded, uli_deadline_t deadline, struct uli_late *late_p);
/* Requests that one remote peer releases a window of this rank, on a
 * communicator that may have failed. True: the peer has released the window,
 * and none of its puts is on its way. */
bool uli_remote_window_retire(
    ulyx_comm_t *comm, int32_t peer, uint32_t window, uli_deadline_t deadline);

#endif
