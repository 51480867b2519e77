/* SPDX-License-Identifier: Apache-2.0
 *
 * Fan-outs: the boxes of peers whose heads lie side by side in the rows of this
 * rank's tokens, and the box of the own share, are copied together where that
 * is the faster way. The rows are read once, in order.
 *
 * Peers become ready one after another, so boxes may stand at different rows.
 * Those furthest behind are copied first, until they have caught up, and the
 * others wait for them. A box waits only for boxes that are behind it, so
 * those furthest behind can always be copied.
 */
#include "base/size.h"
#include "collectives/exchange/exchange.h"

/* ---- before the first copy ----------------------------------------------- */

/* How long a call waits for its peers before it moves anything: a nanosecond
 * for each PATIENCE_BYTES of its copies, which is about an eighth of their
 * time, and PATIENCE_NS at most. */
enum { PATIENCE_BYTES = 64, PATIENCE_NS = 50000 };

static bool
all_are_ready(void *context)
{
    const struct uli_exchange *exchange = context;
    for (int32_t p = 0; p < exchange->nranks; p++) {
        const struct uli_pair *pair = &exchange->pairs[p];
        if (pair->shares && !pair->remote &&
            !uli_flags_ready(pair->mine, exchange->call))
            return false;
    }
    return true;
}

void
uli_fan_await(struct uli_exchange *exchange)
{
    int64_t patience_ns =
        uli_min(exchange->work->copied_bytes / PATIENCE_BYTES, PATIENCE_NS);
    exchange->patient = false;
    if (exchange->comm->spin_ns > 0 && uli_request_is_alone(&exchange->request))
        uli_comm_spin(exchange->comm, all_are_ready, exchange, patience_ns,
            exchange->request.deadline);
}

/* ---- boxes --------------------------------------------------------------- */

/* A box that is being copied from the source of this rank. */
struct source_box {
    const struct uli_box *box;
    int32_t tensor;
    struct uli_cursor *cursor;
    char *dst;
};

/* The box at which the stores to rank p, or for p = this rank the own share,
 * stand. False: there is none that could be fanned out now. */
static bool
source_box_of(
    struct uli_exchange *exchange, int32_t p, struct source_box *box_p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    const struct uli_items *items = &exchange->work->pairs[p].out;
    int64_t local = exchange->local.item, stored = pair->stores.item;
    if (p == exchange->rank) {
        if (local == exchange->work->nlocals ||
            exchange->work->locals[local].zero)
            return false;
        const struct uli_local *own = &exchange->work->locals[local];
        *box_p = (struct source_box){&own->box, own->tensor, &exchange->local,
            exchange->dst[own->tensor]};
    } else {
        if (!pair->shares || !pair->seen || pair->skip || pair->ended ||
            exchange->work->pairs[p].slot || stored == items->count ||
            items->at[stored].verb != ULI_VERB_STORE)
            return false;
        const struct uli_item *item = &items->at[stored];
        *box_p = (struct source_box){&item->box, item->tensor, &pair->stores,
            pair->dst_at[item->tensor]};
    }
    return box_p->cursor->in_run == 0;
}

static bool
source_boxes_fan(const struct source_box *a, const struct source_box *b)
{
    return a->tensor == b->tensor && uli_boxes_fan(a->box, b->box);
}

/* The boxes that are copied together with one of them, which is the first. */
struct fan_out {
    int32_t count;
    struct uli_cursor *cursors[ULI_FAN_PARTS];
    struct uli_fan_part parts[ULI_FAN_PARTS];
    int64_t end; /* the run at which copying stops: where the next box ahead
                  * stands, or the end */
    bool waits;  /* another box is behind */
};

static void
fan_out_add(struct fan_out *fan, const struct source_box *box)
{
    if (fan->count == ULI_FAN_PARTS)
        return;
    fan->cursors[fan->count] = box->cursor;
    fan->parts[fan->count++] = (struct uli_fan_part){box->box, box->dst};
}

/* Collects the boxes that stand at the run of `first`, which is of rank p. The
 * own share comes before peers, so that ULI_FAN_PARTS never leaves it out. */
static void
fan_out_find(struct uli_exchange *exchange, int32_t p,
    const struct source_box *first, struct fan_out *fan)
{
    struct source_box other;
    fan->count = 0;
    fan->end = uli_box_runs(first->box);
    fan->waits = false;
    fan_out_add(fan, first);
    for (int32_t k = 0; k < exchange->nranks; k++) {
        int32_t q = uli_exchange_peer(exchange, k);
        if (q == p || !source_box_of(exchange, q, &other) ||
            !source_boxes_fan(first, &other))
            continue;
        int64_t ahead = other.cursor->run - first->cursor->run;
        if (ahead == 0)
            fan_out_add(fan, &other);
        else if (ahead > 0)
            fan->end = uli_min(fan->end, other.cursor->run);
        fan->waits |= ahead < 0;
    }
}

bool
uli_fan_turn(struct uli_exchange *exchange, int32_t p, bool *advanced_p)
{
    struct source_box first;
    struct fan_out fan;
    if (!source_box_of(exchange, p, &first))
        return false;
    const struct uli_box *box = first.box;
    int64_t begin = first.cursor->run, all = uli_box_runs(box);
    fan_out_find(exchange, p, &first, &fan);
    if (fan.count == 1 && fan.end == all && !fan.waits)
        return false;
    exchange->turned = true;
    if (fan.waits)
        return true;
    const struct uli_copy_way way = fan.count > 1
                                        ? uli_exchange_fan(exchange, box)
                                        : uli_exchange_way(exchange, box);
    if (fan.count > 1 && !uli_parts_fan(fan.parts, fan.count, way.stream))
        return false;
    *advanced_p = true;
    int64_t runs = uli_min(fan.end - begin, ULI_TURN_BYTES / box->run_bytes);
    const struct uli_box_span span = {begin, begin + runs};
    const char *src = exchange->src[first.tensor];
    if (fan.count > 1)
        uli_boxes_copy(fan.parts, fan.count, span, src, &way);
    else
        uli_box_copy(box, span, fan.parts[0].dst, src, &way);
    for (int32_t i = 0; i < fan.count; i++) {
        fan.cursors[i]->run += runs;
        uli_cursor_pass(fan.cursors[i], all);
    }
    uli_exchange_check(exchange, runs * box->run_bytes * fan.count);
    return true;
}

bool
uli_fan_has_local(struct uli_exchange *exchange)
{
    struct source_box own, other;
    if (!source_box_of(exchange, exchange->rank, &own))
        return false;
    for (int32_t p = 0; p < exchange->nranks; p++)
        if (p != exchange->rank && source_box_of(exchange, p, &other) &&
            source_boxes_fan(&own, &other) &&
            other.cursor->run <= own.cursor->run)
            return true;
    return false;
}
