/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention backward on device memory through the public API, compared with the
 * reference in double precision on the host, from the same rounded inputs:
 * random problems with poisoned gradients, replay of a graph, equal bits of
 * repeated runs, and errors that are returned at once or found later. Runs on
 * emulated devices or on a card.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "emulate/attention/api_world.h"
#ifdef ULI_EMULATE
#include "emulate.h"
#endif

struct backward_world {
    struct world w;
    ulyx_attention_backward_t device, host;
    bool accumulate, give_delta, give_dlse;
    float *d_sink_there, d_sink[HEADS_MAX];
};

/* ---- the world ----------------------------------------------------------- */

static void
init_world(struct backward_world *b, uint64_t seed)
{
    const ulyx_attention_backward_t backward = ULYX_ATTENTION_BACKWARD_INIT;
    memset(b, 0, sizeof(*b));
    world_init(&b->w, ULYX_ATTENTION_PASS_BACKWARD, seed);
    b->device = b->host = backward;
}

/* Draws which optional inputs are given, and which gradients are computed. */
static void
draw_options(struct backward_world *b)
{
    b->give_delta = world_below(&b->w, 2);
    b->give_dlse = world_below(&b->w, 2);
    b->w.wide = world_below(&b->w, 2) || b->w.problem.dtype == ULYX_DTYPE_F32;
    b->accumulate = b->w.wide && world_below(&b->w, 2);
}

static void
draw_world(struct backward_world *b, int64_t n)
{
    world_draw_problem(&b->w);
    if (n % 3 == 1)
        world_draw_docs(&b->w, n % 2);
    if (world_below(&b->w, 2))
        world_draw_sinks(&b->w);
    if (world_below(&b->w, 2))
        world_draw_slopes(&b->w);
    draw_options(b);
}

static const double *
row_at(const struct tensor *t, int64_t batch, int64_t head, int64_t row)
{
    return t->values +
           (batch * t->host.batch_stride + head * t->host.head_stride +
               row * t->host.row_stride) /
               8;
}

/* Fills delta as a caller would: from out, rounded to out's dtype. */
static void
fill_delta(struct world *w)
{
    struct tensor *delta = &w->t[DELTA];
    for (int64_t i = 0; i < w->problem.batch; i++)
        for (int64_t h = 0; h < delta->heads; h++)
            for (int64_t r = 0; r < delta->rows; r++) {
                double *sum = (double *)row_at(delta, i, h, r);
                const double *out = row_at(&w->t[OUT], i, h, r);
                const double *dout = row_at(&w->t[DOUT], i, h, r);
                *sum = 0;
                for (int64_t c = 0; c < w->problem.dim_v; c++)
                    *sum += out[c] * dout[c];
            }
    world_fill_values(w, DELTA);
}

/* Fills out and lse with what forward would write. */
static void
fill_forward(struct world *w)
{
    ulyx_attention_forward_t forward = ULYX_ATTENTION_FORWARD_INIT;
    ulyx_attention_exec_t exec;
    ulyx_docs_t docs;
    ulyx_attention_t problem = world_host_problem(w, &docs);
    int64_t bytes;
    void *workspace = world_host_workspace(
        &problem, ULYX_ATTENTION_PASS_FORWARD, &exec, &bytes);
    forward.q = &w->t[Q].host, forward.k = &w->t[K].host;
    forward.v = &w->t[V].host, forward.out = &w->t[OUT].host;
    forward.lse = &w->t[LSE].host;
    assert_status(ulyx_attention_forward(
                      &problem, &forward, &exec, workspace, bytes, NULL),
        ULYX_SUCCESS);
    free(workspace);
    world_fill_values(w, OUT);
    world_fill_values(w, LSE);
}

static void
poison_gradients(struct backward_world *b)
{
    world_fill_poison(&b->w, DQ);
    for (int n = DK; n <= DV; n++)
        if (b->accumulate)
            world_fill_random(&b->w, n);
        else
            world_fill_poison(&b->w, n);
    good(cudaMemset(b->d_sink_there, 0xA5, sizeof(b->d_sink)));
}

static void
fill_all(struct backward_world *b)
{
    for (int n = Q; n <= V; n++)
        world_fill_random(&b->w, n);
    world_fill_random(&b->w, DOUT);
    world_fill_random(&b->w, DLSE);
    fill_forward(&b->w);
    fill_delta(&b->w);
    poison_gradients(b);
}

