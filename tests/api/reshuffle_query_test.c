/* SPDX-License-Identifier: Apache-2.0
 *
 * The queries of a plan, on shapes whose answers are easy to compute by hand.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "support/test.h"
#include "ulyx/comm.h"
#include "ulyx/reshuffle.h"

enum { RANKS = 4 };

/* 14 query heads and 2 KV heads on 4 ranks: q 4 4 3 3, k 1 2 1 1. */
struct fixture {
    ulyx_comm_t *comms[RANKS];
    ulyx_plan_t *plans[RANKS];
};

static void
fixture_create(
    struct fixture *f, int32_t order, int32_t work, uint64_t directions)
{
    ulyx_part_t part = ULYX_PART_INIT;
    ulyx_tensor_t tensors[3] = {
        ULYX_TENSOR_INIT, ULYX_TENSOR_INIT, ULYX_TENSOR_INIT};
    ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
    part.rows = 18;
    part.order = order;
    for (int i = 0; i < 3; i++) {
        tensors[i].heads = i ? 2 : 14;
        tensors[i].dim = 8;
        tensors[i].ownership = i ? ULYX_HEADS_KV : ULYX_HEADS_QUERY;
    }
    params.heads = 14;
    params.parts = &part;
    params.nparts = 1;
    params.tensors = tensors;
    params.ntensors = 3;
    params.work_split = work;
    params.row_round = 1;
    params.directions = directions;
    assert_status(ulyx_comm_create_local(RANKS, NULL, f->comms), ULYX_SUCCESS);
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++)
        assert_status(
            ulyx_plan_create(f->comms[r], &params, &f->plans[r]), ULYX_SUCCESS);
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
}

static void
fixture_destroy(struct fixture *f)
{
    for (int r = 0; r < RANKS; r++) {
        assert_status(ulyx_plan_destroy(f->plans[r]), ULYX_SUCCESS);
        assert_status(ulyx_comm_destroy(f->comms[r]), ULYX_SUCCESS);
    }
}

static void
heads_and_rows(void **state)
{
    (void)state;
    static const int64_t q[RANKS][2] = {{0, 4}, {4, 4}, {8, 3}, {11, 3}};
    static const int64_t k[RANKS][2] = {{0, 1}, {0, 2}, {1, 1}, {1, 1}};
    static const int64_t rows[RANKS] = {5, 5, 4, 4};
    struct fixture f;
    fixture_create(&f, ULYX_TOKENS_CONTIGUOUS, ULYX_WORK_HEADS, 0);
    for (int r = 0; r < RANKS; r++) {
        int64_t first, count, n, map[4];
        int32_t packed;
        assert_status(ulyx_plan_get_heads(f.plans[0], 0, r, &first, &count),
            ULYX_SUCCESS);
        assert_true(first == q[r][0] && count == q[r][1]);
        assert_status(ulyx_plan_get_heads(f.plans[0], 1, r, &first, &count),
            ULYX_SUCCESS);
        assert_true(first == k[r][0] && count == k[r][1]);
        assert_status(
            ulyx_plan_get_seq_rows(f.plans[0], 0, r, &n), ULYX_SUCCESS);
        assert_int_equal(n, rows[r]);
        assert_status(ulyx_plan_get_packed_rows(f.plans[0], 0, r, &packed, &n),
            ULYX_SUCCESS);
        assert_true(packed == 0 && n == 0);
        assert_status(
            ulyx_plan_get_kv_map(f.plans[r], 0, 1, 4, map, &n), ULYX_SUCCESS);
        assert_int_equal(n, q[r][1]);
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(map[i], (q[r][0] + i) / 7 - k[r][0]);
    }
    fixture_destroy(&f);
}

static void
positions_of_zigzag(void **state)
{
    (void)state;
    /* 18 rows in 8 chunks: 3 3 2 2 2 2 2 2; rank 1 has chunks 1 and 6. */
    static const int64_t expected[] = {3, 4, 5, 14, 15};
    int64_t positions[5];
    struct fixture f;
    fixture_create(&f, ULYX_TOKENS_ZIGZAG, ULYX_WORK_HEADS, 0);
    assert_status(
        ulyx_plan_get_positions(f.plans[3], 0, 1, 5, positions), ULYX_SUCCESS);
    assert_memory_equal(positions, expected, sizeof(expected));
    assert_status(ulyx_plan_get_positions(f.plans[3], 0, 1, 4, positions),
        ULYX_ERR_INVALID_ARGUMENT);
    fixture_destroy(&f);
}

