/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of tiles that prepare makes on the device is compared with the
 * definition. Documents (with gaps, empty, batched), segments and masks are
 * random. Every row must be in exactly one tile, each descriptor must be what a
 * search row by row finds, and the order must be by sections of the keys,
 * longest tile first. Where the list is arithmetic it must have the same tiles.
 * Bad tables must be named and leave an empty list.
 */
#include "support/test.h"
#include "support/random.h"
#include "attention/cuda/attention_gpu.h"
#include "cuda_runtime.h"
#include <stdlib.h>
#include <string.h>
#include "emulate.h"
#include "ulyx/types.h"

#define good(call) assert_int_equal((call), cudaSuccess)
#define DOCS_MAX   12
#define RUNS_MAX   16

/* The tables of a call, on the host. */
struct tables {
    struct uli_gpu_attn_args args;
    int64_t begin[2][DOCS_MAX + 1], rows[2][DOCS_MAX];
    struct uli_gpu_attn_segment segments[RUNS_MAX];
    int64_t nsegments;
    bool cumulative[2];
};

static int64_t
random_draw(struct test_random *random, int64_t low, int64_t high)
{
    return test_random_in(random, low, high);
}

static void
draw_axis(struct tables *t, struct test_random *random, int side, int64_t len)
{
    int64_t at = 0, all = t->args.batch * len;
    t->cumulative[side] = random_draw(random, 0, 2) == 0;
    for (int64_t n = 0; n < t->args.ndocs; n++) {
        if (!t->cumulative[side] && random_draw(random, 0, 1))
            at += random_draw(random, 0, (all - at) / 3);
        int64_t left = len ? (at / len + 1) * len - at : 0;
        left = left < all - at ? left : all - at;
        int64_t rows =
            random_draw(random, 0, 4) == 0 ? 0 : random_draw(random, 0, left);
        t->begin[side][n] = at;
        t->rows[side][n] = rows;
        at += rows;
    }
    t->begin[side][t->args.ndocs] = at;
}

static void
draw_segments(struct tables *t, struct test_random *random)
{
    int64_t packed = 0;
    t->nsegments = 0;
    for (int64_t h = 0; h < t->args.heads_q; h++)
        for (int64_t b = 0; b < t->args.batch; b++)
            for (int64_t row = 0; row < t->args.len_q;) {
                int64_t end = row + random_draw(random, 1, t->args.len_q);
                end = end < t->args.len_q ? end : t->args.len_q;
                if (t->nsegments < RUNS_MAX && random_draw(random, 0, 2)) {
                    t->segments[t->nsegments++] =
                        (struct uli_gpu_attn_segment){h, b, row, end, packed};
                    packed += end - row;
                }
                row = end;
            }
}

static void
draw_tables(struct tables *t, struct test_random *random)
{
    struct uli_gpu_attn_args *a = &t->args;
    memset(t, 0, sizeof(*t));
    a->batch = random_draw(random, 0, 8) ? random_draw(random, 1, 3) : 0;
    a->len_q = random_draw(random, 0, 8) ? random_draw(random, 1, 300) : 0;
    a->len_k = random_draw(random, 0, 300);
    a->heads_q = random_draw(random, 1, 3);
    a->left =
        random_draw(random, 0, 1) ? INT64_MAX : random_draw(random, 0, 200);
    a->right =
        random_draw(random, 0, 1) ? INT64_MAX : random_draw(random, 0, 100);
    a->diagonal = random_draw(random, 0, 2) ? 0 : random_draw(random, -50, 50);
    if (random_draw(random, 0, 20) == 0)
        a->diagonal = random_draw(random, 0, 1) ? INT64_MAX : INT64_MIN;
    a->bottom_right = (int32_t)random_draw(random, 0, 1);
    a->tile_rows = 8 << random_draw(random, 0, 4);
    a->tile_keys = 8 << random_draw(random, 0, 4);
    a->section_rows =
        random_draw(random, 0, 1) ? 0 : random_draw(random, 1, 400);
    a->has_docs = (int32_t)random_draw(random, 0, 1);
    a->ndocs = a->has_docs ? random_draw(random, 0, DOCS_MAX) : 0;
    draw_axis(t, random, 0, a->len_q);
    draw_axis(t, random, 1, a->len_k);
    t->nsegments = -1;
    if (a->len_q && random_draw(random, 0, 1))
        draw_segments(t, random);
}

