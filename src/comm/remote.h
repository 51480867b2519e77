/* SPDX-License-Identifier: Apache-2.0
 *
 * Remote peers: ranks whose memory cannot be mapped here (peer->map is NULL).
 * What the control block does within a node, messages do between nodes: each
 * rank keeps a mirror of every remote peer's control block, and the peer's
 * messages fill it in (agreement posts, abort_seen) or fill in this rank's own
 * block (poison, left), so that agreement, failure and waiting read the same
 * words everywhere. Windows of remote peers are known by number and size only;
 * bytes go into them by uli_remote_put.
 */
#ifndef ULI_COMM_REMOTE_H
#define ULI_COMM_REMOTE_H

#include "comm/comm.h"
#include "transport/net.h"

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
 * A failure of the network fails the communicator. Any thread.
 * Errors: the communicator's failure. */
ulyx_status_t uli_remote_put(
    ulyx_comm_t *comm, int32_t peer, const struct uli_net_put *put);

/* Whether [offset, offset + bytes) lies in a window that the remote peer has
 * attached: what uli_window_address answers for mapped ones. Lock-free. */
bool uli_remote_window_holds(const ulyx_comm_t *comm, int32_t rank,
    uint32_t window, int64_t offset, int64_t bytes);

#endif