static void
partials_and_extents(void **state)
{
    (void)state;
    ulyx_dtype_t dtype;
    int64_t bytes;
    struct fixture f;
    fixture_create(&f, ULYX_TOKENS_CONTIGUOUS, ULYX_WORK_HEADS, 0);
    assert_status(
        ulyx_plan_get_partial_dtype(f.plans[0], 0, &dtype), ULYX_SUCCESS);
    assert_int_equal(dtype, ULYX_DTYPE_BF16);
    assert_status(
        ulyx_plan_get_partial_dtype(f.plans[0], 1, &dtype), ULYX_SUCCESS);
    assert_int_equal(dtype, ULYX_DTYPE_F32);
    assert_status(ulyx_plan_get_extent(
                      f.plans[0], 0, ULYX_SEQ_TO_HEAD, ULYX_SIDE_SRC, &bytes),
        ULYX_SUCCESS);
    assert_int_equal(bytes, 5 * 14 * 8 * 2);
    assert_status(ulyx_plan_get_extent(
                      f.plans[0], 0, ULYX_SEQ_TO_HEAD, ULYX_SIDE_DST, &bytes),
        ULYX_SUCCESS);
    assert_int_equal(bytes, 18 * 4 * 8 * 2);
    assert_status(ulyx_plan_get_extent(f.plans[1], 1, ULYX_SEQ_TO_HEAD_ADJOINT,
                      ULYX_SIDE_SRC, &bytes),
        ULYX_SUCCESS);
    assert_int_equal(bytes, 18 * 2 * 8 * 4);
    fixture_destroy(&f);
}

/* Element counts by hand: rank 0 receives 13 rows of 4 + 1 + 1 heads, rank 1
 * receives 13 rows of 4 + 2 + 2. */
static void
traffic_is_what_moves(void **state)
{
    (void)state;
    ulyx_traffic_t traffic = ULYX_TRAFFIC_INIT;
    struct fixture f;
    fixture_create(&f, ULYX_TOKENS_CONTIGUOUS, ULYX_WORK_HEADS, 3);
    assert_status(ulyx_plan_get_traffic(f.plans[0], ULYX_SEQ_TO_HEAD, &traffic),
        ULYX_SUCCESS);
    assert_int_equal(traffic.size_bytes, 5 * 18 * 16);
    assert_int_equal(traffic.bus_bytes, 13 * 8 * 16);
    assert_int_equal(traffic.received_bytes, 13 * 6 * 16);
    assert_int_equal(traffic.local_bytes, 5 * 6 * 16);
    assert_int_equal(traffic.sent_bytes, 5 * (8 + 5 + 5) * 16);
    assert_int_equal(traffic.surplus_bytes, 0);
    assert_status(
        ulyx_plan_get_traffic(f.plans[0], ULYX_SEQ_TO_HEAD_ADJOINT, &traffic),
        ULYX_ERR_INVALID_ARGUMENT);
    traffic.size = 1;
    assert_status(ulyx_plan_get_traffic(f.plans[0], ULYX_SEQ_TO_HEAD, &traffic),
        ULYX_ERR_INVALID_ARGUMENT);
    fixture_destroy(&f);
}

static void
segments_of_a_packed_plan(void **state)
{
    (void)state;
    struct fixture f;
    int64_t total = 0;
    fixture_create(&f, ULYX_TOKENS_CONTIGUOUS, ULYX_WORK_BALANCED, 0);
    for (int r = 0; r < RANKS; r++) {
        ulyx_segment_t segments[32];
        int32_t packed;
        int64_t rows, count, at = 0;
        assert_status(
            ulyx_plan_get_packed_rows(f.plans[2], 0, r, &packed, &rows),
            ULYX_SUCCESS);
        assert_int_equal(packed, 1);
        assert_status(ulyx_plan_get_segments(f.plans[2], 0, r, 32,
                          sizeof(*segments), segments, &count),
            ULYX_SUCCESS);
        for (int64_t i = 0; i < count; i++) {
            assert_int_equal(segments[i].offset, at * 8 * 2);
            at += segments[i].row_end - segments[i].row_begin;
        }
        assert_int_equal(at, rows);
        total += rows;
        assert_true(count > 0);
        assert_status(ulyx_plan_get_segments(f.plans[2], 0, r, 0,
                          sizeof(*segments), segments, &count),
            ULYX_ERR_INVALID_ARGUMENT);
        assert_true(count > 0);
    }
    assert_int_equal(total, 14 * 18);
    fixture_destroy(&f);
}

/* A newer program's segments are longer, and are filled with zeros at the end;
 * an invalid element size is refused, and nothing is written. */