/* Copies a table to the device, as indices of 8 or of 4 bytes. */
static void *
values_upload(const int64_t *values, int64_t count, int32_t index_bytes)
{
    unsigned char bytes[8 * (DOCS_MAX + 1)];
    void *device;
    for (int64_t n = 0; n < count; n++) {
        int32_t narrow = (int32_t)values[n];
        memcpy(bytes + n * index_bytes,
            index_bytes == 8 ? (const void *)&values[n] : &narrow,
            (size_t)index_bytes);
    }
    good(cudaMalloc(&device, (size_t)(count ? count * index_bytes : 1)));
    good(uli_gpu_attn_put(device, bytes, count * index_bytes, NULL));
    return device;
}

struct outcome {
    struct uli_gpu_attn_state state;
    struct uli_gpu_attn_tile *tiles;
    uint64_t cause;
    int64_t bound;
};

static void
run_prepare(struct tables *t, struct test_random *random, struct outcome *o)
{
    struct uli_gpu_attn_args *a = &t->args;
    struct uli_gpu_attn_sizes sizes;
    void *held[6] = {NULL}, *workspace;
    for (int side = 0; side < 2; side++) {
        struct uli_gpu_attn_docs *docs = side ? &a->docs_k : &a->docs_q;
        docs->index_bytes = random_draw(random, 0, 1) ? 4 : 8;
        held[side] = values_upload(
            t->begin[side], a->ndocs + t->cumulative[side], docs->index_bytes);
        docs->begins = held[side];
        if (!t->cumulative[side])
            docs->lengths = held[2 + side] =
                values_upload(t->rows[side], a->ndocs, docs->index_bytes);
    }
    int64_t rows = a->batch * a->len_q;
    if (t->nsegments >= 0) {
        rows = 0;
        for (int64_t n = 0; n < t->nsegments; n++)
            rows += t->segments[n].row_end - t->segments[n].row_begin;
        good(cudaMalloc(&held[4], sizeof(t->segments)));
        good(uli_gpu_attn_put(held[4], t->segments, sizeof(t->segments), NULL));
        a->q_segments = held[4];
        a->nq_segments = t->nsegments;
    }
    assert_true(uli_gpu_attn_sizes(a->batch, rows, a->heads_q, a->ndocs,
        t->nsegments, a->tile_rows, &sizes));
    good(cudaMalloc(&workspace, (size_t)sizes.bytes));
    good(cudaMemset(workspace, 0xFF, (size_t)sizes.bytes));
    uli_gpu_attn_place(a, &sizes, workspace);
    good(cudaMalloc(&held[5], 8));
    good(cudaMemset(held[5], 0, 8));
    a->cause = held[5];
    good(uli_gpu_attn_prepare_launch(a, NULL));
    good(cudaDeviceSynchronize());
    good(cudaMemcpy(
        &o->state, a->state, sizeof(o->state), cudaMemcpyDeviceToHost));
    good(cudaMemcpy(&o->cause, a->cause, 8, cudaMemcpyDeviceToHost));
    o->bound = sizes.tiles;
    o->tiles = calloc((size_t)sizes.tiles + 1, sizeof(o->tiles[0]));
    good(cudaMemcpy(o->tiles, a->tiles,
        (size_t)sizes.tiles * sizeof(o->tiles[0]), cudaMemcpyDeviceToHost));
    for (int n = 0; n < 6; n++)
        good(cudaFree(held[n]));
    good(cudaFree(workspace));
    assert_int_equal(emu_fault_count(), 0);
}

/* Returns the document of a query row, which is counted over all batch items,
 * or -1. */
static int64_t
doc_of(const struct tables *t, int64_t flat)
{
    if (!t->args.has_docs)
        return flat / t->args.len_q;
    for (int64_t n = 0; n < t->args.ndocs; n++)
        if (flat >= t->begin[0][n] && flat < t->begin[0][n] + t->rows[0][n])
            return n;
    return -1;
}

