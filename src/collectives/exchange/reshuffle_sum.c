/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over sharers, by the owner of the destination, in the plan's order: sum
 * after sum, and within a sum source after source. If all sources can be
 * loaded, a sum is one pass that stores nothing in between. Otherwise its
 * elements are taken in steps, as far as all staged sources have arrived,
 * through one accumulator per group of sources. The order of additions is the
 * same in both ways, so the bits are too.
 *
 * No deadlock: a sender packs its shares in the order of the sums and waits
 * only for room in the ring, and copies that stand before a share in its stream
 * are taken without regard to sums.
 */
#include "base/dtype.h"
#include "base/size.h"
#include "collectives/exchange/exchange.h"

enum { LOAD_STEP_BYTES = 1 << 20 };

/* A part of a sum: a part of one run, or whole runs. */
struct step {
    struct uli_sum sum;
    struct uli_box_span span;
    int64_t elements;
};

enum gate { GATE_WAIT, GATE_GO, GATE_VOID };

/* Have all sources arrived as far as the next step needs? Lowers *elements_p to
 * what has arrived. VOID: a source takes no part in this call, so there is no
 * result. */
static enum gate
look_at_sources(struct uli_exchange *exchange, const struct uli_sum_item *item,
    int64_t elem_bytes, int64_t *elements_p)
{
    enum gate gate = GATE_GO;
    for (int32_t s = 0; s < item->sum.nsources; s++) {
        int32_t p = item->sources[s].rank;
        int64_t bytes;
        if (p == exchange->rank)
            continue;
        if (!exchange->pairs[p].seen)
            return GATE_WAIT;
        if (exchange->pairs[p].skip) {
            gate = GATE_VOID;
            continue;
        }
        if (!item->sources[s].stream)
            continue;
        if (!uli_ring_peek(exchange, p, &bytes) ||
            exchange->pairs[p].in.item != item->sources[s].item)
            return GATE_WAIT;
        *elements_p = uli_min(*elements_p, bytes / elem_bytes);
    }
    return gate;
}

/* Cuts the next step of at most `room` elements. */
static void
cut_step(struct uli_exchange *exchange, const struct uli_sum_item *item,
    int64_t elem_bytes, int64_t room, struct step *step)
{
    const struct uli_sum *sum = &item->sum;
    int64_t runs = sum->extent[0] * sum->extent[1] * sum->extent[2];
    step->sum = *sum;
    if (!exchange->sum_in_run && sum->run <= room) {
        step->span.begin = exchange->sum_run;
        step->span.end = exchange->sum_run +=
            uli_min(runs - exchange->sum_run, room / sum->run);
        step->elements = (step->span.end - step->span.begin) * sum->run;
        return;
    }
    int64_t at = exchange->sum_run, in_run = exchange->sum_in_run;
    int64_t index[3] = {at / sum->extent[2] / sum->extent[1],
        at / sum->extent[2] % sum->extent[1], at % sum->extent[2]};
    int64_t dst_elem = uli_dtype_size(sum->dtype);
    step->elements = uli_min(room, sum->run - in_run);
    step->span.begin = 0;
    step->span.end = 1;
    step->sum.run = step->elements;
    step->sum.dst_offset += in_run * dst_elem;
    step->sum.src_offset = exchange->sum_offsets;
    for (int32_t s = 0; s < sum->nsources; s++)
        exchange->sum_offsets[s] = sum->src_offset[s] + in_run * elem_bytes;
    for (int d = 0; d < 3; d++) {
        step->sum.extent[d] = 1;
        step->sum.dst_offset += index[d] * sum->dst_stride[d];
        for (int32_t s = 0; s < sum->nsources; s++)
            exchange->sum_offsets[s] += index[d] * sum->src_stride[s][d];
    }
    exchange->sum_in_run += step->elements;
    if (exchange->sum_in_run == sum->run) {
        exchange->sum_in_run = 0;
        exchange->sum_run++;
    }
}

/* ---- all sources loaded -------------------------------------------------- */

static const void *
source_base(const struct uli_exchange *exchange,
    const struct uli_sum_item *item, int32_t s)
{
    int32_t p = item->sources[s].rank;
    return p == exchange->rank ? exchange->src[item->tensor]
                               : exchange->pairs[p].src_at[item->tensor];
}

static void
run_loads(struct uli_exchange *exchange, const struct uli_sum_item *item,
    const struct step *step)
{
    for (int32_t s = 0; s < item->sum.nsources; s++)
        exchange->sum_bases[s] = source_base(exchange, item, s);
    uli_sum_run(&step->sum, step->span, exchange->dst[item->tensor],
        exchange->sum_bases);
}

/* ---- some staged --------------------------------------------------------- */

