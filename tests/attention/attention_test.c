/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls: what they refuse (with outputs untouched), flags of
 * pieces, accumulation, repetition, and sizes that overflowed elsewhere.
 */
#include "support/test.h"
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "support/random.h"
#include "ulyx/attention.h"

#define FORWARD  ULYX_ATTENTION_PASS_FORWARD
#define BACKWARD ULYX_ATTENTION_PASS_BACKWARD

enum { Q, K, V, OUT, LSE, DOUT, DQ, DK, DV, TENSORS };

/* A dense fp32 [b][h][s][d] problem with everything that both passes take. */
struct bench {
    ulyx_attention_t problem;
    ulyx_attention_tensor_t t[TENSORS];
    float *data[TENSORS];
    int64_t floats[TENSORS];
    ulyx_attention_forward_t forward;
    ulyx_attention_backward_t backward;
    ulyx_attention_exec_t exec;
    void *workspace;
    int64_t bytes;
};

static void
set_tensor(struct bench *b, int n)
{
    const ulyx_attention_t *p = &b->problem;
    ulyx_attention_tensor_t init = ULYX_ATTENTION_TENSOR_INIT;
    bool keys = n == K || n == V || n == DK || n == DV;
    bool wide = n == V || n == OUT || n == DOUT || n == DV;
    int64_t columns = n == LSE ? 1 : wide ? p->dim_v : p->dim_qk;
    int64_t rows = keys ? p->len_k : p->len_q;
    int64_t heads = keys ? p->heads_kv : p->heads_q;
    b->t[n] = init;
    b->floats[n] = p->batch * heads * rows * columns;
    b->data[n] = calloc((size_t)b->floats[n] + 1, 4);
    b->t[n].base = b->data[n];
    b->t[n].row_stride = 4 * columns;
    b->t[n].head_stride = b->t[n].row_stride * rows;
    b->t[n].batch_stride = b->t[n].head_stride * heads;
}

static void
bench_init(struct bench *b, int64_t batch, int64_t heads, int64_t heads_kv,
    int64_t len, int64_t dim)
{
    struct test_random random = {11};
    ulyx_attention_t problem = ULYX_ATTENTION_INIT;
    ulyx_attention_forward_t forward = ULYX_ATTENTION_FORWARD_INIT;
    ulyx_attention_backward_t backward = ULYX_ATTENTION_BACKWARD_INIT;
    ulyx_attention_exec_t exec = ULYX_ATTENTION_EXEC_INIT;
    memset(b, 0, sizeof(*b));
    b->problem = problem;
    b->problem.dtype = ULYX_DTYPE_F32;
    b->problem.batch = batch;
    b->problem.heads_q = heads, b->problem.heads_kv = heads_kv;
    b->problem.len_q = b->problem.len_k = len;
    b->problem.dim_qk = b->problem.dim_v = dim;
    for (int n = 0; n < TENSORS; n++) {
        set_tensor(b, n);
        for (int64_t i = 0; i < b->floats[n]; i++)
            b->data[n][i] = (float)test_random_normal(&random);
    }
    b->forward = forward, b->backward = backward, b->exec = exec;
    b->forward.q = b->backward.q = &b->t[Q];
    b->forward.k = b->backward.k = &b->t[K];
    b->forward.v = b->backward.v = &b->t[V];
    b->forward.out = b->backward.out = &b->t[OUT];
    b->forward.lse = b->backward.lse = &b->t[LSE];
    b->backward.dout = &b->t[DOUT];
    b->backward.dq = &b->t[DQ];
    b->backward.dk = &b->t[DK];
    b->backward.dv = &b->t[DV];
    b->bytes = 64 << 20;
    b->workspace = aligned_alloc(64, (size_t)b->bytes);
}

static void
bench_free(struct bench *b)
{
    for (int n = 0; n < TENSORS; n++)
        free(b->data[n]);
    free(b->workspace);
}

static ulyx_status_t
forward(struct bench *b)
{
    return ulyx_attention_forward(
        &b->problem, &b->forward, &b->exec, b->workspace, b->bytes, NULL);
}

static ulyx_status_t
backward(struct bench *b)
{
    return ulyx_attention_backward(
        &b->problem, &b->backward, &b->exec, b->workspace, b->bytes, NULL);
}

