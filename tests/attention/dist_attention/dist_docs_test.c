/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents and rows of a call: ranks with different ones get an error, calls
 * pass their own, and a refused call keeps the old ones.
 */
#include <stdlib.h>
#include <string.h>
#include "attention/dist_attention/dist_small.h"
#include "support/ranks.h"
#include "support/test.h"

/* The work split, order and head groups of each variant. */
enum { VARIANTS = 5 };
static void
variant_params(int variant, ulyx_dist_attention_params_t *p, ulyx_part_t *part)
{
    small_params(p, part);
    p->max_docs = 3;
    p->row_round = 1;
    p->work_split = variant / 2 == 1 ? ULYX_WORK_BALANCED : ULYX_WORK_HEADS;
    p->head_groups = variant % 2 + 1;
    if (variant == 4) {
        part->order = ULYX_TOKENS_ZIGZAG_DOCS;
        p->max_local_rows = ROWS;
    }
}

static void
run_variants(int (*body)(int, int, void *))
{
    for (int variant = 0; variant < VARIANTS; variant++)
        small_run(body, variant, 0, 0);
}

static const int64_t two[] = {0, 31, ROWS}, three[] = {0, 7, 23, ROWS};

static ulyx_docs_t
docs_of(const int64_t *begin, int64_t count)
{
    ulyx_docs_t docs = ULYX_DOCS_INIT;
    docs.count = count;
    docs.begin = begin;
    return docs;
}

/* ---- ranks that differ --------------------------------------------------- */

static int
differ_body(int rank, int nranks, void *context)
{
    struct small *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    struct own o;
    ulyx_docs_t mine = rank == 1 ? docs_of(three, 3) : docs_of(two, 2);
    ulyx_docs_t same = docs_of(two, 2);
    bool good = true;
    (void)nranks;
    variant_params(s->groups[0], &p, &part);
    if (!own_open(&o, s->comms[rank], &p))
        return 1;
    good &=
        ranks_expect(!ulyx_dist_attention_update(o.dist, &mine, NULL, NULL));
    good &= ranks_expect(
        ulyx_dist_attention_forward(o.dist, &o.f, NULL) == ULYX_ERR_MISMATCH &&
        error_has("differ"));
    if (rank != 1)
        good &= ranks_expect(error_has("rank 1 and rank"));
    good &=
        ranks_expect(!ulyx_dist_attention_update(o.dist, &same, NULL, NULL));
    good &= ranks_expect(!ulyx_dist_attention_forward(o.dist, &o.f, NULL));
    return !(own_close(&o) & good);
}

static void
ranks_with_other_documents_are_named(void **state)
{
    (void)state;
    run_variants(differ_body);
}

/* All ranks give the same documents, in arrays of different forms. */
static int
form_body(int rank, int nranks, void *context)
{
    static const int32_t narrow[] = {0, 31, ROWS};
    static const int64_t begin[] = {0, 31}, length[] = {31, ROWS - 31};
    static const int64_t whole[] = {0, ROWS};
    struct small *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    struct own o;
    ulyx_docs_t docs = docs_of(two, 2), item = docs_of(whole, 1);
    (void)nranks;
    variant_params(s->groups[0], &p, &part);
    if (!own_open(&o, s->comms[rank], &p))
        return 1;
    /* NULL keeps the documents of creation: one per item */
    o.f.docs_q = rank ? &item : NULL;
    bool good = ranks_expect(!ulyx_dist_attention_forward(o.dist, &o.f, NULL));
    if (rank == 1)
        docs.index_bytes = 4, docs.begin = narrow;
    if (rank == 2)
        docs.begin = begin, docs.length = length;
    o.f.docs_q = o.b.docs_q = &docs;
    o.b.docs_k = rank == 3 ? &docs : NULL;
    good &= ranks_expect(!ulyx_dist_attention_forward(o.dist, &o.f, NULL));
    good &= ranks_expect(!ulyx_dist_attention_backward(o.dist, &o.b, NULL));
    return !(own_close(&o) & good);
}

static void
forms_of_tables_are_equal(void **state)
{
    (void)state;
    run_variants(form_body);
}

/* ---- calls that bring their own ------------------------------------------ */

static bool
same_results(const struct own *a, const struct own *b)
{
    size_t bytes = ROWS * HEADS * DIM * 4;
    return ranks_expect(!memcmp(a->out, b->out, bytes)) &
           ranks_expect(!memcmp(a->dq, b->dq, bytes)) &
           ranks_expect(!memcmp(a->dk, b->dk, bytes)) &
           ranks_expect(!memcmp(a->dv, b->dv, bytes));
}

