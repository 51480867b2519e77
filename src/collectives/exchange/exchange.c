/* SPDX-License-Identifier: Apache-2.0
 *
 * One call of an exchange: post READY, move with every peer that is ready, post
 * DONE, wait for the DONE of all peers.
 *
 * Cost at a rank with q peers: 2q doorbells, and 2 more per ring chunk. Rank r
 * serves its peers in the order r + 1, r + 2, ..., so that at any time each
 * peer is served by one rank. A rank's own share is moved when nothing else can
 * move, in turn with peers whose items take several turns, or fanned out with
 * them.
 */
#include "collectives/exchange/exchange_schedule.h"

#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "base/system/cpu.h"
#include "collectives/exchange/copies.h"
#include "comm/remote/remote.h"

static bool exchange_progress(struct ulyx_request *request);
static void exchange_release(struct ulyx_request *request);

void
uli_exchange_init(
    struct uli_exchange *exchange, ulyx_comm_t *comm, enum uli_call kind)
{
    exchange->comm = comm;
    exchange->rank = comm->rank;
    exchange->nranks = comm->nranks;
    exchange->call_kind = kind;
    exchange->what = uli_call_name(kind);
    exchange->plan_number = comm->sequence;
    exchange->announced = -1;
    exchange->schedule = &uli_schedule_direct;
    exchange->stream_always = !strcmp(comm->settings.stream_stores, "on");
    exchange->stream_never = !strcmp(comm->settings.stream_stores, "off");
    exchange->request.comm = comm;
    exchange->request.progress = exchange_progress;
    exchange->request.release = exchange_release;
    uli_request_init(&exchange->request);
}

/* How the copies of the call are made, with the stores that ULYX_STREAM_STORES
 * prescribes. */
static void
choose_copies(struct uli_exchange *exchange)
{
    const struct uli_work *work = exchange->work;
    const struct uli_copy_choice *choice = uli_copies_of(exchange->comm);
    exchange->copies = uli_copy_call_of(choice, work->copied_bytes);
    if (exchange->stream_always || exchange->stream_never)
        exchange->copies.streams =
            exchange->stream_always ? ULI_STREAMS_ALL : ULI_STREAMS_NONE;
    exchange->fans = work->fans && work->copied_bytes >= choice->fan_bytes;
}

static bool
exchange_is_running(const struct uli_exchange *exchange)
{
    return atomic_load_explicit(&exchange->request.status,
               memory_order_relaxed) == ULYX_IN_PROGRESS;
}

/* ---- posts --------------------------------------------------------------- */

static void
write_record(struct uli_exchange *exchange, int32_t p, ulyx_status_t status)
{
    struct uli_pair *pair = &exchange->pairs[p];
    struct uli_record *record = &uli_eager_out(pair, exchange->call)->record;
    record->status = status;
    record->direction = exchange->direction;
    record->hash = exchange->hash;
    record->can_read = pair->can_read;
    record->strided = 0;
    record->send_bytes = record->receive_bytes = 0;
    if (status != ULYX_SUCCESS) {
        snprintf(
            record->reason, sizeof(record->reason), "%s", uli_error_text());
        return;
    }
    memcpy(record->src, exchange->src_at, sizeof(record->src));
    memcpy(record->dst, exchange->dst_at, sizeof(record->dst));
    if (exchange->rings.shared)
        uli_rings_offer(exchange, p, record);
    if (exchange->record)
        exchange->record(exchange, p, record);
}

static bool
record_is_brief(const struct uli_exchange *exchange, int32_t p)
{
    const struct uli_pair_work *work = &exchange->work->pairs[p];
    return work->brief && (work->slot || !exchange->strided);
}

/* ---- opening ------------------------------------------------------------- */

/* True: all peers have posted DONE(n - 1), so they have left call n - 2, and
 * the eager slots n mod 2 are free. False only after a refused call, which ends
 * at this rank before the DONE of its peers is here. */
static bool
may_post(const struct uli_exchange *exchange)
{
    for (int32_t p = 0; p < exchange->nranks; p++) {
        const struct uli_pair *pair = &exchange->pairs[p];
        if (pair->shares && !uli_flags_done(pair->mine, exchange->call - 1) &&
            !uli_exchange_gone(exchange, p))
            return false;
    }
    return exchange->schedule->may_post(exchange);
}