/* The call is refused with the status and the outputs keep their bytes; the
 * text of the error holds `word`. */
static void
refused(struct bench *b, ulyx_status_t expected, const char *word)
{
    size_t bytes = (size_t)b->floats[OUT] * 4;
    float *before = malloc(bytes + 1);
    memcpy(before, b->data[OUT], bytes);
    assert_status(forward(b), expected);
    if (!strstr(ulyx_last_error(), word))
        fail_msg("'%s' does not name %s", ulyx_last_error(), word);
    assert_memory_equal(before, b->data[OUT], bytes);
    free(before);
}

static void
problem_bad_fields_are_refused(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, 2, 1, 16, 8);
    const ulyx_attention_t good = b.problem;
    const ulyx_status_t invalid = ULYX_ERR_INVALID_ARGUMENT;
#define REFUSED(field, value, status, word)                                    \
    b.problem = good;                                                          \
    b.problem.field = value;                                                   \
    refused(&b, status, word)
    REFUSED(dropout, 0.1, ULYX_ERR_UNSUPPORTED, "dropout");
    REFUSED(dim_qk, 12, ULYX_ERR_UNSUPPORTED, "dim_qk 12");
    REFUSED(dim_v, 520, ULYX_ERR_UNSUPPORTED, "dim_v 520");
    REFUSED(dtype, ULYX_DTYPE_F8_E4M3, ULYX_ERR_UNSUPPORTED, "dtype");
    REFUSED(scale, -1, invalid, "scale");
    REFUSED(scale, NAN, invalid, "scale");
    REFUSED(scale, INFINITY, invalid, "scale");
    REFUSED(softcap, -2, invalid, "softcap");
    REFUSED(heads_kv, 0, invalid, "heads_kv");
    REFUSED(batch, -1, invalid, "batch");
    REFUSED(mask, 7, invalid, "mask");
    REFUSED(align, 2, invalid, "align");
    REFUSED(docs_k, (const ulyx_docs_t *)&(ulyx_docs_t)ULYX_DOCS_INIT, invalid,
        "docs_k");
    REFUSED(len_q, INT64_MAX / 2, ULYX_ERR_OVERFLOW, "64 bits");
    b.problem = good;
    b.problem.heads_q = 3, b.problem.heads_kv = 2;
    refused(&b, invalid, "multiple");
    b.problem = good;
    b.problem.mask = ULYX_MASK_WINDOW, b.problem.window_left = -1;
    refused(&b, invalid, "window");
    const int64_t map[2] = {0, 1};
    REFUSED(kv_map, map, invalid, "kv_map[1]");
    const float sinks[2] = {0, 0};
    REFUSED(sinks, sinks, invalid, "global head");
    b.problem = good;
    b.exec.kernel = "none such";
    refused(&b, ULYX_ERR_UNSUPPORTED, "none such");
    b.exec.kernel = NULL;
    b.exec.memory = ULYX_MEMORY_CUDA;
    refused(&b, ULYX_ERR_UNSUPPORTED, "memory kind");
    bench_free(&b);
#undef REFUSED
}

static void
tensors_bad_layouts_are_refused(void **state)
{
    (void)state;
    struct bench b;
    const ulyx_status_t invalid = ULYX_ERR_INVALID_ARGUMENT;
    bench_init(&b, 2, 2, 1, 16, 8);
    const ulyx_attention_tensor_t out = b.t[OUT], q = b.t[Q];
    b.t[OUT].base = (char *)out.base + 2;
    refused(&b, invalid, "out: base or a stride");
    b.t[OUT] = out;
    b.t[OUT].row_stride = 30;
    refused(&b, invalid, "out: base or a stride");
    b.t[OUT] = out;
    b.t[OUT].base = (char *)q.base + 64;
    refused(&b, invalid, "out overlaps q");
    b.t[OUT] = out;
    b.t[OUT].row_stride = 16;
    refused(&b, invalid, "out overlaps itself");
    b.t[OUT] = out;
    b.t[OUT].batch_stride = 0;
    refused(&b, invalid, "out overlaps itself");
    b.t[OUT] = out;
    b.t[OUT].base = NULL;
    refused(&b, invalid, "NULL");
    b.t[OUT] = out;
    b.t[Q].dtype = ULYX_DTYPE_BF16;
    refused(&b, ULYX_ERR_UNSUPPORTED, "q: dtype");
    b.t[Q] = q;
    b.t[Q].row_stride = INT64_MAX / 4 * 4;
    refused(&b, ULYX_ERR_OVERFLOW, "q:");
    b.t[Q] = q;
    b.forward.v = NULL;
    refused(&b, invalid, "v: tensor is NULL");
    b.forward.v = &b.t[V];
    b.bytes = 8;
    refused(&b, invalid, "workspace of 8 bytes");
    b.bytes = 64 << 20;
    b.t[Q].batch_stride = b.t[Q].head_stride = b.t[Q].row_stride = 0;
    assert_status(forward(&b), ULYX_SUCCESS); /* inputs may repeat rows */
    bench_free(&b);
}

