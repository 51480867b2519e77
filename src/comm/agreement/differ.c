/* SPDX-License-Identifier: Apache-2.0
 *
 * The search for a circle through this rank, its confirmation, and the
 * spreading of the result to all ranks; see differ.h.
 *
 * A search is a path of ranks that begins at this rank. Each step reads two
 * things at once of the rank for which the path's last rank waits: its board,
 * and whether it has begun the last rank's call. Answers of other nodes arrive
 * while the wait continues, so a search takes several calls of uli_differ_look.
 * A search without result is ended, and a new search begins a little later.
 */
#include "comm/agreement/differ.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "comm/agreement/circle.h"
#include "comm/record/stall.h"
#include "comm/remote/remote_internal.h"

#define CONFIRM_NS INT64_C(500000000)  /* between the two reads of a circle */
#define AGAIN_NS   INT64_C(200000000)  /* between searches */
#define ANSWER_NS  INT64_C(1000000000) /* then an answer counts as lost */

/* A rank of the path. */
struct step {
    int32_t rank;
    bool known;    /* its answer is here */
    int32_t begun; /* enum uli_begun, for the call of the step before */
    struct uli_board_copy standing;
};

struct uli_suspicion {
    pthread_mutex_t lock; /* any thread that drives the network stores
                           * answers */
    uint64_t search;      /* number of the present search; other answers are
                           * late */
    int64_t query_ns, next_ns;
    int32_t count; /* steps; the last one may not be known yet */
    struct step path[ULI_DIFFER_MOST];
    int32_t after; /* a rank that has begun the call: uli_differ_choose begins
                    * after it; -1: none */
    /* The circle that was found: its length, the time, and its ranks. */
    int32_t found;
    int64_t found_ns;
    struct step circle[ULI_DIFFER_MOST];
};

ulyx_status_t
uli_differ_open(ulyx_comm_t *comm)
{
    struct uli_suspicion *suspicion = calloc(1, sizeof(*suspicion));

    if (!suspicion)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a communicator");
    pthread_mutex_init(&suspicion->lock, NULL);
    suspicion->after = -1;
    comm->suspicion = suspicion;
    return ULYX_SUCCESS;
}

void
uli_differ_close(ulyx_comm_t *comm)
{
    if (!comm->suspicion)
        return;
    pthread_mutex_destroy(&comm->suspicion->lock);
    free(comm->suspicion);
    comm->suspicion = NULL;
}

/* ---- the rank for which a call waits ------------------------------------- */

/* Whether a rank of this node stands still in another call. */
static bool
rank_is_elsewhere(
    ulyx_comm_t *comm, int32_t rank, const struct uli_call_key *key)
{
    struct uli_board_copy standing;

    uli_board_read(&comm->peers[rank].control->board, &standing);
    return standing.awaited >= 0 && !uli_call_key_equal(&standing.key, key);
}

int32_t
uli_differ_choose(ulyx_comm_t *comm, const struct uli_call_key *key,
    bool (*candidate)(void *context, int32_t rank), void *context)
{
    int32_t after = comm->suspicion->after, first = -1;

    for (int32_t i = 1; i <= comm->nranks; i++) {
        int32_t rank = (after + i) % comm->nranks;

        if (rank == comm->rank || !candidate(context, rank))
            continue;
        if (!uli_comm_is_remote(comm, rank) &&
            rank_is_elsewhere(comm, rank, key))
            return rank;
        first = first < 0 ? rank : first;
    }
    return first;
}

/* ---- the search ---------------------------------------------------------- */

static struct step
step_read(ulyx_comm_t *comm, int32_t rank, const struct uli_call_key *before)
{
    const struct uli_control *control = comm->peers[rank].control;
    struct step step = {.rank = rank, .known = true};

    uli_board_read(&control->board, &step.standing);
    step.begun = before
                     ? (int32_t)uli_recorder_begun(&control->recorder, before)
                     : ULI_BEGUN_NO;
    return step;
}

static void
search_give_up(struct uli_suspicion *suspicion, int64_t now)
{
    suspicion->search++;
    suspicion->count = 0;
    suspicion->next_ns = now + AGAIN_NS;
}

/* Whether the path, which leads back to this rank, is a circle. */
static bool
path_is_circle(const struct uli_suspicion *suspicion)
{
    struct uli_circle_row rows[ULI_DIFFER_MOST];
    int32_t count = suspicion->count;

    for (int32_t i = 0; i < count; i++) {
        int32_t next = (i + 1) % count;

        rows[i].standing = suspicion->path[i].standing;
        rows[i].standing.awaited = next;
        rows[i].away = suspicion->path[next].begun == ULI_BEGUN_NO;
    }
    return uli_circle_length(rows, count, 0) == count;
}

/* Whether the path closes a circle without this rank: then others find that
 * circle. */
