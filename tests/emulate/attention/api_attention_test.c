/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention on device memory through the public API, compared with the
 * reference in double precision on the host: random problems on strided tensors
 * that end where their memory ends, documents on the host or on the device,
 * replay of a graph, and errors that are returned at once or found later. Runs
 * on emulated devices or on a card.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "emulate/attention/api_world.h"

struct forward_world {
    struct world w;
    ulyx_attention_forward_t device, host;
    float *max_logit_there;
    double max_logit[HEADS_MAX];
};

static void
fill_all(struct forward_world *f)
{
    for (int n = Q; n <= V; n++)
        world_fill_random(&f->w, n);
    world_fill_poison(&f->w, OUT);
    world_fill_poison(&f->w, LSE);
}

static void
init_world(struct forward_world *f, uint64_t seed)
{
    const ulyx_attention_forward_t forward = ULYX_ATTENTION_FORWARD_INIT;
    world_init(&f->w, ULYX_ATTENTION_PASS_FORWARD, seed);
    f->device = f->host = forward;
}

/* Leaves out, at random, outputs that a call may leave out. */
static void
draw_outputs(struct forward_world *f)
{
    if (world_below(&f->w, 3) == 0)
        f->device.lse = NULL;
    if (world_below(&f->w, 3) == 0)
        f->device.max_logit = NULL;
}

static void
make_world(struct forward_world *f)
{
    struct tensor *t = f->w.t;
    world_make(&f->w);
    good(cudaMalloc((void **)&f->max_logit_there, HEADS_MAX * sizeof(float)));
    f->device.q = &t[Q].device, f->host.q = &t[Q].host;
    f->device.k = &t[K].device, f->host.k = &t[K].host;
    f->device.v = &t[V].device, f->host.v = &t[V].host;
    f->device.out = &t[OUT].device, f->host.out = &t[OUT].host;
    f->device.lse = &t[LSE].device, f->host.lse = &t[LSE].host;
    f->device.max_logit = f->max_logit_there;
    f->host.max_logit = f->max_logit;
    fill_all(f);
}

static void
free_world(struct forward_world *f)
{
    world_free(&f->w);
    good(cudaFree(f->max_logit_there));
}

static ulyx_status_t
run_forward(struct forward_world *f)
{
    return ulyx_attention_forward(&f->w.problem, &f->device, &f->w.exec,
        f->w.workspace, f->w.workspace_bytes, f->w.stream);
}

static void
run_reference(struct forward_world *f)
{
    ulyx_attention_exec_t exec;
    ulyx_docs_t docs;
    ulyx_attention_t problem = world_host_problem(&f->w, &docs);
    int64_t bytes;
    void *workspace = world_host_workspace(
        &problem, ULYX_ATTENTION_PASS_FORWARD, &exec, &bytes);
    assert_status(ulyx_attention_forward(
                      &problem, &f->host, &exec, workspace, bytes, NULL),
        ULYX_SUCCESS);
    free(workspace);
}

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

static void
compare_all(struct forward_world *f)
{
    struct world *w = &f->w;
    float max_logit[HEADS_MAX];
    good(cudaStreamSynchronize(w->stream));
    run_reference(f);
    world_compare(w, OUT, true, near_enough);
    world_compare(w, LSE, f->device.lse != NULL, near_enough);
    good(cudaMemcpy(max_logit, f->max_logit_there, sizeof(max_logit),
        cudaMemcpyDeviceToHost));
    for (int64_t n = 0; f->device.max_logit && n < w->problem.heads_q; n++)
        assert_true(near_enough(w, LSE, (double)max_logit[n], f->max_logit[n]));
    world_expect_cause(w, ULYX_SUCCESS, NULL);
}

/* ---- tests --------------------------------------------------------------- */

