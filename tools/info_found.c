/* SPDX-License-Identifier: Apache-2.0
 *
 * The report on the ranks of one communicator; see info_found.h. First come the
 * ranks that hold the others up, then circles, differing calls and failures,
 * then all ranks.
 */
#include "info_found.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/rank_list.h"
#include "base/text.h"
#include "collectives/layout/layout.h"
#include "comm/record/stall.h"
#include "ulyx/ulyx.h"

/* ---- texts --------------------------------------------------------------- */

static double
seconds_since(int64_t begun_ns, int64_t now)
{
    return begun_ns < now ? (double)(now - begun_ns) / 1e9 : 0;
}

/* "reshuffle, call 7 of plan 2, seq_to_head". */
static void
call_text(const struct uli_recorder_call *call, char *text_p, size_t bytes)
{
    size_t at;

    uli_recorder_call_text(call, text_p, bytes);
    at = strlen(text_p);
    if (call->call == ULI_CALL_RESHUFFLE)
        snprintf(text_p + at, bytes - at, ", %s",
            uli_direction_name(call->direction));
}

void
info_rank_text(const struct info_rank *rank, char *text_p, size_t bytes)
{
    const struct uli_recorder_call *last =
        rank->copy.ncalls > 0 ? &rank->copy.calls[0] : NULL;
    char call[128];

    if (rank->absent) {
        snprintf(text_p, bytes, "has left no dump");
    } else if (rank->call) {
        call_text(rank->call, call, sizeof(call));
        snprintf(text_p, bytes, "in %s, for %.1f s", call,
            seconds_since(rank->call->begun_ns, rank->now_ns));
    } else if (last) {
        call_text(last, call, sizeof(call));
        snprintf(text_p, bytes, "in no call; its last, %.1f s ago: %s (%s)",
            seconds_since(last->begun_ns, rank->now_ns), call,
            ulyx_status_name(last->status));
    } else {
        snprintf(text_p, bytes, "in no call; it has made none");
    }
}

static const char *
rank_state_text(const struct info_rank *rank)
{
    return rank->state == 'T' || rank->state == 't' ? ", stopped by a signal"
           : rank->state == 'D' ? ", in uninterruptible sleep"
           : rank->state == 'Z' ? ", dead"
                                : "";
}

void
info_rank_name(const struct info_rank *rank, char *text_p, size_t bytes)
{
    if (rank->pid == 0)
        snprintf(text_p, bytes, "rank %d", rank->copy.rank);
    else
        snprintf(text_p, bytes, "rank %d (%s, pid %d%s)", rank->copy.rank,
            rank->copy.host, (int)rank->pid, rank_state_text(rank));
}

/* ---- ranks in lists ------------------------------------------------------ */

static const struct info_rank *
found_at(const struct info_found *found, int32_t rank)
{
    int low = 0, high = found->count;

    while (low < high) {
        int middle = low + (high - low) / 2;

        if (found->ranks[middle].copy.rank < rank)
            low = middle + 1;
        else
            high = middle;
    }
    return low < found->count && found->ranks[low].copy.rank == rank
               ? &found->ranks[low]
               : NULL;
}

static bool
rank_is_missing(const void *context, int32_t rank)
{
    return found_at(context, rank) == NULL;
}

static bool
rank_is_awaited(const void *context, int32_t rank)
{
    const struct info_found *found = context;
    const struct info_rank *other = found_at(found, rank);

    return other && info_rank_waits_for(found->subject, other);
}

void
info_found_awaited_text(struct info_found *found, const struct info_rank *rank,
    char *text_p, size_t bytes)
{
    found->subject = rank;
    uli_rank_list_text(
        rank->copy.nranks, rank_is_awaited, found, text_p, bytes);
}

static bool
rank_waits_for_subject(const void *context, int32_t rank)
{
    const struct info_found *found = context;
    const struct info_rank *other = found_at(found, rank);

    return other && info_rank_waits_for(other, found->subject);
}

/* ---- groups of ranks in the same call ------------------------------------ */

/* Gives the call to report for the rank: its current call, else its last one.
 * false: the rank has made no call. */
static bool
rank_call(const struct info_rank *rank, struct info_call *call_p)
{
    const struct uli_recorder_call *call = rank->call ? rank->call
                                           : rank->copy.ncalls > 0
                                               ? &rank->copy.calls[0]
                                               : NULL;

    *call_p = (struct info_call){.inside = rank->call != NULL};
    if (call)
        call_p->call = *call;
    return call != NULL;
}

static bool
calls_equal(const struct info_call *a, const struct info_call *b)
{
    return a->inside == b->inside && a->call.call == b->call.call &&
           a->call.plan == b->call.plan &&
           a->call.fingerprint == b->call.fingerprint &&
           a->call.number == b->call.number;
}