static bool
path_has(const struct uli_suspicion *suspicion, int32_t rank)
{
    for (int32_t i = 0; i < suspicion->count; i++)
        if (suspicion->path[i].rank == rank)
            return true;
    return false;
}

enum found { FOUND_NOTHING, FOUND_CIRCLE, FOUND_QUERY, FOUND_WAIT };

/* Extends the path. FOUND_NOTHING: this search found no circle. FOUND_CIRCLE:
 * the path is one. FOUND_QUERY: a message must query the rank at the end of the
 * path. FOUND_WAIT: that rank has not answered yet. */
static enum found
search_step(ulyx_comm_t *comm, struct uli_suspicion *suspicion, int64_t now)
{
    struct step *last = &suspicion->path[suspicion->count - 1];
    int32_t next;

    if (!last->known)
        return now - suspicion->query_ns > ANSWER_NS ? FOUND_NOTHING
                                                     : FOUND_WAIT;
    if (last->begun == ULI_BEGUN_YES && suspicion->count == 2)
        suspicion->after = last->rank;
    next = last->standing.awaited;
    if (last->begun != ULI_BEGUN_NO || next < 0 || next >= comm->nranks)
        return FOUND_NOTHING;
    if (next == comm->rank) {
        suspicion->path[0].begun = (int32_t)uli_recorder_begun(
            &comm->control->recorder, &last->standing.key);
        return path_is_circle(suspicion) ? FOUND_CIRCLE : FOUND_NOTHING;
    }
    if (suspicion->count == ULI_DIFFER_MOST || path_has(suspicion, next))
        return FOUND_NOTHING;
    suspicion->count++;
    if (!uli_comm_is_remote(comm, next)) {
        last[1] = step_read(comm, next, &last->standing.key);
        return search_step(comm, suspicion, now);
    }
    last[1] = (struct step){.rank = next};
    suspicion->query_ns = now;
    return FOUND_QUERY;
}

/* ---- what was found ------------------------------------------------------ */

static bool
circle_is_same(const struct uli_suspicion *suspicion)
{
    if (suspicion->found != suspicion->count)
        return false;
    for (int32_t i = 0; i < suspicion->count; i++)
        if (suspicion->circle[i].rank != suspicion->path[i].rank ||
            suspicion->circle[i].standing.epoch !=
                suspicion->path[i].standing.epoch)
            return false;
    return true;
}

/* Begins at the lowest rank, so that all ranks that find the circle report the
 * same. */
static struct uli_differ
circle_describe(const struct uli_suspicion *suspicion)
{
    struct uli_differ differ = {.length = suspicion->count};
    const struct step *path = suspicion->path;
    int32_t lowest = 0;

    for (int32_t i = 1; i < suspicion->count; i++)
        lowest = path[i].rank < path[lowest].rank ? i : lowest;
    for (int k = 0; k < 2; k++) {
        const struct step *step = &path[(lowest + k) % suspicion->count];

        differ.ranks[k] = step->rank;
        differ.keys[k] = step->standing.key;
    }
    return differ;
}

/* True once the circle is confirmed. */
static bool
circle_take(struct uli_suspicion *suspicion, int64_t now)
{
    if (circle_is_same(suspicion))
        return true;
    suspicion->found = suspicion->count;
    suspicion->found_ns = now;
    memcpy(suspicion->circle, suspicion->path, sizeof(suspicion->circle));
    suspicion->search++;
    suspicion->count = 0;
    suspicion->next_ns = now + CONFIRM_NS;
    return false;
}

/* ---- spreading ----------------------------------------------------------- */

/* Writes the record at all ranks of this node. */
static void
differ_spread(ulyx_comm_t *comm, const struct uli_differ *differ)
{
    for (int32_t p = 0; p < comm->nranks; p++) {
        struct uli_control *control = uli_comm_mapped_control(comm, p);

        if (control)
            uli_control_write_once(&control->differ_state, &control->differ,
                differ, sizeof(*differ));
    }
}

static bool
differ_makes_sense(const ulyx_comm_t *comm, const struct uli_differ *differ)
{
    for (int k = 0; k < 2; k++)
        if (differ->ranks[k] < 0 || differ->ranks[k] >= comm->nranks)
            return false;
    return true;
}

bool
uli_differ_read(ulyx_comm_t *comm, struct uli_differ *differ_p)
{
    const struct uli_control *control = comm->control;
    struct uli_differ differ;

    if (!uli_control_read_once(&control->differ_state, &control->differ,
            &differ, sizeof(differ)) ||
        !differ_makes_sense(comm, &differ))
        return false;
    *differ_p = differ;
    return true;
}

void
uli_differ_receive(ulyx_comm_t *comm, const void *content, size_t bytes)
{
    struct uli_differ differ;

    if (bytes != sizeof(differ))
        return;
    memcpy(&differ, content, sizeof(differ));
    if (differ_makes_sense(comm, &differ))
        differ_spread(comm, &differ);
}

