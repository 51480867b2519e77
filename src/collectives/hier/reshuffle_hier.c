/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of the hierarchical schedule: records to all ranks, then chunks;
 * see hier.h.
 */
#include "collectives/hier/hier.h"

void
uli_hier_ring_node(const struct uli_hier *h)
{
    for (int32_t i = 0; i < h->size; i++)
        if (i != h->local)
            uli_doorbell_ring(
                h->comm->peers[uli_nodes_rank(&h->nodes, h->node, i)].control);
}

/* ---- agreement ----------------------------------------------------------- */

static bool
is_wrong(const struct uli_hier *h, const struct uli_hier_record *record)
{
    return record->status != ULYX_SUCCESS ||
           record->direction != h->exchange->direction ||
           record->hash != h->exchange->hash;
}

/* The lowest rank whose record differs from mine. */
static void
reshuffle_hier_check(struct uli_hier *h)
{
    h->agreed = true;
    for (int32_t p = 0; p < h->nodes.nranks && h->wrong < 0; p++) {
        struct uli_hier_record record = uli_hier_record_of(h, p);
        struct uli_pair *pair = &h->exchange->pairs[p];
        if (p == h->comm->rank || !is_wrong(h, &record))
            continue;
        h->wrong = p;
        pair->gone = record.status == ULI_HIER_GONE;
        pair->peer_status = record.status;
        pair->peer_reason = NULL; /* no words in records of nodes */
        pair->peer_direction = record.direction;
        pair->outcome = record.status == ULYX_SUCCESS ? ULYX_ERR_MISMATCH
                                                      : ULYX_ERR_PEER_REFUSED;
    }
}

ulyx_status_t
uli_hier_result(struct uli_hier *h)
{
    if (h->wrong < 0)
        return ULYX_SUCCESS;
    if (h->exchange->pairs[h->wrong].gone)
        return uli_exchange_report_gone(h->exchange, h->wrong);
    return h->exchange->report(h->exchange, h->wrong);
}

/* ---- the call ------------------------------------------------------------ */

void
uli_hier_start(struct uli_hier *h)
{
    h->now = &h->work[h->exchange->direction];
    h->posted = h->agreed = h->ended = false;
    h->wrong = -1;
    h->nmails = 0;
    h->sum = h->sum_done = h->sum_run = h->sum_in_run = 0;
}

/* All records are here and agree. */
static void
rails_start(struct uli_hier *h)
{
    ulyx_status_t status = ULYX_SUCCESS;
    for (int32_t i = 0; i < h->nrails && status == ULYX_SUCCESS; i++)
        status = uli_hier_rail_stage(h, &h->rails[i]);
    if (status != ULYX_SUCCESS) {
        uli_request_finish(&h->exchange->request, status);
        return;
    }
    for (int32_t i = 0; i < h->nrails; i++)
        uli_hier_rail_start(h, &h->rails[i]);
}

static bool
come_together(struct uli_hier *h)
{
    bool advanced = false;
    if (!h->posted) {
        if (!uli_hier_may_post(h))
            return uli_hier_look_for_leavers(h);
        uli_hier_post(h, ULYX_SUCCESS);
        advanced = true;
    }
    advanced |= uli_hier_try_send(h);
    advanced |= uli_hier_pass_on_messages(h);
    if (!uli_hier_all_present(h, h->exchange->call))
        return advanced || uli_hier_look_for_leavers(h);
    reshuffle_hier_check(h);
    if (h->wrong < 0)
        rails_start(h);
    return true;
}

static bool
all_ended(const struct uli_hier *h)
{
    if (h->wrong >= 0)
        return true;
    if (h->sum < h->now->nsums)
        return false;
    for (int32_t i = 0; i < h->nrails; i++)
        if (!uli_hier_rail_ended(h, &h->rails[i]))
            return false;
    return true;
}

static bool
hier_running(const struct uli_hier *h)
{
    return atomic_load_explicit(&h->exchange->request.status,
               memory_order_relaxed) == ULYX_IN_PROGRESS;
}

static bool
hier_move(struct uli_hier *h)
{
    bool advanced = false;
    for (int32_t i = 0; i < h->nrails && hier_running(h); i++) {
        /* Each rank begins at another rail, so all are served at any time. */
        struct uli_hier_rail *rail = &h->rails[(i + h->local) % h->nrails];
        if (rail->kind != ULI_HIER_IN)
            advanced |= uli_hier_gather(h, rail);
        if (rail->kind != ULI_HIER_OWN && rail->proxy == h->comm->rank)
            advanced |= uli_hier_wire(h, rail);
        if (rail->kind != ULI_HIER_OUT && hier_running(h))
            advanced |= uli_hier_spread(h, rail);
    }
    if (hier_running(h))
        advanced |= uli_hier_sums(h);
    return advanced;
}

bool
uli_hier_progress(struct uli_hier *h)
{
    if (h->ended)
        return false;
    if (!h->agreed && !come_together(h))
        return false;
    if (!h->agreed || !hier_running(h))
        return true;
    bool advanced = h->wrong < 0 && hier_move(h);
    if (!hier_running(h) || !all_ended(h))
        return advanced || (hier_running(h) && uli_hier_look_for_leavers(h));
    atomic_store(&uli_hier_slot_of(h, h->local)->completed, h->exchange->call);
    uli_hier_leave_staging(h);
    h->ended = true;
    return true;
}
