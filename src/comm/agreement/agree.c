/* SPDX-License-Identifier: Apache-2.0
 *
 * Agreement: the bytes and the outcome of every rank reach every rank, so that
 * all decide alike. A payload longer than a post takes several rounds; all
 * ranks compute the number of rounds from the totals in the first round.
 *
 * Cost per rank and round on one node of P ranks: P doorbells and P reads of
 * posts. On N nodes: these within each node, and ceil(log2 N) messages from
 * each node's leader, its first rank (nodes.h).
 */
#include "comm/remote/remote_internal.h"

#include <stdio.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "comm/agreement/rounds.h"
#include "comm/record/stall.h"

const char *
uli_call_name(enum uli_call call)
{
    static const char *const names[ULI_CALLS] = {"nothing", "barrier", "split",
        "shrink", "plan create", "alltoall set-up", "reduction set-up",
        "dist attention create", "batch set-up", "alltoall", "reshuffle",
        "attach", "agree", "detach"};

    return (uint32_t)call < ULI_CALLS ? names[call] : "an unknown call";
}

struct arrival {
    ulyx_comm_t *comm;
    uint64_t round;
    int32_t next; /* all lower ranks have arrived */
    int32_t gone; /* a missing rank that has left (enum uli_left), or -1 */
    enum uli_call call;
    int64_t stall_ns; /* when to warn about the stall */
    bool announced;   /* the awaited rank is recorded */
    bool queried;     /* each missing rank of other nodes was queried */
};

/* A rank that has waited for STILL_MAX_NS, or for 1/STILL_PART of its time if
 * that is shorter, announces the ranks for which it waits. QUERY_MAX_NS before
 * its deadline, or 1/QUERY_PART of its time if that is shorter, it queries the
 * leaders of nodes with missing ranks. When half of this lead is left, it
 * queries each missing rank of other nodes. */
enum {
    STILL_PART = 4,
    STILL_MAX_NS = 500 * 1000 * 1000,
    QUERY_PART = 4,
    QUERY_MAX_NS = 1000 * 1000 * 1000
};
/* After the announcement the rank searches for ranks in different calls every
 * LOOK_NS. If the awaited rank is on another node, and there are at most
 * QUERIED_NODES nodes, a search also queries the leaders of nodes with missing
 * ranks. */
enum { LOOK_NS = 125 * 1000 * 1000, QUERIED_NODES = 16 };

/* Whether a rank has left before the round. The message with which a remote
 * rank leaves carries the number of its last round, because its posts may
 * arrive by another path, and later. */
static bool
has_left_before(const ulyx_comm_t *comm, int32_t rank, uint64_t round)
{
    return atomic_load(&comm->control->left[rank]) != 0 &&
           (!uli_comm_is_remote(comm, rank) ||
               atomic_load(&comm->remote->peers[rank].left_round) < round);
}

/* All ranks have posted and, at a leader, all messages of the round are sent;
 * or a missing rank has left (gone). */
static bool
wait_over(void *context)
{
    struct arrival *a = context;
    bool sent = !a->comm->remote || uli_nodes_drive(a->comm, a->round);

    for (; a->next < a->comm->nranks; a->next++) {
        if (uli_rounds_has(a->comm, ULI_ROUNDS_AGREE, a->next, a->round))
            continue;
        if (!has_left_before(a->comm, a->next, a->round))
            return false;
        /* The rank may have posted before it left. */
        if (uli_rounds_has(a->comm, ULI_ROUNDS_AGREE, a->next, a->round))
            continue;
        a->gone = a->next;
        return true;
    }
    return sent;
}

/* Names the missing ranks of this node, whose recorders can be read; if all
 * ranks of this node have come, names those of uli_rounds_late. */
