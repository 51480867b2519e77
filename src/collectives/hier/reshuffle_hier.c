/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of the hierarchical schedule: records to all ranks, then chunks; see
 * hier.h.
 *
 * When the deadline of a call is over, its error names the late ranks. A chunk
 * passes through several ranks, so most ranks of which this rank misses
 * something only wait themselves, and are not named. Named are the ranks whose
 * turn it is. Of this node these are found exactly, by the words of the rails
 * (hier.h). The words of another node cannot be read here, so if the turn is at
 * that node, all its ranks are named.
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

/* The lowest other rank that refuses the call, or whose direction or hash
 * differs from this rank's; or nranks. */
static int32_t
find_wrong(const struct uli_hier *h, struct uli_hier_record *record_p)
{
    int32_t p = 0;
    for (; p < h->nodes.nranks; p++) {
        *record_p = uli_hier_record_of(h, p);
        if (p != h->comm->rank && is_wrong(h, record_p))
            break;
    }
    return p;
}

/* False: the reason of a refusal has not arrived yet. */
static bool
reshuffle_hier_check(struct uli_hier *h)
{
    struct uli_hier_record record = {0};
    int32_t p = find_wrong(h, &record);
    bool refuses = p < h->nodes.nranks && record.status < ULYX_SUCCESS;
    const char *reason = refuses ? uli_hier_reason(h, p) : NULL;
    if (refuses && !reason)
        return false;
    h->agreed = true;
    if (p == h->nodes.nranks)
        return true;
    struct uli_pair *pair = &h->exchange->pairs[p];
    h->wrong = p;
    pair->gone = record.status == ULI_HIER_GONE;
    pair->peer_status = record.status;
    pair->peer_reason = reason; /* stays for one more call */
    pair->peer_direction = record.direction;
    pair->outcome = record.status == ULYX_SUCCESS ? ULYX_ERR_MISMATCH
                                                  : ULYX_ERR_PEER_REFUSED;
    return true;
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

/* ---- peers that leave ---------------------------------------------------- */

/* Has local rank i left the call before the end of the call, because its
 * deadline was over or because the call failed at that rank? Then ends the
 * operation here and returns true. If rank i has closed because its
 * communicator failed, this rank spreads that failure and returns false. A rank
 * that destroyed its plan before the call has not left the call: its record is
 * one of ULI_HIER_GONE. */
static bool
has_left(struct uli_hier *h, int32_t i)
{
    const struct uli_hier_slot *slot = uli_hier_slot_of(h, i);
    int32_t p = uli_nodes_rank(&h->nodes, h->node, i);
    uint64_t call = h->exchange->call;
    /* read before the slot, which rank i closes before it leaves */
    bool left = uli_exchange_left(h->exchange, p);
    uint64_t closed = atomic_load(&slot->closed);
    if (closed > ULI_HIER_CLOSED_FAILED)
        uli_comm_spread_poison(h->comm, closed);
    if (closed == ULI_HIER_OPEN)
        return left && uli_exchange_fail_left(h->exchange, p);
    if (closed != ULI_HIER_CLOSED || atomic_load(&slot->completed) >= call)
        return false;
    return (uli_exchange_timed_out(h->exchange, p, NULL) ||
               atomic_load(&slot->posted) == call) &&
           uli_exchange_fail_left(h->exchange, p);
}

/* Ends the operation and returns true where a rank of the node has left the
 * call before its end. */
static bool
look_for_leavers(struct uli_hier *h)
{
    for (int32_t i = 0; i < h->size; i++)
        if (i != h->local && has_left(h, i))
            return true;
    return false;
}

/* ---- the call ------------------------------------------------------------ */

void
uli_hier_start(struct uli_hier *h)
{
    h->now = &h->work[h->exchange->direction];
    h->posted = h->agreed = h->ended = h->lacks_reason = false;
    h->wrong = -1;
    h->nmails = 0;
    h->sum = h->sum_done = h->sum_run = h->sum_in_run = 0;
}

/* Starts the rails: all records have arrived and agree. */
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
            return look_for_leavers(h);
        uli_hier_post(h, ULYX_SUCCESS);
        advanced = true;
    }
    advanced |= uli_hier_try_send(h);
    advanced |= uli_hier_pass_on_messages(h);
    if (!uli_hier_all_present(h, h->exchange->call))
        return advanced || look_for_leavers(h);
    if (!reshuffle_hier_check(h)) {
        h->lacks_reason = true;
        return advanced;
    }
    if (h->lacks_reason)
        uli_hier_ring_node(h); /* the other ranks may lack the reason too */
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
        /* Each rank begins at another rail, so that all rails are served at the
         * same time. */
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
        return advanced || (hier_running(h) && look_for_leavers(h));
    atomic_store(&uli_hier_slot_of(h, h->local)->completed, h->exchange->call);
    uli_hier_leave_staging(h);
    h->ended = true;
    return true;
}