static void
documents_bad_tables_are_refused(void **state)
{
    (void)state;
    struct bench b;
    ulyx_docs_t docs = ULYX_DOCS_INIT;
    bench_init(&b, 2, 1, 1, 16, 8);
    static const int64_t tables[][4] = {{0, 8, 4, 16}, {0, 8, 16, 33},
        {0, 8, 20, 32}, {-1, 8, 16, 32}, {0, 16, 15, 16}};
    docs.count = 3;
    b.problem.docs_q = &docs;
    for (int n = 0; n < 5; n++) {
        docs.begin = tables[n];
        refused(&b, ULYX_ERR_INVALID_ARGUMENT, "docs_q: document");
    }
    static const int64_t good[4] = {0, 8, 16, 32};
    docs.begin = good;
    docs.index_bytes = 2;
    refused(&b, ULYX_ERR_INVALID_ARGUMENT, "index_bytes");
    docs.index_bytes = 8;
    b.problem.max_docs = 2;
    refused(&b, ULYX_ERR_INVALID_ARGUMENT, "max_docs");
    b.problem.max_docs = 100;
    assert_status(forward(&b), ULYX_SUCCESS);
    bench_free(&b);
}

static void
segments_bad_lists_are_refused(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, 2, 1, 16, 8);
    ulyx_segment_t q[2] = {{0, 0, 4, 16, 0}, {1, 0, 0, 6, 12 * 32}};
    ulyx_segment_t k[1] = {{0, 0, 0, 16, 0}};
    b.problem.mask = ULYX_MASK_CAUSAL;
    b.problem.q_segments = q, b.problem.k_segments = k;
    b.problem.q_segment_count = 2, b.problem.k_segment_count = 1;
    assert_status(forward(&b), ULYX_SUCCESS);
    k[0].row_end = 15;
    refused(&b, ULYX_ERR_INVALID_ARGUMENT, "lacks some of the keys");
    k[0].row_end = 16;
    q[1].offset = 11 * 32;
    refused(&b, ULYX_ERR_INVALID_ARGUMENT, "does not follow");
    q[1].offset = 12 * 32 + 4;
    refused(&b, ULYX_ERR_INVALID_ARGUMENT, "out of range");
    q[1].offset = 12 * 32;
    q[1].row_end = 17;
    refused(&b, ULYX_ERR_INVALID_ARGUMENT, "out of range");
    q[1].row_end = 6;
    b.problem.k_segments = NULL;
    refused(&b, ULYX_ERR_INVALID_ARGUMENT, "one side");
    bench_free(&b);
}

static void
structs_of_other_versions(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, 1, 1, 8, 8);
    struct {
        ulyx_attention_t known;
        int64_t later;
    } longer = {b.problem, 0};
    longer.known.size = sizeof(longer);
    assert_status(ulyx_attention_forward(&longer.known, &b.forward, &b.exec,
                      b.workspace, b.bytes, NULL),
        ULYX_SUCCESS);
    longer.later = 1;
    assert_status(ulyx_attention_forward(&longer.known, &b.forward, &b.exec,
                      b.workspace, b.bytes, NULL),
        ULYX_ERR_UNSUPPORTED);
    b.problem.size = 2;
    assert_status(forward(&b), ULYX_ERR_INVALID_ARGUMENT);
    assert_status(ulyx_attention_forward(
                      NULL, &b.forward, NULL, b.workspace, b.bytes, NULL),
        ULYX_ERR_INVALID_ARGUMENT);
    bench_free(&b);
}

