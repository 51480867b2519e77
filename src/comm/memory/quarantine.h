/* SPDX-License-Identifier: Apache-2.0
 *
 * Quarantine: a window that ranks of a failed communicator may still store
 * into. It belongs to the window, not to the communicator, and so outlives
 * destroy and shrink.
 *
 * A rank is settled once it can no longer touch the window: it is dead, it has
 * destroyed its handle, or its process says that no operation of it is in
 * flight and has withdrawn the window. The answer comes from the rank's
 * service thread, so an idle rank is settled too; a stopped one gives none.
 * Remote ranks are asked over the net, which also waits for what is on its way,
 * of dead ones, too: their data may be here, and not yet in the window.
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
    ulyx_comm_t *comm; /* while it lives; remote ranks are asked by it */
    char comm_name[64];
    int32_t rank; /* whose window it is */
    uint32_t window;
    int32_t npending;
    struct uli_pending pending[]; /* ranks that are not settled */
};

/* Of a window of comm, for all ranks that had it. NULL: no memory. */
struct uli_quarantine *uli_quarantine_create(
    ulyx_comm_t *comm, uint32_t window);
void uli_quarantine_destroy(struct uli_quarantine *quarantine);

/* Asks the pending ranks; true when all are settled. Bounded: until the
 * deadline, half a second at most, and a few milliseconds for each rank that
 * does not answer. */
bool uli_quarantine_is_over(
    struct uli_quarantine *quarantine, uli_deadline_t deadline);

/* Its communicator goes, and with it the way by which remote ranks could reach
 * the window: they are settled. */
void uli_quarantine_orphan(struct uli_quarantine *quarantine);

/* "ranks 1, 3 of comm": who is awaited. */
void uli_quarantine_text(
    const struct uli_quarantine *quarantine, char *text_p, size_t text_bytes);

#endif