static void
open_pair(struct uli_exchange *exchange, int32_t p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    bool brief = record_is_brief(exchange, p);
    if (!brief)
        write_record(exchange, p, ULYX_SUCCESS);
    uli_ring_begin(exchange, p);
    if (!exchange->work->pairs[p].slot) {
        if (brief)
            uli_post_brief(exchange, p, false);
        else
            uli_post_ready(exchange, p);
        return;
    }
    uli_ring_send(exchange, p);
    /* An incomplete slot must not be announced. */
    if (!exchange_is_running(exchange))
        return;
    if (brief)
        uli_post_brief(exchange, p, true);
    else
        uli_post_eager(exchange, p, pair->out.at);
    pair->posted = true;
}

static bool
open_call(struct uli_exchange *exchange)
{
    if (!may_post(exchange))
        return false;
    exchange->opened = true;
    uli_rings_begin(exchange);
    for (int32_t k = 1; k < exchange->nranks && exchange_is_running(exchange);
         k++) {
        int32_t p = uli_exchange_peer(exchange, k);
        if (exchange->pairs[p].shares)
            open_pair(exchange, p);
    }
    return true;
}

/* ---- a peer's record ----------------------------------------------------- */

static ulyx_status_t
pair_resolve(struct uli_exchange *exchange, int32_t p,
    const struct uli_address *at, const int64_t *bytes, char **pointer_p)
{
    for (int32_t t = 0; t < exchange->ntensors; t++) {
        pointer_p[t] = NULL;
        if (at[t].window == ULI_NO_WINDOW || !bytes || bytes[t] == 0)
            continue;
        pointer_p[t] = uli_window_address(
            exchange->comm, p, at[t].window, at[t].offset, bytes[t]);
        if (!pointer_p[t])
            return uli_comm_fail(exchange->comm, ULYX_ERR_INTERNAL, p,
                "rank %d: tensor %d lies at byte %lld of its window %u, which "
                "is not attached here",
                p, t, (long long)at[t].offset, at[t].window);
    }
    return ULYX_SUCCESS;
}

static void
pair_check(
    struct uli_exchange *exchange, int32_t p, const struct uli_record *record)
{
    struct uli_pair *pair = &exchange->pairs[p];
    pair->peer_status = record->status;
    pair->peer_direction = record->direction;
    pair->peer_reads = record->can_read;
    pair->peer_reason = record->status == ULYX_SUCCESS
                            ? NULL
                            : record->reason; /* valid until call n + 2 */
    if (record->status != ULYX_SUCCESS)
        pair->outcome = ULYX_ERR_PEER_REFUSED;
    else if (record->direction != exchange->direction ||
             record->hash != exchange->hash)
        pair->outcome = ULYX_ERR_MISMATCH;
    else if (exchange->accept && !exchange->accept(exchange, p, record))
        pair->outcome = ULYX_ERR_MISMATCH;
    pair->skip = pair->outcome != ULYX_SUCCESS;
}

/* A peer has left its communicator or its plan without taking part in call n.
 * From a plan: the peer counts as a rank that refuses call n. From a
 * communicator: the call fails. */
static bool
pair_take_gone(struct uli_exchange *exchange, int32_t p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    if (uli_exchange_left(exchange, p) ||
        uli_exchange_timed_out(exchange, p, NULL))
        return uli_exchange_fail_left(exchange, p);
    if (uli_exchange_comm_failed(exchange))
        return true;
    pair->seen = pair->skip = pair->gone = true;
    pair->outcome = ULYX_ERR_PEER_REFUSED;
    return true;
}

/* The record that a short one stands for. */
static void
brief_expand(const struct uli_exchange *exchange,
    const struct uli_short_record *brief, struct uli_record *record_p)
{
    record_p->status = ULYX_SUCCESS;
    record_p->direction = brief->direction;
    record_p->hash = brief->hash;
    record_p->can_read = record_p->strided = 0;
    for (int32_t t = 0; t < exchange->ntensors; t++) {
        bool there = t < ULI_SHORT_TENSORS;
        record_p->src[t] = (struct uli_address){ULI_NO_WINDOW, 0};
        record_p->dst[t] =
            (struct uli_address){there ? brief->window[t] : ULI_NO_WINDOW,
                there ? brief->offset[t] : 0};
    }
}