/* The structs of the call, whose tensors are on the device or on the host. */
static void
set_call(struct backward_world *b, ulyx_attention_backward_t *call, bool device)
{
    const ulyx_attention_tensor_t *t[BACKWARD_TENSORS];
    for (int n = 0; n < BACKWARD_TENSORS; n++)
        t[n] = device ? &b->w.t[n].device : &b->w.t[n].host;
    call->q = t[Q], call->k = t[K], call->v = t[V];
    call->dout = t[DOUT], call->lse = t[LSE];
    call->out = b->give_delta ? NULL : t[OUT];
    call->delta = b->give_delta ? t[DELTA] : NULL;
    call->dlse = b->give_dlse ? t[DLSE] : NULL;
    call->dq = t[DQ], call->dk = t[DK], call->dv = t[DV];
    call->flags = b->accumulate ? ULYX_ATTENTION_ACCUMULATE : 0;
    if (b->w.problem.sinks)
        call->d_sink = device ? b->d_sink_there : b->d_sink;
}

static void
make_world(struct backward_world *b)
{
    world_make(&b->w);
    good(cudaMalloc((void **)&b->d_sink_there, sizeof(b->d_sink)));
    set_call(b, &b->device, true);
    set_call(b, &b->host, false);
    fill_all(b);
}

static void
free_world(struct backward_world *b)
{
    world_free(&b->w);
    good(cudaFree(b->d_sink_there));
}

static ulyx_status_t
run_backward(struct backward_world *b)
{
    return ulyx_attention_backward(&b->w.problem, &b->device, &b->w.exec,
        b->w.workspace, b->w.workspace_bytes, b->w.stream);
}

static void
run_reference(struct backward_world *b)
{
    ulyx_attention_exec_t exec;
    ulyx_docs_t docs;
    ulyx_attention_t problem = world_host_problem(&b->w, &docs);
    int64_t bytes;
    void *workspace = world_host_workspace(
        &problem, ULYX_ATTENTION_PASS_BACKWARD, &exec, &bytes);
    assert_status(ulyx_attention_backward(
                      &problem, &b->host, &exec, workspace, bytes, NULL),
        ULYX_SUCCESS);
    free(workspace);
}

/* The tolerance of forward: sums are in fp32, and where the problem is of 16
 * bits their terms are first rounded to 16 bits. */
static bool
near_enough(const struct world *w, int n, double is, double wanted)
{
    ulyx_dtype_t dtype = w->problem.dtype;
    double step = dtype == ULYX_DTYPE_F32    ? 2e-5
                  : dtype == ULYX_DTYPE_BF16 ? 1.6e-2
                                             : 2e-3;
    (void)n;
    return fabs(is - wanted) <= step * (1 + fabs(wanted));
}

static void
compare_d_sink(struct backward_world *b)
{
    float d_sink[HEADS_MAX];
    good(cudaMemcpy(
        d_sink, b->d_sink_there, sizeof(d_sink), cudaMemcpyDeviceToHost));
    for (int n = 0; n < HEADS_MAX; n++)
        if (fabs((double)d_sink[n] - (double)b->d_sink[n]) >
            2e-5 * (1 + fabs((double)b->d_sink[n])))
            fail_msg("d_sink[%d] is %g, not %g", n, (double)d_sink[n],
                (double)b->d_sink[n]);
}

static void
compare_all(struct backward_world *b)
{
    good(cudaStreamSynchronize(b->w.stream));
    run_reference(b);
    for (int n = DQ; n <= DV; n++)
        world_compare(&b->w, n, true, near_enough);
    if (b->device.d_sink)
        compare_d_sink(b);
    world_expect_cause(&b->w, ULYX_SUCCESS, NULL);
}

/* Checks that a call that does not accumulate has written nothing. */
static void
expect_untouched(struct backward_world *b)
{
    unsigned char d_sink[sizeof(b->d_sink)];
    good(cudaStreamSynchronize(b->w.stream));
    for (int n = DQ; n <= DV; n++)
        world_compare(&b->w, n, false, near_enough);
    good(cudaMemcpy(
        d_sink, b->d_sink_there, sizeof(d_sink), cudaMemcpyDeviceToHost));
    for (size_t n = 0; n < sizeof(d_sink); n++)
        assert_int_equal(d_sink[n], 0xA5);
}