static void
check_tile(const struct tables *t, const struct uli_gpu_attn_tile *tile)
{
    const struct uli_gpu_attn_args *a = &t->args;
    assert_in_range(tile->rows, 1, a->tile_rows);
    for (int64_t r = tile->row; r < tile->row + tile->rows; r++) {
        int64_t flat = tile->batch * a->len_q + r, n = doc_of(t, flat);
        if (n < 0) {
            assert_int_equal(tile->k_rows, 0);
            continue;
        }
        int64_t q = a->has_docs ? t->begin[0][n] : n * a->len_q;
        int64_t k = a->has_docs ? t->begin[1][n] : n * a->len_k;
        int64_t q_rows = a->has_docs ? t->rows[0][n] : a->len_q;
        int64_t k_rows = a->has_docs ? t->rows[1][n] : a->len_k;
        __extension__ __int128 off = a->diagonal;
        off += a->bottom_right ? k_rows - q_rows : 0;
        off = off > INT64_MAX ? INT64_MAX : off < INT64_MIN ? INT64_MIN : off;
        assert_int_equal(tile->i + (r - tile->row), flat - q);
        assert_int_equal(tile->k_rows, k_rows);
        assert_true(tile->off == (int64_t)off);
        if (k_rows)
            assert_int_equal(tile->k_batch * a->len_k + tile->k_begin, k);
    }
}

/* Counts the key tiles to which the rows of the tile attend, by the definition
 * of the mask. */
static int64_t
cost_of(const struct uli_gpu_attn_args *a, const struct uli_gpu_attn_tile *tile)
{
    int64_t low = -1, high = -1, keys = a->tile_keys;
    for (int64_t j = 0; j < tile->k_rows; j++)
        for (int64_t i = tile->i; i < tile->i + tile->rows; i++) {
            __extension__ __int128 at = (__int128)i + tile->off;
            bool sees = (a->left == INT64_MAX || j >= at - a->left) &&
                        (a->right == INT64_MAX || j <= at + a->right);
            low = sees && low < 0 ? j / keys : low;
            high = sees ? j / keys + 1 : high;
        }
    return low < 0 ? 0 : high - low;
}

/* Checks that each row of the call is in exactly one tile of the list. */
static void
check_cover(const struct tables *t, const struct outcome *o)
{
    const struct uli_gpu_attn_args *a = &t->args;
    int64_t heads = t->nsegments >= 0 ? a->heads_q : 1;
    int64_t all = heads * a->batch * a->len_q;
    unsigned char *seen = calloc((size_t)all + 1, 1);
    for (int64_t n = 0; n < o->state.ntiles; n++) {
        const struct uli_gpu_attn_tile *tile = &o->tiles[n];
        int64_t head = t->nsegments >= 0 ? tile->head : 0;
        assert_int_equal(tile->head, t->nsegments >= 0 ? head : -1);
        for (int64_t r = tile->row; r < tile->row + tile->rows; r++)
            seen[(head * a->batch + tile->batch) * a->len_q + r]++;
    }
    for (int64_t n = 0; n < t->nsegments; n++) {
        const struct uli_gpu_attn_segment *s = &t->segments[n];
        for (int64_t r = s->row_begin; r < s->row_end; r++)
            seen[(s->head * a->batch + s->batch) * a->len_q + r] ^= 1;
    }
    for (int64_t n = 0; n < all; n++)
        assert_int_equal(seen[n], t->nsegments >= 0 ? 0 : 1);
    free(seen);
}

static void
check_packed(const struct tables *t, const struct uli_gpu_attn_tile *tile)
{
    for (int64_t n = 0; n < t->nsegments; n++) {
        const struct uli_gpu_attn_segment *s = &t->segments[n];
        if (s->head == tile->head && s->batch == tile->batch &&
            s->row_begin <= tile->row && tile->row < s->row_end) {
            assert_true(tile->row + tile->rows <= s->row_end);
            assert_int_equal(tile->packed, s->row + tile->row - s->row_begin);
        }
    }
}

/* The order of a list: a section has `rows` key rows; within a section costs
 * differ only in steps of `step` key tiles. */
struct order {
    int64_t rows, step;
};

static struct order
order_of(const struct uli_gpu_attn_args *a, const struct outcome *o)
{
    int64_t keys = a->batch * a->len_k, most = 0;
    struct order order = {a->section_rows, 1};
    if (order.rows == 0 || order.rows > keys)
        order.rows = keys > 0 ? keys : 1;
    if (order.rows < (keys + 31) / 32)
        order.rows = (keys + 31) / 32;
    for (int64_t n = 0; n < o->state.ntiles; n++) {
        int64_t cost = cost_of(a, &o->tiles[n]);
        most = cost > most ? cost : most;
    }
    int64_t sections = (keys + order.rows - 1) / order.rows;
    order.step = most / (1024 / (sections ? sections : 1)) + 1;
    return order;
}

