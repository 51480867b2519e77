/* SPDX-License-Identifier: Apache-2.0
 *
 * Which rank waits for which. A rank in a collective call waits for the ranks
 * that have made fewer collective calls. In an exchange, attach or detach, a
 * rank that stands still announces the rank for which it waits; where the
 * schedule of an exchange announces nothing, the rank waits for the ranks that
 * have not begun the same call of the same plan. Shrink and agree show neither,
 * so nothing is concluded from them. Of a rank without a dump, only what the
 * other ranks have recorded is known.
 */
#include "info_ranks.h"

#include <string.h>
#include "comm/comm.h"

/* An exchange that moves announces nothing. An exchange that stands still
 * announces the rank for which it waits within this time. */
#define STILL_NS INT64_C(1000000000)

/* Did the call end because its communicator failed? Other errors concern the
 * call alone; MISMATCH does so too, unless the communicator failed with it. */
static bool
call_has_failed(
    const struct info_rank *rank, const struct uli_recorder_call *call)
{
    if (call->status == ULYX_ERR_MISMATCH)
        return strncmp(rank->failure, "ULYX_ERR_MISMATCH", 17) == 0;
    return call->status == ULYX_ERR_TIMEOUT ||
           call->status == ULYX_ERR_RANK_LOST ||
           call->status == ULYX_ERR_ABORTED;
}

/* Finds the call that began first and has not ended: where a rank has several
 * threads, this call is the one that hangs. Without such a call: the last one,
 * if it ended because its communicator failed; else NULL. */
static const struct uli_recorder_call *
rank_find_call(const struct info_rank *rank)
{
    const struct uli_recorder_call *longest = NULL;

    if (rank->copy.ncalls > 0 && call_has_failed(rank, &rank->copy.calls[0]))
        longest = &rank->copy.calls[0];

    for (int i = 0; i < rank->copy.ncalls; i++) {
        const struct uli_recorder_call *call = &rank->copy.calls[i];

        if (call->status == ULYX_IN_PROGRESS &&
            (!longest || call_has_failed(rank, longest) ||
                call->begun_ns <= longest->begun_ns))
            longest = call;
    }
    return longest;
}

static bool
rank_has_begun(
    const struct info_rank *rank, const struct uli_recorder_call *theirs)
{
    for (int i = 0; i < rank->copy.ncalls; i++) {
        const struct uli_recorder_call *call = &rank->copy.calls[i];

        if (call->call == theirs->call && call->plan == theirs->plan &&
            call->number >= theirs->number)
            return true;
    }
    return false;
}

static bool
call_is_exchange(const struct uli_recorder_call *call)
{
    return call->call == ULI_CALL_RESHUFFLE || call->call == ULI_CALL_ALLTOALL;
}

static bool
call_is_collective(const struct uli_recorder_call *call)
{
    return call->call > 0 && call->call < ULI_CALL_ALLTOALL &&
           call->call != ULI_CALL_SHRINK;
}

/* Has the rank recorded that its current call waits for the other rank? */
static bool
rank_misses(const struct info_rank *rank, int32_t other)
{
    const struct uli_recorder_progress *progress = &rank->copy.progress;

    for (int i = 0; i < progress->npeers; i++)
        if (progress->peers[i].rank == other)
            return progress->serial == rank->call->serial &&
                   progress->peers[i].stage != ULI_STAGE_UNKNOWN;
    return false;
}

bool
info_rank_waits_for(const struct info_rank *rank, const struct info_rank *other)
{
    const struct uli_recorder_call *call = rank->call;

    if (!call || rank == other)
        return false;
    if (other->absent)
        return call->awaited == other->copy.rank ||
               (call->awaited < 0 && rank_misses(rank, other->copy.rank)) ||
               (call_is_collective(call) &&
                   rank_misses(rank, other->copy.rank));
    if (call_is_collective(call))
        return other->copy.collectives <= call->number;
    if (call->awaited >= 0 || !call_is_exchange(call))
        return call->awaited == other->copy.rank;
    return rank->now_ns - call->begun_ns > STILL_NS &&
           !rank_has_begun(other, call);
}

/* Chooses one of the ranks for which rank `at` waits: the first that waits for
 * no rank itself, else the first. -1: none. */
static int
rank_choose_next(const struct info_rank *ranks, int count, int at)
{
    int first = -1;

    for (int i = 0; i < count; i++) {
        if (!info_rank_waits_for(&ranks[at], &ranks[i]))
            continue;
        if (!ranks[i].waits)
            return i;
        first = first < 0 ? i : first;
    }
    return first;
}

void
info_ranks_wait(struct info_rank *ranks, int count)
{
    for (int i = 0; i < count; i++) {
        ranks[i].call = rank_find_call(&ranks[i]);
        ranks[i].waits = ranks[i].awaited = false;
    }
    for (int i = 0; i < count; i++)
        for (int k = 0; k < count; k++)
            if (info_rank_waits_for(&ranks[i], &ranks[k]))
                ranks[i].waits = ranks[k].awaited = true;
    for (int i = 0; i < count; i++)
        ranks[i].next = rank_choose_next(ranks, count, i);
}
