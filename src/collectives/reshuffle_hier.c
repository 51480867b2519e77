/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of the hierarchical schedule: records to all ranks, then chunks;
 * see hier.h. Records cost N - 1 puts a node and call, by whoever finds them
 * complete first; a compare-and-swap makes it one rank.
 */
#include <stdio.h>
#include <string.h>
#include "collectives/hier.h"
#include "comm/remote.h"

static struct uli_hier_seat *
seat_of(const struct uli_hier *h, int32_t local)
{
    return &h->board->seats[local];
}

void
uli_hier_ring_node(const struct uli_hier *h)
{
    for (int32_t i = 0; i < h->size; i++)
        if (i != h->local)
            uli_doorbell_ring(
                h->comm->peers[uli_nodes_rank(&h->nodes, h->node, i)].control);
}

/* ---- records ------------------------------------------------------------- */

enum presence { ABSENT, POSTED, GONE };

/* `closed` is read first: who posts and closes in between has posted. A rank
 * whose communicator has failed is not gone: the failure, which is everybody's,
 * must not look like a plan that was destroyed. */
static enum presence
local_presence(const struct uli_hier *h, int32_t local, uint64_t call)
{
    const struct uli_hier_seat *seat = seat_of(h, local);
    bool closed = atomic_load(&seat->closed) == ULI_HIER_CLOSED;
    if (atomic_load(&seat->posted) >= call)
        return POSTED;
    return closed ? GONE : ABSENT;
}

static bool
mail_has(const struct uli_hier_mail *mail, uint64_t call)
{
    return atomic_load_explicit(&mail->call[call & 1], memory_order_acquire) >=
           call;
}

/* The same of another node: GONE when its last records have come. Records of
 * two calls may overtake one another. */
static enum presence
node_presence(const struct uli_hier *h, int32_t node, uint64_t call)
{
    const struct uli_hier_mail *mail = h->mails[node];
    bool final = atomic_load_explicit(&mail->final, memory_order_acquire) != 0;
    uint64_t last = final ? mail->last : 0;
    if (mail_has(mail, call))
        return POSTED;
    return final && mail_has(mail, last) && (!last || mail_has(mail, last - 1))
               ? GONE
               : ABSENT;
}

static enum presence
presence_of(const struct uli_hier *h, int32_t p, uint64_t call)
{
    int32_t node = h->nodes.node[p];
    return node == h->node ? local_presence(h, h->nodes.local[p], call)
                           : node_presence(h, node, call);
}

static struct uli_hier_record
local_record(const struct uli_hier *h, int32_t local, uint64_t call)
{
    struct uli_hier_record gone = {ULI_HIER_GONE, 0, 0};
    return local_presence(h, local, call) == POSTED
               ? seat_of(h, local)->records[call & 1]
               : gone;
}

static struct uli_hier_record
record_of(const struct uli_hier *h, int32_t p)
{
    uint64_t call = h->exchange->call;
    int32_t node = h->nodes.node[p], local = h->nodes.local[p];
    struct uli_hier_record gone = {ULI_HIER_GONE, 0, 0};
    if (node == h->node)
        return local_record(h, local, call);
    if (node_presence(h, node, call) == GONE)
        return gone;
    int64_t row = (int64_t)(call & 1) * uli_nodes_size(&h->nodes, node);
    return h->mails[node]->records[row + local];
}

static void
put(struct uli_hier *h, int32_t node, int64_t offset, const void *data,
    int64_t bytes, int64_t signal_offset, uint64_t signal)
{
    const struct uli_address *at = &h->mails_there[node];
    struct uli_net_put put = {.data = data,
        .bytes = bytes,
        .window = at->window,
        .offset = at->offset + offset,
        .signal_window = at->window,
        .signal_offset = at->offset + signal_offset,
        .signal = signal};
    /* A failure has failed the communicator: the next check sees it. */
    uli_remote_put(h->comm, uli_nodes_rank(&h->nodes, node, 0), &put);
}

/* All records of call n of this node, to every other. At most
 * ULI_NET_INLINE_BYTES: copied by the put. */
static void
send_records(struct uli_hier *h, uint64_t call)
{
    struct uli_hier_record records[ULI_HIER_NODE_RANKS];
    int64_t bytes = h->size * (int64_t)sizeof(records[0]);
    int64_t at = (int64_t)offsetof(struct uli_hier_mail, records) +
                 (int64_t)(call & 1) * bytes;
    for (int32_t i = 0; i < h->size; i++)
        records[i] = local_record(h, i, call);
    for (int32_t k = 1; k < h->nodes.nnodes; k++)
        put(h, (h->node + k) % h->nodes.nnodes, at, records, bytes,
            (int64_t)offsetof(struct uli_hier_mail, call) +
                (int64_t)(call & 1) * 8,
            call);
}