static void
arrival_warn(const struct arrival *arrival)
{
    ulyx_comm_t *comm = arrival->comm;
    struct uli_late late = uli_late_none(ULI_LATE_REACH);

    for (int32_t p = 0; p < comm->nranks; p++)
        if (!uli_comm_is_remote(comm, p) &&
            !uli_rounds_has(comm, ULI_ROUNDS_AGREE, p, arrival->round))
            uli_late_add(&late, p);
    if (late.count == 0)
        late = uli_rounds_late(comm, arrival->round);
    uli_comm_warn_stall(comm, uli_call_name(arrival->call), &late);
}

static bool
arrival_misses(void *context, int32_t rank)
{
    const struct arrival *arrival = context;
    ulyx_comm_t *comm = arrival->comm;

    return !uli_rounds_has(comm, ULI_ROUNDS_AGREE, rank, arrival->round) &&
           !(uli_comm_is_remote(comm, rank) &&
               uli_nodes_came(comm, rank, arrival->round));
}

/* Whether the rank's post, if there is one, would be visible here by now. */
static bool
arrival_sees(const struct arrival *arrival, int32_t rank)
{
    return !uli_comm_is_remote(arrival->comm, rank) || arrival->queried ||
           uli_nodes_answered(arrival->comm, rank, arrival->round);
}

/* Records the first missing ranks. The state of a rank of another node is
 * unknown until its node has answered or all missing ranks were queried. */
static void
arrival_note(struct arrival *arrival)
{
    ulyx_comm_t *comm = arrival->comm;
    struct uli_recorder_progress progress = {
        .serial = comm->agree_recorded, .stage = ULI_STAGE_MOVES};

    for (int32_t p = 0; p < comm->nranks; p++) {
        struct uli_recorded_peer peer = {.rank = p, .stage = ULI_STAGE_AWAY};

        if (!arrival_misses(arrival, p))
            continue;
        if (!arrival_sees(arrival, p))
            peer.stage = ULI_STAGE_UNKNOWN;
        uli_recorder_miss(&progress, &peer);
    }
    uli_recorder_note(&comm->control->recorder, &progress);
}

/* Records the awaited rank, for ranks that wait for this rank and for readers
 * of the flight recorder. */
static void
arrival_announce(struct arrival *arrival)
{
    ulyx_comm_t *comm = arrival->comm;
    struct uli_late late = uli_rounds_late(comm, arrival->round);

    uli_recorder_await(&comm->control->recorder, comm->agree_recorded,
        late.count > 0 ? late.runs[0].first : -1);
    arrival_note(arrival);
    arrival->announced = true;
}

/* The rank stands still: publishes the awaited rank on the board and searches
 * for a circle of ranks that wait for each other. An alltoall that has joined a
 * round of other calls publishes nothing, because the round is not its own. */
static void
arrival_look(struct arrival *arrival)
{
    ulyx_comm_t *comm = arrival->comm;
    const struct uli_call_key key = {
        .call = arrival->call, .direction = -1, .number = comm->sequence - 1};
    int32_t awaited = uli_differ_choose(comm, &key, arrival_misses, arrival);

    arrival_announce(arrival);
    if (awaited < 0 || arrival->call == ULI_CALL_ALLTOALL)
        return;
    if (uli_comm_is_remote(comm, awaited) && comm->nnodes <= QUERIED_NODES)
        uli_nodes_query(comm, arrival->round, false);
    uli_board_publish(comm, arrival, &key, awaited);
    uli_differ_look(comm);
}

static ulyx_status_t
await_until(struct arrival *arrival, uli_deadline_t deadline)
{
    for (;;) {
        int64_t slice = uli_min(deadline, arrival->stall_ns);
        ulyx_status_t status;

        if (arrival->announced)
            slice = uli_min(slice, uli_clock_ns() + LOOK_NS);
        status = uli_comm_wait(arrival->comm, wait_over, arrival, slice);
        if (status != ULYX_ERR_TIMEOUT || uli_deadline_over(deadline))
            return status;
        if (uli_deadline_over(arrival->stall_ns)) {
            arrival->stall_ns = INT64_MAX;
            arrival_warn(arrival);
        }
        if (arrival->announced)
            arrival_look(arrival);
    }
}