/* ---- which ranks the call waits for -------------------------------------- */

/* A rank's word as a count of chunks of this call. */
static int64_t
count_of(const struct uli_hier *h, const struct uli_hier_flag *word)
{
    uint64_t value = atomic_load_explicit(&word->value, memory_order_acquire);
    uint64_t base = uli_hier_tag(h, 0);
    return value > base ? (int64_t)(value - base) : 0;
}

/* Has local rank i a chunk to fill that has a place, or a chunk to take? */
static bool
is_behind(const struct uli_hier *h, const struct uli_hier_rail *rail, int32_t i)
{
    int64_t chunks = rail->chunks;
    int64_t filled = count_of(h, &rail->filled[i]);
    int64_t taken = count_of(h, &rail->taken[i]);
    if (rail->kind != ULI_HIER_IN && filled < chunks &&
        uli_hier_has_room(h, rail, filled))
        return true;
    return rail->kind != ULI_HIER_OUT && taken < chunks &&
           uli_hier_has_come(h, rail, taken);
}

/* Does the rail wait for its proxy and the other node: are chunks filled and
 * not sent, or not arrived although there is room? */
static bool
waits_for_wire(const struct uli_hier *h, const struct uli_hier_rail *rail)
{
    int64_t chunks = rail->chunks;
    if (rail->kind == ULI_HIER_OUT)
        return count_of(h, &rail->words->sent) <
               uli_hier_least(h, rail->filled);
    int64_t taken = uli_hier_least(h, rail->taken);
    for (int64_t c = taken; c < chunks && c < taken + ULI_HIER_CHUNKS; c++)
        if (!uli_hier_has_come(h, rail, c))
            return true;
    return false;
}

/* Does the call wait for rank p before all records have arrived? The call waits
 * for each rank whose record is missing. The first rank of this node receives
 * the records of the other nodes, so while any of them is missing, the call
 * waits for this first rank too. */
static bool
record_missing(const struct uli_hier *h, int32_t p)
{
    uint64_t call = h->exchange->call;
    if (uli_hier_presence(h, p, call) == ULI_HIER_ABSENT)
        return true;
    if (p != uli_nodes_rank(&h->nodes, h->node, 0))
        return false;
    for (int32_t n = 0; n < h->nodes.nnodes; n++)
        if (n != h->node &&
            uli_hier_presence(h, uli_nodes_rank(&h->nodes, n, 0), call) ==
                ULI_HIER_ABSENT)
            return true;
    return false;
}

bool
uli_hier_missing(const struct uli_hier *h, int32_t p)
{
    int32_t node = h->nodes.node[p];
    if (h->ended || p == h->comm->rank)
        return false;
    if (!h->agreed)
        return record_missing(h, p);
    for (int32_t i = 0; i < h->nrails; i++) {
        const struct uli_hier_rail *rail = &h->rails[i];
        bool by_wire = rail->kind != ULI_HIER_OWN &&
                       (node == rail->node || rail->proxy == p);
        if ((node == h->node && is_behind(h, rail, h->nodes.local[p])) ||
            (by_wire && waits_for_wire(h, rail)))
            return true;
    }
    return false;
}