/* ---- tests --------------------------------------------------------------- */

static void
random_problems_agree(void **state)
{
    int64_t draws = test_draws(12);
    (void)state;
    for (int64_t n = 0; n < draws; n++) {
        struct backward_world b;
        init_world(&b, test_seed(41) + (uint64_t)n);
        draw_world(&b, n);
        make_world(&b);
        assert_status(run_backward(&b), ULYX_SUCCESS);
        compare_all(&b);
        free_world(&b);
    }
}

/* The calls and the graph use one workspace; the graph is replayed with other
 * data. */
static void
a_graph_is_replayed_with_other_data(void **state)
{
    struct backward_world b;
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    (void)state;
    init_world(&b, test_seed(41));
    draw_world(&b, 1);
    make_world(&b);
    assert_status(run_backward(&b), ULYX_SUCCESS); /* loads the kernels */
    good(cudaStreamSynchronize(b.w.stream));
    good(cudaStreamBeginCapture(b.w.stream, cudaStreamCaptureModeGlobal));
    assert_status(run_backward(&b), ULYX_SUCCESS);
    good(cudaStreamEndCapture(b.w.stream, &graph));
    good(cudaGraphInstantiate(&exec, graph, 0));
    for (int n = 0; n < 3; n++) {
        fill_all(&b);
        good(cudaGraphLaunch(exec, b.w.stream));
        compare_all(&b);
    }
    good(cudaGraphExecDestroy(exec));
    good(cudaGraphDestroy(graph));
    free_world(&b);
}

/* Returns all gradients of one run, in a buffer that the caller frees. */
static unsigned char *
bits_of(struct backward_world *b, size_t *bytes_p)
{
    size_t at = 0, bytes = sizeof(b->d_sink);
    for (int n = DQ; n <= DV; n++)
        bytes += (size_t)b->w.t[n].bytes;
    unsigned char *bits = malloc(bytes);
    good(cudaStreamSynchronize(b->w.stream));
    for (int n = DQ; n <= DV; n++) {
        good(cudaMemcpy(bits + at, b->w.t[n].memory, (size_t)b->w.t[n].bytes,
            cudaMemcpyDeviceToHost));
        at += (size_t)b->w.t[n].bytes;
    }
    good(cudaMemcpy(
        bits + at, b->d_sink_there, sizeof(b->d_sink), cudaMemcpyDeviceToHost));
    *bytes_p = bytes;
    return bits;
}

/* Runs the problem once more, with threads in the seed's order. The device's
 * blocks have the shared memory of a Hopper or of compute capability 8.9, and
 * its threads take many registers or none, so that tiles have one slot or
 * two. */
static unsigned char *
run_in_order(
    ulyx_dtype_t dtype, uint64_t seed, int32_t max_sms, size_t *bytes_p)
{
    struct backward_world b;
#ifdef ULI_EMULATE
    const struct emu_config config = {.seed = seed,
        .shared_bytes = seed % 2 ? 0 : 99 * 1024,
        .registers = seed % 3 ? 255 : 0};
    good(emu_open(&config));
#else
    (void)seed;
#endif
    init_world(&b, test_seed(41));
    draw_world(&b, 1);
    b.w.problem.dtype = dtype;
    b.w.wide |= dtype == ULYX_DTYPE_F32;
    if (!b.w.problem.sinks)
        world_draw_sinks(&b.w);
    make_world(&b);
    b.w.exec.max_sms = max_sms;
    b.w.exec.deterministic = 1;
    assert_status(run_backward(&b), ULYX_SUCCESS);
    unsigned char *bits = bits_of(&b, bytes_p);
    free_world(&b);
#ifdef ULI_EMULATE
    assert_int_equal(emu_fault_count(), 0);
    emu_close();
#endif
    return bits;
}

static void
expect_the_same_bits(ulyx_dtype_t dtype, uint64_t seeds)
{
    static const int32_t max_sms[] = {1, 7, 66, 132};
    size_t bytes, again_bytes;
    unsigned char *bits = run_in_order(dtype, 1, 0, &bytes);
    for (uint64_t seed = 2; seed < 2 + seeds; seed++)
        for (int n = 0; n < 4; n++) {
            unsigned char *again =
                run_in_order(dtype, seed, max_sms[n], &again_bytes);
            assert_int_equal(bytes, again_bytes);
            if (memcmp(bits, again, bytes) != 0)
                fail_msg("seed %d, max_sms %d: other bits", (int)seed,
                    (int)max_sms[n]);
            free(again);
        }
    free(bits);
}

