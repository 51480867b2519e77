/* SPDX-License-Identifier: Apache-2.0
 *
 * How a call of an exchange fails: by its deadline, by a failure of the
 * communicator, by peers that have left.
 */
#include "collectives/exchange/exchange.h"
#include "comm/remote/remote.h"

/* ---- deadline and failure ------------------------------------------------ */

static ulyx_status_t
exchange_fail_late(struct uli_exchange *exchange, const struct uli_late *late)
{
    if (exchange->announced < 0 && late->nruns > 0)
        uli_recorder_await(&exchange->comm->control->recorder,
            exchange->request.recorded, late->runs[0].first);
    uli_exchange_note(exchange);
    return uli_comm_fail_late(exchange->comm, late, "%s, call %llu",
        exchange->what, (unsigned long long)exchange->call);
}

ulyx_status_t
uli_exchange_time_out(struct uli_exchange *exchange)
{
    struct uli_late late = uli_exchange_awaited(exchange);
    return exchange_fail_late(exchange, &late);
}

bool
uli_exchange_expired(struct uli_exchange *exchange)
{
    ulyx_status_t status = uli_comm_check(exchange->comm);
    if (status == ULYX_SUCCESS && uli_deadline_over(exchange->request.deadline))
        status = uli_exchange_time_out(exchange);
    if (status != ULYX_SUCCESS)
        uli_request_finish(&exchange->request, status);
    return status != ULYX_SUCCESS;
}

bool
uli_exchange_check(struct uli_exchange *exchange, int64_t bytes_moved)
{
    exchange->unchecked_bytes += bytes_moved;
    if (exchange->unchecked_bytes < ULI_SPAN_BYTES)
        return true;
    exchange->unchecked_bytes = 0;
    if (atomic_load_explicit(&exchange->request.status, memory_order_relaxed) !=
        ULYX_IN_PROGRESS)
        return false;
    return !uli_exchange_expired(exchange);
}

/* ---- peers that have gone ------------------------------------------------ */

static uint64_t
pair_closed(const struct uli_exchange *exchange, int32_t p)
{
    return atomic_load_explicit(
        &exchange->pairs[p].mine->closed, memory_order_acquire);
}

/* A remote peer closes all its exchanges before it sends the message that it
 * has left, but its puts and this message may arrive in any order. So the peer
 * counts as left only when its last posts have arrived too. If the peer is also
 * known to be dead, the message is enough: no more posts can arrive. */
bool
uli_exchange_left(const struct uli_exchange *exchange, int32_t p)
{
    const struct uli_pair *pair = &exchange->pairs[p];
    bool left = atomic_load(&exchange->comm->control->left[p]) != ULI_STAYS;
    if (!pair->remote ||
        (left && atomic_load(&exchange->comm->peers[p].dead) != 0))
        return left;
    return (left || pair_closed(exchange, p) == ULI_LEFT_BY_EXIT) &&
           uli_flags_final(pair->mine);
}

/* A peer that has closed because its communicator failed fails this
 * communicator. */
bool
uli_exchange_gone(const struct uli_exchange *exchange, int32_t p)
{
    const struct uli_pair_flags *mine = exchange->pairs[p].mine;
    uint64_t closed = pair_closed(exchange, p);
    if (closed > ULI_LEFT_BY_EXIT) {
        uli_comm_receive_poison(
            exchange->comm, closed, &mine->late, sizeof(mine->late));
        return false;
    }
    return uli_flags_final(mine) || uli_exchange_left(exchange, p);
}

/* "has left: ..." where the peer has left its communicator; else `plan`. */
static const char *
pair_how_left(const struct uli_exchange *exchange, int32_t p, const char *plan)
{
    const struct uli_pair *pair = &exchange->pairs[p];
    if (pair->mine && pair_closed(exchange, p) == ULI_LEFT_BY_EXIT)
        return uli_left_text(ULI_LEFT_BY_EXIT);
    uint32_t left = atomic_load(&exchange->comm->control->left[p]);
    return left != ULI_STAYS ? uli_left_text((enum uli_left)left) : plan;
}

/* The record of the ranks for which p has waited is in p's control block if p
 * is a rank of this node, and in the pair flags of p's last post if p is
 * remote. */
bool
uli_exchange_timed_out(
    const struct uli_exchange *exchange, int32_t p, struct uli_late *late_p)
{
    const struct uli_pair *pair = &exchange->pairs[p];
    struct uli_late late;
    const struct uli_late *theirs = NULL;
    if (!uli_comm_is_remote(exchange->comm, p))
        theirs = uli_comm_noted_late(exchange->comm, p);
    else if (pair->mine && uli_flags_final(pair->mine))
        theirs = &pair->mine->late;
    return theirs &&
           uli_late_take(theirs, exchange->nranks, late_p ? late_p : &late);
}