static ulyx_status_t
await_all(struct arrival *arrival, uli_deadline_t deadline)
{
    ulyx_comm_t *comm = arrival->comm;
    int64_t now = uli_clock_ns(), left = deadline - now;
    int64_t lead = uli_min(left / QUERY_PART, QUERY_MAX_NS);
    ulyx_status_t status = ULYX_ERR_TIMEOUT;

    if (left > 0)
        status = await_until(
            arrival, now + uli_min(left / STILL_PART, STILL_MAX_NS));
    if (left > 0 && status == ULYX_ERR_TIMEOUT)
        arrival_announce(arrival);
    for (int i = 0;
         i < 2 && comm->remote && left > 0 && status == ULYX_ERR_TIMEOUT;
         i++, lead /= 2) {
        status = await_until(arrival, deadline - lead);
        if (status != ULYX_ERR_TIMEOUT)
            break;
        arrival_announce(arrival);
        uli_nodes_query(comm, arrival->round, i > 0);
        arrival->queried = i > 0;
    }
    return status == ULYX_ERR_TIMEOUT ? await_until(arrival, deadline) : status;
}

/* A rank has left. If it left at its deadline, the ranks for which it waited
 * are the cause here too. If it waited for this rank alone, the cause is the
 * ranks for which this rank waits. */
static ulyx_status_t
arrival_fail_gone(struct arrival *arrival)
{
    ulyx_comm_t *comm = arrival->comm;
    const char *what = uli_call_name(arrival->call);
    const struct uli_late *noted = uli_comm_noted_late(comm, arrival->gone);
    struct uli_late late;

    ULI_TRY(uli_comm_check(comm)); /* the cause, if it has arrived */
    if (!noted || !uli_late_take(noted, comm->nranks, &late))
        return uli_comm_fail(comm, ULYX_ERR_RANK_LOST, arrival->gone,
            "%s: rank %d %s", what, arrival->gone,
            uli_left_text((enum uli_left)atomic_load(
                &comm->control->left[arrival->gone])));
    int32_t origin = late.origin < 0 ? arrival->gone : late.origin;
    if (late.count == 1 && uli_late_lists(&late, comm->rank))
        late = uli_rounds_late(comm, arrival->round);
    late.origin = origin;
    /* Not REACH: the rank that left may have waited in another call. With MOVE
     * the error only says that it waited for the late ranks. */
    late.phase = ULI_LATE_MOVE;
    return uli_comm_fail_late(comm, &late, "%s", what);
}

static ulyx_status_t
await_round(ulyx_comm_t *comm, enum uli_call call, uint64_t round,
    uli_deadline_t deadline)
{
    struct arrival arrival = {comm, round, 0, -1, call,
        uli_comm_stall_ns(comm, uli_clock_ns()), false, false};
    ulyx_status_t status = await_all(&arrival, deadline);

    uli_board_withdraw(comm, &arrival);
    if (status == ULYX_ERR_TIMEOUT) {
        struct uli_late late = uli_rounds_late(comm, round);

        arrival_announce(&arrival);
        if (late.count > 0 || !wait_over(&arrival))
            return uli_comm_fail_late(comm, &late, "%s", uli_call_name(call));
        status = ULYX_SUCCESS; /* the last post has just arrived */
    }
    if (status == ULYX_SUCCESS && arrival.gone >= 0)
        return arrival_fail_gone(&arrival);
    if (arrival.announced)
        uli_recorder_await(&comm->control->recorder, comm->agree_recorded, -1);
    return status;
}

/* Compares each call with rank 0's, so the outcome and its text are the same on
 * every rank. */
