/* SPDX-License-Identifier: Apache-2.0
 *
 * The errors of all ranks when one of them fails: at the start of a call,
 * within a call, by other parameters at creation, or by its death.
 */
#include <signal.h>
#include <string.h>
#include "attention/dist_attention/dist_small.h"
#include "comm/meet.h"
#include "support/ranks.h"
#include "support/test.h"

static bool
refused_by_1(int rank, ulyx_status_t status, const char *text)
{
    if (rank == 1)
        return ranks_expect(
            status == ULYX_ERR_INVALID_ARGUMENT && error_has(text));
    return ranks_expect(status == ULYX_ERR_PEER_REFUSED &&
                        error_has("rank 1 refused: invalid argument: ") &&
                        error_has(text));
}

static bool
refuse_at_start(int rank, struct own *o)
{
    ulyx_dist_attention_forward_t f = o->f;
    bool good = true;
    if (rank == 1)
        f.workspace_bytes--;
    good &= refused_by_1(
        rank, ulyx_dist_attention_forward(o->dist, &f, NULL), "are needed");
    f = o->f;
    if (rank == 1)
        f.q = NULL;
    good &= refused_by_1(
        rank, ulyx_dist_attention_forward(o->dist, &f, NULL), "q is NULL");
    /* no forward has written saved yet */
    ulyx_dist_attention_backward_t b = o->b;
    memset(o->saved, 0, (size_t)o->saved_bytes);
    good &= ranks_expect(ulyx_dist_attention_backward(o->dist, &b, NULL) ==
                             ULYX_ERR_INVALID_ARGUMENT &&
                         error_has("saved was not written by"));
    return good;
}

/* A reason that the caller has found outside of the library. */
static bool
refuse_by_call(int rank, struct own *o)
{
    static const char reason[] = "the caller's own reason";
    bool good = refused_by_1(rank,
        rank == 1 ? ulyx_dist_attention_refuse(
                        o->dist, ULYX_ATTENTION_PASS_FORWARD, reason, NULL)
                  : ulyx_dist_attention_forward(o->dist, &o->f, NULL),
        reason);
    good &= ranks_expect(!ulyx_dist_attention_forward(o->dist, &o->f, NULL));
    good &= refused_by_1(rank,
        rank == 1 ? ulyx_dist_attention_refuse(
                        o->dist, ULYX_ATTENTION_PASS_BACKWARD, reason, NULL)
                  : ulyx_dist_attention_backward(o->dist, &o->b, NULL),
        reason);
    good &= ranks_expect(ulyx_dist_attention_refuse(o->dist, 2, reason, NULL) ==
                             ULYX_ERR_INVALID_ARGUMENT &&
                         error_has("pass is 2"));
    return good &
           ranks_expect(!ulyx_dist_attention_backward(o->dist, &o->b, NULL));
}

/* By the time that the missing out is found, q, k and v have been exchanged and
 * attended. */
static bool
refuse_in_the_middle(int rank, struct own *o)
{
    ulyx_dist_attention_forward_t f = o->f;
    void *nowhere = NULL;
    bool good;
    if (rank == 1)
        f.out = &nowhere;
    good = refused_by_1(
        rank, ulyx_dist_attention_forward(o->dist, &f, NULL), "dst[0] is NULL");
    good &= ranks_expect(!ulyx_dist_attention_forward(o->dist, &o->f, NULL));
    ulyx_dist_attention_backward_t b = o->b;
    if (rank == 1)
        b.dk = &nowhere;
    good &= refused_by_1(rank, ulyx_dist_attention_backward(o->dist, &b, NULL),
        "dst[1] is NULL");
    b = o->b;
    if (rank == 1) /* forward was created without lse */
        b.dlse = (const void *const *)&o->dout;
    good &= refused_by_1(rank, ulyx_dist_attention_backward(o->dist, &b, NULL),
        "dlse is given, and distributed attention was created without");
    return good &
           ranks_expect(!ulyx_dist_attention_backward(o->dist, &o->b, NULL));
}

/* Later head groups read inputs while the results of earlier groups are stored,
 * so these must not overlap. */
static bool
refuse_overlaps(int rank, struct own *o)
{
    ulyx_dist_attention_forward_t f = o->f;
    ulyx_dist_attention_backward_t b = o->b;
    bool good = true;
    if (rank == 1)
        f.out = (void *const *)&o->q;
    good &= refused_by_1(rank, ulyx_dist_attention_forward(o->dist, &f, NULL),
        "out[0] overlaps q[0]");
    f = o->f;
    char *inside = (char *)o->k + 4;
    if (rank == 1)
        f.out = (void *const *)&inside;
    good &= refused_by_1(rank, ulyx_dist_attention_forward(o->dist, &f, NULL),
        "out[0] overlaps k[0]");
    f = o->f;
    if (rank == 1)
        f.out = &f.saved;
    good &= refused_by_1(rank, ulyx_dist_attention_forward(o->dist, &f, NULL),
        "out[0] overlaps saved");
    good &= ranks_expect(!ulyx_dist_attention_forward(o->dist, &o->f, NULL));
    if (rank == 1)
        b.dq = (void *const *)&o->dout;
    good &= refused_by_1(rank, ulyx_dist_attention_backward(o->dist, &b, NULL),
        "dq[0] overlaps dout[0]");
    b = o->b;
    if (rank == 1)
        b.dv = b.dk;
    good &= refused_by_1(rank, ulyx_dist_attention_backward(o->dist, &b, NULL),
        "dk[0] overlaps dv[0]");
    b = o->b;
    if (rank == 1)
        b.dq = &b.workspace;
    good &= refused_by_1(rank, ulyx_dist_attention_backward(o->dist, &b, NULL),
        "dq[0] overlaps workspace");
    /* saved has a copy of q, so the memory of q may receive the gradient */
    b = o->b;
    b.q = (const void *const *)&o->q;
    b.dq = &o->q;
    return good &
           ranks_expect(!ulyx_dist_attention_backward(o->dist, &b, NULL));
}

