/* SPDX-License-Identifier: Apache-2.0
 *
 * The four directions against the oracle, element by element: each element of a
 * destination is visited exactly once, with the right kind and the right
 * sources in rank order; the moves of one source are a subsequence of all
 * moves; a direction and its adjoint are transposes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "collectives/layout/layout_cases.h"
#include "support/test.h"

enum { MOST_MOVES = 1 << 14 };

static const bool to_head[ULYX_DIRECTIONS] = {true, false, false, true};

/* An entry of a direction's matrix: destination and source element. */
struct entry {
    int64_t dst, src;
};

struct check {
    const struct oracle *o;
    const struct uli_layout *layout;
    ulyx_direction_t direction;
    int32_t tensor, dst;
    int64_t *visits; /* [heads * batch * part rows] of the destination */
    struct uli_move *moves;
    struct uli_place *sources;
    int64_t nmoves, nsources;
    struct entry *entries;
    int64_t nentries, capacity;
    bool failed;
};

#define EXPECT(check, condition)                                               \
    do {                                                                       \
        if (!(condition)) {                                                    \
            printf("%s:%d: %s\n", __FILE__, __LINE__, #condition);             \
            (check)->failed = true;                                            \
            return false;                                                      \
        }                                                                      \
    } while (0)

static const struct uli_shape_tensor *
tensor_of(const struct check *k)
{
    return &k->o->c->shape.tensors[k->tensor];
}

static const struct uli_shape_part *
part_of(const struct check *k)
{
    return &k->o->c->shape.parts[tensor_of(k)->part];
}

/* ---- what should happen -------------------------------------------------- */

static int
holders_of(const struct check *k, int64_t head, int64_t batch, int64_t row,
    int32_t *ranks)
{
    int n = 0;
    int64_t axis_row = k->o->first_row[tensor_of(k)->part] + row;
    for (int32_t r = 0; r < k->o->nranks; r++)
        if (oracle_place(k->o, k->tensor, r, head, batch, axis_row) >= 0)
            ranks[n++] = r;
    return n;
}

/* Finds the ranks whose sequence side has the row. */
static int
owners_of(const struct check *k, int64_t row, int32_t *ranks)
{
    int n = 0;
    int32_t part = tensor_of(k)->part;
    for (int32_t r = 0; r < k->o->nranks; r++)
        if (k->o->local[part][r * part_of(k)->rows + row] >= 0)
            ranks[n++] = r;
    return n;
}

/* Finds the sources of one destination element, by the rules of the
 * contract. */
static int
expected_sources(const struct check *k, int64_t head, int64_t batch,
    int64_t row, int32_t *ranks)
{
    int32_t holders[ORACLE_MAX_RANKS];
    bool replicated = part_of(k)->kind == ULYX_PART_REPLICATED;
    uint64_t flags = tensor_of(k)->flags;
    int n = holders_of(k, head, batch, row, holders);
    switch (k->direction) {
    case ULYX_SEQ_TO_HEAD:
        if (!replicated)
            return owners_of(k, row, ranks);
        ranks[0] = k->dst;
        return 1;
    case ULYX_HEAD_TO_SEQ:
        ranks[0] = holders[0];
        return n > 0;
    case ULYX_SEQ_TO_HEAD_ADJOINT:
        if (!replicated || (flags & ULYX_TENSOR_FULL)) {
            memcpy(ranks, holders, sizeof(holders));
            return n;
        }
        for (int i = 0; i < n; i++)
            if (holders[i] == k->dst) {
                ranks[0] = k->dst;
                return 1;
            }
        return 0;
    default:
        if (holders[0] != k->dst)
            return 0;
        if (!replicated || !(flags & ULYX_TENSOR_GRAD_EQUAL))
            return owners_of(k, row, ranks);
        ranks[0] = k->dst;
        return 1;
    }
}

static enum uli_move_kind
expected_kind(const struct check *k, int nsources)
{
    int32_t partial =
        uli_layout_shape(k->layout)->tensors[k->tensor].partial_dtype;
    if (nsources == 0)
        return ULI_MOVE_ZERO;
    if (nsources > 1)
        return ULI_MOVE_SUM;
    return k->direction == ULYX_SEQ_TO_HEAD_ADJOINT &&
                   partial != tensor_of(k)->dtype
               ? ULI_MOVE_SUM
               : ULI_MOVE_COPY;
}

/* ---- places to elements -------------------------------------------------- */

/* Finds the element (batch, row of the part, head) at a place of the head
 * side. */
static bool
head_element(const struct check *k, const struct uli_place *p, int64_t db,
    int64_t dr, int64_t dh, int64_t *batch, int64_t *row, int64_t *head)
{
    const struct oracle *o = k->o;
    const struct uli_shape_tensor *t = tensor_of(k);
    int64_t rows = o->rows[part_of(k)->axis];
    int64_t first = o->first_row[t->part];
    if (!uli_layout_packed(k->layout)) {
        *batch = p->batch + db;
        *row = p->row + dr - first;
        for (*head = 0; *head < t->heads; ++*head)
            if (oracle_place(o, k->tensor, p->rank, *head, *batch,
                    p->row + dr) == p->head + dh)
                return true;
        return false;
    }
    for (int64_t x = 0; x < t->heads * o->batch * rows; x++)
        if (o->place[k->tensor][p->rank * t->heads * o->batch * rows + x] ==
            p->row + dr) {
            *head = x / rows / o->batch;
            *batch = x / rows % o->batch;
            *row = x % rows - first;
            return p->batch == 0 && p->head == 0 && db == 0 && dh == 0;
        }
    return false;
}

static bool
seq_element(const struct check *k, const struct uli_place *p, int64_t db,
    int64_t dr, int64_t dh, int64_t *batch, int64_t *row, int64_t *head)
{
    const int64_t *local = k->o->local[tensor_of(k)->part];
    int64_t rows = part_of(k)->rows;
    *batch = p->batch + db;
    *head = p->head + dh;
    for (*row = 0; *row < rows; ++*row)
        if (local[p->rank * rows + *row] == p->row + dr)
            return true;
    return false;
}

static bool
element_check(const struct check *k, bool on_head, const struct uli_place *p,
    int64_t db, int64_t dr, int64_t dh, int64_t *index_p)
{
    int64_t batch, row, head, rows = part_of(k)->rows;
    bool found = on_head ? head_element(k, p, db, dr, dh, &batch, &row, &head)
                         : seq_element(k, p, db, dr, dh, &batch, &row, &head);
    if (!found || row < 0 || row >= rows || batch < 0 || batch >= k->o->batch ||
        head < 0 || head >= tensor_of(k)->heads)
        return false;
    *index_p = (head * k->o->batch + batch) * rows + row;
    return true;
}

/* ---- one visit ----------------------------------------------------------- */

static void
add_entry(struct check *k, int64_t index, int32_t src_rank)
{
    int64_t elements = tensor_of(k)->heads * k->o->batch * part_of(k)->rows;
    if (k->nentries == k->capacity) {
        k->capacity = 2 * k->capacity + 64;
        k->entries =
            realloc(k->entries, (size_t)k->capacity * sizeof(*k->entries));
    }
    k->entries[k->nentries].dst = k->dst * elements + index;
    k->entries[k->nentries++].src = src_rank * elements + index;
}

static bool
check_element(struct check *k, const struct uli_move *m, int64_t db, int64_t dr,
    int64_t dh)
{
    int64_t index, from, rows = part_of(k)->rows;
    int32_t ranks[ORACLE_MAX_RANKS];
    bool head = to_head[k->direction];
    EXPECT(k, element_check(k, head, &m->dst, db, dr, dh, &index));
    EXPECT(k, k->visits[index]++ == 0);
    int n = expected_sources(k, index / rows / k->o->batch,
        index / rows % k->o->batch, index % rows, ranks);
    EXPECT(k, m->nsources == n);
    EXPECT(k, m->kind == expected_kind(k, n));
    for (int i = 0; i < n; i++) {
        EXPECT(k, m->sources[i].rank == ranks[i]);
        EXPECT(k, element_check(k, !head, &m->sources[i], db, dr, dh, &from));
        EXPECT(k, from == index);
        add_entry(k, index, ranks[i]);
    }
    return true;
}

static bool
check_move(void *context, const struct uli_move *m)
{
    struct check *k = context;
    EXPECT(k, m->tensor == k->tensor && m->dst.rank == k->dst);
    EXPECT(k, m->batches > 0 && m->rows > 0 && m->heads > 0);
    EXPECT(k, k->nmoves < MOST_MOVES);
    k->moves[k->nmoves] = *m;
    k->moves[k->nmoves++].sources = NULL;
    memcpy(k->sources + k->nsources, m->sources,
        (size_t)m->nsources * sizeof(*m->sources));
    k->nsources += m->nsources;
    for (int64_t b = 0; b < m->batches; b++)
        for (int64_t r = 0; r < m->rows; r++)
            for (int64_t h = 0; h < m->heads; h++)
                if (!check_element(k, m, b, r, h))
                    return false;
    return true;
}

/* Every element of the destination must have been visited. */
static bool
check_cover(struct check *k)
{
    int64_t rows = part_of(k)->rows;
    for (int64_t x = 0; x < tensor_of(k)->heads * k->o->batch * rows; x++) {
        int64_t first = k->o->first_row[tensor_of(k)->part];
        bool there =
            to_head[k->direction]
                ? oracle_place(k->o, k->tensor, k->dst, x / rows / k->o->batch,
                      x / rows % k->o->batch, first + x % rows) >= 0
                : k->o->local[tensor_of(k)->part][k->dst * rows + x % rows] >=
                      0;
        EXPECT(k, k->visits[x] == there);
    }
    return true;
}

/* ---- one source's view --------------------------------------------------- */

struct subset {
    struct check *k;
    int32_t src;
    int64_t at, sources_at, count;
};

static bool
has_source(const struct uli_place *sources, int32_t n, int32_t rank)
{
    for (int32_t i = 0; i < n; i++)
        if (sources[i].rank == rank)
            return true;
    return false;
}

static bool
same_place(const struct uli_place *a, const struct uli_place *b)
{
    return a->rank == b->rank && a->batch == b->batch && a->row == b->row &&
           a->head == b->head;
}

static bool
check_subset(void *context, const struct uli_move *m)
{
    struct subset *s = context;
    struct check *k = s->k;
    s->count++;
    while (s->at < k->nmoves && !has_source(k->sources + s->sources_at,
                                    k->moves[s->at].nsources, s->src))
        s->sources_at += k->moves[s->at++].nsources;
    EXPECT(k, s->at < k->nmoves);
    const struct uli_move *own = &k->moves[s->at];
    EXPECT(k, same_place(&m->dst, &own->dst));
    EXPECT(k, m->kind == own->kind && m->nsources == own->nsources);
    EXPECT(k, m->batches == own->batches && m->rows == own->rows);
    EXPECT(k, m->heads == own->heads);
    for (int32_t i = 0; i < m->nsources; i++)
        EXPECT(k, same_place(&m->sources[i], k->sources + s->sources_at + i));
    s->sources_at += k->moves[s->at++].nsources;
    return true;
}

static bool
check_sources(struct check *k, struct uli_place *scratch)
{
    for (int32_t src = 0; src < k->o->nranks; src++) {
        struct subset s = {k, src, 0, 0, 0};
        uli_layout_each_move(k->layout, k->direction, k->tensor, k->dst, src,
            scratch, check_subset, &s);
        if (k->failed)
            return false;
        for (; s.at < k->nmoves; s.sources_at += k->moves[s.at++].nsources)
            EXPECT(k, !has_source(k->sources + s.sources_at,
                          k->moves[s.at].nsources, src));
        EXPECT(k, s.count <= uli_layout_max_moves(k->layout, k->direction,
                                 k->tensor, k->dst, src));
    }
    return true;
}

static bool
check_rank(struct check *k, struct uli_place *scratch)
{
    const struct uli_shape_tensor *t = tensor_of(k);
    k->nmoves = k->nsources = 0;
    memset(k->visits, 0,
        (size_t)(t->heads * k->o->batch * part_of(k)->rows) *
            sizeof(*k->visits));
    uli_layout_each_move(
        k->layout, k->direction, k->tensor, k->dst, -1, scratch, check_move, k);
    if (k->failed || !check_cover(k))
        return false;
    EXPECT(k, k->nmoves <= uli_layout_max_moves(
                               k->layout, k->direction, k->tensor, k->dst, -1));
    return check_sources(k, scratch);
}

/* ---- a tensor ------------------------------------------------------------ */

static int
compare_entries(const void *a, const void *b)
{
    return memcmp(a, b, sizeof(struct entry));
}

/* Collects the entries of one direction over all ranks. */
static void
check_direction(struct check *k)
{
    struct uli_place scratch[ORACLE_MAX_RANKS];
    assert_true(uli_layout_scratch(k->layout) <= ORACLE_MAX_RANKS);
    k->nentries = 0;
    for (k->dst = 0; k->dst < k->o->nranks; k->dst++)
        if (!check_rank(k, scratch)) {
            printf("operation %d tensor %d rank %d of:\n", k->direction,
                k->tensor, k->dst);
            case_print(k->o->c);
            fail();
        }
}

/* The matrix of a direction is the transpose of its adjoint's. */
static void
check_adjoint(
    struct check *k, ulyx_direction_t direction, ulyx_direction_t adjoint)
{
    k->direction = direction;
    check_direction(k);
    struct entry *forward = k->entries;
    int64_t count = k->nentries;
    k->entries = NULL;
    k->capacity = 0;
    k->direction = adjoint;
    check_direction(k);
    bool full = direction == ULYX_SEQ_TO_HEAD
                    ? (tensor_of(k)->flags & ULYX_TENSOR_FULL)
                    : (tensor_of(k)->flags & ULYX_TENSOR_GRAD_EQUAL);
    if (!full) {
        for (int64_t i = 0; i < k->nentries; i++) {
            int64_t dst = k->entries[i].dst;
            k->entries[i].dst = k->entries[i].src;
            k->entries[i].src = dst;
        }
        assert_int_equal(k->nentries, count);
        if (count) {
            qsort(forward, (size_t)count, sizeof(*forward), compare_entries);
            qsort(k->entries, (size_t)count, sizeof(*forward), compare_entries);
            assert_memory_equal(
                forward, k->entries, (size_t)count * sizeof(*forward));
        }
    }
    free(forward);
    free(k->entries);
    k->entries = NULL;
    k->capacity = 0;
}

static void
check_layout(const struct oracle_case *c, const struct uli_layout *layout)
{
    struct oracle o;
    struct check k = {0};
    int64_t cuts[ORACLE_MAX_RANKS + 1];
    oracle_init(&o, c, case_cuts(c, layout, cuts));
    k.o = &o;
    k.layout = layout;
    k.moves = calloc(MOST_MOVES, sizeof(*k.moves));
    k.sources = calloc(MOST_MOVES * ORACLE_MAX_RANKS, sizeof(*k.sources));
    for (k.tensor = 0; k.tensor < c->shape.ntensors; k.tensor++) {
        k.visits = calloc(
            (size_t)(tensor_of(&k)->heads * o.batch * part_of(&k)->rows) + 1,
            sizeof(*k.visits));
        check_adjoint(&k, ULYX_SEQ_TO_HEAD, ULYX_SEQ_TO_HEAD_ADJOINT);
        check_adjoint(&k, ULYX_HEAD_TO_SEQ, ULYX_HEAD_TO_SEQ_ADJOINT);
        free(k.visits);
    }
    free(k.moves);
    free(k.sources);
    oracle_free(&o);
}

static void
run_draws(bool balanced, int64_t draws, uint64_t seed)
{
    struct test_random random = {test_seed(seed)};
    for (int64_t i = 0; i < test_draws(draws); i++) {
        struct oracle_case c;
        struct uli_layout *layout = NULL;
        case_random(&c, &random, 9, balanced);
        ulyx_status_t status = case_create(&c, &layout);
        if (status != ULYX_SUCCESS)
            case_print(&c);
        assert_status(status, ULYX_SUCCESS);
        check_layout(&c, layout);
        for (int u = 0; u < 2 && uli_layout_has_tables(layout); u++) {
            ulyx_docs_t q, k;
            case_random_docs(&c, &random);
            assert_status(uli_layout_update(layout, case_docs(&c, 0, &q),
                              case_docs(&c, 1, &k)),
                ULYX_SUCCESS);
            check_layout(&c, layout);
        }
        uli_layout_destroy(layout);
    }
}

/* The present rows after an update, and the most rows that updates can set. */
static void
each_move_of_changed_rows_equals_oracle(void **state)
{
    (void)state;
    struct test_random random = {test_seed(3)};
    for (int64_t i = 0; i < test_draws(500); i++) {
        struct oracle_case c;
        struct uli_layout *layout = NULL;
        case_random(&c, &random, 9, false);
        case_random_capacities(&c, &random);
        assert_status(case_create(&c, &layout), ULYX_SUCCESS);
        check_layout(&c, layout);
        for (int u = 0; u < 3; u++) {
            struct case_rows rows;
            ulyx_docs_t q, k;
            case_random_rows(&c, &random, &rows);
            assert_status(uli_layout_update_rows(layout, rows.rows,
                              rows.has_splits ? rows.splits : NULL,
                              case_docs(&c, 0, &q), case_docs(&c, 1, &k)),
                ULYX_SUCCESS);
            check_layout(&c, layout);
            uint64_t hash = uli_layout_table_hash(layout);
            uli_layout_stretch(layout);
            assert_status(uli_layout_relax(layout, case_docs(&c, 0, &q),
                              case_docs(&c, 1, &k)),
                ULYX_SUCCESS);
            assert_true(uli_layout_table_hash(layout) == hash);
        }
        check_layout(&c, layout);
        uli_layout_destroy(layout);
    }
}

static void
each_move_of_heads_equals_oracle(void **state)
{
    (void)state;
    run_draws(false, 1500, 1);
}

static void
each_move_of_balanced_equals_oracle(void **state)
{
    (void)state;
    run_draws(true, 1500, 2);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(each_move_of_balanced_equals_oracle),
    cmocka_unit_test(each_move_of_heads_equals_oracle),
    cmocka_unit_test(each_move_of_changed_rows_equals_oracle),
};

ULI_TEST_MAIN("LayoutMoves", tests)