/* Sections must ascend, and costs must descend within a section. The cost here
 * is what the rows see; the bounds of rows that see nothing may widen the range
 * of a tile. */
static void
check_order(const struct uli_gpu_attn_args *a, const struct outcome *o)
{
    const struct order order = order_of(a, o);
    int64_t section = 0, last = INT64_MAX / 2;
    for (int64_t n = 0; n < o->state.ntiles; n++) {
        const struct uli_gpu_attn_tile *tile = &o->tiles[n];
        int64_t now = (tile->k_batch * a->len_k + tile->k_begin) / order.rows;
        int64_t cost = cost_of(a, tile);
        assert_true(now >= section);
        if (a->left == INT64_MAX && a->diagonal == 0 && now == section)
            assert_true(cost < last + order.step);
        last = now == section && last < cost ? last : cost;
        section = now;
    }
}

static void
random_tables_give_the_tiles_of_the_definition(void **state)
{
    (void)state;
    struct test_random random = {test_seed(20261128)};
    struct emu_config config = {0};
    assert_int_equal(emu_open(&config), 0);
    int64_t draws = test_draws(200);
    for (int64_t d = 0; d < draws; d++) {
        struct tables t;
        struct outcome o;
        draw_tables(&t, &random);
        run_prepare(&t, &random, &o);
        assert_int_equal(o.state.failed, 0);
        assert_int_equal(o.state.next, 0);
        assert_true(o.state.ntiles <= o.bound);
        check_cover(&t, &o);
        check_order(&t.args, &o);
        for (int64_t n = 0; n < o.state.ntiles; n++) {
            check_tile(&t, &o.tiles[n]);
            check_packed(&t, &o.tiles[n]);
        }
        free(o.tiles);
    }
    emu_close();
}

/* Checks that the arithmetic list has the tiles of the written one; gives each
 * tile the place that it has there. */
static void
check_unlisted(const struct uli_gpu_attn_args *a, const struct outcome *listed,
    struct outcome *unlisted)
{
    assert_int_equal(unlisted->state.ntiles, listed->state.ntiles);
    for (int64_t n = 0; n < listed->state.ntiles; n++) {
        int64_t at = 0;
        unlisted->tiles[n] = uli_gpu_attn_unlisted(a, n);
        while (at < listed->state.ntiles &&
               memcmp(&unlisted->tiles[n], &listed->tiles[at],
                   sizeof(listed->tiles[0])) != 0)
            at++;
        assert_true(at < listed->state.ntiles);
        listed->tiles[at].rows = 0; /* so that no tile is found twice */
    }
}

static void
arithmetic_tiles_are_those_of_the_list(void **state)
{
    (void)state;
    struct test_random random = {test_seed(20261129)};
    struct emu_config config = {0};
    assert_int_equal(emu_open(&config), 0);
    for (int64_t d = 0; d < test_draws(60); d++) {
        struct tables t;
        struct outcome listed, unlisted;
        draw_tables(&t, &random);
        t.args.has_docs = 0, t.args.ndocs = 0, t.nsegments = -1;
        t.args.q_segments = NULL;
        t.args.diagonal = 0;
        /* otherwise tiles end where the window does */
        if (random_draw(&random, 0, 1))
            t.args.left = INT64_MAX;
        run_prepare(&t, &random, &listed);
        t.args.unlisted = 1;
        run_prepare(&t, &random, &unlisted);
        check_unlisted(&t.args, &listed, &unlisted);
        /* a section is a whole number of batch items, at least one */
        if (t.args.section_rows < t.args.len_k)
            t.args.section_rows = t.args.section_rows ? t.args.len_k : 0;
        else if (t.args.len_k)
            t.args.section_rows -= t.args.section_rows % t.args.len_k;
        if (t.args.batch <= 32)
            check_order(&t.args, &unlisted);
        free(listed.tiles);
        free(unlisted.tiles);
    }
    emu_close();
}