/* "reshuffle, call 7 of plan 2 (fingerprint 5f3a...)". */
static void
key_text(const struct uli_call_key *key, char *text_p, size_t bytes)
{
    const struct uli_recorder_call call = {
        .call = key->call, .plan = key->plan, .number = key->number};
    size_t at;

    uli_recorder_call_text(&call, text_p, bytes);
    at = strlen(text_p);
    if (key->fingerprint != 0)
        snprintf(text_p + at, bytes - at, " (fingerprint %016" PRIx64 ")",
            key->fingerprint);
}

ulyx_status_t
uli_differ_fail(ulyx_comm_t *comm, int32_t rank)
{
    struct uli_differ differ;
    char calls[2][80], more[40] = "";

    if (!uli_differ_read(comm, &differ))
        return uli_comm_fail(comm, ULYX_ERR_MISMATCH, rank,
            "ranks are in different calls, as rank %d has found", rank);
    for (int k = 0; k < 2; k++)
        key_text(&differ.keys[k], calls[k], sizeof(calls[k]));
    if (differ.length > 2)
        snprintf(more, sizeof(more), "; a circle of %d", differ.length);
    return uli_comm_fail(comm, ULYX_ERR_MISMATCH, differ.ranks[0],
        "ranks are in different calls: rank %d in %s waits for rank %d, which "
        "is in %s%s",
        differ.ranks[0], calls[0], differ.ranks[1], calls[1], more);
}

/* ---- one look ------------------------------------------------------------ */

/* Under lock. FOUND_QUERY: the caller queries the rank of the last step.
 * FOUND_CIRCLE: the circle was confirmed, and *differ_p describes it. */
static enum found
suspicion_look(ulyx_comm_t *comm, struct uli_suspicion *suspicion, int64_t now,
    struct uli_differ *differ_p)
{
    enum found found;

    if (suspicion->count == 0) {
        if (now < suspicion->next_ns)
            return FOUND_WAIT;
        suspicion->path[0] = step_read(comm, comm->rank, NULL);
        suspicion->count = 1;
    }
    found = search_step(comm, suspicion, now);
    if (found == FOUND_NOTHING) {
        suspicion->found = 0;
        search_give_up(suspicion, now);
    }
    if (found != FOUND_CIRCLE)
        return found;
    if (!circle_take(suspicion, now))
        return FOUND_WAIT;
    *differ_p = circle_describe(suspicion);
    return FOUND_CIRCLE;
}

void
uli_differ_look(ulyx_comm_t *comm)
{
    struct uli_suspicion *suspicion = comm->suspicion;
    struct uli_message query = {.head.kind = ULI_MESSAGE_LOOK};
    struct uli_differ differ;
    struct uli_call_key key;
    int32_t queried = -1;
    enum found found;

    pthread_mutex_lock(&suspicion->lock);
    found = suspicion_look(comm, suspicion, uli_clock_ns(), &differ);
    if (found == FOUND_QUERY) {
        queried = suspicion->path[suspicion->count - 1].rank;
        key = suspicion->path[suspicion->count - 2].standing.key;
        query.value = suspicion->search;
    }
    pthread_mutex_unlock(&suspicion->lock);
    if (queried >= 0)
        uli_remote_send_message(comm, queried, &query, &key, sizeof(key));
    if (found != FOUND_CIRCLE)
        return;
    differ_spread(comm, &differ);
    uli_differ_fail(comm, differ.ranks[0]);
}

/* ---- other nodes --------------------------------------------------------- */

void
uli_differ_answer(
    ulyx_comm_t *comm, int32_t from, const struct uli_message *message)
{
    struct uli_message answer = {
        .head.kind = ULI_MESSAGE_STANDS, .value = message->value};
    struct uli_call_key key;
    struct step step;

    if (message->head.count != sizeof(key))
        return;
    memcpy(&key, message->more, sizeof(key));
    step = step_read(comm, comm->rank, &key);
    answer.status = step.begun;
    uli_remote_post(comm, from, &answer, &step.standing, sizeof(step.standing));
}

void
uli_differ_receive_answer(
    ulyx_comm_t *comm, int32_t from, const struct uli_message *message)
{
    struct uli_suspicion *suspicion = comm->suspicion;
    struct step *last;

    if (message->head.count != sizeof(last->standing))
        return;
    pthread_mutex_lock(&suspicion->lock);
    last = &suspicion->path[suspicion->count > 0 ? suspicion->count - 1 : 0];
    if (suspicion->count > 1 && message->value == suspicion->search &&
        !last->known && last->rank == from) {
        memcpy(&last->standing, message->more, sizeof(last->standing));
        last->begun = message->status;
        last->known = true;
    }
    pthread_mutex_unlock(&suspicion->lock);
}