static void
describe_names_the_kernel(void **state)
{
    (void)state;
    struct bench b;
    char text[200] = "";
    bench_init(&b, 1, 1, 1, 8, 8);
    b.exec.kernel = "portable";
    assert_status(ulyx_attention_describe(
                      &b.problem, BACKWARD, &b.exec, text, sizeof(text)),
        ULYX_SUCCESS);
    assert_non_null(strstr(text, "portable"));
    assert_null(strchr(text, '\n'));
    bench_free(&b);
}

/* ---- pieces that arrive ----------------------------------------------------
 */

static void *
set_flag(void *flag)
{
    usleep(20000);
    __atomic_store_n((uint64_t *)flag, 9, __ATOMIC_RELEASE);
    return NULL;
}

static void
pieces_wait_and_time_out(void **state)
{
    (void)state;
    struct bench b;
    uint64_t flag = 0;
    pthread_t thread;
    bench_init(&b, 1, 1, 1, 16, 8);
    ulyx_attention_piece_t pieces[2] = {
        {.rows = 10, .base = b.data[K]}, {.row_begin = 10,
                                             .rows = 6,
                                             .base = b.data[K] + 10 * 8,
                                             .flag = &flag,
                                             .flag_value = 9}};
    b.t[K].pieces = pieces;
    b.t[K].piece_count = 2;
    b.t[K].piece_size = sizeof(pieces[0]);
    b.exec.timeout_s = 0.05;
    assert_status(forward(&b), ULYX_ERR_TIMEOUT);
    b.exec.timeout_s = 30;
    assert_int_equal(pthread_create(&thread, NULL, set_flag, &flag), 0);
    assert_status(forward(&b), ULYX_SUCCESS);
    pthread_join(thread, NULL);
    pieces[1].row_begin = 11;
    refused(&b, ULYX_ERR_INVALID_ARGUMENT, "k: piece 1");
    bench_free(&b);
}

/* ---- sums that go on --------------------------------------------------------
 */

static void
accumulate_goes_on_bit_for_bit(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, 4, 1, 150, 64);
    assert_status(forward(&b), ULYX_SUCCESS);
    assert_status(backward(&b), ULYX_SUCCESS);
    size_t bytes = (size_t)b.floats[DK] * 4;
    float *dk = malloc(bytes), *dv = malloc(bytes);
    memcpy(dk, b.data[DK], bytes);
    memcpy(dv, b.data[DV], bytes);
    memset(b.data[DK], 0, bytes);
    memset(b.data[DV], 0, bytes);
    b.problem.heads_q = 2;
    b.backward.flags = ULYX_ATTENTION_ACCUMULATE;
    for (int part = 0; part < 2; part++) {
        for (int n = 0; n < TENSORS; n++)
            if (n != K && n != V && n != DK && n != DV)
                b.t[n].base = (char *)b.data[n] + 2 * part * b.t[n].head_stride;
        assert_status(backward(&b), ULYX_SUCCESS);
    }
    assert_memory_equal(dk, b.data[DK], bytes);
    assert_memory_equal(dv, b.data[DV], bytes);
    free(dk);
    free(dv);
    bench_free(&b);
}

static void
backward_repeats_bit_for_bit(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, 3, 1, 300, 64);
    b.problem.mask = ULYX_MASK_CAUSAL;
    b.exec.deterministic = 1;
    assert_status(forward(&b), ULYX_SUCCESS);
    float *first[3] = {NULL, NULL, NULL};
    for (int n = 0; n < 200; n++) {
        b.exec.threads = 1 + n % 4;
        for (int t = DQ; t <= DV; t++)
            memset(b.data[t], 0xFF, (size_t)b.floats[t] * 4);
        assert_status(backward(&b), ULYX_SUCCESS);
        for (int t = DQ; t <= DV; t++) {
            size_t bytes = (size_t)b.floats[t] * 4;
            if (n == 0) {
                first[t - DQ] = malloc(bytes);
                memcpy(first[t - DQ], b.data[t], bytes);
            }
            assert_memory_equal(first[t - DQ], b.data[t], bytes);
        }
    }
    for (int t = 0; t < 3; t++)
        free(first[t]);
    bench_free(&b);
}

