/* SPDX-License-Identifier: Apache-2.0
 *
 * The limits of what the public calls accept: sizes and tables at the ends of
 * 64 bits, arrays that are misaligned or lie in a tensor, parameters at the
 * ends of a float, NaN in a key that a row attends to, and layouts that only
 * seem to overlap.
 */
#include "support/test.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "attention/setup.h"

#define INVALID  ULYX_ERR_INVALID_ARGUMENT
#define OVERFLOW ULYX_ERR_OVERFLOW

static const char *const kernels[] = {
    "amx", "avx512-bf16", "avx512", "avx2", "portable", "reference"};
#define KERNELS (int)(sizeof(kernels) / sizeof(kernels[0]))

/* ---- 64 bits ------------------------------------------------------------- */

static void
empty_sizes_do_not_hide_bad_sizes(void **state)
{
    (void)state;
    struct bench b;
    const int64_t huge = INT64_MAX / 2;
    bench_init(&b, 1, 2, 1, 16, 8);
    b.problem.batch = 0, b.problem.heads_q = huge - 1;
    refused(&b, OVERFLOW, "64 bits");
    b.problem.heads_q = 2, b.problem.batch = huge;
    b.problem.len_q = b.problem.len_k = 0;
    refused(&b, OVERFLOW, "64 bits");
    b.problem.batch = 1;
    b.problem.max_docs = INT64_MAX;
    refused(&b, OVERFLOW, "max_docs");
    b.problem.max_docs = -1;
    refused(&b, INVALID, "max_docs");
    bench_free(&b);
}

static void
segments_at_the_end_of_64_bits(void **state)
{
    (void)state;
    struct bench b;
    int64_t bytes = -7;
    bench_init(&b, 1, 2, 1, 16, 8);
    ulyx_segment_t q[3] = {{0, 0, 0, INT64_MAX, 0}, {0, 0, 0, INT64_MAX, 0},
        {1, 0, INT64_MIN, INT64_MAX, 0}};
    ulyx_segment_t k[1] = {{0, 0, 0, 16, 0}};
    b.problem.q_segments = q, b.problem.k_segments = k;
    b.problem.q_segment_count = 3, b.problem.k_segment_count = 1;
    refused(&b, INVALID, "query rows, the tensor has");
    assert_status(
        ulyx_attention_workspace(&b.problem, FORWARD, &b.exec, &bytes),
        INVALID);
    assert_int_equal(bytes, -7);
    /* Offsets are nearly 2^63 bytes. The first segment has 16 rows of 4 bytes,
     * and the second begins 16 bytes after it. */
    q[0].row_end = 16, q[0].offset = INT64_MAX / 4 * 4 - 16;
    q[1] = q[2] = (ulyx_segment_t){1, 0, 0, 1, INT64_MAX / 4 * 4};
    b.problem.q_segment_count = 2;
    b.t[Q].row_stride = 4;
    refused(&b, INVALID, "does not follow");
    b.problem.q_segment_count = 1;
    refused(&b, OVERFLOW, "q: the tensor's end");
    b.problem.q_segments = (const void *)((char *)q + 4);
    refused(&b, INVALID, "q_segments: array is not aligned");
    bench_free(&b);
}

/* The number of threads is bounded before it is multiplied by anything. */
static void
any_thread_count_is_taken(void **state)
{
    (void)state;
    struct bench b;
    int64_t least, most;
    bench_init(&b, 1, 2, 1, 16, 8);
    b.exec.threads = 256;
    assert_status(
        ulyx_attention_workspace(&b.problem, BACKWARD, &b.exec, &least),
        ULYX_SUCCESS);
    b.exec.threads = INT32_MAX;
    assert_status(
        ulyx_attention_workspace(&b.problem, BACKWARD, &b.exec, &most),
        ULYX_SUCCESS);
    assert_int_equal(least, most);
    b.bytes = 64;
    refused(&b, INVALID, "workspace of 64 bytes");
    b.exec.threads = -1;
    refused(&b, INVALID, "threads is -1");
    bench_free(&b);
}

/* The bytes that the query returns are enough. One byte less than those of one
 * thread is not. */