/* Faults of the multiply-adds and of mma.sync; ULYX_TEST_DRAWS makes more
 * seeds. */
static void
bits_depend_neither_on_order_nor_on_blocks(void **state)
{
    (void)state;
    expect_the_same_bits(ULYX_DTYPE_F32, (uint64_t)test_draws(2));
    expect_the_same_bits(ULYX_DTYPE_BF16, (uint64_t)test_draws(2));
}

static void
expect_refusal(struct backward_world *b, ulyx_status_t status, const char *word)
{
    assert_status(run_backward(b), status);
    world_expect_error(word);
    expect_untouched(b);
}

/* A problem with every option, whose gradients are not accumulated. */
static void
make_plain_world(struct backward_world *b)
{
    init_world(b, test_seed(41));
    world_draw_problem(&b->w);
    b->w.problem.dtype = ULYX_DTYPE_BF16;
    world_draw_sinks(&b->w);
    make_world(b);
}

static void
host_memory_is_refused_by_name(void **state)
{
    struct backward_world b;
    (void)state;
    make_plain_world(&b);
    struct tensor *dk = &b.w.t[DK], *dout = &b.w.t[DOUT];
    void *there = dk->device.base;
    dk->device.base = dk->values;
    expect_refusal(&b, ULYX_ERR_INVALID_ARGUMENT, "dk: ");
    dk->device.base = there;
    there = dout->device.base;
    dout->device.base = dout->values;
    expect_refusal(&b, ULYX_ERR_INVALID_ARGUMENT, "dout: ");
    dout->device.base = there;
    b.device.d_sink = b.d_sink;
    expect_refusal(&b, ULYX_ERR_INVALID_ARGUMENT, "d_sink: ");
    b.device.d_sink = b.d_sink_there;
    /* the refused calls have changed nothing */
    assert_status(run_backward(&b), ULYX_SUCCESS);
    compare_all(&b);
    free_world(&b);
}

static void
invalid_calls_are_refused_by_name(void **state)
{
    struct backward_world b;
    uint64_t flag = 0;
    (void)state;
    make_plain_world(&b);
    b.w.workspace_bytes--;
    expect_refusal(&b, ULYX_ERR_INVALID_ARGUMENT, "workspace of");
    b.w.workspace_bytes++;
    b.w.exec.kernel = "sm90";
    expect_refusal(&b, ULYX_ERR_UNSUPPORTED, "sm90");
    b.w.exec.kernel = NULL;
    b.device.flags = ULYX_ATTENTION_ACCUMULATE;
    expect_refusal(&b, ULYX_ERR_UNSUPPORTED, "ACCUMULATE");
    b.device.flags = 0;
    b.device.dq = NULL;
    expect_refusal(&b, ULYX_ERR_INVALID_ARGUMENT, "dq");
    b.device.dq = &b.w.t[DQ].device;
    ulyx_attention_piece_t piece = {.rows = b.w.problem.len_k,
        .base = b.w.t[DV].device.base,
        .flag = &flag};
    b.w.t[DV].device.pieces = &piece;
    b.w.t[DV].device.piece_count = 1;
    b.w.t[DV].device.piece_size = sizeof(piece);
    expect_refusal(&b, ULYX_ERR_UNSUPPORTED, "dv: flag of piece 0");
    free_world(&b);
}

static void
pieces_beyond_the_table_are_refused(void **state)
{
    struct backward_world b;
    ulyx_attention_piece_t pieces[300];
    (void)state;
    make_plain_world(&b);
    int64_t rows = b.w.problem.len_q;
    for (int n = 0; n < 300; n++)
        pieces[n] = (ulyx_attention_piece_t){.row_begin = n ? rows : 0,
            .rows = n ? 0 : rows,
            .base = b.w.t[DOUT].device.base};
    b.w.t[DOUT].device.pieces = pieces;
    b.w.t[DOUT].device.piece_count = 300;
    b.w.t[DOUT].device.piece_size = sizeof(pieces[0]);
    expect_refusal(&b, ULYX_ERR_UNSUPPORTED, "dout: 300 pieces");
    b.w.t[DOUT].device.piece_count = 256;
    assert_status(run_backward(&b), ULYX_SUCCESS);
    compare_all(&b);
    free_world(&b);
}

