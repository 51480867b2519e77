/* SPDX-License-Identifier: Apache-2.0
 *
 * Shrink: the survivors of a communicator decide which ranks survive, form a
 * new communicator of these, and decide whether all of them have it. Both
 * decisions survive deaths (survivors.h), so all members have the new
 * communicator or none has. Where a member was lost meanwhile, the others begin
 * again, until the deadline. One deadline holds for all attempts: each creation
 * may take half of the time left.
 *
 * Between the decisions, members gather on the shrink rounds. A round's number
 * holds the instance of the decision before it and counts the posts since, so
 * posts of different attempts or gathers are never confused. A member that
 * fails posts its error in place of its next round, so no member waits for it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/size.h"
#include "bootstrap/bootstrap.h"
#include "comm/comm.h"
#include "comm/agreement/rounds.h"
#include "comm/remote/remote.h"
#include "comm/agreement/survivors.h"

/* Rounds of one attempt; a round is instance * ROUNDS + its number. */
#define ROUNDS (UINT64_C(1) << 32)

struct members {
    struct uli_bootstrap base;
    ulyx_comm_t *comm;
    struct uli_decision decision; /* the members */
    uint64_t round;               /* last one posted */
    bool gave_up;                 /* this rank has failed and has posted its
                                   * error */
    int32_t ranks[];              /* the members' ranks in comm, ascending */
};

/* A member's value in the decision at the end: the largest is taken. */
enum { END_WELL, END_LOST, END_FAILED /* plus a status */ };

/* ---- the meeting of the members ------------------------------------------ */

static bool
has_failed(const struct members *m, int32_t rank, uint64_t round)
{
    return uli_rounds_has(m->comm, ULI_ROUNDS_SHRINK, rank, round) &&
           uli_rounds_read(m->comm, ULI_ROUNDS_SHRINK, rank, round)->status !=
               ULYX_SUCCESS;
}

static bool
is_lost(const struct members *m, int32_t rank)
{
    return atomic_load(&m->comm->peers[rank].dead) != 0 ||
           atomic_load(&m->comm->control->left[rank]) != 0;
}

/* A member whose post of the round has not arrived and may still arrive. */
static bool
is_awaited(const struct members *m, int32_t rank)
{
    return uli_decision_has(&m->decision, rank) && !is_lost(m, rank) &&
           !uli_rounds_has(m->comm, ULI_ROUNDS_SHRINK, rank, m->round);
}

/* Not uli_comm_wait: the communicator may have failed already. */
static void
await_members(const struct members *m, uli_deadline_t deadline)
{
    ulyx_comm_t *comm = m->comm;

    for (;;) {
        uint32_t seen = uli_doorbell_read(comm->control);
        int32_t p = 0;

        uli_comm_progress(comm);
        while (p < comm->nranks && !is_awaited(m, p))
            p++;
        if (p == comm->nranks || uli_deadline_over(deadline) ||
            uli_survivors_left_out(comm))
            return;
        uli_doorbell_sleep(
            comm->control, seen, deadline - uli_clock_ns(), NULL, NULL);
    }
}

static void
members_publish(
    struct members *m, ulyx_status_t status, const void *bytes, size_t count)
{
    struct uli_agree_post header = {.call = ULI_CALL_SHRINK,
        .status = status,
        .total_bytes = (uint64_t)count};

    m->round++;
    uli_rounds_publish(
        m->comm, ULI_ROUNDS_SHRINK, m->round, &header, bytes, (int64_t)count);
}

/* The error for a member whose post of the round has not arrived. */
static ulyx_status_t
members_missing(const struct members *m, int32_t rank)
{
    ulyx_comm_t *comm = m->comm;
    struct uli_late late = uli_late_none(ULI_LATE_REACH);

    if (is_lost(m, rank) || uli_survivors_left_out(comm))
        return uli_error(ULYX_ERR_RANK_LOST,
            "shrink: rank %d was lost during the creation",
            is_lost(m, rank) ? rank : comm->rank);
    for (int32_t p = 0; p < comm->nranks; p++)
        if (p == rank || is_awaited(m, p))
            uli_late_add(&late, p);
    return uli_comm_late_error(
        comm, &late, "shrink, creation of the new communicator");
}

/* Copies a member's post of the round. The post stays unchanged until its owner
 * posts two rounds later, which the owner does only when this rank has come to
 * the round between or is left out. */
