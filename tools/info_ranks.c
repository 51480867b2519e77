/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx_info ranks: what the ranks of this host do, and who holds them up.
 */
#include "info_ranks.h"

#include <stdio.h>
#include <string.h>
#include "base/clock.h"
#include "base/rank_list.h"
#include "collectives/layout/layout.h"
#include "comm/record/stall.h"
#include "info.h"
#include "info_options.h"
#include "ulyx/ulyx.h"

/* The found ranks of one communicator. */
struct found {
    struct info_rank *ranks;
    int count;
    int64_t now;
    const struct info_rank *waiting; /* whose list is written */
};

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

static void
rank_text(const struct found *found, const struct info_rank *rank, char *text_p,
    size_t bytes)
{
    const struct uli_recorder_call *last =
        rank->copy.ncalls > 0 ? &rank->copy.calls[0] : NULL;
    char call[128];

    if (rank->call != NULL) {
        call_text(rank->call, call, sizeof(call));
        snprintf(text_p, bytes, "in %s, for %.1f s", call,
            seconds_since(rank->call->begun_ns, found->now));
    } else if (last != NULL) {
        call_text(last, call, sizeof(call));
        snprintf(text_p, bytes, "in no call; its last, %.1f s ago: %s (%s)",
            seconds_since(last->begun_ns, found->now), call,
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

static const struct info_rank *
found_at(const struct found *found, int32_t rank)
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
    const struct found *found = context;
    const struct info_rank *other = found_at(found, rank);

    return other != NULL &&
           info_rank_waits_for(found->waiting, other, found->now);
}

/* ---- what they do -------------------------------------------------------- */

static void
found_print_ranks(struct found *found)
{
    printf("  %5s %8s  %s\n", "rank", "pid", "does");
    for (int i = 0; i < found->count; i++) {
        const struct info_rank *rank = &found->ranks[i];
        char does[256], awaited[96];

        rank_text(found, rank, does, sizeof(does));
        printf("  %5d %8d  %s%s", rank->copy.rank, (int)rank->pid, does,
            rank_state_text(rank));
        if (rank->waits) {
            found->waiting = rank;
            uli_rank_list_text(rank->copy.nranks, rank_is_awaited, found,
                awaited, sizeof(awaited));
            printf("; waits for %s", awaited);
        }
        printf("\n");
    }
}

/* ---- who holds them up --------------------------------------------------- */

static int
found_count_waiting(const struct found *found)
{
    int waiting = 0;

    for (int i = 0; i < found->count; i++)
        waiting += found->ranks[i].waits;
    return waiting;
}

/* Ranks that others wait for and that wait for nobody. */
static void
found_print_causes(const struct found *found)
{
    for (int i = 0; i < found->count; i++) {
        const struct info_rank *rank = &found->ranks[i];
        char does[256];

        if (!rank->awaited || rank->waits)
            continue;
        rank_text(found, rank, does, sizeof(does));
        printf("  held up by rank %d (%s, pid %d%s): %s\n", rank->copy.rank,
            rank->copy.host, (int)rank->pid, rank_state_text(rank), does);
    }
}

/* The rank on a circle that `at` leads to, or -1. */
static int
found_enter_circle(const struct found *found, int at)
{
    for (int i = 0; i < found->count && at >= 0; i++)
        at = found->ranks[at].next;
    return at;
}

/* Every circle once: where its lowest rank is come to. */
static void
found_print_circle(const struct found *found, int start)
{
    int at = found_enter_circle(found, start), lowest = at;

    if (at < 0)
        return;
    for (int i = found->ranks[at].next; i != at; i = found->ranks[i].next)
        lowest = i < lowest ? i : lowest;
    if (lowest != start)
        return;
    printf("  a circle, in which nobody can go on:\n");
    at = start;
    do {
        const struct info_rank *rank = &found->ranks[at];
        char does[256];

        rank_text(found, rank, does, sizeof(does));
        printf("    rank %d (%s, pid %d) waits for rank %d: %s\n",
            rank->copy.rank, rank->copy.host, (int)rank->pid,
            found->ranks[rank->next].copy.rank, does);
        at = rank->next;
    } while (at != start);
}

static void
found_print(struct found *found)
{
    const struct uli_recorder_copy *copy = &found->ranks[0].copy;
    int waiting;
    char missing[128];

    info_ranks_wait(found->ranks, found->count, found->now);
    printf("communicator \"%s\" %02x%02x%02x%02x: %d of %d ranks are here\n",
        copy->name, copy->id[0], copy->id[1], copy->id[2], copy->id[3],
        found->count, copy->nranks);
    found_print_ranks(found);
    waiting = found_count_waiting(found);
    if (waiting > 0)
        printf("  %d of them wait for others\n", waiting);
    found_print_causes(found);
    for (int i = 0; i < found->count; i++)
        found_print_circle(found, i);
    if (found->count == copy->nranks)
        return;
    uli_rank_list_text_of(copy->nranks - found->count, copy->nranks,
        rank_is_missing, found, missing, sizeof(missing));
    printf("  not found on this host: %s (on other hosts, of another user, or "
           "dead)\n",
        missing);
}

/* ---- the command --------------------------------------------------------- */

static bool
found_is_asked(const struct found *found, int64_t pid, const char *name)
{
    bool has_pid = pid == 0;

    for (int i = 0; i < found->count; i++)
        has_pid |= found->ranks[i].pid == pid;
    return has_pid &&
           (name == NULL || strcmp(name, found->ranks[0].copy.name) == 0);
}

/* The ranks from `first` on that are of one communicator; of one that is there
 * twice, which only a forged segment is, the first is kept. */
static int
ranks_take_comm(struct info_ranks *ranks, int first, struct found *found_p)
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
    found_p->ranks = at;
    found_p->count = kept;
    return i;
}

int
info_ranks(int argc, char **argv)
{
    int64_t pid = 0;
    const char *name = NULL;
    const struct info_option options[] = {
        {"--pid", INFO_NUMBER, &pid, 1, INT32_MAX,
            "communicators of this process only"},
        {"--name", INFO_TEXT, &name, 0, 0, "communicators of this name only",
            "NAME"}};
    const struct info_command command = {"ranks",
        "What the running ranks of this host do, from their flight recorders,\n"
        "who waits for whom, and who holds all up. Only the user's own\n"
        "processes are seen, and not ranks that are threads of one process.\n",
        options, sizeof(options) / sizeof(options[0])};
    struct info_ranks ranks;
    int code = info_options_read(&command, argc, argv), shown = 0;

    if (code >= 0)
        return code;
    code = info_ranks_find(&ranks);
    if (code != 0)
        return code;
    for (int first = 0; first < ranks.count;) {
        struct found found = {.now = uli_clock_ns()};

        first = ranks_take_comm(&ranks, first, &found);
        if (!found_is_asked(&found, pid, name))
            continue;
        found_print(&found);
        shown++;
    }
    info_ranks_release(&ranks);
    if (shown > 0)
        return 0;
    fprintf(stderr, "ulyx_info: ranks: no such rank runs here\n");
    return 1;
}