static void
random_problems_agree(void **state)
{
    int64_t draws = test_draws(12);
    (void)state;
    for (int64_t n = 0; n < draws; n++) {
        struct forward_world f;
        struct world *w = &f.w;
        init_world(&f, test_seed(31) + (uint64_t)n);
        world_draw_problem(w);
        if (n % 3 == 1)
            world_draw_docs(w, n % 2);
        if (world_below(w, 2))
            world_draw_sinks(w);
        make_world(&f);
        draw_outputs(&f);
        assert_status(run_forward(&f), ULYX_SUCCESS);
        compare_all(&f);
        free_world(&f);
    }
}

/* The calls and the graph use one workspace; the graph is replayed with other
 * data. */
static void
a_graph_is_replayed_with_other_data(void **state)
{
    struct forward_world f;
    struct world *w = &f.w;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    (void)state;
    init_world(&f, test_seed(31));
    world_draw_problem(w);
    make_world(&f);
    assert_status(run_forward(&f), ULYX_SUCCESS); /* loads the kernels */
    assert_status(run_forward(&f), ULYX_SUCCESS);
    compare_all(&f);
    good(cudaStreamBeginCapture(w->stream, cudaStreamCaptureModeGlobal));
    assert_status(run_forward(&f), ULYX_SUCCESS);
    good(cudaStreamEndCapture(w->stream, &graph));
    good(cudaGraphInstantiate(&exec, graph, 0));
    for (int n = 0; n < 3; n++) {
        fill_all(&f);
        good(cudaGraphLaunch(exec, w->stream));
        compare_all(&f);
    }
    good(cudaGraphExecDestroy(exec));
    good(cudaGraphDestroy(graph));
    free_world(&f);
}

static void
expect_refusal(struct forward_world *f, ulyx_status_t status, const char *word)
{
    assert_status(run_forward(f), status);
    world_expect_error(word);
}

static void
invalid_calls_are_refused_by_name(void **state)
{
    struct forward_world f;
    struct world *w = &f.w;
    int64_t scores;
    void *there;
    uint64_t flag = 0;
    (void)state;
    init_world(&f, test_seed(31));
    world_draw_problem(w);
    make_world(&f);
    there = w->t[K].device.base;
    w->t[K].device.base = w->t[K].values;
    expect_refusal(&f, ULYX_ERR_INVALID_ARGUMENT, "k: ");
    w->t[K].device.base = there;
    w->exec.scores_p = &scores;
    expect_refusal(&f, ULYX_ERR_UNSUPPORTED, "scores_p");
    w->exec.scores_p = NULL;
    w->exec.kernel = "portable";
    expect_refusal(&f, ULYX_ERR_UNSUPPORTED, "no kernel portable");
    w->exec.kernel = NULL;
    w->exec.memory = 9;
    expect_refusal(&f, ULYX_ERR_INVALID_ARGUMENT, "memory kind is 9");
    w->exec.memory = ULYX_MEMORY_CUDA;
    w->workspace_bytes--;
    expect_refusal(&f, ULYX_ERR_INVALID_ARGUMENT, "workspace of");
    w->workspace_bytes++;
    ulyx_attention_piece_t piece = {
        .rows = w->problem.len_q, .base = w->t[OUT].device.base, .flag = &flag};
    w->t[OUT].device.pieces = &piece;
    w->t[OUT].device.piece_count = 1;
    w->t[OUT].device.piece_size = sizeof(piece);
    expect_refusal(&f, ULYX_ERR_UNSUPPORTED, "out: flag of piece 0");
    w->t[OUT].device.pieces = NULL;
    assert_status(
        /* the refused call has changed nothing that this call needs */
        run_forward(&f), ULYX_SUCCESS);
    compare_all(&f);
    free_world(&f);
}

static void
fp64_is_refused(void **state)
{
    struct forward_world f;
    struct world *w = &f.w;
    int64_t bytes = 5;
    (void)state;
    init_world(&f, test_seed(31));
    world_draw_problem(w);
    w->problem.dtype = ULYX_DTYPE_F64;
    for (int pass = 0; pass < 2; pass++)
        assert_status(
            ulyx_attention_workspace(&w->problem, pass, &w->exec, &bytes),
            ULYX_ERR_UNSUPPORTED);
    w->exec.kernel = "mma";
    assert_status(ulyx_attention_workspace(&w->problem,
                      ULYX_ATTENTION_PASS_BACKWARD, &w->exec, &bytes),
        ULYX_ERR_UNSUPPORTED);
    world_expect_error("it does not take fp64");
    assert_int_equal(bytes, 5);
}