/* Rank p's deadline was over before this rank's, in this call or in a call of
 * another plan: what p waited for is the cause here too. Each rank passes on
 * the origin, which is the rank whose deadline passed first. If p waited only
 * for this rank, p's record does not name the cause; then this rank reports the
 * ranks for which it waits itself. */
static ulyx_status_t
fail_as(struct uli_exchange *exchange, int32_t p, struct uli_late late)
{
    int32_t origin = late.origin < 0 ? p : late.origin;
    if (late.count == 1 && uli_late_lists(&late, exchange->rank))
        late = uli_exchange_awaited(exchange);
    late.origin = origin;
    /* p may have waited in another call, so the error may not say that ranks
     * have not reached this call (REACH). The text of MOVE says only that p
     * waited for them. */
    late.phase = ULI_LATE_MOVE;
    return exchange_fail_late(exchange, &late);
}

/* Checks this rank's communicator for a failure. To be called when a peer is
 * known to have left: a rank that leaves a failed communicator posts the cause
 * before it leaves, so by then the cause has arrived and has failed this
 * communicator too. */
bool
uli_exchange_comm_failed(struct uli_exchange *exchange)
{
    ulyx_status_t status = uli_comm_check(exchange->comm);
    if (status != ULYX_SUCCESS)
        uli_request_finish(&exchange->request, status);
    return status != ULYX_SUCCESS;
}

/* The peer has left call n without DONE(n), because its deadline was over or it
 * failed otherwise. A peer that still has its communicator is not lost: it may
 * take part in a shrink. */
bool
uli_exchange_fail_left(struct uli_exchange *exchange, int32_t p)
{
    struct uli_late late;
    if (uli_exchange_comm_failed(exchange))
        return true;
    bool lost = uli_exchange_left(exchange, p);
    ulyx_status_t status =
        uli_exchange_timed_out(exchange, p, &late)
            ? fail_as(exchange, p, late)
            : uli_comm_fail(exchange->comm,
                  lost ? ULYX_ERR_RANK_LOST : ULYX_ERR_ABORTED, p,
                  "%s, call %llu: rank %d %s", exchange->what,
                  (unsigned long long)exchange->call, p,
                  pair_how_left(
                      exchange, p, "has left it and destroyed its plan"));
    uli_request_finish(&exchange->request, status);
    return true;
}

static bool
pair_reads(const struct uli_exchange *exchange, int32_t p)
{
    const struct uli_pair *pair = &exchange->pairs[p];
    const struct uli_pair_work *work = &exchange->work->pairs[p];
    return !pair->skip && !pair->remote && !work->slot &&
           (work->in.count > 0 || work->last_sum >= 0);
}

/* Before this rank posts DONE, rank p can end the call in only one way, by a
 * failure of its communicator: to end the call in order, p needs that DONE.
 * After a failure p waits for no reader of its tensors, and p's caller may
 * write over them. So this rank looks for a failure of p after its last load
 * from p and before DONE: if there is none, all loads came before any such
 * write. The fence orders the loads before the look; its counterpart is where a
 * communicator fails (failure.c). */
bool
uli_exchange_sources_kept(struct uli_exchange *exchange, int32_t p)
{
    struct uli_late late;
    if (!pair_reads(exchange, p))
        return true;
    atomic_thread_fence(memory_order_acquire);
    if (uli_exchange_comm_failed(exchange))
        return false;
    if (!atomic_load(&exchange->comm->peers[p].control->failed))
        return true;
    /* p may have failed since the look above. It announces the cause before it
     * sets `failed`, so the cause can be seen now. */
    if (uli_exchange_comm_failed(exchange))
        return false;
    ulyx_status_t status =
        uli_exchange_timed_out(exchange, p, &late)
            ? fail_as(exchange, p, late)
            : uli_comm_fail(exchange->comm, ULYX_ERR_TIMEOUT, p,
                  "%s, call %llu: this rank has read from rank %d, whose "
                  "deadline "
                  "was over in another call",
                  exchange->what, (unsigned long long)exchange->call, p);
    uli_request_finish(&exchange->request, status);
    return false;
}

ulyx_status_t
uli_exchange_report_gone(const struct uli_exchange *exchange, int32_t p)
{
    return uli_error(ULYX_ERR_PEER_REFUSED, "%s, call %llu: rank %d %s",
        exchange->what, (unsigned long long)exchange->call, p,
        pair_how_left(exchange, p, "has destroyed its plan"));
}