static int
refusal_body(int rank, int nranks, void *context)
{
    struct small *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    struct own o;
    (void)nranks;
    small_params(&p, &part);
    p.head_groups = s->groups[0];
    if (!own_open(&o, s->comms[rank], &p))
        return 1;
    bool good = refuse_at_start(rank, &o) && refuse_in_the_middle(rank, &o) &&
                refuse_overlaps(rank, &o) && refuse_by_call(rank, &o);
    return !(own_close(&o) & good);
}

static void
refusals_reach_all_ranks(void **state)
{
    (void)state;
    for (int groups = 1; groups <= 2; groups++)
        small_run(refusal_body, groups, 0, 0);
}

static int
mismatch_body(int rank, int nranks, void *context)
{
    struct small *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    ulyx_dist_attention_t *dist;
    ulyx_comm_t *comm = s->comms[rank];
    (void)nranks;
    small_params(&p, &part);
    p.mask_kind = rank == 3 ? ULYX_MASK_NONE : ULYX_MASK_CAUSAL;
    bool good = ranks_expect(
        ulyx_dist_attention_create(comm, &p, &dist) == ULYX_ERR_MISMATCH &&
        error_has("mask_kind is 1 on rank 0 and 0 on rank 3"));
    small_params(&p, &part);
    p.kernel = rank == 2 ? "reference" : "portable";
    good &= ranks_expect(
        ulyx_dist_attention_create(comm, &p, &dist) == ULYX_ERR_MISMATCH &&
        error_has(
            "kernel is \"portable\" on rank 0 and \"reference\" on rank 2"));
    small_params(&p, &part);
    p.scale = rank == 1 ? 0.5 : 0.25;
    good &= ranks_expect(
        ulyx_dist_attention_create(comm, &p, &dist) == ULYX_ERR_MISMATCH &&
        error_has("scale is 0.25 on rank 0 and 0.5 on rank 1"));
    small_params(&p, &part);
    p.heads = rank == 2 ? 12 : HEADS;
    good &= ranks_expect(
        ulyx_dist_attention_create(comm, &p, &dist) == ULYX_ERR_MISMATCH);
    small_params(&p, &part);
    p.dim_qk = rank == 1 ? 520 : DIM;
    ulyx_status_t status = ulyx_dist_attention_create(comm, &p, &dist);
    good &= ranks_expect(
        status == (rank == 1 ? ULYX_ERR_UNSUPPORTED : ULYX_ERR_PEER_REFUSED) &&
        error_has("dim_qk is 520"));
    small_params(&p, &part);
    p.kv_heads = 4;
    good &= ranks_expect(
        ulyx_dist_attention_create(comm, &p, &dist) ==
            ULYX_ERR_INVALID_ARGUMENT &&
        error_has("heads is 6, must be a multiple of kv_heads (4)"));
    p.kv_heads = KV;
    p.flags = 64;
    good &= ranks_expect(
        ulyx_dist_attention_create(comm, &p, &dist) == ULYX_ERR_UNSUPPORTED);
    p.flags = 0;
    p.kernel = "no such kernel";
    good &= ranks_expect(
        ulyx_dist_attention_create(comm, &p, &dist) == ULYX_ERR_UNSUPPORTED);
    p.kernel = NULL;
    good &= ranks_expect(!ulyx_dist_attention_create(comm, &p, &dist));
    return !(good & ranks_expect(!ulyx_dist_attention_destroy(dist)));
}

static void
differences_are_named(void **state)
{
    (void)state;
    small_run(mismatch_body, 0, 0, 0);
}

/* Rank 2 dies between forward and backward. */
static int
death_body(int rank, int nranks, void *context)
{
    struct meet *meet = context;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    ulyx_comm_t *comm;
    struct own o;
    (void)nranks;
    small_params(&p, &part);
    if (!ranks_expect(!meet_comm(meet, rank, 20, &comm)) ||
        !own_open(&o, comm, &p))
        return 1;
    bool good = ranks_expect(!ulyx_dist_attention_forward(o.dist, &o.f, NULL));
    /* all ranks have left forward */
    good &= ranks_expect(meet_barrier(meet, rank));
    if (rank == 2)
        raise(SIGKILL);
    good &= ranks_expect(ulyx_dist_attention_backward(o.dist, &o.b, NULL) ==
                             ULYX_ERR_RANK_LOST &&
                         error_has("rank 2"));
    good &= own_close(&o);
    return !(good & ranks_expect(!ulyx_comm_destroy(comm)));
}

static void
a_death_is_named(void **state)
{
    (void)state;
    struct meet *meet = meet_new(RANKS);
    pid_t *pids = ranks_shared(RANKS * sizeof(*pids));
    assert_int_equal(
        ranks_run_processes_victim(RANKS, death_body, meet, LIMIT_S, 2, pids),
        0);
    ranks_shared_free(pids, RANKS * sizeof(*pids));
    meet_free(meet);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(refusals_reach_all_ranks),
    cmocka_unit_test(differences_are_named),
    cmocka_unit_test(a_death_is_named),
};

ULI_TEST_MAIN("DistFault", tests)