/* Returns the results for `docs` from an object that has had no other
 * documents. */
static bool
fresh_run(struct own *o, ulyx_comm_t *comm, int rank,
    const ulyx_dist_attention_params_t *given, const ulyx_docs_t *docs)
{
    ulyx_dist_attention_params_t p = *given;
    p.docs_q = docs;
    if (!own_open(o, comm, &p))
        return false;
    own_fill(o, rank);
    return ranks_expect(!ulyx_dist_attention_forward(o->dist, &o->f, NULL)) &
           ranks_expect(!ulyx_dist_attention_backward(o->dist, &o->b, NULL));
}

/* Two batches go through one object in the order forward, forward, backward,
 * backward. */
static int
interleave_body(int rank, int nranks, void *context)
{
    struct small *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    ulyx_docs_t docs[2] = {docs_of(two, 2), docs_of(three, 3)};
    struct own o[2], fresh[2];
    bool good = true;
    (void)nranks;
    variant_params(s->groups[0], &p, &part);
    for (int i = 0; i < 2; i++)
        if (!fresh_run(&fresh[i], s->comms[rank], rank, &p, &docs[i]))
            return 1;
    if (!own_open(&o[0], s->comms[rank], &p))
        return 1;
    own_take(&o[1], o[0].dist);
    for (int i = 0; i < 2; i++) {
        own_fill(&o[i], rank);
        o[i].f.docs_q = &docs[i];
        good &= ranks_expect(
            !ulyx_dist_attention_forward(o[i].dist, &o[i].f, NULL));
    }
    good &= ranks_expect(ulyx_dist_attention_backward(o[0].dist, &o[0].b,
                             NULL) == ULYX_ERR_INVALID_ARGUMENT &&
                         error_has("other documents"));
    for (int i = 0; i < 2; i++) {
        o[i].b.docs_q = &docs[i];
        good &= ranks_expect(
            !ulyx_dist_attention_backward(o[i].dist, &o[i].b, NULL));
        good &= same_results(&o[i], &fresh[i]);
    }
    o[1].b.docs_q = NULL; /* NULL keeps the present documents */
    good &=
        ranks_expect(!ulyx_dist_attention_backward(o[1].dist, &o[1].b, NULL));
    good &= own_close(&fresh[0]) & own_close(&fresh[1]);
    own_drop(&o[1]);
    return !(own_close(&o[0]) & good);
}

static void
calls_bring_their_documents(void **state)
{
    (void)state;
    run_variants(interleave_body);
}

/* ---- tables that are refused --------------------------------------------- */

/* Rank 1 gives the `bad` documents, and the others give those that the object
 * has already. */
static bool
refuse_docs(int rank, struct own *o, const ulyx_docs_t *bad_q,
    const ulyx_docs_t *bad_k, const char *text)
{
    ulyx_dist_attention_forward_t f = o->f;
    unsigned char poison[64], *out = o->out;
    memset(poison, 0xee, sizeof(poison));
    memcpy(out, poison, sizeof(poison));
    if (rank == 1)
        f.docs_q = bad_q, f.docs_k = bad_k;
    ulyx_status_t status = ulyx_dist_attention_forward(o->dist, &f, NULL);
    bool good = rank == 1 ? ranks_expect(status == ULYX_ERR_INVALID_ARGUMENT &&
                                         error_has(text) &&
                                         !memcmp(out, poison, sizeof(poison)))
                          : ranks_expect(status == ULYX_ERR_PEER_REFUSED &&
                                         error_has("rank 1 refused"));
    return good & ranks_expect(!ulyx_dist_attention_forward(
                      o->dist, &o->f, NULL)); /* with the old documents */
}