static ulyx_status_t
take_post(const struct members *m, int32_t rank, size_t bytes, char *to)
{
    ulyx_comm_t *comm = m->comm;
    const struct uli_agree_post *post;

    if (!uli_rounds_has(comm, ULI_ROUNDS_SHRINK, rank, m->round))
        return members_missing(m, rank);
    post = uli_rounds_read(comm, ULI_ROUNDS_SHRINK, rank, m->round);
    if (post->status != ULYX_SUCCESS)
        return uli_error((ulyx_status_t)post->status,
            "shrink: rank %d gave up the creation: %s", rank,
            uli_status_text((ulyx_status_t)post->status));
    if (post->bytes != bytes)
        return uli_error(ULYX_ERR_MISMATCH,
            "shrink: rank %d gathers %u bytes and rank %d %zu: their versions "
            "of ulyx differ",
            rank, post->bytes, comm->rank, bytes);
    memcpy(to, post->payload, bytes);
    return ULYX_SUCCESS;
}

/* The bootstrap's gather among the members: one round per ULI_AGREE_BYTES. */
static ulyx_status_t
members_gather(struct uli_bootstrap *bootstrap, const void *mine, size_t bytes,
    void *all_p, uli_deadline_t deadline)
{
    struct members *m = (struct members *)bootstrap;

    for (size_t at = 0; at < bytes; at += ULI_AGREE_BYTES) {
        size_t take =
            bytes - at < ULI_AGREE_BYTES ? bytes - at : (size_t)ULI_AGREE_BYTES;
        size_t member = 0;

        members_publish(m, ULYX_SUCCESS, (const char *)mine + at, take);
        await_members(m, deadline);
        for (int32_t p = 0; p < m->comm->nranks; p++)
            if (uli_decision_has(&m->decision, p))
                ULI_TRY(take_post(
                    m, p, take, (char *)all_p + member++ * bytes + at));
    }
    return uli_survivors_left_out(m->comm)
               ? uli_error(ULYX_ERR_RANK_LOST,
                     "the other ranks have excluded rank %d", m->comm->rank)
               : ULYX_SUCCESS;
}

static bool
is_broken(struct uli_bootstrap *bootstrap)
{
    const struct members *m = (const struct members *)bootstrap;

    for (int32_t p = 0; p < m->comm->nranks; p++)
        if (uli_decision_has(&m->decision, p) &&
            (is_lost(m, p) || has_failed(m, p, m->round + 1)))
            return true;
    return uli_survivors_left_out(m->comm);
}

/* Posts this rank's error, for which the others check while they wait for this
 * rank's post. */
static ulyx_status_t
members_give_up(struct uli_bootstrap *bootstrap, ulyx_status_t status,
    const char *text, uli_deadline_t deadline)
{
    struct members *m = (struct members *)bootstrap;

    (void)deadline;
    members_publish(m, status, NULL, 0);
    m->gave_up = true;
    return uli_error_pass(status, text);
}

static void
close_members(struct uli_bootstrap *bootstrap)
{
    (void)bootstrap; /* lives as long as the call */
}

static const struct uli_bootstrap_ops member_ops = {
    .name = "shrink",
    .gather = members_gather,
    .give_up = members_give_up,
    .broken = is_broken,
    .close = close_members,
};

/* ---- an attempt ---------------------------------------------------------- */

static void
count_members(struct members *m)
{
    m->base.ops = &member_ops;
    m->base.nranks = 0;
    m->base.numbers = m->ranks;
    m->base.node_hash = m->comm->peers[m->comm->rank].identity.node_hash;
    for (int32_t p = 0; p < m->comm->nranks; p++) {
        if (!uli_decision_has(&m->decision, p))
            continue;
        if (p == m->comm->rank)
            m->base.rank = m->base.nranks;
        m->ranks[m->base.nranks++] = p;
    }
    m->round = m->decision.instance * ROUNDS;
    m->gave_up = false;
}

static ulyx_status_t
members_decide(ulyx_comm_t *comm, enum uli_topic topic, uint64_t value,
    uli_deadline_t deadline, struct uli_decision *decision_p)
{
    struct uli_opinion mine = {value, topic};

    ULI_TRY(uli_survivors_decide(comm, &mine, deadline, decision_p));
    return uli_survivors_same(decision_p);
}

static uli_deadline_t
half_way(uli_deadline_t deadline)
{
    int64_t now = uli_clock_ns();

    return now + (deadline - now) / 2;
}

static ulyx_status_t
members_form(struct members *m, const ulyx_comm_params_t *params,
    uli_deadline_t deadline, ulyx_comm_t **made_p)
{
    ulyx_status_t status = uli_comm_create(&m->base, m->base.nranks,
        m->base.rank, params, half_way(deadline), made_p);

    if (status != ULYX_SUCCESS && !m->gave_up)
        members_publish(m, status, NULL, 0);
    return status;
}

