/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on device memory through the public API, against the reference in
 * double precision on the host: random problems on strided tensors that end
 * where their memory ends, documents on either side, replay of a graph, and
 * what is refused or found out later. On emulated devices or on a card.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "attention/element.h"
#include "cuda_runtime.h"
#include "support/random.h"
#include "support/test.h"
#include "ulyx/ulyx.h"
#ifdef ULI_EMULATE
#include "emulate.h"
#else
#include "emulate/card/card.h"
#endif

enum { Q, K, V, OUT, LSE, TENSORS, DOCS_MAX = 8, GUARD = 64 };

#define good(call) assert_int_equal((int)(call), 0)

/* One tensor: doubles on the host, elements on the device. */
struct tensor {
    ulyx_attention_tensor_t device, host;
    double *values;
    unsigned char *memory, *image; /* on the device; a copy on the host */
    int64_t count, bytes, element;
};

struct world {
    struct test_random random;
    ulyx_attention_t problem;
    struct tensor t[TENSORS];
    ulyx_attention_forward_t forward, reference;
    ulyx_attention_exec_t exec;
    ulyx_docs_t docs;
    int32_t begins[DOCS_MAX + 1], *begins_there;
    float *sinks_there, *max_logit_there;
    float sinks[8];
    double max_logit[8];
    void *workspace;
    int64_t workspace_bytes;
    uint64_t *cause; /* on the device */
    cudaStream_t stream;
};

static int
open_device(void **state)
{
    (void)state;
#ifdef ULI_EMULATE
    const struct emu_config config = {.devices = 2};
    return emu_open(&config);
#else
    return 0;
#endif
}

static int
close_device(void **state)
{
    (void)state;
#ifdef ULI_EMULATE
    size_t faults = emu_fault_count();
    emu_close();
    return faults != 0;
#else
    return 0;
#endif
}

/* ---- tensors ------------------------------------------------------------- */

/* [b, h, s, d] or [b, s, h, d], rows with a gap; guard bytes on both ends. */
static void
make_tensor(struct world *w, int n)
{
    const ulyx_attention_t *p = &w->problem;
    const ulyx_attention_tensor_t init = ULYX_ATTENTION_TENSOR_INIT;
    struct tensor *t = &w->t[n];
    int64_t columns = n == LSE ? 1 : n == V || n == OUT ? p->dim_v : p->dim_qk;
    int64_t rows = n == K || n == V ? p->len_k : p->len_q;
    int64_t heads = n == K || n == V ? p->heads_kv : p->heads_q;
    int64_t gap = n == LSE ? 0 : 8 * test_random_in(&w->random, 0, 2);
    bool seq_first = test_random_in(&w->random, 0, 1);
    int64_t row = seq_first ? heads * (columns + gap) : columns + gap;
    int64_t head = seq_first ? columns + gap : rows * (columns + gap);
    t->element = n == LSE || p->dtype == ULYX_DTYPE_F32 ? 4 : 2;
    t->count = p->batch * heads * rows * (columns + gap);
    t->device = t->host = init;
    t->device.row_stride = row * t->element;
    t->device.head_stride = head * t->element;
    t->device.batch_stride = heads * rows * (columns + gap) * t->element;
    t->host.row_stride = row * 8;
    t->host.head_stride = head * 8;
    t->host.batch_stride = heads * rows * (columns + gap) * 8;
    t->bytes = t->count * t->element + 2 * GUARD;
    t->values = calloc((size_t)t->count + 1, sizeof(double));
    t->image = malloc((size_t)t->bytes);
    good(cudaMalloc((void **)&t->memory, (size_t)t->bytes));
    t->host.base = t->values;
    t->device.base = t->memory + GUARD;
}

/* Inputs are rounded to the dtype on both sides; outputs are poison. */
static void
fill_tensor(struct world *w, int n)
{
    struct tensor *t = &w->t[n];
    memset(t->image, 0xA5, (size_t)t->bytes);
    for (int64_t i = 0; i < t->count && n <= V; i++) {
        unsigned char *at = t->image + GUARD + i * t->element;
        uli_element_store(
            at, w->problem.dtype, 0, test_random_normal(&w->random));
        t->values[i] = uli_element_load(at, w->problem.dtype, 0);
    }
    good(cudaMemcpy(
        t->memory, t->image, (size_t)t->bytes, cudaMemcpyHostToDevice));
}

static void
fill_all(struct world *w)
{
    for (int n = 0; n < TENSORS; n++)
        fill_tensor(w, n);
}

/* ---- problems ------------------------------------------------------------ */

