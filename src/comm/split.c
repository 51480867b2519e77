/* SPDX-License-Identifier: Apache-2.0
 *
 * Split: the ranks of one color meet through the parent. Every rank of the
 * parent takes part in each gather, whatever its color, so that all groups are
 * created side by side. A rank of no color (color < 0) takes part in the
 * gathers of the creation with 0 bytes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bootstrap/bootstrap.h"
#include "comm/agreement/rounds.h"
#include "comm/comm.h"
#include "comm/remote/remote.h"

/* A third gather, of addresses, is needed where a group may have several
 * nodes. */
enum { CREATION_GATHERS = 2, CREATION_GATHERS_NODES = 3 };

struct choice {
    int32_t color, key;
};

/* A bootstrap of a group of the parent's ranks. */
struct group {
    struct uli_bootstrap base;
    ulyx_comm_t *parent;
    enum uli_call call;
    int32_t gathers;   /* done so far */
    uint64_t recorded; /* entry in the parent's recorder since the last gather;
                        * or 0 */
    unsigned char *table; /* of a gather; kept from one gather to the next, so
                           * that the last gather allocates nothing */
    size_t table_bytes;
    /* [nranks of the parent], allocated before the first gather */
    int32_t *members; /* parent's ranks in the group's order */
    struct choice *choices;
    int64_t *sizes;
    ulyx_status_t *outcomes;
};

/* The outcome with which rank p of the parent took part, as an error of this
 * rank. */
static ulyx_status_t
check_outcome(const struct group *group, int32_t p)
{
    ulyx_status_t outcome = group->outcomes[p];
    char reason[ULI_REFUSAL_TEXT_BYTES];
    if (outcome == ULYX_SUCCESS)
        return ULYX_SUCCESS;
    return uli_error(uli_status_of_peer(outcome), "split: rank %d refused: %s",
        p, uli_agree_reason(group->parent, p, reason));
}

/* The parent's recorder has an entry for each gather. After a gather, a wait
 * for a peer gets one more entry under the same call number. */
static void
group_await(struct uli_bootstrap *bootstrap, int32_t rank)
{
    struct group *group = (struct group *)bootstrap;
    ulyx_comm_t *parent = group->parent;

    if (rank < 0 && group->recorded == 0)
        return;
    if (group->recorded == 0)
        group->recorded = uli_recorder_begin(&parent->control->recorder,
            &(struct uli_recorder_entry){.call = group->call,
                .direction = -1,
                .number = parent->sequence - 1,
                .begun_ns = uli_clock_ns()});
    uli_recorder_await(&parent->control->recorder, group->recorded,
        rank < 0 ? -1 : group->members[rank]);
}

static ulyx_status_t
gather_parent(struct group *group, ulyx_status_t status, const void *mine,
    size_t bytes, unsigned char *all, uli_deadline_t deadline)
{
    group->gathers++;
    uli_recorder_end(&group->parent->control->recorder, group->recorded,
        ULYX_SUCCESS, uli_clock_ns());
    group->recorded = 0;
    return uli_agree_gather(
        group->parent, &(struct uli_gather){.call = group->call,
                           .status = status,
                           .mine = mine,
                           .bytes = (int64_t)bytes,
                           .max_bytes = (int64_t)bytes,
                           .all_p = all,
                           .bytes_p = group->sizes,
                           .status_p = group->outcomes,
                           .deadline = deadline});
}

static unsigned char *
group_table(struct group *group, size_t bytes)
{
    size_t all_bytes = (size_t)group->parent->nranks * bytes;
    unsigned char *larger;

    if (all_bytes <= group->table_bytes)
        return group->table;
    larger = realloc(group->table, all_bytes);
    if (!larger)
        return NULL;
    group->table = larger;
    group->table_bytes = all_bytes;
    return larger;
}

static ulyx_status_t
bootstrap_gather(struct uli_bootstrap *bootstrap, const void *mine,
    size_t bytes, void *all_p, uli_deadline_t deadline)
{
    struct group *group = (struct group *)bootstrap;
    unsigned char *all = group_table(group, bytes);
    ulyx_status_t status;

    if (!all)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a gather");
    status = gather_parent(group, ULYX_SUCCESS, mine, bytes, all, deadline);
    /* A member whose creation has failed takes part without a record. */
    for (int32_t m = 0; status == ULYX_SUCCESS && m < bootstrap->nranks; m++) {
        status = check_outcome(group, group->members[m]);
        if (status == ULYX_SUCCESS)
            memcpy((unsigned char *)all_p + (size_t)m * bytes,
                all + (size_t)group->members[m] * bytes, bytes);
    }
    return status;
}

static bool
rank_refuses(ulyx_comm_t *parent, int32_t p, uint64_t round)
{
    if (uli_comm_is_remote(parent, p))
        return uli_remote_refused(parent, p, round);
    return uli_rounds_has(parent, ULI_ROUNDS_AGREE, p, round) &&
           uli_rounds_read(parent, ULI_ROUNDS_AGREE, p, round)->status !=
               ULYX_SUCCESS;
}

/* Whether the creation has failed at another member: such a member refuses the
 * next gather. */
static bool
is_broken(struct uli_bootstrap *bootstrap)
{
    const struct group *group = (struct group *)bootstrap;
    ulyx_comm_t *parent = group->parent;
    uint64_t next = parent->agree_round + 1;

    for (int32_t m = 0; m < bootstrap->nranks; m++) {
        int32_t p = group->members[m];

        if (p != parent->rank && rank_refuses(parent, p, next))
            return true;
    }
    return uli_comm_check(parent) != ULYX_SUCCESS;
}

