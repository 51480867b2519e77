/* SPDX-License-Identifier: Apache-2.0
 *
 * Shrink: the survivors of a communicator agree on who they are and form a
 * new one. Membership is agreed by gossip on the shrink lane: in round n each
 * rank posts the set of ranks that it takes for alive, waits for the posts of
 * all of them (or for their death or its deadline), and goes on with the
 * intersection. It is done when all members of its set have posted that very
 * set: then each of them sees the same posts and is done in the same round.
 * Sets only shrink, so there are at most P rounds. Remote members are sent each
 * post by its owner: no rank is needed on the way.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/bootstrap.h"
#include "comm/comm.h"
#include "comm/lane.h"
#include "comm/remote.h"

/* Survivors as a bit set; one post holds it. */
enum { MAX_RANKS = 8 * ULI_AGREE_BYTES };

struct members {
    struct uli_bootstrap base;
    ulyx_comm_t *comm;
    unsigned char *set; /* bit p: rank p is a member */
    int64_t set_bytes;
};

static bool
has(const unsigned char *set, int32_t rank)
{
    return set[rank / 8] >> (rank % 8) & 1;
}

static void
drop(unsigned char *set, int32_t rank)
{
    set[rank / 8] = (unsigned char)(set[rank / 8] & ~(1u << (rank % 8)));
}

/* A member whose post of the round has not come and may still come. */
static bool
awaited(const struct members *m, int32_t rank, uint64_t round)
{
    return has(m->set, rank) && atomic_load(&m->comm->peers[rank].dead) == 0 &&
           atomic_load(&m->comm->control->left[rank]) == 0 &&
           !uli_lane_has(m->comm, ULI_LANE_SHRINK, rank, round);
}

/* Not uli_comm_wait: the communicator may have failed already. */
static void
await_members(const struct members *m, uint64_t round, uli_deadline_t deadline)
{
    ulyx_comm_t *comm = m->comm;

    for (;;) {
        uint32_t seen = uli_doorbell_read(comm->control);
        int32_t p = 0;

        uli_comm_progress(comm);
        while (p < comm->nranks && !awaited(m, p, round))
            p++;
        if (p == comm->nranks || uli_deadline_over(deadline))
            return;
        uli_doorbell_sleep(comm->control, seen, deadline - uli_clock_ns());
    }
}

static void
publish(struct members *m, uint64_t round, const void *bytes, int64_t count)
{
    struct uli_agree_post header = {
        .call = ULI_CALL_SHRINK, .total_bytes = (uint64_t)count};

    uli_lane_publish(m->comm, ULI_LANE_SHRINK, round, &header, bytes, count);
}

/* One round of gossip; true when all members posted what I posted. Each round
 * has the whole time: a member that came late to the last one still waits in
 * it for those that I have given up. */
static bool
gossip(struct members *m, unsigned char *posted, double timeout_s)
{
    ulyx_comm_t *comm = m->comm;
    uint64_t round = ++comm->shrink_round;
    bool same = true;
    uli_deadline_t deadline = uli_deadline_in(timeout_s);

    memcpy(posted, m->set, (size_t)m->set_bytes);
    publish(m, round, posted, m->set_bytes);
    await_members(m, round, deadline);
    for (int32_t p = 0; p < comm->nranks; p++) {
        const unsigned char *theirs;

        if (!has(posted, p))
            continue;
        if (!uli_lane_has(comm, ULI_LANE_SHRINK, p, round)) {
            drop(m->set, p);
            same = false;
            continue;
        }
        theirs = uli_lane_read(comm, ULI_LANE_SHRINK, p, round)->payload;
        same = same && memcmp(theirs, posted, (size_t)m->set_bytes) == 0;
        for (int64_t i = 0; i < m->set_bytes; i++)
            m->set[i] &= theirs[i];
    }
    return same;
}

