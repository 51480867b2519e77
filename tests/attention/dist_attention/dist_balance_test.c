/* SPDX-License-Identifier: Apache-2.0
 *
 * BALANCED gives the ranks equal work. The work is the scores that kernels
 * compute, including those of their tiles that a mask hides; it is counted by a
 * walk over the plan's segments as the kernels walk them. Where running the
 * kernels is quick, the walk is compared with their own count; large shapes are
 * only walked.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/dist_attention/dist_world.h"
#include "collectives/layout/layout.h"
#include "support/test.h"

/* The sizes of the widest kernels: rows of a forward panel, keys of a backward
 * panel, rows of a register block. Other kernels differ in what they round
 * up. */
enum { PANEL_ROWS = 32, PANEL = 16, TILE_QUERIES = 64, BLOCK_ROWS = 8 };

/* A mask over documents that are the same on both axes. */
struct mask {
    int64_t left;         /* INT64_MAX: causal without a window */
    const int64_t *begin; /* [ndocs + 1] */
    int64_t ndocs;
};

static int64_t
int64_least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t
int64_most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Returns the first key to which row i attends; the last one is i itself. */
static int64_t
first_key(const struct mask *mask, int64_t i)
{
    return mask->left == INT64_MAX ? 0 : int64_most(i - mask->left, 0);
}

/* Counts the scores that forward computes for rows [i, end) of a document,
 * counted from its first row. */
static int64_t
forward_scores(const struct mask *mask, int64_t i, int64_t end)
{
    int64_t scores = 0;
    for (; i < end; i += PANEL_ROWS) {
        int64_t last = int64_least(i + PANEL_ROWS, end) - 1;
        int64_t begin = first_key(mask, i) / 8 * 8;
        scores += PANEL_ROWS * ((last + 1 + 7) / 8 * 8 - begin);
    }
    return scores;
}

static int64_t
backward_scores(const struct mask *mask, int64_t low, int64_t high)
{
    int64_t scores = 0;
    int64_t tile = low / TILE_QUERIES * TILE_QUERIES;
    for (; tile < high; tile += TILE_QUERIES) {
        int64_t i = int64_most(tile, low);
        int64_t end = int64_least(tile + TILE_QUERIES, high);
        int64_t begin = first_key(mask, i) / PANEL * PANEL;
        int64_t rows = (end - i + BLOCK_ROWS - 1) / BLOCK_ROWS * BLOCK_ROWS;
        scores += rows * ((end - 1 + PANEL) / PANEL * PANEL - begin);
    }
    return scores;
}

static void
scores_walk(const struct uli_layout *layout, const struct mask *mask,
    int32_t rank, int64_t scores_p[2])
{
    int64_t count;
    const struct uli_run *runs = uli_layout_runs(layout, 0, rank, &count);
    scores_p[0] = scores_p[1] = 0;
    for (int64_t n = 0; n < count; n++)
        for (int64_t d = 0; d < mask->ndocs; d++) {
            int64_t low = int64_most(runs[n].row_begin, mask->begin[d]);
            int64_t high = int64_least(runs[n].row_end, mask->begin[d + 1]);
            if (low >= high)
                continue;
            low -= mask->begin[d];
            high -= mask->begin[d];
            scores_p[0] += forward_scores(mask, low, high);
            scores_p[1] += backward_scores(mask, low, high);
        }
}

/* ---- shapes -------------------------------------------------------------- */