/* Refuses the next gather. The other members find the refusal before they
 * reach that gather. */
static ulyx_status_t
group_give_up(struct uli_bootstrap *bootstrap, ulyx_status_t status,
    const char *text, uli_deadline_t deadline)
{
    struct group *group = (struct group *)bootstrap;
    ulyx_comm_t *parent = group->parent;

    for (int32_t m = 0; m < bootstrap->nranks; m++)
        if (uli_comm_is_remote(parent, group->members[m]))
            uli_remote_refuse(
                parent, group->members[m], parent->agree_round + 1);
    uli_error_pass(status, text);
    gather_parent(group, status, NULL, 0, NULL, deadline);
    return uli_error_pass(status, text);
}

static void
close_group(struct uli_bootstrap *bootstrap)
{
    (void)bootstrap; /* lives on the caller's stack */
}

static const struct uli_bootstrap_ops group_ops = {
    .name = "split",
    .gather = bootstrap_gather,
    .give_up = group_give_up,
    .broken = is_broken,
    .await = group_await,
    .close = close_group,
};

/* members[0 .. nranks) <- the ranks of this rank's color by (key, rank). */
static void
collect_group(struct group *group, const struct choice *choices)
{
    int32_t me = group->parent->rank, count = 0;

    for (int32_t p = 0; p < group->parent->nranks; p++) {
        int32_t at = count;

        if (choices[p].color != choices[me].color)
            continue;
        for (; at > 0 && choices[group->members[at - 1]].key > choices[p].key;
             at--)
            group->members[at] = group->members[at - 1];
        group->members[at] = p;
        count++;
    }
    group->base.nranks = count;
    group->base.numbers = group->members;
    for (int32_t m = 0; m < count; m++)
        if (group->members[m] == me)
            group->base.rank = m;
}

/* Takes part in the gathers that this rank's own creation did not reach, with
 * the outcome of the creation: a member that still waits for this rank's record
 * receives the reason why none will arrive. */
static ulyx_status_t
finish_gathers(struct group *group, ulyx_status_t status, int32_t gathers,
    uli_deadline_t deadline)
{
    while (group->gathers < gathers)
        ULI_TRY(gather_parent(group, status, NULL, 0, NULL, deadline));
    return ULYX_SUCCESS;
}

static ulyx_status_t
split_over(struct group *group, int32_t color, int32_t key,
    const ulyx_comm_params_t *params, double timeout_s, ulyx_comm_t **new_p)
{
    ulyx_comm_t *parent = group->parent;
    uli_deadline_t deadline = uli_deadline_in(timeout_s);
    struct choice mine = {color, key};
    ulyx_comm_t *made = NULL;
    ulyx_status_t status = ULYX_SUCCESS, kept;

    /* An error holds for every rank: none continues to the creation. */
    ULI_TRY(gather_parent(group, ULYX_SUCCESS, &mine, sizeof(mine),
        (unsigned char *)group->choices, deadline));
    for (int32_t p = 0; p < parent->nranks; p++)
        ULI_TRY(check_outcome(group, p));
    if (color >= 0) {
        collect_group(group, group->choices);
        status = uli_comm_create(&group->base, group->base.nranks,
            group->base.rank, params, deadline, &made);
    }
    kept = uli_comm_check(parent) == ULYX_SUCCESS
               ? finish_gathers(group, status,
                     1 + (parent->nnodes > 1 ? CREATION_GATHERS_NODES
                                             : CREATION_GATHERS),
                     deadline)
               : ULYX_SUCCESS;
    if (status == ULYX_SUCCESS && kept != ULYX_SUCCESS && made) {
        uli_comm_destroy(made);
        made = NULL;
    }
    status = status != ULYX_SUCCESS ? status : kept;
    if (status == ULYX_SUCCESS)
        *new_p = made;
    return status;
}

static bool
group_allocate(struct group *group, size_t nranks)
{
    group->members = calloc(nranks, sizeof(*group->members));
    group->choices = calloc(nranks, sizeof(*group->choices));
    group->sizes = calloc(nranks, sizeof(*group->sizes));
    group->outcomes = calloc(nranks, sizeof(*group->outcomes));
    return group->members && group->choices && group->sizes && group->outcomes;
}

ulyx_status_t
uli_comm_split(ulyx_comm_t *comm, int32_t color, int32_t key,
    ulyx_status_t outcome, const ulyx_comm_params_t *params,
    ulyx_comm_t **new_p)
{
    struct group group = {
        .base = {.ops = &group_ops,
            .node_hash = comm->peers[comm->rank].identity.node_hash},
        .parent = comm,
        .call = ULI_CALL_SPLIT};
    bool refuses = outcome != ULYX_SUCCESS;
    double timeout_s = refuses
                           ? comm->timeout_s
                           : uli_timeout_or(params->timeout_s, comm->timeout_s);
    ulyx_status_t status;

    if (!refuses && !group_allocate(&group, (size_t)comm->nranks)) {
        outcome = uli_error(ULYX_ERR_NO_MEMORY, "no memory for a split");
        refuses = true;
    }
    status = refuses ? uli_agree_refuse(comm, ULI_CALL_SPLIT, outcome,
                           uli_deadline_in(timeout_s))
                     : split_over(&group, color, key, params, timeout_s, new_p);
    uli_recorder_end(
        &comm->control->recorder, group.recorded, status, uli_clock_ns());
    free(group.table);
    free(group.members);
    free(group.choices);
    free(group.sizes);
    free(group.outcomes);
    return status;
}
