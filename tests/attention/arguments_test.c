/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls that the public functions refuse, with `out` untouched; structs of
 * other versions; what describe and the list of kernels say.
 */
#include "support/test.h"
#include <math.h>
#include <stdio.h>
#include <string.h>
#include "attention/setup.h"

/* The problem has two query heads. Sinks and slopes, which are indexed by
 * global head, need heads_global and global indices below it. */
static void
global_heads_are_named_by_field(void **state)
{
    (void)state;
    struct bench b;
    bench_init(&b, 1, 2, 1, 16, 8);
    const float values[2] = {0, 0};
    const int64_t ids[2] = {0, 2};
    b.problem.sinks = values;
    refused(&b, ULYX_ERR_INVALID_ARGUMENT, "heads_global is 0, sinks has");
    b.problem.sinks = NULL;
    b.problem.alibi_slopes = values;
    refused(
        &b, ULYX_ERR_INVALID_ARGUMENT, "heads_global is 0, alibi_slopes has");
    b.problem.heads_global = 2;
    b.problem.head_offset = 1;
    refused(&b, ULYX_ERR_INVALID_ARGUMENT,
        "heads_global is 2, must be at least head_offset (1) + heads_q (2)");
    b.problem.head_offset = -1;
    refused(&b, ULYX_ERR_INVALID_ARGUMENT, "head_offset is -1");
    b.problem.head_ids = ids;
    refused(&b, ULYX_ERR_INVALID_ARGUMENT,
        "head_ids[1] is 2, must be 0 or more and less than heads_global (2)");
    bench_free(&b);
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
    REFUSED(dim_qk, 0, ULYX_ERR_UNSUPPORTED, "dim_qk is 0");
    REFUSED(dim_qk, -8, ULYX_ERR_UNSUPPORTED, "dim_qk is -8");
    REFUSED(dim_v, 520, ULYX_ERR_UNSUPPORTED, "dim_v is 520");
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
    REFUSED(kv_map, map, invalid,
        "kv_map[1] is 1, must be 0 or more and less than heads_kv (1)");
    b.problem = good;
    b.exec.kernel = "none such";
    refused(&b, ULYX_ERR_UNSUPPORTED, "none such");
    refused(&b, ULYX_ERR_UNSUPPORTED, "portable, reference");
    b.exec.kernel = NULL;
    uint64_t cause = 0;
    b.exec.memory = 7;
    refused(&b, ULYX_ERR_INVALID_ARGUMENT, "memory kind is 7");
    b.exec.memory = ULYX_MEMORY_HOST;
    b.exec.cause = &cause;
    refused(&b, ULYX_ERR_INVALID_ARGUMENT, "cause");
    b.exec.cause = NULL;
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
    /* rows of inputs may be the same memory */
    assert_status(forward(&b), ULYX_SUCCESS);
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
    b.t[Q].row_stride = 0;
    refused(&b, ULYX_ERR_INVALID_ARGUMENT,
        "row_stride is 0, must be at least 1 with segments");
    b.t[Q].row_stride = 32;
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
    char text[1000] = "";
    bench_init(&b, 1, 1, 1, 8, 8);
    b.exec.kernel = "portable";
    assert_status(ulyx_attention_describe(
                      &b.problem, BACKWARD, &b.exec, text, sizeof(text)),
        ULYX_SUCCESS);
    assert_non_null(strstr(text, "portable"));
    assert_null(strchr(text, '\n'));
    /* the kernel was requested, so no other was tried */
    assert_null(strstr(text, "; not "));
    char needs[32], cut[40];
    snprintf(needs, sizeof(needs), "... (needs %zu)", strlen(text) + 1);
    assert_status(ulyx_attention_describe(
                      &b.problem, BACKWARD, &b.exec, cut, sizeof(cut)),
        ULYX_SUCCESS);
    assert_int_equal(strlen(cut), sizeof(cut) - 1);
    assert_string_equal(cut + sizeof(cut) - 1 - strlen(needs), needs);
    b.exec.kernel = NULL;
    /* only the last kernel of the table takes F64 */
    b.problem.dtype = ULYX_DTYPE_F64;
    assert_status(ulyx_attention_describe(
                      &b.problem, BACKWARD, &b.exec, text, sizeof(text)),
        ULYX_SUCCESS);
    assert_non_null(strstr(text, "kernel reference"));
    assert_non_null(strstr(text, "; not portable: "));
    bench_free(&b);
}

/* Every listed kernel takes a plain problem. A list that is cut begins with the
 * same kernel, and the count stays that of all kernels. */
static void
listed_kernels_are_taken(void **state)
{
    const char *names[16], *few[1] = {NULL};
    char text[1000], wanted[80];
    int32_t count = -1, again = -1;
    struct bench b;
    (void)state;
    assert_status(
        ulyx_attention_list_kernels(ULYX_MEMORY_HOST, names, 16, &count),
        ULYX_SUCCESS);
    assert_in_range(count, 2, 16);
    assert_string_equal(names[count - 1], "reference");
    bench_init(&b, 1, 1, 1, 64, 64);
    b.problem.dtype = ULYX_DTYPE_BF16; /* a dtype that all kernels take */
    for (int32_t i = 0; i < count; i++) {
        b.exec.kernel = names[i];
        assert_status(
            ulyx_attention_describe(&b.problem, ULYX_ATTENTION_PASS_FORWARD,
                &b.exec, text, sizeof(text)),
            ULYX_SUCCESS);
        snprintf(wanted, sizeof(wanted), "kernel %s ", names[i]);
        assert_non_null(strstr(text, wanted));
    }
    assert_status(ulyx_attention_list_kernels(ULYX_MEMORY_HOST, few, 1, &again),
        ULYX_SUCCESS);
    assert_int_equal(again, count);
    assert_ptr_equal(few[0], names[0]);
    assert_status(
        ulyx_attention_list_kernels(ULYX_MEMORY_HOST, NULL, 0, &again),
        ULYX_SUCCESS);
    assert_int_equal(again, count);
    bench_free(&b);
}

static void
list_kernels_refuses_by_name(void **state)
{
    const char *names[1];
    int32_t count = 77;
    (void)state;
    assert_status(
        ulyx_attention_list_kernels((ulyx_memory_kind_t)9, names, 1, &count),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(ulyx_last_error(), "memory is 9"));
    assert_status(
        ulyx_attention_list_kernels(ULYX_MEMORY_HOST, names, -1, &count),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_status(
        ulyx_attention_list_kernels(ULYX_MEMORY_HOST, NULL, 1, &count),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(ulyx_last_error(), "names_p is NULL"));
    assert_status(ulyx_attention_list_kernels(ULYX_MEMORY_HOST, names, 1, NULL),
        ULYX_ERR_INVALID_ARGUMENT);
    assert_int_equal(count, 77);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(global_heads_are_named_by_field),
    cmocka_unit_test(problem_bad_fields_are_refused),
    cmocka_unit_test(tensors_bad_layouts_are_refused),
    cmocka_unit_test(documents_bad_tables_are_refused),
    cmocka_unit_test(segments_bad_lists_are_refused),
    cmocka_unit_test(structs_of_other_versions),
    cmocka_unit_test(describe_names_the_kernel),
    cmocka_unit_test(listed_kernels_are_taken),
    cmocka_unit_test(list_kernels_refuses_by_name),
};

ULI_TEST_MAIN("AttentionArguments", tests)