static void
workspace_is_exact(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, 2, 1, 300, 64);
    b.problem.mask = ULYX_MASK_CAUSAL;
    b.exec.threads = 1;
    for (int k = 0; k < KERNELS; k++) {
        b.exec.kernel = kernels[k];
        int64_t bytes;
        if (ulyx_attention_workspace(&b.problem, BACKWARD, &b.exec, &bytes))
            continue;
        unsigned char *guarded = aligned_alloc(64, (size_t)bytes + 64);
        unsigned char *own = b.workspace;
        memset(guarded, 0xFF, (size_t)bytes + 64);
        b.workspace = (void *)guarded, b.bytes = bytes;
        assert_status(backward(&b), ULYX_SUCCESS);
        for (int n = 0; n < 64; n++)
            assert_int_equal(guarded[bytes + n], 0xFF);
        b.bytes = bytes - 1;
        assert_status(backward(&b), INVALID);
        b.workspace = (void *)own;
        free(guarded);
    }
    bench_free(&b);
}

/* ---- arrays -------------------------------------------------------------- */

static void
arrays_of_numbers_are_checked(void **state)
{
    (void)state;
    struct bench b;
    float room[16] = {0};
    bench_init(&b, 1, 2, 1, 16, 8);
    b.problem.heads_global = 2;
#define ODD(field)                                                             \
    b.problem.field = (const void *)((const char *)room + 2);                  \
    refused(&b, INVALID, #field ": array is not aligned");                     \
    b.problem.field = NULL
    ODD(kv_map);
    ODD(head_ids);
    ODD(sinks);
    ODD(alibi_slopes);
#undef ODD
    ulyx_docs_t docs = ULYX_DOCS_INIT;
    docs.count = 1, docs.index_bytes = 4, docs.begin = (const char *)room + 2;
    b.problem.docs_q = &docs;
    refused(&b, INVALID, "docs_q: array is not aligned");
    b.problem.docs_q = NULL;
    b.forward.max_logit = (char *)room + 2;
    refused(&b, INVALID, "max_logit: address is not a multiple of 4");
    b.forward.max_logit = b.data[Q] + 15 * 8 + 7;
    refused(&b, INVALID, "max_logit overlaps q");
    b.forward.max_logit = NULL;
    void *workspace = b.workspace;
    b.workspace = (void *)((uintptr_t)b.data[OUT] / 64 * 64);
    refused(&b, INVALID, "workspace overlaps");
    b.workspace = workspace;
    b.problem.sinks = room;
    b.backward.d_sink = b.data[DK] + 3;
    assert_status(forward(&b), ULYX_SUCCESS);
    assert_status(backward(&b), INVALID);
    assert_non_null(strstr(ulyx_last_error(), "d_sink overlaps dk"));
    b.backward.d_sink = room + 8;
    assert_status(backward(&b), ULYX_SUCCESS);
    bench_free(&b);
}

/* Gradients of packed [b, s, 3, h, d], with so many heads and batch items that
 * not all pairs can be compared. After a shift by one row of d they do
 * overlap. */
static void
packed_gradients_of_many_heads(void **state)
{
    (void)state;
    struct bench b;
    const int64_t heads = 200, batch = 120, row = 3 * heads * 8 * 4;
    bench_init(&b, batch, heads, heads, 1, 8);
    float *packed = calloc((size_t)(batch * row + 32) / 4, 4);
    for (int n = 0; n < 3; n++) {
        ulyx_attention_tensor_t *t = &b.t[DQ + n];
        t->base = packed + n * heads * 8;
        t->batch_stride = t->row_stride = row;
        t->head_stride = 32;
    }
    assert_status(forward(&b), ULYX_SUCCESS);
    assert_status(backward(&b), ULYX_SUCCESS);
    b.t[DQ].base = packed + 8;
    assert_status(backward(&b), INVALID);
    assert_non_null(strstr(ulyx_last_error(), "dq overlaps dk"));
    free(packed);
    bench_free(&b);
}

/* The pieces are rows [0, 3) and [3, 20) of one dense output of two batch
 * items. If the second piece is moved up by one row, the two share a row. */
static void
output_pieces_of_one_tensor(void **state)
{
    (void)state;
    struct bench b;
    uint64_t flags[2] = {0, 0};
    bench_init(&b, 2, 2, 1, 20, 8);
    assert_status(forward(&b), ULYX_SUCCESS);
    float *out = calloc((size_t)b.floats[OUT], 4);
    ulyx_attention_piece_t pieces[2] = {
        {.rows = 3, .base = out, .flag = &flags[0], .flag_value = 5},
        {.row_begin = 3,
            .rows = 17,
            .base = out + 3 * 8,
            .flag = &flags[1],
            .flag_value = 6}};
    b.t[OUT].pieces = pieces;
    b.t[OUT].piece_count = 2, b.t[OUT].piece_size = sizeof(pieces[0]);
    assert_status(forward(&b), ULYX_SUCCESS);
    assert_memory_equal(out, b.data[OUT], (size_t)b.floats[OUT] * 4);
    assert_int_equal(flags[0], 5);
    assert_int_equal(flags[1], 6);
    pieces[1].base = out + 2 * 8;
    refused(&b, INVALID, "out overlaps out");
    free(out);
    bench_free(&b);
}

/* An array in the holes of a strided tensor does not overlap the tensor. */
static void
arrays_may_lie_between_rows(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, 2, 2, 4, 8);
    float *room = calloc(1024, 4);
    b.t[OUT].base = room + 8 + 4 * 64;
    b.t[OUT].row_stride = -64 * 4, b.t[OUT].head_stride = 16 * 4;
    b.forward.max_logit = room + 2 * 64;
    room[2 * 64] = -7;
    assert_status(forward(&b), ULYX_SUCCESS);
    assert_true(room[2 * 64] > -7);
    b.forward.max_logit = room + 2 * 64 + 7;
    assert_status(forward(&b), INVALID);
    free(room);
    bench_free(&b);
}