static void
init_structs(struct world *w, uint64_t seed)
{
    const ulyx_attention_t problem = ULYX_ATTENTION_INIT;
    const ulyx_attention_forward_t forward = ULYX_ATTENTION_FORWARD_INIT;
    const ulyx_attention_exec_t exec = ULYX_ATTENTION_EXEC_INIT;
#ifndef ULI_EMULATE
    card_devices(1); /* or skips */
#endif
    memset(w, 0, sizeof(*w));
    w->random.state = seed;
    w->problem = problem;
    w->forward = w->reference = forward;
    w->exec = exec;
    w->exec.memory = ULYX_MEMORY_CUDA;
}

static int64_t
random_below(struct world *w, int64_t bound)
{
    return test_random_in(&w->random, 0, bound - 1);
}

static void
draw_problem(struct world *w)
{
    static const ulyx_dtype_t dtypes[] = {
        ULYX_DTYPE_F32, ULYX_DTYPE_BF16, ULYX_DTYPE_F16};
    ulyx_attention_t *p = &w->problem;
    int64_t group = 1 + random_below(w, 3);
    p->dtype = dtypes[random_below(w, 3)];
    p->mask = (ulyx_mask_kind_t)random_below(w, 3);
    p->batch = 1 + random_below(w, 2);
    p->heads_kv = 1 + random_below(w, 2);
    p->heads_q = p->heads_kv * group;
    p->len_q = 1 + random_below(w, 90);
    p->len_k = 1 + random_below(w, 150);
    p->dim_qk = 8 * (1 + random_below(w, 16));
    p->dim_v = 8 * (1 + random_below(w, 16));
    p->window_left = random_below(w, 40);
    p->window_right = random_below(w, 10);
    p->softcap = random_below(w, 4) ? 0 : 5;
}

static void
draw_docs(struct world *w, bool on_device)
{
    const ulyx_docs_t docs = ULYX_DOCS_INIT;
    ulyx_attention_t *p = &w->problem;
    p->len_k = p->len_q;
    p->batch = 1;
    w->docs = docs;
    w->docs.count = 1 + random_below(w, DOCS_MAX);
    for (int64_t n = 0; n <= w->docs.count; n++)
        w->begins[n] = (int32_t)(n * p->len_q / w->docs.count);
    good(cudaMalloc((void **)&w->begins_there, sizeof(w->begins)));
    good(cudaMemcpy(
        w->begins_there, w->begins, sizeof(w->begins), cudaMemcpyHostToDevice));
    w->docs.index_bytes = 4;
    w->docs.begin = on_device ? w->begins_there : w->begins;
    p->docs_q = &w->docs;
    p->docs_memory = on_device ? ULYX_MEMORY_CUDA : ULYX_MEMORY_HOST;
}

static void
draw_heads(struct world *w)
{
    ulyx_attention_t *p = &w->problem;
    for (int64_t n = 0; n < 8; n++)
        w->sinks[n] = (float)test_random_normal(&w->random);
    good(cudaMalloc((void **)&w->sinks_there, sizeof(w->sinks)));
    good(cudaMemcpy(
        w->sinks_there, w->sinks, sizeof(w->sinks), cudaMemcpyHostToDevice));
    p->sinks = w->sinks_there;
    p->heads_global = 8;
    p->head_offset = random_below(w, 9 - p->heads_q);
}

/* Outputs that a call may leave out, left out at random. */
static void
draw_outputs(struct world *w)
{
    if (random_below(w, 3) == 0)
        w->forward.lse = NULL;
    if (random_below(w, 3) == 0)
        w->forward.max_logit = NULL;
}

static void
make_world(struct world *w)
{
    for (int n = 0; n < TENSORS; n++)
        make_tensor(w, n);
    good(cudaMalloc((void **)&w->max_logit_there, sizeof(w->sinks)));
    good(cudaMalloc((void **)&w->cause, sizeof(*w->cause)));
    good(cudaMemset(w->cause, 0, sizeof(*w->cause)));
    good(cudaStreamCreate(&w->stream));
    w->exec.cause = w->cause;
    w->forward.q = &w->t[Q].device, w->reference.q = &w->t[Q].host;
    w->forward.k = &w->t[K].device, w->reference.k = &w->t[K].host;
    w->forward.v = &w->t[V].device, w->reference.v = &w->t[V].host;
    w->forward.out = &w->t[OUT].device, w->reference.out = &w->t[OUT].host;
    w->forward.lse = &w->t[LSE].device, w->reference.lse = &w->t[LSE].host;
    w->forward.max_logit = w->max_logit_there;
    w->reference.max_logit = w->max_logit;
    assert_status(
        ulyx_attention_workspace(&w->problem, ULYX_ATTENTION_PASS_FORWARD,
            &w->exec, &w->workspace_bytes),
        ULYX_SUCCESS);
    good(cudaMalloc(&w->workspace, (size_t)w->workspace_bytes));
    fill_all(w);
}