static struct uli_layout *
layout_new(int32_t nranks, int64_t heads, int64_t kv_heads, int64_t rows,
    const struct mask *mask)
{
    struct uli_shape shape = {.nranks = nranks,
        .batch = 1,
        .heads = heads,
        .nparts = 1,
        .ntensors = 2,
        .work_split = ULYX_WORK_BALANCED,
        .mask_kind =
            mask->left == INT64_MAX ? ULYX_MASK_CAUSAL : ULYX_MASK_WINDOW,
        .mask_left = mask->left == INT64_MAX ? 0 : mask->left,
        .max_docs = mask->ndocs};
    ulyx_docs_t docs = ULYX_DOCS_INIT;
    struct uli_layout *layout;
    docs.count = mask->ndocs;
    docs.begin = mask->begin;
    shape.parts[0].rows = rows;
    for (int t = 0; t < 2; t++)
        shape.tensors[t] = (struct uli_shape_tensor){
            .ownership = t ? ULYX_HEADS_KV : ULYX_HEADS_QUERY,
            .dtype = ULYX_DTYPE_F32,
            .elem_bytes = 4,
            .heads = t ? kv_heads : heads,
            .dim = 8};
    assert_status(
        uli_layout_create(&shape, &docs, NULL, &layout), ULYX_SUCCESS);
    return layout;
}

static double
scores_imbalance(const int64_t *scores, int32_t nranks, int stride)
{
    int64_t total = 0, top = 0;
    for (int32_t r = 0; r < nranks; r++) {
        total += scores[r * stride];
        top = int64_most(top, scores[r * stride]);
    }
    return (double)top * nranks / (double)total;
}

static void
ranks_are_equally_busy(void **state)
{
    (void)state;
    static const struct {
        int32_t nranks;
        int64_t heads, kv_heads;
    } shapes[] = {{4, 14, 2}, {12, 8, 8}, {16, 40, 8}};
    static const int64_t whole[] = {0, 32768};
    static const int64_t pack[] = {
        0, 300, 4001, 4100, 11111, 20000, 20064, 32768};
    const struct mask masks[] = {
        {INT64_MAX, whole, 1}, {4095, whole, 1}, {INT64_MAX, pack, 7}};
    for (int s = 0; s < 3; s++)
        for (int m = 0; m < 3; m++) {
            int32_t nranks = shapes[s].nranks;
            int64_t scores[16][2];
            struct uli_layout *layout = layout_new(
                nranks, shapes[s].heads, shapes[s].kv_heads, 32768, &masks[m]);
            for (int32_t r = 0; r < nranks; r++)
                scores_walk(layout, &masks[m], r, scores[r]);
            double forward = scores_imbalance(&scores[0][0], nranks, 2);
            double backward = scores_imbalance(&scores[0][1], nranks, 2);
            printf("%lld/%lld heads on %d ranks, mask %d: max/mean %.4f "
                   "forward, %.4f backward\n",
                (long long)shapes[s].heads, (long long)shapes[s].kv_heads,
                nranks, m, forward, backward);
            assert_true(forward <= 1.03 && backward <= 1.03);
            uli_layout_destroy(layout);
        }
}

/* ---- the kernels' own count ---------------------------------------------- */

static void
check_kernels(const struct mask *mask)
{
    struct dist_case c;
    struct world w;
    int32_t nranks = 4;
    int64_t rows = mask->begin[mask->ndocs], walked[4][2];
    case_plain(&c, nranks, rows, 14, 2, 8);
    c.p.work_split = ULYX_WORK_BALANCED;
    c.p.flags = ULYX_DIST_ATTENTION_LSE;
    if (mask->left != INT64_MAX) {
        c.p.mask_kind = ULYX_MASK_WINDOW;
        c.p.mask_left = mask->left;
    }
    c.has_docs = true;
    c.ndocs = mask->ndocs;
    for (int64_t d = 0; d < c.ndocs; d++) {
        c.docs[0][0][d] = mask->begin[d];
        c.docs[0][1][d] = mask->begin[d + 1] - mask->begin[d];
    }
    world_init(&w, &c);
    assert_true(world_run(&w, false));
    struct uli_layout *layout = layout_new(nranks, 14, 2, rows, mask);
    for (int32_t r = 0; r < nranks; r++) {
        scores_walk(layout, mask, r, walked[r]);
        for (int pass = 0; pass < 2; pass++) {
            double ratio = (double)w.scores[r][pass] / (double)walked[r][pass];
            printf("rank %d, pass %d: %lld scores, %lld walked (%.4f)\n", r,
                pass, (long long)w.scores[r][pass], (long long)walked[r][pass],
                ratio);
            assert_true(ratio > 0.92 && ratio < 1.08);
        }
    }
    printf("max/mean of the kernels: %.4f forward, %.4f backward\n",
        scores_imbalance(&w.scores[0][0], nranks, 2),
        scores_imbalance(&w.scores[0][1], nranks, 2));
    assert_true(scores_imbalance(&w.scores[0][0], nranks, 2) <= 1.05);
    assert_true(scores_imbalance(&w.scores[0][1], nranks, 2) <= 1.05);
    uli_layout_destroy(layout);
    world_free(&w);
}