static int
refusal_body(int rank, int nranks, void *context)
{
    static const int64_t four[] = {0, 1, 2, 3, ROWS}, past[] = {0, 7, ROWS + 1};
    static const int64_t back[] = {0, 20, 10, ROWS};
    struct small *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    struct own o;
    ulyx_docs_t docs = docs_of(two, 2), bad;
    (void)nranks;
    variant_params(s->groups[0], &p, &part);
    if (!own_open(&o, s->comms[rank], &p))
        return 1;
    own_fill(&o, rank);
    o.f.docs_q = &docs;
    bool good = ranks_expect(!ulyx_dist_attention_forward(o.dist, &o.f, NULL));
    o.f.docs_q = NULL;
    bad = docs_of(four, 4);
    good &= refuse_docs(rank, &o, &bad, NULL, "max_docs is 3");
    bad = docs_of(past, 2);
    good &= refuse_docs(rank, &o, &bad, NULL, "docs_q");
    bad = docs_of(back, 3);
    good &= refuse_docs(rank, &o, &bad, NULL, "docs_q");
    good &=
        refuse_docs(rank, &o, NULL, &docs, "docs_k is given without docs_q");
    bad = docs;
    bad.size = 3;
    good &= refuse_docs(rank, &o, &bad, NULL, "docs_q.size is 3");
    bad = docs;
    bad.index_bytes = 5;
    good &= refuse_docs(rank, &o, &bad, NULL, "docs_q.index_bytes is 5");
    good &= ranks_expect(!ulyx_dist_attention_backward(o.dist, &o.b, NULL));
    return !(own_close(&o) & good);
}

static void
refused_documents_leave_the_old_ones(void **state)
{
    (void)state;
    run_variants(refusal_body);
}

/* ---- one thread ---------------------------------------------------------- */

/* The struct may be overwritten once the call is queued, but its arrays must
 * stay. */
static void
a_group_keeps_the_documents(void **state)
{
    (void)state;
    struct small s;
    struct own o[RANKS];
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
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++) {
        ulyx_docs_t docs = docs_of(r == 2 ? three : two, r == 2 ? 3 : 2);
        own_take(&o[r], dist[r]);
        o[r].f.docs_q = &docs;
        assert_status(
            ulyx_dist_attention_forward(dist[r], &o[r].f, NULL), ULYX_SUCCESS);
        memset(&docs, 0xff, sizeof(docs));
    }
    assert_status(ulyx_group_end(), ULYX_ERR_MISMATCH);
    for (int r = 0; r < RANKS; r++)
        assert_true(own_close(&o[r]));
    small_close(&s);
}

/* ---- rows ---------------------------------------------------------------- */

static void
rows_params(ulyx_dist_attention_params_t *p, ulyx_part_t *part)
{
    small_params(p, part);
    p->batch = 2;
    /* rows of both items together, for which the tensors have room */
    part->rows = ROWS / 2;
    part->row_capacity = ROWS / 2;
}

static bool
forward_rows(struct own *o, int64_t rows)
{
    o->f.rows = &rows;
    bool good =
        ranks_expect(!ulyx_dist_attention_forward(o->dist, &o->f, NULL));
    o->f.rows = NULL;
    return good;
}

/* For every length, one object gives the bits that an object made for that
 * length gives. Saved tensors are compact, and no memory is kept per length. */
static int
lengths_body(int rank, int nranks, void *context)
{
    struct small *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    struct own o, fresh;
    int64_t held[2], saved, fresh_saved;
    bool good = true;
    (void)nranks;
    rows_params(&p, &part);
    p.head_groups = s->groups[0];
    p.save = s->groups[0] == 2 ? ULYX_SAVE_NONE : ULYX_SAVE_HEADS;
    if (!own_open(&o, s->comms[rank], &p))
        return 1;
    o.b.q = o.f.q, o.b.k = o.f.k, o.b.v = o.f.v;
    own_fill(&o, rank);
    good &= ranks_expect(
        !ulyx_dist_attention_get_bytes(o.dist, NULL, NULL, &held[0]));
    part.row_capacity = 0;
    for (int64_t rows = 0; rows <= ROWS / 2 && good; rows += 3) {
        part.rows = rows;
        if (!own_open(&fresh, s->comms[rank], &p))
            return 1;
        fresh.b.q = fresh.f.q, fresh.b.k = fresh.f.k, fresh.b.v = fresh.f.v;
        own_fill(&fresh, rank);
        size_t bytes = ROWS * HEADS * DIM * 4;
        memset(o.out, 0, bytes), memset(o.dq, 0, bytes);
        memset(o.dk, 0, bytes), memset(o.dv, 0, bytes);
        good &= forward_rows(&o, rows);
        good &= ranks_expect(!ulyx_dist_attention_backward(o.dist, &o.b, NULL));
        good &= ranks_expect(
            !ulyx_dist_attention_forward(fresh.dist, &fresh.f, NULL));
        good &= ranks_expect(
            !ulyx_dist_attention_backward(fresh.dist, &fresh.b, NULL));
        good &= same_results(&o, &fresh);
        good &=
            ranks_expect(!ulyx_dist_attention_get_saved_bytes(o.dist, &saved));
        good &= ranks_expect(
            !ulyx_dist_attention_get_saved_bytes(fresh.dist, &fresh_saved));
        good &= ranks_expect(saved == fresh_saved);
        good &= own_close(&fresh);
    }
    good &= ranks_expect(
        !ulyx_dist_attention_get_bytes(o.dist, NULL, NULL, &held[1]));
    good &= ranks_expect(held[0] == held[1]);
    return !(own_close(&o) & good);
}