/* Reads the record of call n once it has arrived. */
static bool
pair_poll(struct uli_exchange *exchange, int32_t p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    uint64_t n = exchange->call;
    if (!uli_flags_ready(pair->mine, n)) {
        bool gone = uli_exchange_gone(exchange, p);
        if (!uli_flags_ready(pair->mine, n))
            return gone && pair_take_gone(exchange, p);
    }
    const struct uli_record *record = &uli_eager_in(pair, n)->record;
    struct uli_record expanded;
    if (uli_flags_brief(pair->mine, n)) {
        brief_expand(exchange, &pair->mine->brief[n & 1], &expanded);
        record = &expanded;
    }
    pair_check(exchange, p, record);
    pair->seen = true;
    if (pair->skip || exchange->work->pairs[p].slot ||
        !exchange_is_running(exchange))
        return true;
    ulyx_status_t status = uli_rings_accept(exchange, p, record);
    if (status == ULYX_SUCCESS && pair->remote)
        return true;
    size_t bytes = (size_t)exchange->ntensors * sizeof(pair->src[0]);
    memcpy(pair->src, record->src, bytes);
    memcpy(pair->dst, record->dst, bytes);
    if (status == ULYX_SUCCESS)
        status =
            pair_resolve(exchange, p, pair->src, pair->src_bytes, pair->src_at);
    if (status == ULYX_SUCCESS)
        status =
            pair_resolve(exchange, p, pair->dst, pair->dst_bytes, pair->dst_at);
    if (status != ULYX_SUCCESS)
        uli_request_finish(&exchange->request, status);
    return true;
}

/* ---- a pair -------------------------------------------------------------- */

static bool
moved_all(const struct uli_exchange *exchange, int32_t p)
{
    const struct uli_pair *pair = &exchange->pairs[p];
    if (pair->skip)
        return true;
    if (exchange->work->pairs[p].stores)
        return uli_direct_stored(exchange, p);
    return exchange->sum > exchange->work->pairs[p].last_sum &&
           uli_direct_stored(exchange, p) && uli_direct_loaded(exchange, p) &&
           uli_ring_sent(exchange, p) && uli_ring_received(exchange, p);
}

static bool
move_pair(struct uli_exchange *exchange, int32_t p)
{
    bool advanced = false;
    if (exchange->work->pairs[p].stores)
        return uli_direct_store(exchange, p);
    if (!exchange->work->pairs[p].slot) {
        advanced |= uli_ring_send(exchange, p);
        advanced |= uli_direct_store(exchange, p);
        advanced |= uli_direct_load(exchange, p);
        /* The peer may have emptied chunks meanwhile. */
        advanced |= uli_ring_send(exchange, p);
    }
    advanced |= uli_ring_receive(exchange, p);
    return advanced;
}

static bool
is_done(const struct uli_exchange *exchange, int32_t p)
{
    return uli_flags_done(exchange->pairs[p].mine, exchange->call);
}

/* The peer took part in call n, and has left before its DONE(n). */
static bool
left_early(const struct uli_exchange *exchange, int32_t p)
{
    return !exchange->pairs[p].gone && uli_exchange_gone(exchange, p) &&
           !is_done(exchange, p);
}

static bool
progress_pair(struct uli_exchange *exchange, int32_t p)
{
    struct uli_pair *pair = &exchange->pairs[p];
    bool advanced = false;
    if (!pair->shares || pair->ended)
        return false;
    if (!pair->seen && !(advanced = pair_poll(exchange, p)))
        return false;
    /* If the record has invalid addresses, the call has ended. */
    if (!exchange_is_running(exchange))
        return true;
    if (!pair->skip)
        advanced |= move_pair(exchange, p);
    if (!advanced && left_early(exchange, p))
        return uli_exchange_fail_left(exchange, p);
    if (!moved_all(exchange, p))
        return advanced;
    if (!pair->posted) {
        if (!uli_exchange_sources_kept(exchange, p))
            return true;
        uli_post_done(exchange, p);
        pair->posted = advanced = true;
    }
    if (pair->gone || is_done(exchange, p)) {
        pair->ended = true;
        advanced = true;
    }
    return advanced;
}

/* ---- the call ------------------------------------------------------------ */

static bool
all_ended(const struct uli_exchange *exchange)
{
    if (exchange->local.item < exchange->work->nlocals ||
        exchange->sum < exchange->work->nsums)
        return false;
    for (int32_t p = 0; p < exchange->nranks; p++)
        if (exchange->pairs[p].shares && !exchange->pairs[p].ended)
            return false;
    return exchange->schedule->ended(exchange);
}

