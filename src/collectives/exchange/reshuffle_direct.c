/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies boxes between memory that this rank can address: stores into a peer's
 * window, loads from a peer's window, and the rank's own share. One copy, no
 * packing: each byte is read once and written once.
 */
#include "base/size.h"
#include "collectives/exchange/exchange.h"

/* ---- parts of a box ------------------------------------------------------ */

static void
run_offsets(
    const struct uli_box *box, int64_t run, int64_t *dst_p, int64_t *src_p)
{
    int64_t k = run % box->extent[2];
    int64_t j = run / box->extent[2] % box->extent[1];
    int64_t i = run / box->extent[2] / box->extent[1];
    *dst_p = box->dst_offset + i * box->dst_stride[0] + j * box->dst_stride[1] +
             k * box->dst_stride[2];
    *src_p = box->src_offset + i * box->src_stride[0] + j * box->src_stride[1] +
             k * box->src_stride[2];
}

int64_t
uli_box_cut_run(const struct uli_box *box, int64_t *run_p, int64_t *in_run_p,
    int64_t room, struct uli_box *part)
{
    if (*run_p >= box->extent[0] * box->extent[1] * box->extent[2])
        return 0;
    int64_t bytes = uli_min(room, box->run_bytes - *in_run_p);
    run_offsets(box, *run_p, &part->dst_offset, &part->src_offset);
    part->dst_offset += *in_run_p;
    part->src_offset += *in_run_p;
    part->run_bytes = bytes;
    for (int d = 0; d < 3; d++) {
        part->extent[d] = 1;
        part->dst_stride[d] = part->src_stride[d] = 0;
    }
    *in_run_p += bytes;
    if (*in_run_p == box->run_bytes) {
        *in_run_p = 0;
        (*run_p)++;
    }
    return bytes;
}

int64_t
uli_box_cut(const struct uli_box *box, int64_t *run_p, int64_t *in_run_p,
    int64_t room, struct uli_box *part, const struct uli_box **box_p,
    struct uli_box_span *span_p)
{
    int64_t left = uli_box_runs(box) - *run_p;
    if (left <= 0 || room <= 0)
        return 0;
    if (*in_run_p || box->run_bytes > room) {
        *box_p = part;
        span_p->begin = 0;
        span_p->end = 1;
        return uli_box_cut_run(box, run_p, in_run_p, room, part);
    }
    /* Small calls are counted in nanoseconds, and a division costs some. */
    int64_t take = left * box->run_bytes <= room ? left : room / box->run_bytes;
    *box_p = box;
    span_p->begin = *run_p;
    span_p->end = *run_p += take;
    return take * box->run_bytes;
}

/* ---- stores and loads ---------------------------------------------------- */

/* A box on its way. zero: the destination is filled with zeros, and there is no
 * source. */
struct transit {
    const struct uli_box *box;
    struct uli_cursor *cursor;
    char *dst;
    const char *src;
    bool zero;
};

static void
transit_move(const struct transit *transit, const struct uli_box *box,
    struct uli_box_span span, const struct uli_copy_way *way)
{
    if (transit->zero)
        uli_box_zero(box, span, transit->dst);
    else
        uli_box_copy(box, span, transit->dst, transit->src, way);
}

/* Moves what is left of a box, at most *left_p bytes, by whole runs where a
 * turn holds one. False: the turn is over, or the call has ended. */
static bool
move_rest(struct uli_exchange *exchange, const struct transit *transit,
    const struct uli_copy_way *way, int64_t *left_p)
{
    const struct uli_box *box = transit->box;
    struct uli_cursor *cursor = transit->cursor;
    struct uli_box part;
    const struct uli_box *cut;
    struct uli_box_span span;
    int64_t bytes;
    while (*left_p >= uli_min(box->run_bytes, ULI_TURN_BYTES) &&
           (bytes = uli_box_cut(box, &cursor->run, &cursor->in_run, *left_p,
                &part, &cut, &span)) > 0) {
        transit_move(transit, cut, span, way);
        *left_p -= bytes;
        if (!uli_exchange_check(exchange, bytes))
            return false;
    }
    if (cursor->run < uli_box_runs(box)) {
        exchange->turned = true;
        return false;
    }
    uli_cursor_pass(cursor, uli_box_runs(box));
    return true;
}