static void
expect_cause(struct tables *t, uint64_t what, uint64_t index)
{
    struct test_random random = {5};
    struct outcome o;
    run_prepare(t, &random, &o);
    uint64_t expected =
        ULI_GPU_ATTN_CAUSE(-ULYX_ERR_INVALID_ARGUMENT, what, index);
    assert_int_equal(o.state.failed, expected);
    assert_int_equal(o.cause, expected);
    assert_int_equal(o.state.ntiles, 0);
    free(o.tiles);
}

static void
bad_tables_are_named_and_leave_no_tiles(void **state)
{
    static const int64_t bad[][3] = {/* document, begin, rows */
        {2, 19, 5}, {2, 30, -1}, {3, 90, 40}, {1, 45, 10}, {0, -1, 3},
        {3, INT64_MAX - 1, 5}, {3, 1, INT64_MAX}};
    (void)state;
    struct emu_config config = {0};
    assert_int_equal(emu_open(&config), 0);
    for (int side = 0; side < 2; side++)
        for (size_t n = 0; n < sizeof(bad) / sizeof(bad[0]); n++) {
            struct tables t;
            memset(&t, 0, sizeof(t));
            t.args.batch = 2, t.args.len_q = t.args.len_k = 50;
            t.args.heads_q = 2, t.args.ndocs = 4, t.args.has_docs = 1;
            t.args.left = t.args.right = INT64_MAX;
            t.args.tile_rows = t.args.tile_keys = 16;
            t.nsegments = -1;
            for (int s = 0; s < 2; s++)
                for (int d = 0; d < 4; d++)
                    t.begin[s][d] = d * 20, t.rows[s][d] = d == 2 ? 10 : 20;
            t.begin[0][2] = t.begin[1][2] = 40;
            t.rows[0][1] = t.rows[1][1] = 20;
            t.begin[side][bad[n][0]] = bad[n][1];
            t.rows[side][bad[n][0]] = bad[n][2];
            bool crosses = n == 3;
            uint64_t what = crosses ? ULI_GPU_ATTN_DOCS_Q_CROSSES
                                    : ULI_GPU_ATTN_DOCS_Q_ORDER;
            expect_cause(&t, what + (uint64_t)side, (uint64_t)bad[n][0]);
        }
    emu_close();
}

static void
pairs_are_a_permutation_by_groups_of_heads(void **state)
{
    (void)state;
    for (int64_t heads = 1; heads <= 7; heads++)
        for (int64_t group = 1; group <= heads; group++) {
            struct uli_gpu_attn_args args = {
                .heads_q = heads, .head_group = group};
            unsigned char seen[5][7] = {{0}};
            int64_t last_group = 0, last_tile = 0;
            for (int64_t n = 0; n < uli_gpu_attn_pairs(&args, 5); n++) {
                int64_t tile, head;
                uli_gpu_attn_pair(&args, 5, n, &tile, &head);
                assert_in_range(tile, 0, 4);
                assert_in_range(head, 0, heads - 1);
                assert_int_equal(seen[tile][head]++, 0);
                assert_true(head / group >= last_group);
                assert_true(head / group > last_group || tile >= last_tile);
                last_group = head / group;
                last_tile = tile;
            }
            assert_int_equal(uli_gpu_attn_pairs(&args, 5), 5 * heads);
        }
}

static void
sizes_beyond_64_bits_are_refused(void **state)
{
    struct uli_gpu_attn_sizes sizes;
    (void)state;
    assert_true(
        uli_gpu_attn_sizes(1, INT64_C(1) << 40, 64, 1000, -1, 128, &sizes));
    assert_int_equal(sizes.tiles, (INT64_C(1) << 33) + 2 * 1002);
    assert_false(uli_gpu_attn_sizes(1, 1, INT64_MAX / 2, 8, 5, 128, &sizes));
    assert_false(uli_gpu_attn_sizes(INT64_MAX, 1, 1, 0, -1, 128, &sizes));
    assert_false(uli_gpu_attn_sizes(1, 1, 1, INT64_MAX / 8, -1, 1, &sizes));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(random_tables_give_the_tiles_of_the_definition),
    cmocka_unit_test(arithmetic_tiles_are_those_of_the_list),
    cmocka_unit_test(bad_tables_are_named_and_leave_no_tiles),
    cmocka_unit_test(pairs_are_a_permutation_by_groups_of_heads),
    cmocka_unit_test(sizes_beyond_64_bits_are_refused),
};

ULI_TEST_MAIN("EmulateAttentionPrepare", tests)
