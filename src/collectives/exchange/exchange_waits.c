/* SPDX-License-Identifier: Apache-2.0
 *
 * For which ranks a call waits, and which rank is the cause. A rank whose call
 * has stood still for a while announces to its peers one rank that it waits for
 * (the flag WAITS), until something moves. So a rank whose deadline is over
 * does not name peers that only wait. It follows their flags to the ranks that
 * announce nothing: those are late.
 *
 * A value of WAITS has the awaited rank + 1 (0: none) in its low 32 bits, and
 * above them a number that grows, because where two puts reach one flag the
 * greater value stays. Under a schedule whose own pair flags show for which
 * ranks the ranks wait, nothing is announced to peers. The flight recorder gets
 * the awaited rank in any case, and what is known about the missing peers.
 */
#include "collectives/exchange/exchange_schedule.h"

#include <stdio.h>
#include "comm/record/stall.h"
#include "comm/remote/remote.h"

/* A call stands still when nothing has moved for a quarter of its time, at most
 * STILL_NS: long compared with the 50 ms between two checks of a sleeping
 * rank. */
#define STILL_NS  INT64_C(500000000)
#define PER_CALL  4
#define PER_STILL 4 /* checks per still_ns during a long wait */

static bool
is_missing(void *context, int32_t p)
{
    const struct uli_exchange *exchange = context;
    const struct uli_pair *pair = &exchange->pairs[p];
    return (pair->shares && !uli_flags_done(pair->mine, exchange->call)) ||
           exchange->schedule->missing(exchange, p);
}

/* The rank that p's flag names; -1: none. */
static int32_t
announced_by(const struct uli_exchange *exchange, int32_t p)
{
    const struct uli_pair *pair = &exchange->pairs[p];
    if (!pair->shares)
        return -1;
    uint32_t announced = (uint32_t)uli_flag(pair->mine, ULI_WAITS);
    return announced <= (uint32_t)exchange->nranks ? (int32_t)announced - 1
                                                   : -1;
}

/* The rank that p has announced to wait for, in this exchange or, if p is on
 * this node, in another call; -1: none. Also -1 under a schedule that announces
 * nothing. */
static int32_t
waits_for(void *context, int32_t p)
{
    const struct uli_exchange *exchange = context;
    if (!exchange->schedule->announces_waits)
        return -1;
    int32_t announced = announced_by(exchange, p);
    return announced >= 0 || uli_comm_is_remote(exchange->comm, p)
               ? announced
               : uli_comm_awaits(exchange->comm, p);
}

static bool *
mark_of(void *context, int32_t p)
{
    struct uli_exchange *exchange = context;
    return &exchange->pairs[p].named;
}

static struct uli_late_view
exchange_view(struct uli_exchange *exchange)
{
    return (struct uli_late_view){exchange, exchange->nranks, exchange->rank,
        is_missing, waits_for, mark_of};
}

/* ---- announcing ---------------------------------------------------------- */

static void
exchange_announce_awaited(struct uli_exchange *exchange, int32_t rank)
{
    if (exchange->announced == rank)
        return;
    exchange->announced = rank;
    uli_recorder_await(
        &exchange->comm->control->recorder, exchange->request.recorded, rank);
    if (!exchange->schedule->announces_waits)
        return;
    uint64_t value = ++exchange->announcements << 32 | (uint32_t)(rank + 1);
    for (int32_t p = 0; p < exchange->nranks; p++)
        if (exchange->pairs[p].shares)
            uli_post_waits(exchange, p, value);
}

/* The stage of a missing peer, by its pair flags. */
static int32_t
peer_stage(const struct uli_exchange *exchange, int32_t p)
{
    const struct uli_pair *pair = &exchange->pairs[p];
    if (!pair->shares)
        return ULI_STAGE_UNKNOWN;
    return pair->seen || uli_flags_ready(pair->mine, exchange->call)
               ? ULI_STAGE_MOVES
               : ULI_STAGE_AWAY;
}

void
uli_exchange_note(struct uli_exchange *exchange)
{
    struct uli_recorder_progress progress = {
        .serial = exchange->request.recorded,
        .stage = exchange->opened ? ULI_STAGE_MOVES : ULI_STAGE_OPENS};
    for (int32_t p = 0; p < exchange->nranks; p++) {
        const struct uli_pair *pair = &exchange->pairs[p];
        const struct uli_recorded_peer peer = {
            p, peer_stage(exchange, p), pair->produced, pair->consumed};
        if (is_missing(exchange, p))
            uli_recorder_miss(&progress, &peer);
    }
    uli_recorder_note(&exchange->comm->control->recorder, &progress);
}

