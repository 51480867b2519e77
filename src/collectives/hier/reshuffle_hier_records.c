/* SPDX-License-Identifier: Apache-2.0
 *
 * Records of the hierarchical schedule: in the mailbox of the node, from there
 * to all other nodes; and which ranks have posted or left; see hier.h. With N
 * nodes, the records of a node and call are sent by N - 1 puts. The rank that
 * first finds the records complete sends them; a compare-and-swap chooses one
 * rank.
 */
#include <stdio.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/hier/hier.h"
#include "comm/remote/remote.h"

/* ---- presence ----------------------------------------------------------- */

/* `closed` is read first: a rank that posts and closes in between has posted. A
 * rank whose communicator has failed has not LEFT: its failure, which reaches
 * all ranks, must not be mistaken for a destroyed plan. */
static enum uli_hier_presence
local_presence(const struct uli_hier *h, int32_t local, uint64_t call)
{
    const struct uli_hier_slot *slot = uli_hier_slot_of(h, local);
    bool closed = atomic_load(&slot->closed) == ULI_HIER_CLOSED;
    if (atomic_load(&slot->posted) >= call)
        return ULI_HIER_POSTED;
    return closed ? ULI_HIER_LEFT : ULI_HIER_ABSENT;
}

static bool
message_has(const struct uli_hier_message *message, uint64_t call)
{
    return atomic_load_explicit(
               &message->call[call & 1], memory_order_acquire) >= call;
}

/* As above for another node. Its ranks count as LEFT only when the records of
 * the last two calls have arrived too, because these records and the final
 * message may overtake one another. */
static enum uli_hier_presence
node_presence(const struct uli_hier *h, int32_t node, uint64_t call)
{
    const struct uli_hier_message *message = h->mails[node];
    bool final =
        atomic_load_explicit(&message->final, memory_order_acquire) != 0;
    uint64_t last = final ? message->last : 0;
    if (message_has(message, call))
        return ULI_HIER_POSTED;
    return final && message_has(message, last) &&
                   (!last || message_has(message, last - 1))
               ? ULI_HIER_LEFT
               : ULI_HIER_ABSENT;
}

enum uli_hier_presence
uli_hier_presence(const struct uli_hier *h, int32_t p, uint64_t call)
{
    int32_t node = h->nodes.node[p];
    return node == h->node ? local_presence(h, h->nodes.local[p], call)
                           : node_presence(h, node, call);
}

static struct uli_hier_record
local_record(const struct uli_hier *h, int32_t local, uint64_t call)
{
    const struct uli_hier_record gone = {.status = ULI_HIER_GONE};
    return local_presence(h, local, call) == ULI_HIER_POSTED
               ? uli_hier_slot_of(h, local)->records[call & 1]
               : gone;
}

struct uli_hier_record
uli_hier_record_of(const struct uli_hier *h, int32_t p)
{
    uint64_t call = h->exchange->call;
    int32_t node = h->nodes.node[p], local = h->nodes.local[p];
    const struct uli_hier_record gone = {.status = ULI_HIER_GONE};
    if (node == h->node)
        return local_record(h, local, call);
    if (node_presence(h, node, call) == ULI_HIER_LEFT)
        return gone;
    int64_t row = (int64_t)(call & 1) * uli_nodes_size(&h->nodes, node);
    return h->mails[node]->records[row + local];
}

static void
records_put(struct uli_hier *h, int32_t node, int64_t offset, const void *data,
    int64_t bytes, int64_t signal_offset, uint64_t signal)
{
    const struct uli_address *at = &h->messages_there[node];
    struct uli_net_put put = {.data = data,
        .bytes = bytes,
        .window = at->window,
        .offset = at->offset + offset,
        .signal_window = at->window,
        .signal_offset = at->offset + signal_offset,
        .signal = signal};
    /* A failed put has failed the communicator; the next check finds that. */
    uli_remote_put(h->comm, uli_nodes_rank(&h->nodes, node, 0), &put);
}

const char *
uli_hier_reason(const struct uli_hier *h, int32_t p)
{
    uint64_t call = h->exchange->call;
    int32_t node = h->nodes.node[p];
    if (node == h->node)
        return uli_hier_slot_of(h, h->nodes.local[p])->reasons[call & 1];
    const struct uli_hier_message *message = h->mails[node];
    return atomic_load_explicit(
               &message->reason_in[call & 1], memory_order_acquire) >= call
               ? message->reasons[call & 1]
               : NULL;
}

/* Sends the reason of the first record that refuses the call, to every other
 * node. */
static void
send_reason(
    struct uli_hier *h, uint64_t call, const struct uli_hier_record *records)
{
    int64_t parity = (int64_t)(call & 1);
    int32_t i = 0;
    while (i < h->size && records[i].status >= ULYX_SUCCESS)
        i++;
    for (int32_t k = 1; i < h->size && k < h->nodes.nnodes; k++)
        records_put(h, (h->node + k) % h->nodes.nnodes,
            (int64_t)offsetof(struct uli_hier_message, reasons) +
                parity * ULI_REFUSAL_BYTES,
            uli_hier_slot_of(h, i)->reasons[parity], ULI_REFUSAL_BYTES,
            (int64_t)offsetof(struct uli_hier_message, reason_in) + parity * 8,
            call);
}

