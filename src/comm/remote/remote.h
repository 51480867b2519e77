/* SPDX-License-Identifier: Apache-2.0
 *
 * Remote peers: ranks whose memory cannot be mapped here (peer->map is NULL).
 * What the control block does within a node, messages do between nodes: each
 * rank keeps a replica of every remote peer's control block, and the peer's
 * messages fill it in (shrink's posts) or fill in this rank's own block
 * (poison, left), so that failure and waiting read the same words everywhere.
 * A replica has no left[]: who leaves sends a message. Windows of remote peers
 * are known by number and size only; bytes go into them by uli_remote_put.
 */
#ifndef ULI_COMM_REMOTE_REMOTE_H
#define ULI_COMM_REMOTE_REMOTE_H

#include "comm/comm.h"
#include "transport/net.h"

struct uli_bootstrap;

/* True for a rank that puts and messages reach, and mappings do not. */
static inline bool
uli_comm_is_remote(const ulyx_comm_t *comm, int32_t p)
{
    return !comm->peers[p].map;
}

/* Moves the network on; every wait loop and every drive of operations calls
 * it. True when something happened. Does nothing without remote peers. */
bool uli_comm_progress(ulyx_comm_t *comm);

/* Data and a signal into the windows of a remote peer; the rules are net.h's.
 * What goes to a peer that is lost is dropped, *put->pending untouched: the
 * communicator fails soon, unless the peer has left in good order and only a
 * last word came too late for it. Any thread, but not from a hook of the net.
 * Errors: the communicator's failure. */
ulyx_status_t uli_remote_put(
    ulyx_comm_t *comm, int32_t peer, const struct uli_net_put *put);

/* Whether [offset, offset + bytes) lies in a window that the remote peer has
 * attached: what uli_window_address answers for mapped ones. Lock-free. */
bool uli_remote_window_holds(const ulyx_comm_t *comm, int32_t rank,
    uint32_t window, int64_t offset, int64_t bytes);

/* One line about the way to a remote peer, for plan_describe. */
void uli_remote_describe(
    ulyx_comm_t *comm, int32_t peer, char *text_p, size_t text_bytes);

/* ---- for the rest of this layer ------------------------------------------ */

/* What a rank brings to the gather of addresses. */
struct uli_peer_address {
    int32_t status;
    uint32_t address_bytes; /* 0: all ranks can be mapped, no net */
    int64_t segment_bytes;  /* of window 0 */
    char content[ULI_NET_ADDRESS_BYTES]; /* address, or text of status */
};

/* Opens my end of the net where a peer is remote, and fills my address, which
 * carries `status` (a failure so far) on or the failure to open. */
void uli_remote_open(ulyx_comm_t *comm, ulyx_status_t status,
    struct uli_peer_address *address_p);
/* The first failure on an address, the same on all ranks. */
ulyx_status_t uli_remote_check(
    ulyx_comm_t *comm, const struct uli_peer_address *addresses);
/* Takes the peers' addresses, makes their replicas and starts the thread.
 * Errors: NO_MEMORY, SYSTEM, INVALID_ARGUMENT. */
ulyx_status_t uli_remote_connect(
    ulyx_comm_t *comm, const struct uli_peer_address *addresses);
/* A leader's table for its node; then the connection that this rank watches
 * another node by. After the windows of this node's ranks can be given.
 * Errors: TIMEOUT naming the rank that did not answer over the network, the
 * communicator's failure, and those of arenas. */
ulyx_status_t uli_remote_ready(ulyx_comm_t *comm, uli_deadline_t deadline);
/* Tells remote peers, in good order, that this rank leaves. */
void uli_remote_leave(ulyx_comm_t *comm);
/* Ends the thread and the net: after it no hook is called. Harmless twice. */
void uli_remote_close(ulyx_comm_t *comm);
/* Frees what is left, replicas included. */
void uli_remote_free(ulyx_comm_t *comm);
/* Bytes held on the host, but for the net's own. */
int64_t uli_remote_bytes(const ulyx_comm_t *comm);

/* Has the poison (control.h) told to remote peers, by whoever moves the net
 * on; once. Any thread, hooks too. */
void uli_remote_tell_poison(ulyx_comm_t *comm, uint64_t poison);
/* What uli_remote_tell_poison was given first; 0 = nothing. Any thread. */
uint64_t uli_remote_poison(const ulyx_comm_t *comm);

/* A window of mine begins, or is taken back: all remote peers that have not
 * gone know when it returns. recorded: the call, in the flight recorder, which
 * learns whom it waits for; or 0. Errors: those of a peer by name; TIMEOUT
 * without a text, *late_p those that did not answer; the communicator's
 * failure. */
ulyx_status_t uli_remote_windows_give(ulyx_comm_t *comm, uint32_t window,
    int64_t bytes, uint64_t recorded, uli_deadline_t deadline,
    struct uli_late *late_p);
ulyx_status_t uli_remote_windows_take(ulyx_comm_t *comm, uint32_t window,
    uint64_t recorded, uli_deadline_t deadline, struct uli_late *late_p);
/* Asks one remote peer to let go of a window of mine, on a communicator that
 * may have failed: true when it has, and nothing of its puts is on its way. */
bool uli_remote_window_retire(
    ulyx_comm_t *comm, int32_t peer, uint32_t window, uli_deadline_t deadline);

#endif