static void
one_object_serves_all_lengths(void **state)
{
    (void)state;
    for (int groups = 1; groups <= 2; groups++)
        small_run(lengths_body, groups, 0, 0);
}

static int
rows_refusal_body(int rank, int nranks, void *context)
{
    struct small *s = context;
    ulyx_dist_attention_params_t p;
    ulyx_part_t part;
    ulyx_docs_t docs = docs_of((int64_t[]){0, 12, 20, 40}, 3);
    const int64_t *splits = (int64_t[]){5, 5, 5, 5};
    struct own o;
    (void)nranks;
    rows_params(&p, &part);
    p.max_docs = 3;
    if (!own_open(&o, s->comms[rank], &p))
        return 1;
    o.f.rows = (int64_t[]){rank == 1 ? 12 : 16};
    bool good = ranks_expect(
        ulyx_dist_attention_forward(o.dist, &o.f, NULL) == ULYX_ERR_MISMATCH);
    good &= ranks_expect(error_has(rank == 1 ? "differ" : "rank 1"));
    good &= forward_rows(&o, 16);
    good &= ranks_expect(!ulyx_dist_attention_update_rows(
        o.dist, (int64_t[]){8}, NULL, NULL, NULL, NULL));
    good &= ranks_expect(ulyx_dist_attention_backward(o.dist, &o.b, NULL) ==
                             ULYX_ERR_INVALID_ARGUMENT &&
                         error_has("other documents or rows"));
    o.b.rows = (int64_t[]){16};
    good &= ranks_expect(!ulyx_dist_attention_backward(o.dist, &o.b, NULL));
    ulyx_dist_attention_forward_t f = o.f;
    f.rows = rank == 2 ? (int64_t[]){21} : NULL;
    ulyx_status_t status = ulyx_dist_attention_forward(o.dist, &f, NULL);
    good &= rank == 2
                ? ranks_expect(status == ULYX_ERR_INVALID_ARGUMENT &&
                               error_has("rows[0] is 21, must be 0 to 20"))
                : ranks_expect(status == ULYX_ERR_PEER_REFUSED &&
                               error_has("rank 2 refused"));
    f.rows = NULL, f.splits = &splits;
    good &= ranks_expect(ulyx_dist_attention_forward(o.dist, &f, NULL) ==
                             ULYX_ERR_INVALID_ARGUMENT &&
                         error_has("splits is given without rows"));
    /* for 20 rows per item, but there are 16 */
    f.splits = NULL, f.docs_q = &docs;
    good &= ranks_expect(ulyx_dist_attention_forward(o.dist, &f, NULL) ==
                         ULYX_ERR_INVALID_ARGUMENT);
    f.rows = (int64_t[]){20};
    good &= ranks_expect(!ulyx_dist_attention_forward(o.dist, &f, NULL));
    /* the object keeps the documents of 20 rows */
    f.rows = (int64_t[]){16}, f.docs_q = NULL;
    good &= ranks_expect(ulyx_dist_attention_forward(o.dist, &f, NULL) ==
                         ULYX_ERR_INVALID_ARGUMENT);
    good &= ranks_expect(!ulyx_dist_attention_forward(o.dist, &o.f, NULL));
    return !(own_close(&o) & good);
}

static void
rows_are_refused_or_named(void **state)
{
    (void)state;
    small_run(rows_refusal_body, 0, 0, 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(one_object_serves_all_lengths),
    cmocka_unit_test(rows_are_refused_or_named),
    cmocka_unit_test(ranks_with_other_documents_are_named),
    cmocka_unit_test(forms_of_tables_are_equal),
    cmocka_unit_test(calls_bring_their_documents),
    cmocka_unit_test(refused_documents_leave_the_old_ones),
    cmocka_unit_test(a_group_keeps_the_documents),
};

ULI_TEST_MAIN("DistDocs", tests)