static void
send_final(struct uli_hier *h)
{
    uint64_t last = atomic_load(&h->board->sent);
    for (int32_t k = 1; k < h->nodes.nnodes; k++)
        put(h, (h->node + k) % h->nodes.nnodes,
            (int64_t)offsetof(struct uli_hier_mail, last), &last, sizeof(last),
            (int64_t)offsetof(struct uli_hier_mail, final), 1);
}

/* Sends the records of the next call if they are complete and nobody else
 * does. Posts and closes are sequentially consistent with the looks here, so
 * the last of them sees all. */
static bool
try_send(struct uli_hier *h)
{
    uint64_t sent = atomic_load(&h->board->sent), none = 0;
    bool any = false;
    for (int32_t i = 0; i < h->size; i++) {
        enum presence presence = local_presence(h, i, sent + 1);
        if (presence == ABSENT)
            return false;
        any |= presence == POSTED;
    }
    if (!any) {
        if (!atomic_compare_exchange_strong(&h->board->final, &none, 1))
            return false;
        send_final(h);
        return true;
    }
    if (!atomic_compare_exchange_strong(&h->board->sent, &sent, sent + 1))
        return false;
    send_records(h, sent + 1);
    return true;
}

static void
post(struct uli_hier *h, ulyx_status_t status)
{
    struct uli_hier_seat *seat = seat_of(h, h->local);
    struct uli_hier_record *record = &seat->records[h->exchange->call & 1];
    record->status = status;
    record->operation = h->exchange->operation;
    record->hash = h->exchange->hash;
    atomic_store(&seat->posted, h->exchange->call);
    h->posted = true;
    try_send(h);
    uli_hier_ring_node(h);
}

static bool
all_present(const struct uli_hier *h, uint64_t call)
{
    for (int32_t i = 0; i < h->size; i++)
        if (i != h->local && local_presence(h, i, call) == ABSENT)
            return false;
    for (int32_t n = 0; n < h->nodes.nnodes; n++)
        if (n != h->node && node_presence(h, n, call) == ABSENT)
            return false;
    return true;
}

bool
uli_hier_may_post(const struct uli_hier *h)
{
    return h->exchange->call == 1 || all_present(h, h->exchange->call - 1);
}

void
uli_hier_refuse(struct uli_hier *h, ulyx_status_t status)
{
    post(h, status);
    atomic_store(&seat_of(h, h->local)->completed, h->exchange->call);
}

/* ---- agreement ----------------------------------------------------------- */

static bool
is_wrong(const struct uli_hier *h, const struct uli_hier_record *record)
{
    return record->status != ULYX_SUCCESS ||
           record->operation != h->exchange->operation ||
           record->hash != h->exchange->hash;
}

