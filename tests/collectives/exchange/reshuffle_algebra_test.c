/* SPDX-License-Identifier: Apache-2.0
 *
 * The exchange as a linear map, without an oracle of placement: there and back
 * is the identity, <A x, y> = <x, A' y> for both directions, sums have the same
 * bits on every way between ranks, and document tables can be replaced.
 */
#include "collectives/exchange/reshuffle_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 5, LIMIT_S = 30 };

/* ---- vectors: all elements of one side ----------------------------------- */

/* Returns the number of float elements between data and the end of an image.
 * The tensors are dense, so all these elements belong to the tensor. */
static int64_t
count_elements(
    const struct world *w, int32_t rank, int32_t t, int op, ulyx_side_t side)
{
    int64_t bytes;
    if (ulyx_plan_get_extent(w->plans[rank], t, op, side, &bytes))
        abort();
    return bytes / 4;
}

static float *
image_elements(const struct image *image)
{
    return (float *)(void *)image->data;
}

/* Values are small integers, so that every sum is exact. */
static void
fill_integers(struct image *image, int64_t count, struct test_random *random)
{
    for (int64_t i = 0; i < count; i++)
        image_elements(image)[i] = (float)test_random_in(random, -8, 8);
}

static double
inner_product(const float *a, const float *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static int
create_body(int rank, int nranks, void *context)
{
    (void)nranks;
    return !ranks_expect(world_create(context, rank) == ULYX_SUCCESS);
}

static int
forward_body(int rank, int nranks, void *context)
{
    (void)nranks;
    struct world *w = context;
    int op = w->order[0];
    return !(ranks_expect(world_execute(w, rank, op) == ULYX_SUCCESS) &&
             ranks_expect(world_execute(w, rank, op + 2) == ULYX_SUCCESS) &&
             ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS));
}

static void
make_dense(struct world *w)
{
    for (int32_t r = 0; r < w->ranks->nranks; r++) {
        w->dense[r] = true;
        memset(w->strides[r], 0, sizeof(w->strides[r]));
        assert_int_equal(
            uli_plan_fix_strides(w->layout, r, w->strides[r]), ULYX_SUCCESS);
    }
}

/* Compares <A x, y> with <x, A' y>. x is at the sources of op, and y at those
 * of its adjoint, which lie where the destinations of op lie. Both sums run
 * over all ranks. */
static bool
adjoint_holds(struct world *w, int op, struct test_random *random)
{
    double left = 0, right = 0;
    int32_t n = w->ranks->nranks;
    w->order[0] = op;
    for (int32_t r = 0; r < n; r++)
        for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
            fill_integers(&w->src[op][r][t],
                count_elements(w, r, t, op, ULYX_SIDE_SRC), random);
            fill_integers(&w->src[op + 2][r][t],
                count_elements(w, r, t, op + 2, ULYX_SIDE_SRC), random);
        }
    int64_t counts[2][RANKS + 1][ULI_TENSORS];
    for (int32_t r = 0; r < n; r++)
        for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
            counts[0][r][t] = count_elements(w, r, t, op, ULYX_SIDE_DST);
            counts[1][r][t] = count_elements(w, r, t, op, ULYX_SIDE_SRC);
        }
    if (ranks_run_threads(n, forward_body, w, LIMIT_S))
        return false;
    for (int32_t r = 0; r < n; r++)
        for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
            left += inner_product(image_elements(&w->dst[op][r][t]),
                image_elements(&w->src[op + 2][r][t]), counts[0][r][t]);
            right += inner_product(image_elements(&w->src[op][r][t]),
                image_elements(&w->dst[op + 2][r][t]), counts[1][r][t]);
        }
    if (left != right)
        printf(
            "operation %d: <Ax,y> = %.17g, <x,A'y> = %.17g\n", op, left, right);
    return left == right;
}

/* Adapts a case. All parts must be sharded, or replicated with the default
 * gradients: then a sum over all ranks' tensors is the inner product. Each axis
 * must have one part, so that a dense tensor has no bytes of other parts. */
static bool
case_fits(struct oracle_case *c)
{
    int axes[2] = {0, 0};
    for (int32_t i = 0; i < c->shape.nparts; i++)
        axes[c->shape.parts[i].axis]++;
    for (int32_t t = 0; t < c->shape.ntensors; t++) {
        c->shape.tensors[t].dtype = ULYX_DTYPE_F32;
        c->shape.tensors[t].elem_bytes = 4;
        c->shape.tensors[t].partial_dtype = 0;
        c->shape.tensors[t].flags = 0;
    }
    return axes[0] <= 1 && axes[1] <= 1;
}