static void
bad_documents_keep_the_gradients(void **state)
{
    struct backward_world b;
    const int32_t wrong = 1 << 30;
    (void)state;
    init_world(&b, test_seed(41));
    world_draw_problem(&b.w);
    world_draw_docs(&b.w, true);
    world_draw_sinks(&b.w);
    make_world(&b);
    good(cudaMemcpy(b.w.begins_there + b.w.docs.count, &wrong, sizeof(wrong),
        cudaMemcpyHostToDevice));
    assert_status(run_backward(&b), ULYX_SUCCESS);
    expect_untouched(&b);
    world_expect_cause(&b.w, ULYX_ERR_INVALID_ARGUMENT, "docs_q: document");
    free_world(&b);
}

/* For every input the call waits for the flag until the deadline, and reads the
 * piece once the flag is set. */
static void
flags_of_inputs_are_waited_for(void **state)
{
    static const struct {
        int tensor;
        const char *named;
    } inputs[] = {{Q, "piece 0 of q"}, {V, "piece 0 of v"},
        {OUT, "piece 0 of out"}, {LSE, "piece 0 of lse"},
        {DOUT, "piece 0 of dout"}, {DLSE, "piece 0 of dlse"}};
    (void)state;
    for (size_t n = 0; n < sizeof(inputs) / sizeof(inputs[0]); n++) {
        struct backward_world b;
        uint64_t *flag;
        init_world(&b, test_seed(41));
        world_draw_problem(&b.w);
        b.give_dlse = true;
        make_world(&b);
        struct tensor *t = &b.w.t[inputs[n].tensor];
        good(cudaMalloc((void **)&flag, sizeof(*flag)));
        good(cudaMemset(flag, 0, sizeof(*flag)));
        ulyx_attention_piece_t piece = {.rows = t->rows,
            .base = t->device.base,
            .flag = flag,
            .flag_value = 1};
        t->device.pieces = &piece;
        t->device.piece_count = 1;
        t->device.piece_size = sizeof(piece);
        b.w.exec.timeout_s = 0.05;
        assert_status(run_backward(&b), ULYX_SUCCESS);
        expect_untouched(&b);
        world_expect_cause(&b.w, ULYX_ERR_TIMEOUT, inputs[n].named);
        good(cudaMemset(b.w.cause, 0, sizeof(*b.w.cause)));
        good(cudaMemset(flag, 1, sizeof(*flag)));
        assert_status(run_backward(&b), ULYX_SUCCESS);
        compare_all(&b);
        good(cudaFree(flag));
        free_world(&b);
    }
}

/* No key to attend to, or no query that attends: gradients are zeros in both
 * cases. */
static void
rows_without_keys_have_zero_gradients(void **state)
{
    (void)state;
    for (int keys = 0; keys < 2; keys++) {
        struct backward_world b;
        init_world(&b, test_seed(41));
        world_draw_problem(&b.w);
        b.w.problem.len_q = keys ? 0 : 40;
        b.w.problem.len_k = keys ? 40 : 0;
        make_world(&b);
        assert_status(run_backward(&b), ULYX_SUCCESS);
        compare_all(&b);
        free_world(&b);
    }
}

#define ON_DEVICE(test)                                                        \
    cmocka_unit_test_setup_teardown(test, world_open, world_close)

static const struct CMUnitTest tests[] = {
    ON_DEVICE(random_problems_agree),
    ON_DEVICE(a_graph_is_replayed_with_other_data),
    ON_DEVICE(host_memory_is_refused_by_name),
    ON_DEVICE(invalid_calls_are_refused_by_name),
    ON_DEVICE(pieces_beyond_the_table_are_refused),
    ON_DEVICE(bad_documents_keep_the_gradients),
    ON_DEVICE(flags_of_inputs_are_waited_for),
    ON_DEVICE(rows_without_keys_have_zero_gradients),
    cmocka_unit_test(bits_depend_neither_on_order_nor_on_blocks),
};

ULI_TEST_MAIN("ApiAttentionBackward", tests)