/* Sends all records of call n of this node to every other node. At most
 * ULI_NET_INLINE_BYTES: copied by the put. */
static void
send_records(struct uli_hier *h, uint64_t call)
{
    struct uli_hier_record records[ULI_HIER_NODE_RANKS];
    int64_t bytes = h->size * (int64_t)sizeof(records[0]);
    int64_t at = (int64_t)offsetof(struct uli_hier_message, records) +
                 (int64_t)(call & 1) * bytes;
    for (int32_t i = 0; i < h->size; i++)
        records[i] = local_record(h, i, call);
    send_reason(h, call, records);
    for (int32_t k = 1; k < h->nodes.nnodes; k++)
        records_put(h, (h->node + k) % h->nodes.nnodes, at, records, bytes,
            (int64_t)offsetof(struct uli_hier_message, call) +
                (int64_t)(call & 1) * 8,
            call);
}

static void
send_final(struct uli_hier *h)
{
    uint64_t last = atomic_load(&h->mailbox->sent);
    for (int32_t k = 1; k < h->nodes.nnodes; k++)
        records_put(h, (h->node + k) % h->nodes.nnodes,
            (int64_t)offsetof(struct uli_hier_message, last), &last,
            sizeof(last), (int64_t)offsetof(struct uli_hier_message, final), 1);
}

/* Posts and closes are sequentially consistent with the loads here, so the rank
 * that posts or closes last finds all records. */
bool
uli_hier_try_send(struct uli_hier *h)
{
    uint64_t sent = atomic_load(&h->mailbox->sent), none = 0;
    bool any = false;
    for (int32_t i = 0; i < h->size; i++) {
        enum uli_hier_presence presence = local_presence(h, i, sent + 1);
        if (presence == ULI_HIER_ABSENT)
            return false;
        any |= presence == ULI_HIER_POSTED;
    }
    if (!any) {
        if (!atomic_compare_exchange_strong(&h->mailbox->final, &none, 1))
            return false;
        send_final(h);
        return true;
    }
    if (!atomic_compare_exchange_strong(&h->mailbox->sent, &sent, sent + 1))
        return false;
    send_records(h, sent + 1);
    return true;
}

/* Sets the record's staging: the first bytes of the memory that the call has. A
 * refused call has none. */
static void
hier_offer_staging(const struct uli_hier *h, struct uli_hier_record *record)
{
    const struct uli_exchange *exchange = h->exchange;
    bool any = record->status == ULYX_SUCCESS;
    record->leased = any && exchange->ring_set;
    record->window = any ? exchange->ring_window & 0x7FFF : 0;
    record->line = any ? (uint32_t)(exchange->ring_offset / ULI_LINE) : 0;
    if (record->leased)
        atomic_fetch_add(uli_ring_set_readers(exchange->ring_set), h->size);
}

void
uli_hier_post(struct uli_hier *h, ulyx_status_t status)
{
    struct uli_hier_slot *slot = uli_hier_slot_of(h, h->local);
    struct uli_hier_record *record = &slot->records[h->exchange->call & 1];
    record->status = (int8_t)status;
    record->direction = (uint8_t)h->exchange->direction;
    record->hash = h->exchange->hash;
    if (status != ULYX_SUCCESS)
        snprintf(slot->reasons[h->exchange->call & 1], ULI_REFUSAL_BYTES, "%s",
            uli_error_text());
    hier_offer_staging(h, record);
    atomic_store(&slot->posted, h->exchange->call);
    h->posted = true;
    uli_hier_try_send(h);
    uli_hier_ring_node(h);
}

bool
uli_hier_all_present(const struct uli_hier *h, uint64_t call)
{
    for (int32_t i = 0; i < h->size; i++)
        if (i != h->local && local_presence(h, i, call) == ULI_HIER_ABSENT)
            return false;
    for (int32_t n = 0; n < h->nodes.nnodes; n++)
        if (n != h->node && node_presence(h, n, call) == ULI_HIER_ABSENT)
            return false;
    return true;
}

bool
uli_hier_may_post(const struct uli_hier *h)
{
    return h->exchange->call == 1 ||
           uli_hier_all_present(h, h->exchange->call - 1);
}

void
uli_hier_refuse(struct uli_hier *h, ulyx_status_t status)
{
    uli_hier_post(h, status);
    atomic_store(&uli_hier_slot_of(h, h->local)->completed, h->exchange->call);
}

bool
uli_hier_pass_on_messages(struct uli_hier *h)
{
    int32_t count = 0;
    if (h->local != 0 || h->nmails == h->nodes.nnodes - 1)
        return false;
    for (int32_t n = 0; n < h->nodes.nnodes; n++)
        count += n != h->node &&
                 node_presence(h, n, h->exchange->call) != ULI_HIER_ABSENT;
    if (count == h->nmails)
        return false;
    h->nmails = count;
    uli_hier_ring_node(h);
    return true;
}