/* Passes memory of another device, where there is a second device. */
static void
memory_of_another_device_is_named(void **state)
{
    struct forward_world f;
    struct world *w = &f.w;
    int count = 0;
    (void)state;
    init_world(&f, test_seed(31));
    good(cudaGetDeviceCount(&count));
    if (count < 2)
        test_skip("one device");
    world_draw_problem(w);
    make_world(&f);
    good(cudaSetDevice(1));
    expect_refusal(&f, ULYX_ERR_INVALID_ARGUMENT, "memory of CUDA device 0");
    good(cudaSetDevice(0));
    free_world(&f);
}

static void
later_faults_are_reported_by_the_cause(void **state)
{
    struct forward_world f;
    struct world *w = &f.w;
    uint64_t *flag;
    const int32_t wrong = 1 << 30;
    (void)state;
    init_world(&f, test_seed(31));
    world_draw_problem(w);
    world_draw_docs(w, true);
    make_world(&f);
    good(cudaMemcpy(w->begins_there + w->docs.count, &wrong, sizeof(wrong),
        cudaMemcpyHostToDevice));
    assert_status(run_forward(&f), ULYX_SUCCESS);
    good(cudaStreamSynchronize(w->stream));
    world_expect_cause(w, ULYX_ERR_INVALID_ARGUMENT, "docs_q: document");
    good(cudaMemset(w->cause, 0, sizeof(*w->cause)));
    good(cudaMemcpy(
        w->begins_there, w->begins, sizeof(w->begins), cudaMemcpyHostToDevice));

    good(cudaMalloc((void **)&flag, sizeof(*flag)));
    good(cudaMemset(flag, 0, sizeof(*flag)));
    ulyx_attention_piece_t piece = {.rows = w->problem.len_k,
        .base = w->t[K].device.base,
        .flag = flag,
        .flag_value = 1};
    w->t[K].device.pieces = &piece;
    w->t[K].device.piece_count = 1;
    w->t[K].device.piece_size = sizeof(piece);
    w->exec.timeout_s = 0.2;
    assert_status(run_forward(&f), ULYX_SUCCESS);
    good(cudaStreamSynchronize(w->stream));
    world_expect_cause(w, ULYX_ERR_TIMEOUT, "piece 0 of k");
    good(cudaMemset(w->cause, 0, sizeof(*w->cause)));
    good(cudaMemset(flag, 1, sizeof(*flag)));
    fill_all(&f);
    assert_status(run_forward(&f), ULYX_SUCCESS);
    compare_all(&f);
    good(cudaFree(flag));
    free_world(&f);
}

static void
describe_names_the_kernel(void **state)
{
    struct forward_world f;
    struct world *w = &f.w;
    char text[300];
    (void)state;
    init_world(&f, test_seed(31));
    world_draw_problem(w);
    w->problem.dtype = ULYX_DTYPE_F32;
    assert_status(
        ulyx_attention_describe(&w->problem, ULYX_ATTENTION_PASS_FORWARD,
            &w->exec, text, sizeof(text)),
        ULYX_SUCCESS);
    assert_non_null(strstr(text, "kernel mma ("));
    assert_null(strstr(text, "threads"));
}

#define ON_DEVICE(test)                                                        \
    cmocka_unit_test_setup_teardown(test, world_open, world_close)

static const struct CMUnitTest tests[] = {
    ON_DEVICE(random_problems_agree),
    ON_DEVICE(a_graph_is_replayed_with_other_data),
    ON_DEVICE(invalid_calls_are_refused_by_name),
    ON_DEVICE(fp64_is_refused),
    ON_DEVICE(memory_of_another_device_is_named),
    ON_DEVICE(later_faults_are_reported_by_the_cause),
    ON_DEVICE(describe_names_the_kernel),
};

ULI_TEST_MAIN("ApiAttentionDevice", tests)