static void
adjoints_are_transposes(void **state)
{
    (void)state;
    struct test_random random = {test_seed(401)};
    struct world *w = calloc(1, sizeof(*w));
    struct world_ranks *ranks = calloc(RANKS + 1, sizeof(*ranks));
    for (int32_t n = 1; n <= RANKS; n++)
        world_ranks_init(&ranks[n], n);
    for (int64_t draw = 0, draws = test_draws(200); draw < draws;) {
        case_random(&w->c, &random, RANKS, draw % 2);
        struct world_ranks *own = &ranks[w->c.shape.nranks];
        if (!case_fits(&w->c))
            continue;
        if (!world_draw(w, own, &random, 2)) {
            uli_layout_destroy(w->layout);
            continue;
        }
        draw++;
        make_dense(w);
        world_fill(w);
        for (int op = 0; op < 2; op++) {
            assert_int_equal(
                ranks_run_threads(own->nranks, create_body, w, LIMIT_S), 0);
            if (!adjoint_holds(w, op, &random)) {
                case_print(&w->c);
                fail();
            }
        }
        world_free(w);
    }
    for (int32_t n = 1; n <= RANKS; n++)
        world_ranks_free(&ranks[n]);
    free(ranks);
    free(w);
}

/* ---- there and back ------------------------------------------------------ */

static int
round_trip_body(int rank, int nranks, void *context)
{
    struct world *w = context;
    const void *src[ULI_TENSORS], *middle[ULI_TENSORS], *unused[ULI_TENSORS];
    void *heads[ULI_TENSORS], *back[ULI_TENSORS];
    (void)nranks;
    bool good = ranks_expect(world_create(w, rank) == ULYX_SUCCESS);
    world_pointers(w, rank, 0, src, heads);
    world_pointers(w, rank, 1, unused, back);
    for (int t = 0; t < w->c.shape.ntensors; t++)
        middle[t] = heads[t];
    good &= ranks_expect(ulyx_reshuffle_execute(w->plans[rank], 0, src, heads,
                             NULL) == ULYX_SUCCESS) &&
            ranks_expect(ulyx_reshuffle_execute(w->plans[rank], 1, middle, back,
                             NULL) == ULYX_SUCCESS);
    for (int t = 0; good && t < w->c.shape.ntensors; t++) {
        int64_t bytes;
        good &= ranks_expect(
                    ulyx_plan_get_extent(w->plans[rank], t, ULYX_SEQ_TO_HEAD,
                        ULYX_SIDE_SRC, &bytes) == ULYX_SUCCESS) &&
                ranks_expect(memcmp(src[t], back[t], (size_t)bytes) == 0);
    }
    return !(good &&
             ranks_expect(ulyx_plan_destroy(w->plans[rank]) == ULYX_SUCCESS));
}

static void
there_and_back_is_the_identity(void **state)
{
    (void)state;
    uint64_t seed = test_seed(402);
    for (int memory = 0; memory < 3; memory++)
        for (int32_t nranks = 1; nranks <= RANKS; nranks++) {
            struct test_random random = {seed};
            struct world_ranks *ranks = calloc(1, sizeof(*ranks));
            struct world *w = calloc(1, sizeof(*w));
            world_ranks_init(ranks, nranks);
            world_plain_case(w, nranks, 61, 14, 2, 16, ULYX_DTYPE_BF16);
            assert_true(world_draw(w, ranks, &random, memory));
            make_dense(w);
            world_fill(w);
            assert_int_equal(
                ranks_run_threads(nranks, round_trip_body, w, LIMIT_S), 0);
            world_free(w);
            world_ranks_free(ranks);
            free(w);
            free(ranks);
        }
}

/* ---- document tables ----------------------------------------------------- */

struct updating {
    struct world *w;
    bool refused; /* whether the new table exceeds the maxima */
    bool disagree;
};

static int
update_body(int rank, int nranks, void *context)
{
    struct updating *u = context;
    struct world *w = u->w;
    ulyx_docs_t docs_q, docs_k;
    (void)nranks;
    if (u->disagree && rank == 0)
        return 0;
    ulyx_status_t status = ulyx_plan_update(w->plans[rank],
        case_docs(&w->c, 0, &docs_q), case_docs(&w->c, 1, &docs_k), NULL);
    return !ranks_expect(
        status == (u->refused ? ULYX_ERR_INVALID_ARGUMENT : ULYX_SUCCESS));
}