static void
free_world(struct world *w)
{
    good(cudaStreamSynchronize(w->stream));
    good(cudaStreamDestroy(w->stream));
    for (int n = 0; n < TENSORS; n++) {
        free(w->t[n].values);
        free(w->t[n].image);
        good(cudaFree(w->t[n].memory));
    }
    good(cudaFree(w->workspace));
    good(cudaFree(w->cause));
    good(cudaFree(w->max_logit_there));
    good(cudaFree(w->sinks_there));
    good(cudaFree(w->begins_there));
}

static ulyx_status_t
world_run(struct world *w)
{
    return ulyx_attention_forward(&w->problem, &w->forward, &w->exec,
        w->workspace, w->workspace_bytes, w->stream);
}

static void
run_reference(struct world *w)
{
    ulyx_attention_exec_t exec = ULYX_ATTENTION_EXEC_INIT;
    ulyx_attention_t problem = w->problem;
    ulyx_docs_t docs = w->docs;
    int64_t bytes = 0;
    exec.kernel = "reference";
    exec.threads = 1;
    problem.dtype = ULYX_DTYPE_F64;
    problem.param_dtype = ULYX_DTYPE_F32; /* the sinks are floats */
    problem.docs_memory = ULYX_MEMORY_HOST;
    docs.begin = w->begins;
    problem.docs_q = problem.docs_q ? &docs : NULL;
    problem.sinks = problem.sinks ? w->sinks : NULL;
    assert_status(ulyx_attention_workspace(
                      &problem, ULYX_ATTENTION_PASS_FORWARD, &exec, &bytes),
        ULYX_SUCCESS);
    void *workspace = aligned_alloc(64, (size_t)bytes + 64);
    assert_status(ulyx_attention_forward(
                      &problem, &w->reference, &exec, workspace, bytes, NULL),
        ULYX_SUCCESS);
    free(workspace);
}

/* ---- comparison ---------------------------------------------------------- */

static bool
near_enough(const struct world *w, int n, double is, double wanted)
{
    double step = n == LSE || w->problem.dtype == ULYX_DTYPE_F32 ? 2e-5
                  : w->problem.dtype == ULYX_DTYPE_BF16          ? 1.6e-2
                                                                 : 2e-3;
    if (isinf(wanted))
        return is == wanted;
    if (n == LSE && w->problem.dtype != ULYX_DTYPE_F32)
        step = 1e-4;
    return fabs(is - wanted) <= step * (1 + fabs(wanted));
}

/* Elements against the reference, all other bytes against the poison; all bytes
 * of an lse that was not asked for. */
static void
compare_tensor(struct world *w, int n)
{
    struct tensor *t = &w->t[n];
    const ulyx_attention_t *p = &w->problem;
    ulyx_dtype_t dtype = n == LSE ? ULYX_DTYPE_F32 : p->dtype;
    good(cudaMemcpy(
        t->image, t->memory, (size_t)t->bytes, cudaMemcpyDeviceToHost));
    int64_t columns = n == LSE ? 1 : p->dim_v;
    bool asked = n != LSE || w->forward.lse;
    for (int64_t b = 0; asked && b < p->batch; b++)
        for (int64_t h = 0; h < p->heads_q; h++)
            for (int64_t r = 0; r < p->len_q; r++)
                for (int64_t c = 0; c < columns; c++) {
                    int64_t i =
                        (b * t->host.batch_stride + h * t->host.head_stride +
                            r * t->host.row_stride) /
                            8 +
                        c;
                    unsigned char *at = t->image + GUARD + i * t->element;
                    double is = uli_element_load(at, dtype, 0);
                    if (!near_enough(w, n, is, t->values[i]))
                        fail_msg("tensor %d [%d][%d][%d][%d] is %g, not %g", n,
                            (int)b, (int)h, (int)r, (int)c, is, t->values[i]);
                    memset(at, 0xA5, (size_t)t->element);
                }
    for (int64_t i = 0; i < t->bytes; i++)
        if (t->image[i] != 0xA5)
            fail_msg("tensor %d: byte %d outside is written", n, (int)i);
}