/* ---- numbers ------------------------------------------------------------- */

/* A row whose only keys have NaN, or which has NaN itself, must not be treated
 * as a row without keys. */
static void
visible_nan_reaches_its_rows(void **state)
{
    (void)state;
    for (int k = 0; k < KERNELS; k++) {
        for (int q = 0; q < 2; q++) {
            struct bench b;
            bench_init(&b, 1, 1, 1, 40, 64);
            /* (0, 0): the row's own key only */
            b.problem.mask = ULYX_MASK_WINDOW;
            b.exec.kernel = kernels[k];
            b.data[q ? Q : K][5 * 64 + 1] = NAN;
            ulyx_status_t status = forward(&b);
            for (int64_t c = 0; status == ULYX_SUCCESS && c < 64; c++) {
                assert_true(isnan(b.data[OUT][5 * 64 + c]));
                assert_true(b.data[OUT][30 * 64 + c] == b.data[V][30 * 64 + c]);
            }
            assert_true(status != ULYX_SUCCESS || isnan(b.data[LSE][5]));
            bench_free(&b);
        }
    }
}

/* Compares out of every kernel with the reference's. */
static void
bench_agrees(struct bench *b, int k)
{
    struct bench r;
    int64_t len = b->problem.len_q;
    bench_init(&r, 1, 1, 1, len, 8);
    r.problem = b->problem;
    r.exec.kernel = "reference";
    for (int n = Q; n <= V; n++)
        memcpy(r.data[n], b->data[n], (size_t)r.floats[n] * 4);
    b->exec.kernel = kernels[k];
    ulyx_status_t status = forward(b);
    assert_status(forward(&r), ULYX_SUCCESS);
    for (int64_t n = 0; status == ULYX_SUCCESS && n < r.floats[OUT]; n++)
        if (!(fabsf(b->data[OUT][n] - r.data[OUT][n]) <= 1e-4f))
            fail_msg("%s: out[%d] is %g, not %g", kernels[k], (int)n,
                (double)b->data[OUT][n], (double)r.data[OUT][n]);
    bench_free(&r);
}

static void
parameters_at_the_ends_of_a_float(void **state)
{
    (void)state;
    static const double caps[] = {1e-300, 1e-45, 1e-38, 1e38, 1e300};
    static const double scales[] = {1e-300, 1e-45, 1e39, 1e300};
    for (int k = 0; k < KERNELS - 1; k++) {
        for (int n = 0; n < 5; n++) {
            struct bench b;
            bench_init(&b, 1, 1, 1, 20, 8);
            memset(b.data[Q], 0, 32); /* scores of exactly 0 */
            b.problem.softcap = caps[n];
            bench_agrees(&b, k);
            b.problem.softcap = 0;
            b.problem.scale = scales[n % 4];
            bench_agrees(&b, k);
            bench_free(&b);
        }
    }
}

/* Logits are 1e30, and values are subnormal. */
static void
data_at_the_ends_of_a_float(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct bench b;
        bench_init(&b, 1, 1, 1, 20, 8);
        for (int64_t n = 0; n < 160; n++)
            b.data[Q][n] *= 1e15f, b.data[K][n] *= 1e15f;
        bench_agrees(&b, k);
        for (int64_t n = 0; n < 160; n++)
            b.data[Q][n] *= 1e-38f, b.data[K][n] = -0.0f,
                                    b.data[V][n] *= 1e-39f;
        bench_agrees(&b, k);
        bench_free(&b);
    }
}