static int
run_body(int rank, int nranks, void *context)
{
    struct updating *u = context;
    (void)nranks;
    bool good = true;
    for (int i = 0; i < u->w->norder; i++)
        good &= ranks_expect(
            world_execute(u->w, rank, u->w->order[i]) == ULYX_SUCCESS);
    return !good;
}

static int
busy_body(int rank, int nranks, void *context)
{
    struct updating *u = context;
    struct world *w = u->w;
    const void *src[ULI_TENSORS];
    void *dst[ULI_TENSORS];
    ulyx_request_t *request;
    (void)nranks;
    world_pointers(w, rank, w->order[0], src, dst);
    bool good = ranks_expect(ulyx_reshuffle_start(w->plans[rank], w->order[0],
                                 src, dst, 0, &request) == ULYX_SUCCESS) &&
                ranks_expect(ulyx_plan_update(w->plans[rank], NULL, NULL,
                                 NULL) == ULYX_ERR_BUSY) &&
                ranks_expect(ulyx_request_wait(request) == ULYX_SUCCESS);
    return !good;
}

/* Each rank other than 0 disagrees with rank 0; all others agree. */
static int
disagree_body(int rank, int nranks, void *context)
{
    struct updating *u = context;
    (void)nranks;
    return !(
        ranks_expect(
            world_execute(u->w, rank, u->w->order[0]) == ULYX_ERR_MISMATCH) &&
        ranks_expect(strstr(ulyx_last_error(), "document tables") != NULL));
}

static int
destroy_body(int rank, int nranks, void *context)
{
    struct updating *u = context;
    (void)nranks;
    return !ranks_expect(ulyx_plan_destroy(u->w->plans[rank]) == ULYX_SUCCESS);
}

static void
run_updates(
    struct world *w, struct world_ranks *own, struct test_random *random)
{
    struct updating u = {w, false, false};
    int n = own->nranks;
    assert_int_equal(ranks_run_threads(n, create_body, w, LIMIT_S), 0);
    for (int i = 0; i < 4; i++) {
        uint64_t before = uli_layout_table_hash(w->layout);
        if (!world_replace_docs(w, random))
            continue;
        bool differs = uli_layout_table_hash(w->layout) != before;
        u.disagree = differs && n > 1 && i == 1;
        world_fill(w);
        assert_int_equal(ranks_run_threads(n, update_body, &u, LIMIT_S), 0);
        if (u.disagree && n == 2) {
            assert_int_equal(
                ranks_run_threads(n, disagree_body, &u, LIMIT_S), 0);
            world_fill(w);
        }
        if (u.disagree) {
            u.disagree = false;
            assert_int_equal(ranks_run_threads(n, update_body, &u, LIMIT_S), 0);
        }
        assert_int_equal(ranks_run_threads(n, run_body, &u, LIMIT_S), 0);
        if (!world_check(w))
            fail();
    }
    assert_int_equal(ranks_run_threads(n, busy_body, &u, LIMIT_S), 0);
    assert_int_equal(ranks_run_threads(n, destroy_body, &u, LIMIT_S), 0);
}

static void
tables_are_replaced(void **state)
{
    (void)state;
    struct test_random random = {test_seed(403)};
    struct world *w = calloc(1, sizeof(*w));
    struct world_ranks *ranks = calloc(RANKS + 1, sizeof(*ranks));
    for (int32_t n = 1; n <= RANKS; n++)
        world_ranks_init(&ranks[n], n);
    for (int64_t draw = 0, draws = test_draws(80); draw < draws;) {
        case_random(&w->c, &random, RANKS, draw % 2);
        struct world_ranks *own = &ranks[w->c.shape.nranks];
        if (!world_draw(w, own, &random, 2)) {
            uli_layout_destroy(w->layout);
            continue;
        }
        if (uli_layout_has_tables(w->layout)) {
            draw++;
            w->salt = draw;
            world_fill(w);
            run_updates(w, own, &random);
        }
        world_free(w);
    }
    for (int32_t n = 1; n <= RANKS; n++)
        world_ranks_free(&ranks[n]);
    free(ranks);
    free(w);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(adjoints_are_transposes),
    cmocka_unit_test(there_and_back_is_the_identity),
    cmocka_unit_test(tables_are_replaced),
};

ULI_TEST_MAIN("ReshuffleAlgebra", tests)