static bool
call_has_rank(const void *context, int32_t rank)
{
    const struct info_call *call = context;
    const struct info_rank *found = found_at(call->found, rank);
    struct info_call own;

    if (!found || found->absent)
        return false;
    rank_call(found, &own);
    return calls_equal(call, &own);
}

void
info_call_ranks_text(const struct info_call *call, char *text_p, size_t bytes)
{
    uli_rank_list_text(
        call->found->ranks[0].copy.nranks, call_has_rank, call, text_p, bytes);
}

static int
call_compare(const void *left, const void *right)
{
    const struct info_call *a = left, *b = right;

    return (a->count > b->count) - (a->count < b->count);
}

int
info_found_group(const struct info_found *found, struct info_call **calls_p)
{
    struct info_call *calls = calloc((size_t)found->count + 1, sizeof(*calls));
    int count = 0;

    if (!calls)
        return -1;
    for (int i = 0; i < found->count; i++) {
        struct info_call call;
        int k = 0;

        if (found->ranks[i].absent)
            continue;
        rank_call(&found->ranks[i], &call);
        while (k < count && !calls_equal(&calls[k], &call))
            k++;
        if (k == count)
            calls[count++] = call;
        calls[k].found = found;
        calls[k].count++;
    }
    qsort(calls, (size_t)count, sizeof(*calls), call_compare);
    *calls_p = calls;
    return count;
}

static void
found_print_calls(const struct info_found *found)
{
    struct info_call *calls;
    int count = info_found_group(found, &calls);

    if (count > 1)
        printf("  the ranks are in different calls:\n");
    for (int i = 0; i < count && count > 1; i++) {
        char ranks[128], text[128] = "in no call; it has made none";

        info_call_ranks_text(&calls[i], ranks, sizeof(ranks));
        if (calls[i].call.serial != 0)
            call_text(&calls[i].call, text, sizeof(text));
        printf("    %s: %s%s", ranks,
            calls[i].call.serial == 0 ? ""
            : calls[i].inside         ? "in "
                                      : "in no call; its last: ",
            text);
        if (calls[i].call.fingerprint != 0)
            printf(" (fingerprint %016" PRIx64 ")", calls[i].call.fingerprint);
        printf("\n");
    }
    if (count >= 0)
        free(calls);
}

/* Prints the progress of an exchange that stands still, with the peers that
 * have not finished: "; moves, misses rank 5 (away), rank 7 (moves, 3 chunks
 * sent, 1 received) and 12 more". */
static void
rank_print_progress(const struct info_rank *rank)
{
    enum { MOST = 4 };
    const struct uli_recorder_progress *progress = &rank->copy.progress;
    int shown = progress->npeers < MOST ? progress->npeers : MOST;

    if (!rank->call || progress->serial != rank->call->serial ||
        rank->call->call != ULI_CALL_RESHUFFLE || shown == 0)
        return;
    printf("; %s, misses", uli_recorder_stage_name(progress->stage));
    for (int i = 0; i < shown; i++) {
        const struct uli_recorded_peer *peer = &progress->peers[i];

        printf("%s rank %d (%s", i > 0 ? "," : "", peer->rank,
            uli_recorder_stage_name(peer->stage));
        if (peer->sent_chunks > 0 || peer->received_chunks > 0)
            printf(", %" PRIu64 " chunks sent, %" PRIu64 " received",
                peer->sent_chunks, peer->received_chunks);
        printf(")");
    }
    if (progress->missing > shown)
        printf(" and %d more", progress->missing - shown);
}

/* ---- what the ranks do --------------------------------------------------- */

static void
found_print_ranks(struct info_found *found)
{
    printf("  %5s %8s  %s\n", "rank", "pid", "does");
    for (int i = 0; i < found->count; i++) {
        const struct info_rank *rank = &found->ranks[i];
        char does[256], awaited[96];

        info_rank_text(rank, does, sizeof(does));
        printf("  %5d %8d  %s%s", rank->copy.rank, (int)rank->pid, does,
            rank_state_text(rank));
        if (rank->waits) {
            info_found_awaited_text(found, rank, awaited, sizeof(awaited));
            printf("; waits for %s", awaited);
        }
        rank_print_progress(rank);
        printf("\n");
    }
}

/* ---- which ranks hold the others up -------------------------------------- */

static int
found_count_waiting(const struct info_found *found)
{
    int waiting = 0;

    for (int i = 0; i < found->count; i++)
        waiting += found->ranks[i].waits;
    return waiting;
}

bool
info_rank_is_cause(const struct info_rank *rank)
{
    return rank->awaited && !rank->waits;
}

