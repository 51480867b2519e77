/* SPDX-License-Identifier: Apache-2.0
 *
 * Split: the ranks of one color meet through the parent. Every rank of the
 * parent takes part in each gather, whatever its color, so that all groups
 * are created side by side; a color without a communicator gathers nothing.
 */
#include <stdlib.h>
#include <string.h>

#include "comm/bootstrap.h"
#include "comm/comm.h"

enum { CREATION_GATHERS = 2 };

struct choice {
    int32_t color, key;
};

/* A bootstrap of a group of the parent's ranks. */
struct group {
    struct uli_bootstrap base;
    ulyx_comm_t *parent;
    enum uli_call call;
    int32_t *members; /* parent's ranks in the group's order */
    int32_t gathers;  /* done so far */
};

static ulyx_status_t
gather_parent(struct group *group, const void *mine, size_t bytes,
    size_t max_bytes, unsigned char *all, uli_deadline_t deadline)
{
    ulyx_comm_t *parent = group->parent;
    int64_t *sizes = calloc((size_t)parent->nranks, sizeof(*sizes));
    ulyx_status_t *verdicts = calloc((size_t)parent->nranks, sizeof(*verdicts));
    ulyx_status_t status = ULYX_ERR_NO_MEMORY;

    group->gathers++;
    if (sizes != NULL && verdicts != NULL)
        status = uli_agree_gather(parent, group->call, ULYX_SUCCESS, mine,
            (int64_t)bytes, (int64_t)max_bytes, all, sizes, verdicts, deadline);
    else
        status = uli_error(status, "no memory for %d ranks", parent->nranks);
    free(sizes);
    free(verdicts);
    return status;
}

static ulyx_status_t
gather(struct uli_bootstrap *bootstrap, const void *mine, size_t bytes,
    void *all_p, uli_deadline_t deadline)
{
    struct group *group = (struct group *)bootstrap;
    unsigned char *all = malloc((size_t)group->parent->nranks * bytes);
    ulyx_status_t status;

    if (all == NULL)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a gather");
    status = gather_parent(group, mine, bytes, bytes, all, deadline);
    for (int32_t m = 0; status == ULYX_SUCCESS && m < bootstrap->nranks; m++)
        memcpy((unsigned char *)all_p + (size_t)m * bytes,
            all + (size_t)group->members[m] * bytes, bytes);
    free(all);
    return status;
}

static void
close_group(struct uli_bootstrap *bootstrap)
{
    (void)bootstrap; /* lives on the caller's stack */
}

static const struct uli_bootstrap_ops group_ops = {
    .name = "split",
    .gather = gather,
    .close = close_group,
};

/* members[0 .. nranks) <- the ranks of my color by (key, rank). */
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
    for (int32_t m = 0; m < count; m++)
        if (group->members[m] == me)
            group->base.rank = m;
}

/* Gathers that this rank's own creation did not take. */
static ulyx_status_t
keep_step(struct group *group, int32_t gathers, uli_deadline_t deadline)
{
    while (group->gathers < gathers)
        ULI_TRY(gather_parent(group, NULL, 0, 0, NULL, deadline));
    return ULYX_SUCCESS;
}

static ulyx_status_t
split_over(struct group *group, int32_t color, int32_t key,
    const ulyx_comm_params_t *params, double timeout_s, ulyx_comm_t **new_p)
{
    ulyx_comm_t *parent = group->parent;
    uli_deadline_t deadline = uli_deadline_in(timeout_s);
    struct choice mine = {color, key};
    struct choice *choices = calloc((size_t)parent->nranks, sizeof(*choices));
    ulyx_comm_t *made = NULL;
    ulyx_status_t status, kept;

    if (choices == NULL)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a split");
    status = gather_parent(group, &mine, sizeof(mine), sizeof(mine),
        (unsigned char *)choices, deadline);
    if (status != ULYX_SUCCESS) {
        free(choices);
        return status; /* at every rank: nobody goes on to the creation */
    }
    if (color >= 0) {
        collect_group(group, choices);
        status = uli_comm_create(&group->base, group->base.nranks,
            group->base.rank, params, timeout_s, &made);
    }
    free(choices);
    kept = uli_comm_check(parent) == ULYX_SUCCESS
               ? keep_step(group, 1 + CREATION_GATHERS, deadline)
               : ULYX_SUCCESS;
    if (status == ULYX_SUCCESS && kept != ULYX_SUCCESS && made != NULL) {
        uli_comm_destroy(made);
        made = NULL;
    }
    status = status != ULYX_SUCCESS ? status : kept;
    if (status == ULYX_SUCCESS)
        *new_p = made;
    return status;
}

ulyx_status_t
uli_comm_split(ulyx_comm_t *comm, int32_t color, int32_t key,
    const ulyx_comm_params_t *params, ulyx_comm_t **new_p)
{
    struct group group = {
        .base = {&group_ops, 0, 0}, .parent = comm, .call = ULI_CALL_SPLIT};
    double timeout_s = uli_timeout_or(params->timeout_s, comm->timeout_s);
    ulyx_status_t status;

    group.members = calloc((size_t)comm->nranks, sizeof(*group.members));
    if (group.members == NULL)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a split");
    status = split_over(&group, color, key, params, timeout_s, new_p);
    free(group.members);
    return status;
}
