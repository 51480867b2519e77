/* SPDX-License-Identifier: Apache-2.0
 *
 * Quarantine: the state of a window that ranks of a failed communicator may
 * still store into. A quarantine belongs to the window, not to the
 * communicator, and so outlives destroy and shrink.
 *
 * A rank is settled once it can no longer touch the window: the rank is dead,
 * has destroyed its handle, or its process answers that it has no operation in
 * flight and has withdrawn the window. The rank's service thread answers, so an
 * idle rank is settled too; a stopped rank does not answer. Remote ranks are
 * queried over the network, which also waits for data on their way, from dead
 * ranks too: such data may have arrived at this process but not yet in the
 * window.
 */
#ifndef ULI_COMM_MEMORY_QUARANTINE_H
#define ULI_COMM_MEMORY_QUARANTINE_H

#include <stdbool.h>
#include "comm/comm.h"

struct uli_pending {
    bool here; /* a rank of this process */
    bool remote;
    struct uli_identity identity;
};

struct uli_quarantine {
    struct uli_list in_mem;
    ulyx_comm_t *comm; /* by which remote ranks are queried; NULL once the
                        * communicator has ended */
    char comm_name[64];
    int32_t rank; /* the owner of the window */
    uint32_t window;
    int32_t npending;
    struct uli_pending pending[]; /* ranks that are not settled */
};

/* A quarantine of a window of comm, with all ranks that had the window pending.
 * NULL: no memory. */
struct uli_quarantine *uli_quarantine_create(
    ulyx_comm_t *comm, uint32_t window);
void uli_quarantine_destroy(struct uli_quarantine *quarantine);

/* Queries the pending ranks; true when all are settled. Takes at most until the
 * deadline and at most half a second, plus 5 ms per rank that does not
 * answer. */
bool uli_quarantine_is_over(
    struct uli_quarantine *quarantine, uli_deadline_t deadline);

/* The communicator ends, and with it the network by which remote ranks could
 * reach the window: all remote ranks are settled. */
void uli_quarantine_orphan(struct uli_quarantine *quarantine);

/* The awaited ranks: "ranks 1, 3 of comm". */
void uli_quarantine_text(
    const struct uli_quarantine *quarantine, char *text_p, size_t text_bytes);

#endif