static ulyx_status_t
compare_calls(ulyx_comm_t *comm, uint64_t round)
{
    const struct uli_agree_post *zero =
        uli_rounds_read(comm, ULI_ROUNDS_AGREE, 0, round);

    for (int32_t p = 1; p < comm->nranks; p++) {
        const struct uli_agree_post *post =
            uli_rounds_read(comm, ULI_ROUNDS_AGREE, p, round);

        if (post->call != zero->call)
            return uli_error(ULYX_ERR_MISMATCH,
                "rank %d called %s where rank 0 called %s (collective call "
                "%llu of the communicator)",
                p, uli_call_name((enum uli_call)post->call),
                uli_call_name((enum uli_call)zero->call),
                (unsigned long long)zero->sequence);
    }
    return ULYX_SUCCESS;
}

/* All ranks have posted. An alltoall has no round of its own; a rank in an
 * alltoall that others do not call joins their round. The ranks in other calls
 * then announce to all peers that they refuse the alltoall, so that no rank in
 * the alltoall waits for them. */
static ulyx_status_t
settle_calls(ulyx_comm_t *comm, enum uli_call call, uint64_t round,
    uli_deadline_t deadline)
{
    ulyx_status_t status = compare_calls(comm, round);
    char text[256];

    if (status == ULYX_SUCCESS || call == ULI_CALL_ALLTOALL)
        return status;
    for (int32_t p = 0; p < comm->nranks; p++)
        if (uli_rounds_read(comm, ULI_ROUNDS_AGREE, p, round)->call ==
                ULI_CALL_ALLTOALL &&
            comm->alltoall_skip) {
            snprintf(text, sizeof(text), "%s", uli_error_text());
            comm->alltoall_skip(comm, deadline);
            return uli_error_pass(status, text);
        }
    return status;
}

/* Copies the chunk at byte `at` of every rank's payload. Returns the rounds
 * needed. */
static int64_t
posts_collect(ulyx_comm_t *comm, uint64_t round, int64_t at,
    const struct uli_gather *gather)
{
    unsigned char *all = gather->all_p;
    int64_t longest = 0, chunk = uli_rounds_chunk(comm, ULI_ROUNDS_AGREE);

    for (int32_t p = 0; p < comm->nranks; p++) {
        const struct uli_agree_post *post =
            uli_rounds_read(comm, ULI_ROUNDS_AGREE, p, round);
        int64_t total = uli_min((int64_t)post->total_bytes, gather->max_bytes);
        int64_t take = uli_min(total - at, chunk);

        /* The number of rounds follows from the announced bytes, not from the
         * bytes that are kept. */
        longest = uli_max(longest, (int64_t)post->total_bytes);
        if (gather->bytes_p)
            gather->bytes_p[p] = total;
        if (gather->status_p)
            gather->status_p[p] = post->status;
        if (take > 0)
            memcpy(
                all + p * gather->max_bytes + at, post->payload, (size_t)take);
    }
    return longest == 0 ? 1 : (longest + chunk - 1) / chunk;
}

static ulyx_status_t
gather_rounds(ulyx_comm_t *comm, const struct uli_gather *gather)
{
    const unsigned char *mine = gather->mine;
    int64_t bytes = gather->bytes;
    struct uli_agree_post header = {.call = gather->call,
        .status = gather->status,
        .sequence = comm->sequence,
        .total_bytes = (uint64_t)bytes};
    int64_t rounds = 1, chunk = uli_rounds_chunk(comm, ULI_ROUNDS_AGREE);
    bool refuses = gather->status != ULYX_SUCCESS && bytes == 0;
    char reason[ULI_REFUSAL_BYTES] = "";

    if (refuses)
        snprintf(reason, sizeof(reason), "%s", uli_error_text());
    comm->sequence++;
    for (int64_t i = 0; i < rounds; i++) {
        int64_t at = i * chunk;
        int64_t take = uli_max(0, uli_min(bytes - at, chunk));
        uint64_t round = ++comm->agree_round;

        /* total_bytes does not count the reason, so a reason adds no round. */
        if (refuses)
            uli_rounds_publish(comm, ULI_ROUNDS_AGREE, round, &header, reason,
                uli_min((int64_t)strlen(reason), chunk));
        else
            uli_rounds_publish(comm, ULI_ROUNDS_AGREE, round, &header,
                take > 0 ? mine + at : NULL, take);
        ULI_TRY(await_round(comm, gather->call, round, gather->deadline));
        if (i == 0)
            ULI_TRY(settle_calls(comm, gather->call, round, gather->deadline));
        rounds = posts_collect(comm, round, at, gather);
    }
    return ULYX_SUCCESS;
}