static void
expect_cause(struct world *w, ulyx_status_t status, const char *word)
{
    uint64_t cause = 77;
    good(cudaMemcpy(&cause, w->cause, sizeof(cause), cudaMemcpyDeviceToHost));
    assert_status(ulyx_attention_status(cause), status);
    if (word && !strstr(ulyx_last_error(), word))
        fail_msg("'%s' does not name %s", ulyx_last_error(), word);
}

static void
world_compare(struct world *w)
{
    float max_logit[8];
    good(cudaStreamSynchronize(w->stream));
    run_reference(w);
    compare_tensor(w, OUT);
    compare_tensor(w, LSE);
    good(cudaMemcpy(max_logit, w->max_logit_there, sizeof(max_logit),
        cudaMemcpyDeviceToHost));
    for (int64_t n = 0; w->forward.max_logit && n < w->problem.heads_q; n++)
        assert_true(near_enough(w, LSE, (double)max_logit[n], w->max_logit[n]));
    expect_cause(w, ULYX_SUCCESS, NULL);
}

/* ---- tests --------------------------------------------------------------- */

static void
random_problems_agree(void **state)
{
    int64_t draws = test_draws(12);
    (void)state;
    for (int64_t n = 0; n < draws; n++) {
        struct world w;
        init_structs(&w, test_seed(31) + (uint64_t)n);
        draw_problem(&w);
        if (n % 3 == 1)
            draw_docs(&w, n % 2);
        if (random_below(&w, 2))
            draw_heads(&w);
        make_world(&w);
        draw_outputs(&w);
        assert_status(world_run(&w), ULYX_SUCCESS);
        world_compare(&w);
        free_world(&w);
    }
}

/* One workspace serves call after call, and a graph call after data. */
static void
a_graph_is_replayed_with_other_data(void **state)
{
    struct world w;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    (void)state;
    init_structs(&w, test_seed(31));
    draw_problem(&w);
    make_world(&w);
    assert_status(world_run(&w), ULYX_SUCCESS); /* loads the kernels */
    assert_status(world_run(&w), ULYX_SUCCESS);
    world_compare(&w);
    good(cudaStreamBeginCapture(w.stream, cudaStreamCaptureModeGlobal));
    assert_status(world_run(&w), ULYX_SUCCESS);
    good(cudaStreamEndCapture(w.stream, &graph));
    good(cudaGraphInstantiate(&exec, graph, 0));
    for (int n = 0; n < 3; n++) {
        fill_all(&w);
        good(cudaGraphLaunch(exec, w.stream));
        world_compare(&w);
    }
    good(cudaGraphExecDestroy(exec));
    good(cudaGraphDestroy(graph));
    free_world(&w);
}

static void
expect_refusal(struct world *w, ulyx_status_t status, const char *word)
{
    assert_status(world_run(w), status);
    if (!strstr(ulyx_last_error(), word))
        fail_msg("'%s' does not name %s", ulyx_last_error(), word);
}

static void
what_is_no_call_is_refused_by_name(void **state)
{
    struct world w;
    int64_t scores;
    void *there;
    uint64_t flag = 0;
    (void)state;
    init_structs(&w, test_seed(31));
    draw_problem(&w);
    make_world(&w);
    there = w.t[K].device.base;
    w.t[K].device.base = w.t[K].values;
    expect_refusal(&w, ULYX_ERR_INVALID_ARGUMENT, "k: ");
    w.t[K].device.base = there;
    w.exec.scores_p = &scores;
    expect_refusal(&w, ULYX_ERR_UNSUPPORTED, "scores_p");
    w.exec.scores_p = NULL;
    w.exec.kernel = "portable";
    expect_refusal(&w, ULYX_ERR_UNSUPPORTED, "no kernel portable");
    w.exec.kernel = NULL;
    w.exec.memory = 9;
    expect_refusal(&w, ULYX_ERR_INVALID_ARGUMENT, "memory kind 9");
    w.exec.memory = ULYX_MEMORY_CUDA;
    w.workspace_bytes--;
    expect_refusal(&w, ULYX_ERR_INVALID_ARGUMENT, "workspace of");
    w.workspace_bytes++;
    ulyx_attention_piece_t piece = {
        .rows = w.problem.len_q, .base = w.t[OUT].device.base, .flag = &flag};
    w.t[OUT].device.pieces = &piece;
    w.t[OUT].device.piece_count = 1;
    w.t[OUT].device.piece_size = sizeof(piece);
    expect_refusal(&w, ULYX_ERR_UNSUPPORTED, "out: flag of piece 0");
    w.t[OUT].device.pieces = NULL;
    assert_status(
        world_run(&w), ULYX_SUCCESS); /* and nothing of it has stuck */
    world_compare(&w);
    free_world(&w);
}