static void
segments_of_other_versions(void **state)
{
    (void)state;
    struct fixture f;
    ulyx_segment_t ours[32], untouched;
    struct {
        ulyx_segment_t known;
        int64_t later[2];
    } newer[32];
    int64_t count, other;
    fixture_create(&f, ULYX_TOKENS_CONTIGUOUS, ULYX_WORK_BALANCED, 0);
    memset(newer, 0x33, sizeof(newer));
    memset(&untouched, 0x33, sizeof(untouched));
    assert_status(ulyx_plan_get_segments(
                      f.plans[2], 0, 1, 32, sizeof(*ours), ours, &count),
        ULYX_SUCCESS);
    for (size_t size = 0; size < sizeof(*ours); size++)
        assert_status(ulyx_plan_get_segments(
                          f.plans[2], 0, 1, 32, size, &newer->known, &other),
            ULYX_ERR_INVALID_ARGUMENT);
    assert_memory_equal(&newer[0].known, &untouched, sizeof(untouched));
    assert_status(ulyx_plan_get_segments(f.plans[2], 0, 1, 32, sizeof(*newer),
                      &newer->known, &other),
        ULYX_SUCCESS);
    assert_true(count == other && count > 1);
    for (int64_t i = 0; i < count; i++) {
        assert_memory_equal(&newer[i].known, &ours[i], sizeof(*ours));
        assert_true(newer[i].later[0] == 0 && newer[i].later[1] == 0);
    }
    fixture_destroy(&f);
}

static void
words_and_bytes(void **state)
{
    (void)state;
    char text[2048], small[16], least[4], needs[32];
    int64_t bytes;
    struct fixture f;
    fixture_create(&f, ULYX_TOKENS_CONTIGUOUS, ULYX_WORK_HEADS, 0);
    assert_status(
        ulyx_plan_describe(f.plans[1], text, sizeof(text)), ULYX_SUCCESS);
    assert_non_null(strstr(text, "reshuffle direct"));
    assert_non_null(strstr(text, "rank 1 of 4"));
    assert_non_null(strstr(text, "head_to_seq_adjoint"));
    assert_null(strchr(text, '\n'));
    assert_status(
        ulyx_plan_describe(f.plans[1], small, sizeof(small)), ULYX_SUCCESS);
    snprintf(needs, sizeof(needs), "... (needs %zu)", strlen(text) + 1);
    assert_int_equal(strlen(small), 15);
    assert_string_equal(small + 15 - strlen(needs), needs);
    assert_status(
        ulyx_plan_describe(f.plans[1], least, sizeof(least)), ULYX_SUCCESS);
    assert_string_equal(least, "...");
    assert_status(ulyx_plan_get_memory(f.plans[1], &bytes), ULYX_SUCCESS);
    assert_true(bytes > 1000 && bytes < 8 << 20);
    fixture_destroy(&f);
}

static void
bad_indices(void **state)
{
    (void)state;
    int64_t a, b;
    int32_t packed;
    ulyx_segment_t segment;
    struct fixture f;
    fixture_create(&f, ULYX_TOKENS_CONTIGUOUS, ULYX_WORK_HEADS, 0);
    ulyx_plan_t *plan = f.plans[0];
    ulyx_status_t bad = ULYX_ERR_INVALID_ARGUMENT;
    assert_status(ulyx_plan_get_seq_rows(plan, 1, 0, &a), bad);
    assert_status(ulyx_plan_get_seq_rows(plan, 0, 4, &a), bad);
    assert_status(ulyx_plan_get_seq_rows(NULL, 0, 0, &a), bad);
    assert_status(ulyx_plan_get_seq_rows(plan, 0, 0, NULL), bad);
    assert_status(ulyx_plan_get_heads(plan, 3, 0, &a, &b), bad);
    assert_status(ulyx_plan_get_heads(plan, -1, 0, &a, &b), bad);
    assert_status(ulyx_plan_get_packed_rows(plan, 0, -1, &packed, &a), bad);
    assert_status(
        ulyx_plan_get_segments(plan, 0, 0, 1, sizeof(segment), &segment, &a),
        bad);
    assert_status(ulyx_plan_get_kv_map(plan, 1, 0, 8, &a, &b), bad);
    assert_status(ulyx_plan_get_extent(plan, 0, 4, 0, &a), bad);
    assert_status(ulyx_plan_get_extent(plan, 0, 0, -1, &a), bad);
    assert_status(ulyx_plan_get_extent(plan, 0, 0, 2, &a), bad);
    assert_string_equal(ulyx_last_error(), "side is 2, must be 0 to 1");
    assert_status(ulyx_plan_describe(plan, NULL, 10), bad);
    assert_status(
        ulyx_plan_update(plan, NULL, NULL, NULL), ULYX_ERR_UNSUPPORTED);
    fixture_destroy(&f);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(heads_and_rows),
    cmocka_unit_test(positions_of_zigzag),
    cmocka_unit_test(partials_and_extents),
    cmocka_unit_test(traffic_is_what_moves),
    cmocka_unit_test(segments_of_a_packed_plan),
    cmocka_unit_test(segments_of_other_versions),
    cmocka_unit_test(words_and_bytes),
    cmocka_unit_test(bad_indices),
};

ULI_TEST_MAIN("ReshuffleQuery", tests)
