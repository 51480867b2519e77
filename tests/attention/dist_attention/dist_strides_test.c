/* SPDX-License-Identifier: Apache-2.0
 *
 * Strides of a call: the bits do not depend on how tensors lie from call to
 * call. A call refuses bad strides for the whole tensor and before any byte is
 * moved.
 */
#include <stdlib.h>
#include <string.h>
#include "attention/dist_attention/dist_small.h"
#include "support/ranks.h"
#include "support/test.h"

enum { RUN = DIM * 4, OWN_ROWS = ROWS / RANKS };

/* The work split and head groups of each variant. */
enum { VARIANTS = 4 };
static void
variant_params(int variant, ulyx_dist_attention_params_t *p, ulyx_part_t *part)
{
    small_params(p, part);
    p->row_round = 1;
    p->work_split = variant / 2 ? ULYX_WORK_BALANCED : ULYX_WORK_HEADS;
    p->head_groups = variant % 2 + 1;
}

static void
run_variants(int (*body)(int, int, void *))
{
    for (int variant = 0; variant < VARIANTS; variant++)
        small_run(body, variant, 0, 0);
}

/* ---- orders -------------------------------------------------------------- */

enum order { DENSE, BHSD, INTERLEAVED, ORDERS };

static void
order_strides(enum order order, int64_t heads, int64_t strides_p[1][3])
{
    /* with one batch item this stride is ignored */
    static const int64_t any = -7;
    int64_t *s = strides_p[0];
    s[0] = any;
    s[1] = order == BHSD ? RUN : RUN * heads * 3;
    s[2] = order == BHSD ? RUN * OWN_ROWS : RUN * 2;
    if (order == DENSE)
        s[0] = s[1] = s[2] = 0;
}

static float *
order_at(void *base, enum order order, int64_t heads, int64_t row, int64_t head)
{
    int64_t s[1][3];
    order_strides(order, heads, s);
    if (order == DENSE)
        s[0][1] = RUN * heads, s[0][2] = RUN;
    return (float *)((char *)base + row * s[0][1] + head * s[0][2]);
}

/* Writes the same values into memory of another order. */
static void
order_copy(
    void *to, enum order order, void *from, enum order old, int64_t heads)
{
    for (int64_t row = 0; row < OWN_ROWS; row++)
        for (int64_t head = 0; head < heads; head++)
            memcpy(order_at(to, order, heads, row, head),
                order_at(from, old, heads, row, head), RUN);
}

static bool
order_same(void *at, enum order order, void *dense, int64_t heads)
{
    bool same = true;
    for (int64_t row = 0; row < OWN_ROWS; row++)
        for (int64_t head = 0; head < heads; head++)
            same &= !memcmp(order_at(at, order, heads, row, head),
                order_at(dense, DENSE, heads, row, head), RUN);
    return ranks_expect(same);
}

/* The strides of all tensors of a rank's calls. */
struct given {
    int64_t q[1][3], kv[1][3];
};

static void
give_strides(struct own *o, enum order order, struct given *given)
{
    order_strides(order, HEADS, given->q);
    order_strides(order, KV, given->kv);
    const int64_t(*q)[3] = (const int64_t(*)[3])given->q;
    const int64_t(*kv)[3] = (const int64_t(*)[3])given->kv;
    o->f.q_strides = o->f.out_strides = q;
    o->f.k_strides = o->f.v_strides = kv;
    o->b.out_strides = o->b.dout_strides = o->b.dq_strides = q;
    o->b.dk_strides = o->b.dv_strides = kv;
}

/* One object makes calls one after another. On each rank the tensors of the
 * calls take the orders in another sequence. */
static int
turn_body(int rank, int nranks, void *context)
{
    struct small *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    struct own plain, o;
    struct given given;
    (void)nranks;
    variant_params(s->groups[0], &p, &part);
    if (!own_open(&plain, s->comms[rank], &p))
        return 1;
    own_fill(&plain, rank);
    bool good =
        ranks_expect(!ulyx_dist_attention_forward(plain.dist, &plain.f, NULL)) &
        ranks_expect(!ulyx_dist_attention_backward(plain.dist, &plain.b, NULL));
    for (int turn = 0; good && turn < 5; turn++) {
        enum order order = (enum order)((turn + rank / 2) % ORDERS);
        own_take(&o, plain.dist);
        if (turn != 3) /* in turn 3, strides as at creation */
            give_strides(&o, order, &given);
        else
            order = DENSE;
        order_copy(o.q, order, plain.q, DENSE, HEADS);
        order_copy(o.k, order, plain.k, DENSE, KV);
        order_copy(o.v, order, plain.v, DENSE, KV);
        order_copy(o.dout, order, plain.dout, DENSE, HEADS);
        good = ranks_expect(!ulyx_dist_attention_forward(o.dist, &o.f, NULL)) &
               ranks_expect(!ulyx_dist_attention_backward(o.dist, &o.b, NULL));
        good = good && order_same(o.out, order, plain.out, HEADS) &&
               order_same(o.dq, order, plain.dq, HEADS) &&
               order_same(o.dk, order, plain.dk, KV) &&
               order_same(o.dv, order, plain.dv, KV);
        own_drop(&o);
    }
    return !(own_close(&plain) & good);
}

static void
tensors_change_their_order_from_call_to_call(void **state)
{
    (void)state;
    run_variants(turn_body);
}

/* ---- refusals ------------------------------------------------------------ */

