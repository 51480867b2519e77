/* SPDX-License-Identifier: Apache-2.0
 *
 * How a call of the hierarchical schedule fails: by ranks of the node that
 * leave it, or at its deadline, whose ranks it then names.
 *
 * A chunk passes through several ranks, so a rank waits for some that only wait
 * themselves. Named are those whose turn it is: of this node exactly, by the
 * words; of another node all ranks, because its words cannot be seen here.
 */
#include "collectives/hier/hier.h"

/* ---- peers that leave ---------------------------------------------------- */

/* A rank of the node that is not in the call any more and has not ended it:
 * its own deadline was over, or it has failed otherwise. One that has closed
 * because its communicator has failed tells everybody; one that has destroyed
 * its plan before the call refuses it (a record that says so). */
static bool
has_left(struct uli_hier *h, int32_t i)
{
    const struct uli_hier_slot *slot = uli_hier_slot_of(h, i);
    int32_t p = uli_nodes_rank(&h->nodes, h->node, i);
    uint64_t call = h->exchange->call;
    bool left = uli_exchange_left(h->exchange, p); /* before its words */
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

bool
uli_hier_look_for_leavers(struct uli_hier *h)
{
    for (int32_t i = 0; i < h->size; i++)
        if (i != h->local && has_left(h, i))
            return true;
    return false;
}

/* ---- who is waited for --------------------------------------------------- */

/* Of a word of one rank: chunks of this call. */
static int64_t
count_of(const struct uli_hier *h, const struct uli_hier_flag *word)
{
    uint64_t value = atomic_load_explicit(&word->value, memory_order_acquire);
    uint64_t base = uli_hier_tag(h, 0);
    return value > base ? (int64_t)(value - base) : 0;
}

/* Has local rank i a chunk to fill that has a place, or one to take? */
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

/* Chunks that lie with the proxy and the other node: filled and not sent, or
 * not come although there is room. */
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

/* Records of other nodes come through the first rank of this one. */
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