/* The posts of the last round stay until this rank posts again: only then can a
 * peer finish the next round and overwrite its post. */
const char *
uli_agree_reason(
    ulyx_comm_t *comm, int32_t p, char text_p[ULI_REFUSAL_TEXT_BYTES])
{
    const struct uli_agree_post *post =
        uli_rounds_read(comm, ULI_ROUNDS_AGREE, p, comm->agree_round);
    size_t most = sizeof(post->payload);
    size_t bytes = post->total_bytes ? 0 : post->bytes;
    return uli_status_reason(
        post->status, post->payload, bytes < most ? bytes : most, text_p);
}

ulyx_status_t
uli_agree_gather(ulyx_comm_t *comm, const struct uli_gather *gather)
{
    struct uli_recorder *recorder = &comm->control->recorder;
    uint64_t recorded;
    ulyx_status_t outcome;

    ULI_TRY(uli_comm_check(comm));
    uli_board_enter(comm);
    recorded = uli_recorder_begin(
        recorder, &(struct uli_recorder_entry){.call = gather->call,
                      .direction = -1,
                      .number = comm->sequence,
                      .begun_ns = uli_clock_ns()});
    atomic_store_explicit(
        &recorder->collectives, comm->sequence + 1, memory_order_relaxed);
    comm->agree_recorded = recorded;
    outcome = gather_rounds(comm, gather);
    comm->agree_recorded = 0;
    uli_recorder_end(recorder, recorded, outcome, uli_clock_ns());
    return outcome;
}

ulyx_status_t
uli_agree_refuse(ulyx_comm_t *comm, enum uli_call call, ulyx_status_t outcome,
    uli_deadline_t deadline)
{
    const struct uli_gather refusal = {
        .call = call, .status = outcome, .deadline = deadline};
    char own[ULI_REFUSAL_TEXT_BYTES], text[2 * ULI_REFUSAL_TEXT_BYTES];

    snprintf(own, sizeof(own), "%s", uli_error_text());
    ulyx_status_t status = uli_agree_gather(comm, &refusal);
    if (status == ULYX_SUCCESS || status == ULYX_ERR_MISMATCH)
        return uli_error_pass(outcome, own);
    snprintf(text, sizeof(text), "%.200s; this rank had refused: %s",
        uli_error_text(), own);
    return uli_error_pass(status, text);
}

uint64_t
uli_agree_number(ulyx_comm_t *comm)
{
    return comm->sequence++;
}

bool
uli_agree_passed(ulyx_comm_t *comm, uint64_t number)
{
    uint64_t round = comm->agree_round + 1;

    for (int32_t p = 0; p < comm->nranks; p++)
        if (uli_rounds_has(comm, ULI_ROUNDS_AGREE, p, round) &&
            uli_rounds_read(comm, ULI_ROUNDS_AGREE, p, round)->sequence <=
                number)
            return true;
    return false;
}

ulyx_status_t
uli_agree_join(ulyx_comm_t *comm, enum uli_call call, uint64_t number,
    uli_deadline_t deadline)
{
    struct uli_agree_post header = {.call = call, .sequence = number};
    uint64_t round = ++comm->agree_round;

    uli_rounds_publish(comm, ULI_ROUNDS_AGREE, round, &header, NULL, 0);
    ULI_TRY(await_round(comm, call, round, deadline));
    return settle_calls(comm, call, round, deadline);
}

ulyx_status_t
uli_comm_barrier(ulyx_comm_t *comm)
{
    const struct uli_gather nothing = {
        .call = ULI_CALL_BARRIER, .deadline = uli_deadline_in(comm->timeout_s)};

    return uli_agree_gather(comm, &nothing);
}