/* Reads the records that have arrived, of all pairs before any of them moves,
 * so that a fan-out finds all peers that are ready. */
static bool
records_take(struct uli_exchange *exchange)
{
    bool advanced = false;
    for (int32_t p = 0; p < exchange->nranks && exchange_is_running(exchange);
         p++)
        if (exchange->pairs[p].shares && !exchange->pairs[p].seen)
            advanced |= pair_poll(exchange, p);
    return advanced;
}

static bool
exchange_advance(struct uli_exchange *exchange)
{
    bool advanced = false;
    if (!exchange->opened) {
        if (!open_call(exchange))
            return false;
        exchange->patient = exchange->fans;
        if (exchange->patient)
            return true; /* the caller may not wait for this call yet */
    }
    if (exchange->patient)
        uli_fan_await(exchange);
    if (exchange->fans)
        advanced |= records_take(exchange);
    exchange->turned = false;
    for (int32_t k = 1; k < exchange->nranks && exchange_is_running(exchange);
         k++)
        advanced |= progress_pair(exchange, uli_exchange_peer(exchange, k));
    if (exchange_is_running(exchange))
        advanced |= exchange->schedule->progress(exchange);
    if (exchange_is_running(exchange) && exchange->sum < exchange->work->nsums)
        advanced |= uli_sums_progress(exchange);
    if (exchange_is_running(exchange) && (!advanced || exchange->turned))
        advanced |= uli_direct_local(exchange);
    return advanced;
}

/* ---- small calls --------------------------------------------------------- */

/* How many times a pass looks at the flags of an opened call before the pass
 * ends and failure, deadline and clock are checked again: one to two
 * microseconds, several times the time that a post takes to arrive. The first
 * EAGER_LOOKS follow each other at once, because a pause takes a good part of
 * that time. */
enum { LOOKS = 64, EAGER_LOOKS = 16 };

/* Has a post arrived by which the pair advances? Posts of rings are left to the
 * passes. */
static bool
pair_has_post(const struct uli_exchange *exchange, int32_t p)
{
    const struct uli_pair *pair = &exchange->pairs[p];
    if (!pair->seen)
        return uli_flags_ready(pair->mine, exchange->call);
    return pair->posted && is_done(exchange, p) && moved_all(exchange, p);
}

/* Waits for the next post, as long as a small call usually does; false: none
 * has come. Only where nothing else could move meanwhile: the caller waits for
 * this operation, and each rank has a core. */
static bool
posts_await(struct uli_exchange *exchange)
{
    if (!exchange->opened || exchange->comm->spin_ns == 0 ||
        exchange->comm->shares_cores || exchange->comm->net ||
        !uli_request_is_alone(&exchange->request))
        return false;
    uli_post_wakes(exchange);
    for (int look = 0; look < LOOKS; look++) {
        for (int32_t p = 0; p < exchange->nranks; p++)
            if (exchange->pairs[p].shares && !exchange->pairs[p].ended &&
                pair_has_post(exchange, p))
                return true;
        if (look >= EAGER_LOOKS)
            uli_cpu_relax();
    }
    return false;
}

/* Moves what can be moved. A small call is moved to its end without a look at
 * the clock in between. */
static bool
exchange_move(struct uli_exchange *exchange, bool *over_p)
{
    bool moved = false, again;
    exchange->holds = exchange->work->small;
    do {
        again = exchange_advance(exchange);
        moved |= again;
        *over_p = exchange_is_running(exchange) && exchange->opened &&
                  all_ended(exchange);
    } while (!*over_p && exchange_is_running(exchange) &&
             (again ? exchange->work->small : posts_await(exchange)));
    exchange->holds = false;
    return moved;
}

static bool
exchange_progress(struct ulyx_request *request)
{
    struct uli_exchange *exchange = (struct uli_exchange *)request;
    bool advanced = uli_comm_progress(exchange->comm), over = false;
    if (uli_exchange_comm_failed(exchange))
        return true;
    bool moved = exchange_move(exchange, &over);
    if (exchange_is_running(exchange) && !over && !moved &&
        uli_exchange_expired(exchange))
        moved = true;
    if (exchange_is_running(exchange))
        uli_exchange_waits(exchange, moved || over);
    uli_post_wakes(exchange);
    if (over) {
        uli_rings_end(exchange); /* before the plan may be called again */
        uli_request_finish(
            &exchange->request, exchange->schedule->result(exchange));
    }
    return advanced || moved || over;
}

