/* SPDX-License-Identifier: Apache-2.0
 *
 * Strides that a call gives, in the host's mover. The tables of a direction are
 * made for plan->laid[direction][rank]: each rank's strides of its last call in
 * that direction. When a call has other strides, the boxes that depend on them
 * are rebuilt in place:
 *
 *   boxes                        depend on       are rebuilt
 *   own share, what the          own strides     at the start of the call
 *   schedule carries, pairs by
 *   slots or to other nodes
 *   all other pairs              own and peer's  when the peer's record arrives
 *   sums                         own and those   when the records of these
 *                                of the ranks    ranks have arrived
 *                                they load from
 *
 * A call whose strides, on all ranks, are those of the last call in the
 * direction rebuilds nothing. Where no rank gives strides, none are compared
 * either.
 *
 * Strides in a record are copied before they are checked, because the record
 * lies in memory that the peer may write.
 */
#include <string.h>
#include "base/status.h"
#include "collectives/exchange/exchange_schedule.h"
#include "collectives/exchange/mover_host.h"

/* Does any box of the pair depend on the peer's strides? */
static bool
pair_uses_strides(const struct uli_exchange *exchange, int32_t p)
{
    return exchange->pairs[p].shares && !exchange->pairs[p].remote &&
           !exchange->work->pairs[p].slot;
}

/* ---- this rank's strides ------------------------------------------------- */

static bool
strides_same(const struct uli_call_strides *a, const struct uli_call_strides *b)
{
    if (!a->given || !b->given)
        return a->given == b->given;
    return !memcmp(a->at, b->at, sizeof(a->at));
}

void
uli_host_use_strides(ulyx_plan_t *plan, ulyx_direction_t direction)
{
    struct uli_exchange *exchange = &plan->exchange;
    struct uli_work *work = &plan->work[direction];
    struct uli_call_strides *own = &plan->laid[direction][exchange->rank];
    if (strides_same(own, &plan->call))
        return;
    *own = plan->call;
    work->stale_sums = work->nsums > 0;
    uli_plan_lay_own(plan, direction);
    exchange->schedule->lay(plan, direction);
    for (int32_t p = 0; p < exchange->nranks; p++) {
        work->pairs[p].stale = pair_uses_strides(exchange, p);
        if (exchange->pairs[p].shares && !work->pairs[p].stale)
            uli_plan_lay_pair(plan, direction, p);
    }
}

void
uli_host_send_strides(
    struct uli_exchange *exchange, int32_t p, struct uli_record *record)
{
    const ulyx_plan_t *plan = (const ulyx_plan_t *)exchange;
    const struct uli_call_strides *own =
        &plan->laid[exchange->direction][exchange->rank];
    if (!own->given || !pair_uses_strides(exchange, p))
        return;
    record->strided = 1;
    memcpy(uli_record_strides(record), own->at, sizeof(own->at));
}

/* ---- a peer's strides ---------------------------------------------------- */

/* Might the record's strides be others than those of the peer's last call?
 * Without strides, as in most calls, that is known at once. */
static bool
strides_may_differ(
    const struct uli_call_strides *laid, const struct uli_record *record)
{
    return laid->given || record->strided;
}

/* Copies the record's strides into plan->laid if they have changed, and then
 * returns true. Wrong strides are not copied: they end the operation. */
static bool
strides_take(ulyx_plan_t *plan, int32_t p, const struct uli_record *record)
{
    struct uli_exchange *exchange = &plan->exchange;
    struct uli_call_strides *laid = &plan->laid[exchange->direction][p];
    struct uli_call_strides now = {.given = record->strided != 0};
    if (now.given)
        memcpy(now.at, uli_record_strides(record), sizeof(now.at));
    if (strides_same(laid, &now))
        return false;
    if (now.given && !uli_plan_measure_strides(plan->layout, exchange->ntensors,
                         p, exchange->direction, &now)) {
        uli_request_finish(&exchange->request,
            uli_comm_fail(exchange->comm, ULYX_ERR_INTERNAL, p,
                "rank %d: its strides are negative or its tensors' bytes do "
                "not fit 64 bits",
                p));
        return false;
    }
    *laid = now;
    return true;
}

bool
uli_host_take_strides(
    struct uli_exchange *exchange, int32_t p, const struct uli_record *record)
{
    ulyx_plan_t *plan = (ulyx_plan_t *)exchange;
    struct uli_work *work = &plan->work[exchange->direction];
    struct uli_pair *pair = &exchange->pairs[p];
    if (!pair_uses_strides(exchange, p))
        return true;
    if (strides_may_differ(&plan->laid[exchange->direction][p], record) &&
        strides_take(plan, p, record)) {
        work->pairs[p].stale = true;
        work->stale_sums |= work->pairs[p].loaded;
    }
    const struct uli_call_strides *laid = &plan->laid[exchange->direction][p];
    if (work->pairs[p].stale)
        uli_plan_lay_pair(plan, exchange->direction, p);
    if (laid->given) {
        pair->src_bytes = laid->bytes[ULYX_SIDE_SRC];
        pair->dst_bytes = laid->bytes[ULYX_SIDE_DST];
    }
    return true;
}

bool
uli_host_refresh_sums(struct uli_exchange *exchange)
{
    ulyx_plan_t *plan = (ulyx_plan_t *)exchange;
    struct uli_work *work = &plan->work[exchange->direction];
    for (int32_t p = 0; p < exchange->nranks; p++)
        if (work->pairs[p].loaded && !exchange->pairs[p].seen)
            return false;
    uli_plan_lay_sums(plan, exchange->direction);
    work->stale_sums = false;
    return true;
}