/* ---- ranks in other calls ------------------------------------------------ */

/* The peer has not begun the call, as far as is known here. */
static bool
peer_is_away(void *context, int32_t p)
{
    return is_missing(context, p) && peer_stage(context, p) != ULI_STAGE_MOVES;
}

/* Publishes that this rank stands still in this call, and compares the call
 * with those of peers that have not begun it (differ.h). Only while the caller
 * waits for this call: else the rank may still begin another one. */
static void
exchange_look(struct uli_exchange *exchange)
{
    ulyx_comm_t *comm = exchange->comm;
    const struct uli_call_key key = {.call = exchange->call_kind,
        .direction = exchange->direction,
        .plan = exchange->plan_number,
        .number = exchange->call,
        .fingerprint = exchange->fingerprint};
    int32_t away = -1;
    if (exchange->opened && atomic_load(&exchange->request.awaited) &&
        uli_board_is_free(comm))
        away = uli_differ_choose(comm, &key, peer_is_away, exchange);
    if (away < 0) {
        uli_board_withdraw(comm, &exchange->request);
        return;
    }
    uli_board_publish(comm, &exchange->request, &key, away);
    uli_differ_look(comm);
}

/* Is p the better guess where all waits lead in circles? A rank of another
 * node is, because ranks of one node always reach each other. */
static bool
is_likelier(const struct uli_exchange *exchange, int32_t p, int32_t first)
{
    return first < 0 || (uli_comm_is_remote(exchange->comm, p) &&
                            !uli_comm_is_remote(exchange->comm, first));
}

/* The first rank that is late; else the first of another node, or of this one,
 * that has not ended the call. */
static int32_t
exchange_choose_awaited(struct uli_exchange *exchange)
{
    struct uli_late_view view = exchange_view(exchange);
    int32_t first = -1;
    for (int32_t p = 0; p < exchange->nranks; p++) {
        if (!is_missing(exchange, p))
            continue;
        int32_t origin = uli_late_origin(&view, p);
        if (origin >= 0)
            return origin;
        first = is_likelier(exchange, p, first) ? p : first;
    }
    return first;
}

void
uli_exchange_waits_start(
    struct uli_exchange *exchange, int64_t now_ns, uli_deadline_t deadline)
{
    int64_t left = (deadline - now_ns) / PER_CALL;
    exchange->still_ns = left < STILL_NS ? left : STILL_NS;
    exchange->announce_ns = 0;
    exchange->stall_ns = uli_comm_stall_ns(exchange->comm, now_ns);
}

/* Once per call, after it has announced an awaited rank for some time. */
static void
exchange_warn(struct uli_exchange *exchange, int64_t now)
{
    struct uli_late late;
    char what[64];
    if (now < exchange->stall_ns)
        return;
    exchange->stall_ns = INT64_MAX;
    late = uli_exchange_awaited(exchange);
    snprintf(what, sizeof(what), "%s, call %llu,", exchange->what,
        (unsigned long long)exchange->call);
    uli_comm_warn_stall(exchange->comm, what, &late);
}

void
uli_exchange_waits(struct uli_exchange *exchange, bool moved)
{
    if (moved) {
        exchange->announce_ns = 0;
        exchange_announce_awaited(exchange, -1);
        uli_board_withdraw(exchange->comm, &exchange->request);
        return;
    }
    int64_t now = uli_clock_ns();
    if (exchange->announce_ns && now >= exchange->announce_ns) {
        exchange_announce_awaited(exchange, exchange_choose_awaited(exchange));
        uli_exchange_note(exchange);
        exchange->announce_ns = now + exchange->still_ns / PER_STILL;
        exchange_warn(exchange, now);
        exchange_look(exchange);
    } else if (!exchange->announce_ns) {
        exchange->announce_ns = now + exchange->still_ns;
    }
}

/* ---- naming -------------------------------------------------------------- */

struct uli_late
uli_exchange_awaited(struct uli_exchange *exchange)
{
    struct uli_late_view view = exchange_view(exchange);
    return uli_late_find(&view, ULI_LATE_MOVE);
}
