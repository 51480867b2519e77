/* SPDX-License-Identifier: Apache-2.0
 *
 * Quarantine; see quarantine.h.
 */
#include "comm/memory/quarantine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "comm/remote/remote.h"
#include "comm/service/service.h"
#include "comm/memory/windows.h"

#define QUERY_S     0.5   /* for all ranks together */
#define QUERY_MIN_S 0.005 /* for each rank, once QUERY_S is used up */

struct uli_quarantine *
uli_quarantine_create(ulyx_comm_t *comm, uint32_t window)
{
    struct uli_quarantine *quarantine =
        calloc(1, sizeof(*quarantine) +
                      (size_t)comm->nranks * sizeof(quarantine->pending[0]));
    if (!quarantine)
        return NULL;
    uli_list_init(&quarantine->in_mem);
    snprintf(
        quarantine->comm_name, sizeof(quarantine->comm_name), "%s", comm->name);
    quarantine->rank = comm->rank;
    quarantine->window = window;
    quarantine->comm = comm->net ? comm : NULL;
    for (int32_t p = 0; p < comm->nranks; p++) {
        const struct uli_peer *peer = &comm->peers[p];
        bool remote = !peer->map;
        if (p == comm->rank || (remote && !comm->net) ||
            (!remote && atomic_load(&peer->dead)))
            continue;
        quarantine->pending[quarantine->npending++] =
            (struct uli_pending){peer->same_process, remote, peer->identity};
    }
    return quarantine;
}

void
uli_quarantine_destroy(struct uli_quarantine *quarantine)
{
    free(quarantine);
}

static bool
quarantine_settle(const struct uli_quarantine *quarantine,
    const struct uli_pending *peer, uli_deadline_t deadline)
{
    if (peer->remote)
        return uli_remote_window_retire(quarantine->comm, peer->identity.rank,
            quarantine->window, deadline);
    if (!peer->here)
        return uli_service_recall(&peer->identity, quarantine->rank,
            quarantine->window, true, deadline);
    ulyx_comm_t *comm = uli_service_find(peer->identity.endpoint);
    if (!comm)
        return true;
    bool settled =
        uli_window_retire(comm, quarantine->rank, quarantine->window);
    uli_service_unlock();
    return settled;
}

bool
uli_quarantine_is_over(
    struct uli_quarantine *quarantine, uli_deadline_t deadline)
{
    uli_deadline_t all = uli_min(uli_deadline_in(QUERY_S), deadline);
    int32_t left = 0;
    for (int32_t i = 0; i < quarantine->npending; i++) {
        uli_deadline_t least = uli_deadline_in(QUERY_MIN_S);
        if (!quarantine_settle(
                quarantine, &quarantine->pending[i], all > least ? all : least))
            quarantine->pending[left++] = quarantine->pending[i];
    }
    quarantine->npending = left;
    return left == 0;
}

void
uli_quarantine_orphan(struct uli_quarantine *quarantine)
{
    int32_t left = 0;
    for (int32_t i = 0; i < quarantine->npending; i++)
        if (!quarantine->pending[i].remote)
            quarantine->pending[left++] = quarantine->pending[i];
    quarantine->npending = left;
    quarantine->comm = NULL;
}

void
uli_quarantine_text(
    const struct uli_quarantine *quarantine, char *text_p, size_t text_bytes)
{
    size_t used = (size_t)snprintf(
        text_p, text_bytes, "%s", quarantine->npending == 1 ? "rank" : "ranks");
    for (int32_t i = 0; i < quarantine->npending && used < text_bytes; i++)
        used += (size_t)snprintf(text_p + used, text_bytes - used, "%s %d",
            i ? "," : "", quarantine->pending[i].identity.rank);
    if (used < text_bytes)
        snprintf(text_p + used, text_bytes - used, " of %.63s",
            quarantine->comm_name);
}