/* As move_rest; and the short way for a whole box that the rest of the turn
 * holds, because small calls are counted in nanoseconds. */
static bool
move_box(struct uli_exchange *exchange, const struct transit *transit,
    int64_t *left_p)
{
    const struct uli_box *box = transit->box;
    struct uli_cursor *cursor = transit->cursor;
    const struct uli_copy_way way = uli_exchange_way(exchange, box);
    int64_t runs = uli_box_runs(box), bytes = runs * box->run_bytes;
    if (cursor->run || cursor->in_run || bytes > *left_p)
        return move_rest(exchange, transit, &way, left_p);
    transit_move(transit, box, (struct uli_box_span){0, runs}, &way);
    *left_p -= bytes;
    cursor->item++;
    return uli_exchange_check(exchange, bytes);
}

bool
uli_direct_store(struct uli_exchange *exchange, int32_t p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    const struct uli_items *items = &exchange->work->pairs[p].out;
    int64_t left = ULI_TURN_BYTES;
    bool advanced = false;
    while (pair->stores.item < items->count) {
        const struct uli_item *item = &items->at[pair->stores.item];
        if (item->verb != ULI_VERB_STORE) {
            pair->stores.item++;
            continue;
        }
        if (exchange->fans && uli_fan_turn(exchange, p, &advanced))
            return advanced;
        advanced = true;
        const struct transit transit = {&item->box, &pair->stores,
            pair->dst_at[item->tensor], exchange->src[item->tensor], false};
        if (!move_box(exchange, &transit, &left))
            return true;
        if (!exchange->work->pairs[p].stores)
            uli_ring_send(exchange, p);
    }
    return advanced;
}

bool
uli_direct_load(struct uli_exchange *exchange, int32_t p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    const struct uli_items *items = &exchange->work->pairs[p].in;
    int64_t left = ULI_TURN_BYTES;
    bool advanced = false, going = true;
    while (going && pair->loads.item < items->count) {
        const struct uli_item *item = &items->at[pair->loads.item];
        advanced = true;
        const struct transit transit = {&item->box, &pair->loads,
            exchange->dst[item->tensor], pair->src_at[item->tensor], false};
        if (item->verb == ULI_VERB_LOAD && item->sum < 0)
            going = move_box(exchange, &transit, &left);
        else if (item->verb == ULI_VERB_READ && pair->can_read)
            going = uli_direct_read(exchange, p, item, &pair->loads);
        else
            pair->loads.item++;
    }
    return advanced;
}

bool
uli_direct_stored(const struct uli_exchange *exchange, int32_t p)
{
    return exchange->work->pairs[p].slot ||
           exchange->pairs[p].stores.item == exchange->work->pairs[p].out.count;
}

bool
uli_direct_loaded(const struct uli_exchange *exchange, int32_t p)
{
    return exchange->work->pairs[p].slot ||
           exchange->pairs[p].loads.item == exchange->work->pairs[p].in.count;
}

/* ---- the own share ------------------------------------------------------- */

/* Moves one turn only, so that a peer that becomes ready does not wait for all
 * of it. */
bool
uli_direct_local(struct uli_exchange *exchange)
{
    struct uli_cursor *cursor = &exchange->local;
    int64_t left = ULI_TURN_BYTES;
    bool advanced = false, going = true;
    while (going && cursor->item < exchange->work->nlocals &&
           !(exchange->fans && uli_fan_has_local(exchange))) {
        const struct uli_local *local = &exchange->work->locals[cursor->item];
        const struct transit transit = {&local->box, cursor,
            exchange->dst[local->tensor], exchange->src[local->tensor],
            local->zero};
        advanced = true;
        going = move_box(exchange, &transit, &left);
    }
    return advanced;
}