/* ---- sizes ------------------------------------------------------------------
 */

static void
empty_problems_succeed(void **state)
{
    (void)state;
    const int64_t sizes[][4] = {
        {0, 2, 2, 8}, {1, 0, 0, 8}, {1, 2, 2, 0}, {1, 0, 2, 8}};
    for (int n = 0; n < 4; n++) {
        struct bench b;
        bench_init(&b, sizes[n][0], sizes[n][1], sizes[n][2], sizes[n][3], 8);
        assert_status(forward(&b), ULYX_SUCCESS);
        assert_status(backward(&b), ULYX_SUCCESS);
        for (int64_t i = 0; i < b.floats[DK]; i++)
            assert_true(b.data[DK][i] == 0 || b.problem.heads_q);
        bench_free(&b);
    }
}

static void
rows_without_keys_are_zero(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, 1, 1, 40, 8);
    b.problem.len_k = 0;
    assert_status(forward(&b), ULYX_SUCCESS);
    assert_status(backward(&b), ULYX_SUCCESS);
    for (int64_t i = 0; i < b.floats[OUT]; i++)
        assert_true(b.data[OUT][i] == 0 && b.data[DQ][i] == 0);
    for (int64_t i = 0; i < b.floats[LSE]; i++)
        assert_true(b.data[LSE][i] == -INFINITY);
    bench_free(&b);
}

/* b * h of 70,000, where grids of 65,535 blocks ended. */
static void
many_batch_items(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 35000, 2, 1, 2, 8);
    b.problem.mask = ULYX_MASK_CAUSAL;
    int64_t needed;
    assert_status(
        ulyx_attention_workspace(&b.problem, BACKWARD, &b.exec, &needed),
        ULYX_SUCCESS);
    assert_true(needed <= b.bytes);
    assert_status(forward(&b), ULYX_SUCCESS);
    assert_status(backward(&b), ULYX_SUCCESS);
    /* row 0 sees its own key only, so it returns that key's value */
    for (int64_t i = 0; i < 35000; i++)
        for (int64_t n = 0; n < 16; n++) {
            float out = b.data[OUT][(i * 2 + n / 8) * 16 + n % 8];
            float value = b.data[V][i * 16 + n % 8];
            assert_true(fabsf(out - value) <= 1e-6f * fabsf(value));
        }
    bench_free(&b);
}

/* Tensors of 2^33 bytes and more by strides over reserved address space of
 * which only the rows' pages are touched. */
static void
strides_beyond_32_bits(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 2, 1, 1, 3, 8);
    const int64_t row = (int64_t)3 << 30, item = 4 * row;
    char *space = mmap(NULL, (size_t)(2 * item), PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
        skip();
    assert_status(forward(&b), ULYX_SUCCESS);
    for (int n = 0; n < 4; n++) {
        if (n < OUT)
            for (int r = 0; r < 6; r++)
                memcpy(space + r / 3 * item + r % 3 * row + n * 4096,
                    b.data[n] + r * 8, 32);
        b.t[n].base = space + n * 4096;
        b.t[n].batch_stride = item;
        b.t[n].row_stride = row;
    }
    assert_status(forward(&b), ULYX_SUCCESS);
    for (int r = 0; r < 6; r++)
        assert_memory_equal(space + r / 3 * item + r % 3 * row + OUT * 4096,
            b.data[OUT] + r * 8, 32);
    munmap(space, (size_t)(2 * item));
    bench_free(&b);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(problem_bad_fields_are_refused),
    cmocka_unit_test(tensors_bad_layouts_are_refused),
    cmocka_unit_test(documents_bad_tables_are_refused),
    cmocka_unit_test(segments_bad_lists_are_refused),
    cmocka_unit_test(structs_of_other_versions),
    cmocka_unit_test(describe_names_the_kernel),
    cmocka_unit_test(pieces_wait_and_time_out),
    cmocka_unit_test(accumulate_goes_on_bit_for_bit),
    cmocka_unit_test(backward_repeats_bit_for_bit),
    cmocka_unit_test(empty_problems_succeed),
    cmocka_unit_test(rows_without_keys_are_zero),
    cmocka_unit_test(many_batch_items),
    cmocka_unit_test(strides_beyond_32_bits),
};

ULI_TEST_MAIN("Attention", tests)