/* ---- staging ------------------------------------------------------------- */

static int64_t
record_chunk(const struct uli_hier *h, const struct uli_hier_record *record)
{
    return record->leased ? h->chunk_bytes : h->small_bytes;
}

/* The staging of rail number `place` of those whose proxy is the record's
 * rank. */
static struct uli_address
record_staging(const struct uli_hier *h, const struct uli_hier_record *record,
    int32_t place)
{
    return (struct uli_address){
        record->window, (int64_t)record->line * ULI_LINE +
                            place * ULI_HIER_CHUNKS * record_chunk(h, record)};
}

ulyx_status_t
uli_hier_rail_stage(struct uli_hier *h, struct uli_hier_rail *rail)
{
    const struct uli_hier_record near = uli_hier_record_of(h, rail->proxy);
    struct uli_address at = record_staging(h, &near, rail->place);
    int64_t bytes = ULI_HIER_CHUNKS * record_chunk(h, &near);
    int32_t wrong = rail->proxy;
    rail->chunk_bytes = record_chunk(h, &near);
    rail->staging =
        uli_window_address(h->comm, rail->proxy, at.window, at.offset, bytes);
    bool good = rail->staging != NULL;
    if (good && rail->kind != ULI_HIER_OWN) {
        const struct uli_hier_record far = uli_hier_record_of(h, rail->far);
        wrong = rail->far;
        at = rail->far_staging = record_staging(h, &far, rail->far_place);
        bytes = ULI_HIER_CHUNKS * record_chunk(h, &far);
        rail->chunk_bytes = uli_min(rail->chunk_bytes, record_chunk(h, &far));
        good = rail->proxy != h->comm->rank ||
               uli_remote_window_holds(
                   h->comm, rail->far, at.window, at.offset, bytes);
    }
    if (good)
        return ULYX_SUCCESS;
    return uli_comm_fail(h->comm, ULYX_ERR_INTERNAL, wrong,
        "rank %d: its staging of %lld bytes at byte %lld of its window %u is "
        "not known here",
        wrong, (long long)bytes, (long long)at.offset, at.window);
}

void
uli_hier_leave_staging(struct uli_hier *h)
{
    struct uli_ring_set *mine = h->exchange->ring_set;
    if (h->wrong >= 0) {
        if (mine)
            atomic_fetch_sub(uli_ring_set_readers(mine), h->size);
        return;
    }
    for (int32_t i = 0; i < h->size; i++) {
        struct uli_hier_record record = local_record(h, i, h->exchange->call);
        struct uli_ring_head *head = uli_window_address(h->comm,
            uli_nodes_rank(&h->nodes, h->node, i), record.window,
            (int64_t)record.line * ULI_LINE - (int64_t)sizeof(*head),
            (int64_t)sizeof(*head));
        if (record.leased && head)
            atomic_fetch_sub(&head->readers, 1);
    }
}

/* ---- the end ------------------------------------------------------------- */

void
uli_hier_close(struct uli_hier *h)
{
    int32_t failed = atomic_load(&h->comm->failed);
    uint64_t poison = uli_remote_poison(h->comm);
    /* A timeout stays local and is not sent to other ranks. */
    bool passed_on = failed != ULYX_SUCCESS && failed != ULYX_ERR_TIMEOUT;
    atomic_store(&uli_hier_slot_of(h, h->local)->closed,
        !passed_on ? ULI_HIER_CLOSED
        : poison   ? poison
                   : ULI_HIER_CLOSED_FAILED);
    while (uli_hier_try_send(h))
        ;
    uli_hier_ring_node(h);
}

static bool
node_closed(const struct uli_hier *h)
{
    for (int32_t i = 0; i < h->size; i++)
        if (!atomic_load(&uli_hier_slot_of(h, i)->closed))
            return false;
    for (int32_t n = 0; n < h->nodes.nnodes; n++)
        if (n != h->node && node_presence(h, n, UINT64_MAX) != ULI_HIER_LEFT)
            return false;
    return true;
}

/* True when no rank writes into this rank's block any more. The mailbox's owner
 * is the last of its node to free its block. */
bool
uli_hier_idle(struct uli_hier *h)
{
    if (!node_closed(h))
        return false;
    for (int32_t i = 0; i < h->nrails; i++)
        for (int k = 0; k < ULI_HIER_CHUNKS; k++)
            if (h->rails[i].proxy == h->comm->rank &&
                atomic_load(&h->rails[i].words->pending[k]))
                return false;
    for (int32_t i = 1; h->local == 0 && i < h->size; i++)
        if (!atomic_load(&uli_hier_slot_of(h, i)->released))
            return false;
    atomic_store(&uli_hier_slot_of(h, h->local)->released, 1);
    return true;
}