static void
exchange_release(struct ulyx_request *request)
{
    struct uli_exchange *exchange = (struct uli_exchange *)request;
    atomic_store_explicit(&exchange->busy, false, memory_order_release);
}

ulyx_status_t
uli_exchange_take(struct uli_exchange *exchange)
{
    bool expected = false;
    if (atomic_compare_exchange_strong(&exchange->busy, &expected, true))
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_BUSY,
        "%s: a call of this %s is in flight, perhaps by another thread",
        exchange->what,
        strcmp(exchange->what, "reshuffle") ? "communicator" : "plan");
}

static void
exchange_reset(struct uli_exchange *exchange)
{
    uli_board_enter(exchange->comm);
    exchange->call++;
    uli_recorder_count(&exchange->comm->control->recorder,
        exchange->plan_number, exchange->call);
    exchange->request.recorded = 0;
    exchange->opened = false;
    exchange->unchecked_bytes = exchange->wire_bytes = exchange->sending = 0;
    exchange->sum = exchange->sum_run = exchange->sum_in_run = 0;
    memset(&exchange->local, 0, sizeof(exchange->local));
    for (int32_t p = 0; p < exchange->nranks; p++) {
        struct uli_pair *pair = &exchange->pairs[p];
        pair->seen = pair->skip = pair->posted = pair->ended = false;
        pair->gone = false;
        pair->peer_reads = false;
        pair->outcome = ULYX_SUCCESS;
        memset(&pair->in, 0, sizeof(pair->in));
        memset(&pair->out, 0, sizeof(pair->out));
        memset(&pair->stores, 0, sizeof(pair->stores));
        memset(&pair->loads, 0, sizeof(pair->loads));
    }
}

static void
exchange_record(struct uli_exchange *exchange, int64_t now_ns)
{
    const struct uli_recorder_entry entry = {.call = exchange->call_kind,
        .direction = exchange->direction,
        .plan = exchange->plan_number,
        .number = exchange->call,
        .fingerprint = exchange->fingerprint,
        .begun_ns = now_ns};
    exchange->request.recorded =
        uli_recorder_begin(&exchange->comm->control->recorder, &entry);
}

void
uli_exchange_start(struct uli_exchange *exchange, int64_t now_ns,
    uli_deadline_t deadline, bool awaited)
{
    exchange_reset(exchange);
    choose_copies(exchange);
    exchange->schedule->start(exchange);
    exchange->request.deadline = deadline;
    uli_exchange_waits_start(exchange, now_ns, deadline);
    exchange_record(exchange, now_ns);
    uli_request_launch(&exchange->request, awaited);
    if (!exchange->request.by_library_thread &&
        !uli_request_is_alone(&exchange->request))
        exchange_progress(&exchange->request);
}

const char *
uli_exchange_reason(const struct uli_exchange *exchange, int32_t p,
    char text_p[ULI_REFUSAL_TEXT_BYTES])
{
    const struct uli_pair *pair = &exchange->pairs[p];
    return uli_status_reason(pair->peer_status, pair->peer_reason,
        pair->peer_reason ? ULI_REFUSAL_BYTES : 0, text_p);
}

/* ---- refusal ------------------------------------------------------------- */

static bool
may_post_now(void *context)
{
    return may_post(context);
}

ulyx_status_t
uli_exchange_refuse(struct uli_exchange *exchange, ulyx_status_t status,
    uli_deadline_t deadline)
{
    char text[256];
    snprintf(text, sizeof(text), "%s", uli_error_text());
    exchange_reset(exchange);
    ulyx_status_t waited = uli_request_drive_until(
        exchange->comm, may_post_now, exchange, deadline);
    if (waited == ULYX_ERR_TIMEOUT)
        waited = uli_exchange_time_out(exchange);
    if (waited != ULYX_SUCCESS) {
        exchange_release(&exchange->request);
        return waited;
    }
    uli_error_pass(status, text);
    for (int32_t p = 0; p < exchange->nranks; p++) {
        if (!exchange->pairs[p].shares)
            continue;
        write_record(exchange, p, status);
        uli_post_eager(exchange, p, 0);
    }
    exchange->schedule->refuse(exchange, status);
    exchange_release(&exchange->request);
    return uli_error_pass(status, text);
}