/* bootstrap gather among the members: one round a post's worth. */
static ulyx_status_t
gather(struct uli_bootstrap *bootstrap, const void *mine, size_t bytes,
    void *all_p, uli_deadline_t deadline)
{
    struct members *m = (struct members *)bootstrap;
    ulyx_comm_t *comm = m->comm;

    for (size_t at = 0; at < bytes; at += ULI_AGREE_BYTES) {
        size_t take =
            bytes - at < ULI_AGREE_BYTES ? bytes - at : (size_t)ULI_AGREE_BYTES;
        uint64_t round = ++comm->shrink_round;
        size_t member = 0;

        publish(m, round, (const char *)mine + at, (int64_t)take);
        await_members(m, round, deadline);
        for (int32_t p = 0; p < comm->nranks; p++) {
            if (!has(m->set, p))
                continue;
            if (!uli_lane_has(comm, ULI_LANE_SHRINK, p, round))
                return uli_error(ULYX_ERR_RANK_LOST,
                    "shrink: rank %d was lost during the creation", p);
            memcpy((char *)all_p + member++ * bytes + at,
                uli_lane_read(comm, ULI_LANE_SHRINK, p, round)->payload, take);
        }
    }
    return ULYX_SUCCESS;
}

static bool
is_broken(struct uli_bootstrap *bootstrap)
{
    const struct members *m = (const struct members *)bootstrap;

    for (int32_t p = 0; p < m->comm->nranks; p++)
        if (has(m->set, p) && atomic_load(&m->comm->peers[p].dead) != 0)
            return true;
    return false;
}

static void
close_members(struct uli_bootstrap *bootstrap)
{
    (void)bootstrap; /* lives on the caller's stack */
}

static const struct uli_bootstrap_ops member_ops = {
    .name = "shrink",
    .gather = gather,
    .broken = is_broken,
    .close = close_members,
};

static ulyx_status_t
agree_on_members(struct members *m, double timeout_s)
{
    ulyx_comm_t *comm = m->comm;
    unsigned char *posted = calloc(1, (size_t)m->set_bytes);

    if (posted == NULL)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a shrink");
    for (int32_t p = 0; p < comm->nranks; p++)
        if (atomic_load(&comm->peers[p].dead) == 0 &&
            atomic_load(&comm->control->left[p]) == 0)
            m->set[p / 8] = (unsigned char)(m->set[p / 8] | 1u << (p % 8));
    while (!gossip(m, posted, timeout_s) && has(m->set, comm->rank))
        ;
    free(posted);
    if (!has(m->set, comm->rank))
        return uli_error(ULYX_ERR_RANK_LOST,
            "shrink: the other ranks went on without rank %d", comm->rank);
    for (int32_t p = 0; p < comm->nranks; p++) {
        if (!has(m->set, p))
            continue;
        if (p == comm->rank)
            m->base.rank = m->base.nranks;
        m->base.nranks++;
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_comm_shrink(
    ulyx_comm_t *comm, const ulyx_comm_params_t *params, ulyx_comm_t **new_p)
{
    struct members m = {
        .base = {&member_ops, 0, 0, comm->peers[comm->rank].identity.node_hash},
        .comm = comm};
    double timeout_s = uli_timeout_or(params->timeout_s, comm->timeout_s);
    ulyx_status_t status;

    if (comm->nranks > MAX_RANKS)
        return uli_error(ULYX_ERR_UNSUPPORTED, "shrink of more than %d ranks",
            (int)MAX_RANKS);
    m.set_bytes = (comm->nranks + 7) / 8;
    m.set = calloc(1, (size_t)m.set_bytes);
    if (m.set == NULL)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a shrink");
    uli_comm_acknowledge(comm);
    status = agree_on_members(&m, timeout_s);
    if (status == ULYX_SUCCESS)
        status = uli_comm_create(
            &m.base, m.base.nranks, m.base.rank, params, timeout_s, new_p);
    free(m.set);
    return status;
}