/* Rank 1 passes bad strides, and the other ranks pass none. */
static bool
refuse_strides(int rank, struct own *o, int64_t row, int64_t head, bool of_out,
    const char *text)
{
    ulyx_dist_attention_forward_t f = o->f;
    const int64_t bad[1][3] = {{0, row, head}};
    unsigned char poison[64], *out = o->out;
    memset(poison, 0xee, sizeof(poison));
    memcpy(out, poison, sizeof(poison));
    if (rank == 1)
        *(of_out ? &f.out_strides : &f.k_strides) = bad;
    ulyx_status_t status = ulyx_dist_attention_forward(o->dist, &f, NULL);
    ulyx_status_t wanted =
        row == INT64_MAX / 4 ? ULYX_ERR_OVERFLOW : ULYX_ERR_INVALID_ARGUMENT;
    bool good = rank == 1 ? ranks_expect(status == wanted && error_has(text) &&
                                         !memcmp(out, poison, sizeof(poison)))
                          : ranks_expect(status == ULYX_ERR_PEER_REFUSED &&
                                         error_has("rank 1 refused") &&
                                         error_has(text));
    return good &
           ranks_expect(!ulyx_dist_attention_forward(o->dist, &o->f, NULL));
}

static int
refusal_body(int rank, int nranks, void *context)
{
    struct small *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    struct own o;
    (void)nranks;
    variant_params(s->groups[0], &p, &part);
    if (!own_open(&o, s->comms[rank], &p))
        return 1;
    own_fill(&o, rank);
    bool good = refuse_strides(
        rank, &o, -RUN * KV, RUN, false, "k_strides[0][1] is -64");
    good &= refuse_strides(rank, &o, RUN, RUN, false, "k_strides[0] is {");
    good &= refuse_strides(
        rank, &o, INT64_MAX / 4, RUN, false, "k_strides[0] is {");
    /* The stride fits three heads per row, and a group must not have more; but
     * there are six heads. */
    good &= refuse_strides(
        rank, &o, RUN * HEADS / 2, RUN, true, "out_strides[0] is {");
    return !(own_close(&o) & good);
}

static void
refused_strides_are_named(void **state)
{
    (void)state;
    run_variants(refusal_body);
}

/* Strides of creation, into which the heads of each group would fit. Only rank
 * 1 gives them. */
static int
creation_body(int rank, int nranks, void *context)
{
    static const int64_t bad[1][3] = {{0, RUN * HEADS / 2, RUN}};
    struct small *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    ulyx_dist_attention_t *dist = NULL;
    int64_t workspace, saved;
    (void)nranks;
    variant_params(s->groups[0], &p, &part);
    if (rank == 1)
        p.dout_strides = bad;
    ulyx_status_t status =
        ulyx_dist_attention_create(s->comms[rank], &p, &dist);
    bool good =
        rank == 1
            ? ranks_expect(status == ULYX_ERR_INVALID_ARGUMENT)
            : ranks_expect(status == ULYX_ERR_PEER_REFUSED &&
                           error_has("rank 1 refused: invalid argument: "));
    good = good && ranks_expect(error_has("dout_strides[0] is {"));
    p.kernel = "reference"; /* a size is known only for a named kernel */
    p.threads = 1;
    if (rank == 1)
        good &=
            ranks_expect(ulyx_dist_attention_measure(&p, RANKS, rank,
                             &workspace, &saved) == ULYX_ERR_INVALID_ARGUMENT &&
                         error_has("dout_strides[0] is {"));
    return !good;
}

static void
creation_refuses_strides_that_groups_share(void **state)
{
    (void)state;
    run_variants(creation_body);
}

/* ---- one thread ---------------------------------------------------------- */

/* The strides may be overwritten once the call is queued. */
static void
a_group_keeps_the_strides(void **state)
{
    (void)state;
    struct small s;
    struct own o[RANKS], plain[RANKS];
    ulyx_dist_attention_t *dist[RANKS];
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    small_open(&s);
    variant_params(0, &p, &part);
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++)
        assert_status(
            ulyx_dist_attention_create(s.comms[r], &p, &dist[r]), ULYX_SUCCESS);
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
    for (int strided = 0; strided < 2; strided++) {
        assert_status(ulyx_group_start(), ULYX_SUCCESS);
        for (int r = 0; r < RANKS; r++) {
            struct own *now = strided ? &o[r] : &plain[r];
            struct given given;
            own_take(now, dist[r]);
            own_fill(now, r);
            if (strided) {
                give_strides(now, BHSD, &given);
                order_copy(now->q, BHSD, plain[r].q, DENSE, HEADS);
                order_copy(now->k, BHSD, plain[r].k, DENSE, KV);
                order_copy(now->v, BHSD, plain[r].v, DENSE, KV);
            }
            assert_status(ulyx_dist_attention_forward(dist[r], &now->f, NULL),
                ULYX_SUCCESS);
            memset(&given, 0xff, sizeof(given));
        }
        assert_status(ulyx_group_end(), ULYX_SUCCESS);
    }
    for (int r = 0; r < RANKS; r++) {
        assert_true(order_same(o[r].out, BHSD, plain[r].out, HEADS));
        own_drop(&o[r]);
        assert_true(own_close(&plain[r]));
    }
    small_close(&s);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(tensors_change_their_order_from_call_to_call),
    cmocka_unit_test(refused_strides_are_named),
    cmocka_unit_test(creation_refuses_strides_that_groups_share),
    cmocka_unit_test(a_group_keeps_the_strides),
};

ULI_TEST_MAIN("DistStrides", tests)