/* One source's elements of the step, adjacent. */
static const char *
sum_gather(struct uli_exchange *exchange, const struct uli_sum_item *item,
    const struct step *step, int32_t s, int64_t elem_bytes)
{
    int64_t available;
    if (item->sources[s].stream)
        return uli_ring_peek(exchange, item->sources[s].rank, &available);
    const char *base = source_base(exchange, item, s);
    struct uli_box box = {.run_bytes = step->sum.run * elem_bytes,
        .src_offset = step->sum.src_offset[s]};
    for (int d = 0; d < 3; d++) {
        box.extent[d] = step->sum.extent[d];
        box.src_stride[d] = step->sum.src_stride[s][d];
    }
    const struct uli_copy_way way = uli_exchange_packing(exchange, &box);
    uli_box_pack(&box, step->span, exchange->packed, base, &way);
    return exchange->packed;
}

static void
run_staged(struct uli_exchange *exchange, const struct uli_sum_item *item,
    const struct step *step, int64_t elem_bytes)
{
    const struct uli_sum *sum = &step->sum;
    int32_t dtype = sum->dtype, partial = sum->partial_dtype;
    bool merged = false;
    for (int32_t s = 0; s < sum->nsources; s++) {
        bool first = s == 0 || sum->group[s] != sum->group[s - 1];
        bool last =
            s + 1 == sum->nsources || sum->group[s] != sum->group[s + 1];
        uli_sum_accumulate(dtype, partial, exchange->group_acc,
            sum_gather(exchange, item, step, s, elem_bytes), step->elements,
            first);
        if (item->sources[s].stream)
            uli_ring_take(
                exchange, item->sources[s].rank, step->elements * elem_bytes);
        if (!last)
            continue;
        uli_sum_merge(dtype, partial, exchange->acc, exchange->group_acc,
            step->elements, !merged);
        merged = true;
    }
    uli_sum_store(sum, step->span, exchange->dst[item->tensor], exchange->acc);
}

/* ---- a sum without a result ---------------------------------------------- */

/* Takes what has arrived of a sum that cannot be computed, so that the other
 * sharers need not wait; true when all of it has been taken. */
static bool
sum_drain(struct uli_exchange *exchange, const struct uli_sum_item *item,
    bool *advanced_p)
{
    bool whole = true;
    for (int32_t s = 0; s < item->sum.nsources; s++) {
        const struct uli_sum_source *source = &item->sources[s];
        int64_t bytes;
        if (!source->stream || exchange->pairs[source->rank].skip)
            continue;
        const struct uli_stream *in = &exchange->pairs[source->rank].in;
        while (uli_ring_peek(exchange, source->rank, &bytes) &&
               in->item == source->item) {
            uli_ring_take(exchange, source->rank, bytes);
            *advanced_p = true;
        }
        whole &= in->item > source->item;
    }
    return whole;
}

/* ---- all sums, in order -------------------------------------------------- */

static void
next_sum(struct uli_exchange *exchange)
{
    exchange->sum++;
    exchange->sum_run = exchange->sum_in_run = 0;
}

static bool
sum_finished(const struct uli_exchange *exchange, const struct uli_sum *sum)
{
    return exchange->sum_run ==
           sum->extent[0] * sum->extent[1] * sum->extent[2];
}

/* One step of the present sum; false when it has to wait. */
static bool
sum_advance(struct uli_exchange *exchange, const struct uli_sum_item *item)
{
    int64_t elem_bytes = uli_dtype_size(item->sum.partial_dtype);
    int64_t room = item->loads_only ? LOAD_STEP_BYTES / elem_bytes
                                    : exchange->acc_elements;
    bool advanced = false;
    struct step step;
    switch (look_at_sources(exchange, item, elem_bytes, &room)) {
    case GATE_WAIT:
        return false;
    case GATE_VOID:
        if (sum_drain(exchange, item, &advanced)) {
            next_sum(exchange);
            advanced = true;
        }
        return advanced;
    case GATE_GO:
        break;
    }
    cut_step(exchange, item, elem_bytes, room, &step);
    if (item->loads_only)
        run_loads(exchange, item, &step);
    else
        run_staged(exchange, item, &step, elem_bytes);
    if (sum_finished(exchange, &item->sum))
        next_sum(exchange);
    uli_exchange_check(
        exchange, step.elements * elem_bytes * (int64_t)item->sum.nsources);
    return true;
}

bool
uli_sums_progress(struct uli_exchange *exchange)
{
    const struct uli_work *work = exchange->work;
    bool advanced = false;
    if (exchange->sum < work->nsums && work->stale_sums &&
        !exchange->refresh_sums(exchange))
        return false;
    while (exchange->sum < work->nsums &&
           sum_advance(exchange, &work->sums[exchange->sum])) {
        advanced = true;
        if (atomic_load_explicit(&exchange->request.status,
                memory_order_relaxed) != ULYX_IN_PROGRESS)
            break;
    }
    return advanced;
}