static void
found_print_causes(struct info_found *found)
{
    for (int i = 0; i < found->count; i++) {
        const struct info_rank *rank = &found->ranks[i];
        char does[256], name[160], waiting[96];

        if (!info_rank_is_cause(rank))
            continue;
        info_rank_text(rank, does, sizeof(does));
        info_rank_name(rank, name, sizeof(name));
        found->subject = rank;
        uli_rank_list_text(rank->copy.nranks, rank_waits_for_subject, found,
            waiting, sizeof(waiting));
        printf("  held up by %s: %s; awaited by %s\n", name, does, waiting);
    }
}

/* Follows `next` from rank index `at` for as many steps as there are ranks.
 * returns the index of a rank on a circle of waiting ranks; -1: the path ends
 * at a rank that waits for no other. */
static int
found_enter_circle(const struct info_found *found, int at)
{
    for (int i = 0; i < found->count && at >= 0; i++)
        at = found->ranks[at].next;
    return at;
}

bool
info_found_begins_circle(const struct info_found *found, int rank)
{
    int at = found_enter_circle(found, rank), lowest = at;

    if (at < 0)
        return false;
    for (int i = found->ranks[at].next; i != at; i = found->ranks[i].next)
        lowest = i < lowest ? i : lowest;
    return lowest == rank;
}

static void
found_print_circle(const struct info_found *found, int start)
{
    int at = start;

    if (!info_found_begins_circle(found, start))
        return;
    printf("  a circle of ranks that wait for each other:\n");
    do {
        const struct info_rank *rank = &found->ranks[at];
        char does[256], name[160];

        info_rank_text(rank, does, sizeof(does));
        info_rank_name(rank, name, sizeof(name));
        printf("    %s waits for rank %d: %s\n", name,
            found->ranks[rank->next].copy.rank, does);
        at = rank->next;
    } while (at != start);
}

/* ---- failures of communicators ------------------------------------------- */

/* Prints each text once, for the first rank that has it. */
static void
found_print_failures(const struct info_found *found)
{
    enum { MOST = 8 };
    int printed = 0, more = 0;

    for (int i = 0; i < found->count; i++) {
        const struct info_rank *rank = &found->ranks[i];
        bool known = rank->failure[0] == 0;

        for (int k = 0; k < i && !known; k++)
            known = strcmp(found->ranks[k].failure, rank->failure) == 0;
        if (known)
            continue;
        if (printed++ < MOST)
            printf("  failed at rank %d: %s\n", rank->copy.rank, rank->failure);
        else
            more++;
    }
    if (more > 0)
        printf("  and %d more failures with other texts\n", more);
}

/* ---- the report ---------------------------------------------------------- */

static void
found_print_missing(const struct info_found *found, int32_t nranks)
{
    char missing[128];

    if (found->count == nranks)
        return;
    uli_rank_list_text_of(nranks - found->count, nranks, rank_is_missing, found,
        missing, sizeof(missing));
    if (found->dumps)
        printf("  no dump, and no rank waits for it: %s\n", missing);
    else
        printf("  not found on this host: %s (on other hosts, of another user, "
               "or dead)\n",
            missing);
}

void
info_found_print(struct info_found *found)
{
    const struct uli_recorder_copy *copy = &found->ranks[0].copy;
    int waiting = found_count_waiting(found);

    printf("communicator \"%s\" %02x%02x%02x%02x: ", copy->name, copy->id[0],
        copy->id[1], copy->id[2], copy->id[3]);
    if (found->dumps)
        printf("dumps of %d of %d rank%s\n", found->count - found->absent,
            copy->nranks, uli_plural(copy->nranks));
    else
        printf("%d of %d rank%s %s here\n", found->count, copy->nranks,
            uli_plural(copy->nranks), copy->nranks == 1 ? "is" : "are");
    found_print_causes(found);
    for (int i = 0; i < found->count; i++)
        found_print_circle(found, i);
    if (waiting > 0)
        printf("  %d of these ranks wait for others\n", waiting);
    found_print_calls(found);
    found_print_failures(found);
    found_print_ranks(found);
    found_print_missing(found, copy->nranks);
}

int
info_found_take(struct info_ranks *ranks, int first, struct info_found *found_p)
{
    struct info_rank *at = &ranks->at[first];
    int i = first + 1, kept = 1;

    for (; i < ranks->count; i++) {
        const struct uli_recorder_copy *copy = &ranks->at[i].copy;

        if (memcmp(copy->id, at->copy.id, sizeof(copy->id)) != 0 ||
            copy->nranks != at->copy.nranks)
            break;
        if (copy->rank != at[kept - 1].copy.rank)
            at[kept++] = ranks->at[i];
    }
    *found_p = (struct info_found){.ranks = at, .count = kept};
    for (int k = 0; k < kept; k++)
        found_p->absent += at[k].absent;
    info_ranks_wait(at, kept);
    return i;
}