static void
kernels_count_what_is_walked(void **state)
{
    (void)state;
    static const int64_t whole[] = {0, 1024}, pack[] = {0, 100, 600, 1024};
    const struct mask masks[] = {
        {INT64_MAX, whole, 1}, {255, whole, 1}, {INT64_MAX, pack, 3}};
    for (int m = 0; m < 3; m++)
        check_kernels(&masks[m]);
}

/* ---- bounds of keys ------------------------------------------------------ */

enum { BOUND_RANKS = 3, BOUND_ROWS = 300, BOUND_HEADS = 5 };

/* Returns the layout that distributed attention will have with this bound of
 * key rows (0: none), or NULL where no cut respects the bound. */
static struct uli_layout *
layout_bounded(int64_t max_kv_rows)
{
    static const int64_t whole[] = {0, BOUND_ROWS};
    const struct mask mask = {INT64_MAX, whole, 1};
    struct uli_layout *any =
        layout_new(BOUND_RANKS, BOUND_HEADS, BOUND_HEADS, BOUND_ROWS, &mask);
    struct uli_shape shape = *uli_layout_shape(any);
    struct uli_layout *layout = NULL;
    shape.max_rows = shape.max_segments = shape.max_docs = 0;
    shape.max_kv_rows = max_kv_rows;
    shape.row_round = 8;
    uli_layout_create(&shape, NULL, NULL, &layout);
    uli_layout_destroy(any);
    return layout;
}

/* Returns whether any rank has other queries than without the bound. */
static bool
bound_moves_cuts(const struct uli_layout *layout)
{
    struct uli_layout *without = layout_bounded(0);
    bool moved = false;
    for (int32_t r = 0; r < BOUND_RANKS; r++)
        moved |= uli_layout_packed_rows(layout, 0, r) !=
                 uli_layout_packed_rows(without, 0, r);
    uli_layout_destroy(without);
    return moved;
}

/* The plans of OUT, GRAD and the rest have the cuts of the plan of q, k and
 * v. */
static void
bounds_of_keys_move_all_cuts(void **state)
{
    (void)state;
    struct uli_layout *layout;
    struct dist_case c, single;
    struct world one;
    int moved = 0;
    case_plain(&c, BOUND_RANKS, BOUND_ROWS, BOUND_HEADS, BOUND_HEADS, 8);
    c.p.work_split = ULYX_WORK_BALANCED;
    c.p.row_round = 8;
    c.p.flags = ULYX_DIST_ATTENTION_LSE;
    case_single(&c, &single);
    world_init(&one, &single);
    assert_true(world_run(&one, false));
    for (int64_t rows = 3 * BOUND_ROWS; (layout = layout_bounded(rows));
         rows -= 12) {
        struct world w;
        moved += bound_moves_cuts(layout);
        uli_layout_destroy(layout);
        c.p.max_kv_rows = rows;
        world_like(&w, &c, &one);
        assert_true(world_run(&w, false));
        assert_true(world_same(&w, &one, true, false));
        world_free(&w);
    }
    printf("%d bounds moved the cuts\n", moved);
    assert_true(moved > 1);
    world_free(&one);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_are_equally_busy),
    cmocka_unit_test(kernels_count_what_is_walked),
    cmocka_unit_test(bounds_of_keys_move_all_cuts),
};

ULI_TEST_MAIN("DistBalance", tests)