static uint64_t
end_of(ulyx_status_t status)
{
    if (status == ULYX_SUCCESS)
        return END_WELL;
    return status == ULYX_ERR_RANK_LOST ? END_LOST
                                        : END_FAILED + (uint64_t)status;
}

static bool
has_lost(const struct uli_decision *members, const struct uli_decision *end)
{
    return end->value == END_LOST ||
           memcmp(end->members, members->members, sizeof(end->members)) != 0;
}

/* The outcome of the attempt, equal at all members. mine, text: this rank's own
 * outcome and its text. *again_p: a member was lost. */
static ulyx_status_t
members_check(const struct members *m, const struct uli_decision *end,
    ulyx_status_t mine, const char *text, bool *again_p)
{
    ulyx_status_t theirs = (ulyx_status_t)(end->value - END_FAILED);

    *again_p = has_lost(&m->decision, end);
    if (*again_p || end->value == END_WELL)
        return ULYX_SUCCESS;
    if (mine == theirs)
        return uli_error_pass(mine, text);
    return uli_error(theirs,
        "shrink: a rank failed to form the new "
        "communicator: %s",
        uli_status_text(theirs));
}

/* No member keeps the communicator, so none waits for another to leave. Keeps
 * the error. */
static void
members_discard(ulyx_comm_t *made, ulyx_status_t status)
{
    char text[256];

    if (!made)
        return;
    snprintf(text, sizeof(text), "%s", uli_error_text());
    uli_comm_abort(made);
    uli_comm_destroy(made);
    uli_error_pass(status, text);
}

/* One attempt. SUCCESS with *new_p == NULL: try again. */
static ulyx_status_t
shrink_attempt(struct members *m, const ulyx_comm_params_t *params,
    uli_deadline_t deadline, ulyx_comm_t **new_p)
{
    ulyx_comm_t *made = NULL;
    struct uli_decision end;
    ulyx_status_t status, mine;
    bool again = true;
    char text[256];

    ULI_TRY(
        members_decide(m->comm, ULI_TOPIC_SHRINK, 0, deadline, &m->decision));
    count_members(m);
    mine = members_form(m, params, deadline, &made);
    snprintf(text, sizeof(text), "%s", uli_error_text());
    status = members_decide(
        m->comm, ULI_TOPIC_SHRINK_END, end_of(mine), deadline, &end);
    if (status == ULYX_SUCCESS)
        status = members_check(m, &end, mine, text, &again);
    if (status == ULYX_SUCCESS && !again)
        *new_p = made;
    else
        members_discard(made, status);
    return status;
}

ulyx_status_t
uli_shrink_settle(ulyx_comm_t *comm, uli_deadline_t deadline)
{
    struct uli_decision members, end;

    if (!uli_survivors_owes(comm, ULI_TOPIC_SHRINK_END, &members))
        return ULYX_SUCCESS;
    ULI_TRY(
        members_decide(comm, ULI_TOPIC_SHRINK_END, END_LOST, deadline, &end));
    if (has_lost(&members, &end) || end.value != END_WELL)
        return ULYX_SUCCESS;
    uli_survivors_leave(comm);
    return uli_error(ULYX_ERR_RANK_LOST,
        "shrink: the other ranks have the communicator that rank %d gave up by "
        "its deadline",
        comm->rank);
}

ulyx_status_t
uli_comm_shrink(
    ulyx_comm_t *comm, const ulyx_comm_params_t *params, ulyx_comm_t **new_p)
{
    double timeout_s = uli_timeout_or(params->timeout_s, comm->timeout_s);
    uli_deadline_t deadline = uli_deadline_in(timeout_s);
    struct members *m =
        calloc(1, sizeof(*m) + (size_t)comm->nranks * sizeof(m->ranks[0]));
    ulyx_comm_t *made = NULL;
    ulyx_status_t status = ULYX_SUCCESS;
    struct uli_recorder *recorder = &comm->control->recorder;
    uint64_t recorded;

    if (!m)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a shrink");
    recorded = uli_recorder_begin(
        recorder, &(struct uli_recorder_entry){.call = ULI_CALL_SHRINK,
                      .direction = -1,
                      .begun_ns = uli_clock_ns()});
    m->comm = comm;
    uli_comm_acknowledge(comm);
    status = uli_shrink_settle(comm, deadline);
    while (status == ULYX_SUCCESS && !made)
        status = shrink_attempt(m, params, deadline, &made);
    free(m);
    uli_recorder_end(recorder, recorded, status, uli_clock_ns());
    if (status == ULYX_SUCCESS)
        *new_p = made;
    return status;
}