static void
backward_and_fp64_are_refused(void **state)
{
    struct world w;
    int64_t bytes = 5;
    (void)state;
    init_structs(&w, test_seed(31));
    draw_problem(&w);
    assert_status(ulyx_attention_workspace(&w.problem,
                      ULYX_ATTENTION_PASS_BACKWARD, &w.exec, &bytes),
        ULYX_ERR_UNSUPPORTED);
    assert_non_null(strstr(ulyx_last_error(), "backward on device memory"));
    w.problem.dtype = ULYX_DTYPE_F64;
    assert_status(ulyx_attention_workspace(
                      &w.problem, ULYX_ATTENTION_PASS_FORWARD, &w.exec, &bytes),
        ULYX_ERR_UNSUPPORTED);
    assert_int_equal(bytes, 5);
}

/* Another device's memory, where there is another device. */
static void
memory_of_another_device_is_named(void **state)
{
    struct world w;
    int count = 0;
    (void)state;
    init_structs(&w, test_seed(31));
    good(cudaGetDeviceCount(&count));
    if (count < 2)
        test_skip("one device");
    draw_problem(&w);
    make_world(&w);
    good(cudaSetDevice(1));
    expect_refusal(&w, ULYX_ERR_INVALID_ARGUMENT, "memory of CUDA device 0");
    good(cudaSetDevice(0));
    free_world(&w);
}

static void
what_goes_wrong_later_is_told_by_the_cause(void **state)
{
    struct world w;
    uint64_t *flag;
    const int32_t wrong = 1 << 30;
    (void)state;
    init_structs(&w, test_seed(31));
    draw_problem(&w);
    draw_docs(&w, true);
    make_world(&w);
    good(cudaMemcpy(w.begins_there + w.docs.count, &wrong, sizeof(wrong),
        cudaMemcpyHostToDevice));
    assert_status(world_run(&w), ULYX_SUCCESS);
    good(cudaStreamSynchronize(w.stream));
    expect_cause(&w, ULYX_ERR_INVALID_ARGUMENT, "docs_q: document");
    good(cudaMemset(w.cause, 0, sizeof(*w.cause)));
    good(cudaMemcpy(
        w.begins_there, w.begins, sizeof(w.begins), cudaMemcpyHostToDevice));

    good(cudaMalloc((void **)&flag, sizeof(*flag)));
    good(cudaMemset(flag, 0, sizeof(*flag)));
    ulyx_attention_piece_t piece = {.rows = w.problem.len_k,
        .base = w.t[K].device.base,
        .flag = flag,
        .flag_value = 1};
    w.t[K].device.pieces = &piece;
    w.t[K].device.piece_count = 1;
    w.t[K].device.piece_size = sizeof(piece);
    w.exec.timeout_s = 0.2;
    assert_status(world_run(&w), ULYX_SUCCESS);
    good(cudaStreamSynchronize(w.stream));
    expect_cause(&w, ULYX_ERR_TIMEOUT, "piece 0 of k");
    good(cudaMemset(w.cause, 0, sizeof(*w.cause)));
    good(cudaMemset(flag, 1, sizeof(*flag)));
    fill_all(&w);
    assert_status(world_run(&w), ULYX_SUCCESS);
    world_compare(&w);
    good(cudaFree(flag));
    free_world(&w);
}

static void
describe_names_the_kernel(void **state)
{
    struct world w;
    char text[300];
    (void)state;
    init_structs(&w, test_seed(31));
    draw_problem(&w);
    w.problem.dtype = ULYX_DTYPE_F32;
    assert_status(ulyx_attention_describe(&w.problem,
                      ULYX_ATTENTION_PASS_FORWARD, &w.exec, text, sizeof(text)),
        ULYX_SUCCESS);
    assert_non_null(strstr(text, "kernel mma ("));
    assert_null(strstr(text, "threads"));
}

#define ON_DEVICE(test)                                                        \
    cmocka_unit_test_setup_teardown(test, open_device, close_device)

static const struct CMUnitTest tests[] = {
    ON_DEVICE(random_problems_agree),
    ON_DEVICE(a_graph_is_replayed_with_other_data),
    ON_DEVICE(what_is_no_call_is_refused_by_name),
    ON_DEVICE(backward_and_fp64_are_refused),
    ON_DEVICE(memory_of_another_device_is_named),
    ON_DEVICE(what_goes_wrong_later_is_told_by_the_cause),
    ON_DEVICE(describe_names_the_kernel),
};

ULI_TEST_MAIN("ApiAttentionDevice", tests)