/* Logits are 1e7 to 1e30, where lse as a float is wrong by more than 1. p stays
 * at most 1, so dv is at most the sum of |dout|, and nothing is infinite. */
static void
gradients_of_huge_logits_are_bounded(void **state)
{
    (void)state;
    static const float gains[] = {3e3f, 1e5f, 1e10f, 1e15f};
    for (int k = 0; k < KERNELS; k++) {
        for (int g = 0; g < 4; g++) {
            struct bench b;
            double sum[8] = {0};
            bench_init(&b, 1, 1, 1, 150, 8);
            b.problem.mask = ULYX_MASK_CAUSAL;
            b.exec.kernel = kernels[k];
            for (int64_t n = 0; n < b.floats[Q]; n++) {
                b.data[Q][n] *= gains[g], b.data[K][n] *= gains[g];
                sum[n % 8] += fabs((double)b.data[DOUT][n]);
            }
            ulyx_status_t status = forward(&b);
            if (status == ULYX_SUCCESS)
                status = backward(&b);
            for (int64_t n = 0; !status && n < b.floats[DV]; n++) {
                assert_true(
                    fabsf(b.data[DV][n]) <= 1.0001f * (float)sum[n % 8]);
                assert_true(isfinite(b.data[DQ][n]));
                assert_true(isfinite(b.data[DK][n]));
            }
            bench_free(&b);
        }
    }
}

/* With a diagonal beyond all rows, every row attends to all keys or to none. */
static void
diagonals_beyond_all_rows(void **state)
{
    (void)state;
    static const int64_t far[] = {
        INT64_MAX, (int64_t)1 << 62, -((int64_t)1 << 62), INT64_MIN};
    for (int k = 0; k < KERNELS; k++) {
        struct bench plain;
        bench_init(&plain, 1, 1, 1, 20, 8);
        plain.exec.kernel = kernels[k];
        ulyx_status_t status = forward(&plain);
        for (int n = 0; n < 4 && status == ULYX_SUCCESS; n++) {
            struct bench b;
            bench_init(&b, 1, 1, 1, 20, 8);
            b.exec.kernel = kernels[k];
            b.problem.mask = ULYX_MASK_CAUSAL, b.problem.diagonal = far[n];
            assert_status(forward(&b), ULYX_SUCCESS);
            assert_status(backward(&b), ULYX_SUCCESS);
            for (int64_t i = 0; i < b.floats[OUT]; i++) {
                float want = far[n] > 0 ? plain.data[OUT][i] : 0;
                assert_true(b.data[OUT][i] == want);
                assert_true(far[n] > 0 || b.data[DK][i] == 0);
            }
            bench_free(&b);
        }
        bench_free(&plain);
    }
}

/* Tiles end with the document: for 4 rows, backward computes at most a register
 * block of queries with a panel of keys. */
static void
short_documents_are_short_work(void **state)
{
    (void)state;
    for (int k = 0; k < 4; k++) {
        struct bench b;
        int64_t scores = 0;
        bench_init(&b, 1, 1, 1, 4, 8);
        b.exec.kernel = kernels[k], b.exec.scores_p = &scores;
        if (forward(&b) == ULYX_SUCCESS) {
            assert_status(backward(&b), ULYX_SUCCESS);
            assert_in_range(scores, 16, 8 * 32);
        }
        bench_free(&b);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(empty_sizes_do_not_hide_bad_sizes),
    cmocka_unit_test(segments_at_the_end_of_64_bits),
    cmocka_unit_test(any_thread_count_is_taken),
    cmocka_unit_test(workspace_is_exact),
    cmocka_unit_test(arrays_of_numbers_are_checked),
    cmocka_unit_test(packed_gradients_of_many_heads),
    cmocka_unit_test(output_pieces_of_one_tensor),
    cmocka_unit_test(arrays_may_lie_between_rows),
    cmocka_unit_test(visible_nan_reaches_its_rows),
    cmocka_unit_test(parameters_at_the_ends_of_a_float),
    cmocka_unit_test(data_at_the_ends_of_a_float),
    cmocka_unit_test(gradients_of_huge_logits_are_bounded),
    cmocka_unit_test(diagonals_beyond_all_rows),
    cmocka_unit_test(short_documents_are_short_work),
};

ULI_TEST_MAIN("AttentionEdges", tests)