/* The lowest rank whose record differs from mine. */
static void
judge(struct uli_hier *h)
{
    h->agreed = true;
    for (int32_t p = 0; p < h->nodes.nranks && h->wrong < 0; p++) {
        struct uli_hier_record record = record_of(h, p);
        struct uli_pair *pair = &h->exchange->pairs[p];
        if (p == h->comm->rank || !is_wrong(h, &record))
            continue;
        h->wrong = p;
        pair->gone = record.status == ULI_HIER_GONE;
        pair->peer_status = record.status;
        pair->peer_operation = record.operation;
        pair->verdict = record.status == ULYX_SUCCESS ? ULYX_ERR_MISMATCH
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

/* ---- peers that leave ---------------------------------------------------- */

/* A local rank that has closed its plan in the middle of the call, because
 * its own deadline was over or its communicator has failed otherwise; or a
 * rank that has destroyed its communicator before it closed anything. */
static bool
look_for_leavers(struct uli_hier *h)
{
    uint64_t call = h->exchange->call;
    for (int32_t p = 0; p < h->nodes.nranks; p++) {
        if (p == h->comm->rank)
            continue;
        bool left = uli_exchange_left(h->exchange, p);
        if (left && h->nodes.node[p] == h->node &&
            presence_of(h, p, call) == ABSENT)
            return uli_exchange_fail_left(h->exchange, p);
        if (h->nodes.node[p] != h->node)
            continue;
        const struct uli_hier_seat *seat = seat_of(h, h->nodes.local[p]);
        bool closed = atomic_load(&seat->closed) == ULI_HIER_CLOSED;
        if (closed && atomic_load(&seat->posted) == call &&
            atomic_load(&seat->completed) < call)
            return uli_exchange_fail_left(h->exchange, p);
    }
    return false;
}

bool
uli_hier_missing(const struct uli_hier *h, int32_t p)
{
    int32_t node = h->nodes.node[p], local = h->nodes.local[p];
    if (h->ended || p == h->comm->rank)
        return false;
    if (!h->agreed)
        return presence_of(h, p, h->exchange->call) == ABSENT;
    for (int32_t i = 0; i < h->nlanes; i++) {
        const struct uli_hier_lane *lane = &h->lanes[i];
        int64_t chunks = lane->stream->chunks;
        bool taken = lane->kind == ULI_HIER_OUT ||
                     uli_hier_reached(h, &lane->taken[local].value, chunks);
        bool filled = lane->kind == ULI_HIER_IN ||
                      uli_hier_reached(h, &lane->filled[local].value, chunks);
        if (node == h->node ? !taken || !filled
                            : node == lane->node && lane->far == p &&
                                  !uli_hier_lane_ended(h, lane))
            return true;
    }
    return false;
}

/* ---- the call ------------------------------------------------------------ */

void
uli_hier_start(struct uli_hier *h)
{
    h->now = &h->work[h->exchange->operation];
    h->posted = h->agreed = h->ended = false;
    h->wrong = -1;
    h->nmails = 0;
    h->sum = h->sum_done = h->sum_run = h->sum_in_run = 0;
}

/* The board's owner hears of mail; the others sleep on their own doorbells. */
static bool
pass_on_mail(struct uli_hier *h)
{
    int32_t count = 0;
    if (h->local != 0 || h->nmails == h->nodes.nnodes - 1)
        return false;
    for (int32_t n = 0; n < h->nodes.nnodes; n++)
        count +=
            n != h->node && node_presence(h, n, h->exchange->call) != ABSENT;
    if (count == h->nmails)
        return false;
    h->nmails = count;
    uli_hier_ring_node(h);
    return true;
}

static bool
come_together(struct uli_hier *h)
{
    bool advanced = false;
    if (!h->posted) {
        if (!uli_hier_may_post(h))
            return look_for_leavers(h);
        post(h, ULYX_SUCCESS);
        advanced = true;
    }
    advanced |= try_send(h);
    advanced |= pass_on_mail(h);
    if (!all_present(h, h->exchange->call))
        return advanced || look_for_leavers(h);
    judge(h);
    if (h->wrong < 0)
        for (int32_t i = 0; i < h->nlanes; i++)
            uli_hier_lane_start(h, &h->lanes[i]);
    return true;
}

static bool
all_ended(const struct uli_hier *h)
{
    if (h->wrong >= 0)
        return true;
    if (h->sum < h->now->nsums)
        return false;
    for (int32_t i = 0; i < h->nlanes; i++)
        if (!uli_hier_lane_ended(h, &h->lanes[i]))
            return false;
    return true;
}

static bool
running(const struct uli_hier *h)
{
    return atomic_load_explicit(&h->exchange->op.status,
               memory_order_relaxed) == ULYX_IN_PROGRESS;
}

static bool
move(struct uli_hier *h)
{
    bool advanced = false;
    for (int32_t i = 0; i < h->nlanes && running(h); i++) {
        /* Each rank begins at another lane, so all are served at any time. */
        struct uli_hier_lane *lane = &h->lanes[(i + h->local) % h->nlanes];
        if (lane->kind != ULI_HIER_IN)
            advanced |= uli_hier_gather(h, lane);
        if (lane->kind != ULI_HIER_OWN && lane->carrier == h->comm->rank)
            advanced |= uli_hier_wire(h, lane);
        if (lane->kind != ULI_HIER_OUT && running(h))
            advanced |= uli_hier_spread(h, lane);
    }
    if (running(h))
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
    if (!h->agreed || !running(h))
        return true;
    bool advanced = h->wrong < 0 && move(h);
    if (!running(h) || !all_ended(h))
        return advanced || (running(h) && look_for_leavers(h));
    atomic_store(&seat_of(h, h->local)->completed, h->exchange->call);
    h->ended = true;
    return true;
}

/* ---- the end ------------------------------------------------------------- */

void
uli_hier_close(struct uli_hier *h)
{
    int32_t failed = atomic_load(&h->comm->failed);
    /* A timeout is this rank's alone; nobody else hears of it. */
    bool told = failed != ULYX_SUCCESS && failed != ULYX_ERR_TIMEOUT;
    atomic_store(&seat_of(h, h->local)->closed,
        told ? ULI_HIER_CLOSED_FAILED : ULI_HIER_CLOSED);
    while (try_send(h))
        ;
    uli_hier_ring_node(h);
}

static bool
node_closed(const struct uli_hier *h)
{
    for (int32_t i = 0; i < h->size; i++)
        if (!atomic_load(&seat_of(h, i)->closed))
            return false;
    for (int32_t n = 0; n < h->nodes.nnodes; n++)
        if (n != h->node && node_presence(h, n, UINT64_MAX) != GONE)
            return false;
    return true;
}

/* Nobody writes into this rank's piece any more; the board's owner is the
 * last of its node to give its own back. */
bool
uli_hier_idle(struct uli_hier *h)
{
    if (!node_closed(h))
        return false;
    for (int32_t i = 0; i < h->nlanes; i++)
        for (int k = 0; k < ULI_HIER_CHUNKS; k++)
            if (h->lanes[i].carrier == h->comm->rank &&
                atomic_load(&h->lanes[i].words->pending[k]))
                return false;
    for (int32_t i = 1; h->local == 0 && i < h->size; i++)
        if (!atomic_load(&seat_of(h, i)->released))
            return false;
    atomic_store(&seat_of(h, h->local)->released, 1);
    return true;
}
