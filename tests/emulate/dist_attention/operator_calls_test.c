/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of distributed attention on device memory: captures and replays,
 * refused calls and their texts, errors that the device finds later, and a rank
 * that does not come. One thread drives two ranks.
 */
#include <stdlib.h>
#include <string.h>
#ifdef ULI_EMULATE
#include "emulate/driver/driver.h"
#endif
#include "emulate/plan/plan_scene.h"
#include "support/test.h"
#include "ulyx/ulyx.h"

enum {
    RANKS = 2,
    ROWS = 24,
    HEADS = 4,
    KV = 2,
    DIM = 8,
    TENSOR = ROWS / RANKS * HEADS * DIM, /* in floats; keys have half as many */
    Q = 0,
    K,
    V,
    DOUT,
    OUT,
    DQ,
    DK,
    DV,
    TENSORS
};

#define good(call) assert_int_equal((call), cudaSuccess)

/* The calls of one rank; all its tensors lie in its window. */
struct own {
    ulyx_dist_attention_t *dist;
    float *t[TENSORS];
    ulyx_dist_attention_forward_t f;
    ulyx_dist_attention_backward_t b;
};

struct calls {
    struct plan_scene s;
    struct own own[RANKS];
    ulyx_part_t part;
    ulyx_dist_attention_params_t p;
};

/* ---- the scene ----------------------------------------------------------- */

/* Whether the plans exchange by messages. The windows exist in either case. */
static bool by_messages;

#ifdef ULI_EMULATE
static int
set_up_staged(void **state)
{
    (void)state;
    by_messages = true;
    return setenv("ULYX_ALGO", "staged", 1);
}

static int
tear_down_staged(void **state)
{
    (void)state;
    by_messages = false;
    return unsetenv("ULYX_ALGO");
}
#endif

static void
calls_open(struct calls *c, double timeout_s)
{
    memset(c, 0, sizeof(*c));
    plan_open(&c->s, RANKS, RANKS, timeout_s);
    c->part = (ulyx_part_t)ULYX_PART_INIT;
    c->part.rows = ROWS;
    c->p = (ulyx_dist_attention_params_t)ULYX_DIST_ATTENTION_PARAMS_INIT;
    c->p.dtype = ULYX_DTYPE_F32;
    c->p.heads = HEADS;
    c->p.kv_heads = KV;
    c->p.dim_qk = DIM;
    c->p.parts = &c->part;
    c->p.nparts = 1;
    c->p.threads = 1;
    c->p.mask_kind = ULYX_MASK_CAUSAL;
}

static ulyx_status_t
calls_create(struct calls *c)
{
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++)
        assert_status(ulyx_dist_attention_create(
                          c->s.ranks.comms[r], &c->p, &c->own[r].dist),
            ULYX_SUCCESS);
    return ulyx_group_end();
}

static void *
window_take(struct calls *c, int r, int64_t bytes)
{
    unsigned char *at = c->s.windows[r] + c->s.used[r];
    c->s.used[r] += (bytes + 63) / 64 * 64;
    assert_true(c->s.used[r] <= PLAN_WINDOW_BYTES);
    return at;
}

static void
own_take(struct calls *c, int r)
{
    struct own *o = &c->own[r];
    int64_t workspace, saved;
    assert_status(
        ulyx_dist_attention_get_bytes(o->dist, &workspace, &saved, NULL),
        ULYX_SUCCESS);
    for (int t = 0; t < TENSORS; t++)
        o->t[t] = window_take(c, r, TENSOR * 4);
    o->f = (ulyx_dist_attention_forward_t)ULYX_DIST_ATTENTION_FORWARD_INIT;
    o->f.q = (const void *const *)&o->t[Q];
    o->f.k = (const void *const *)&o->t[K];
    o->f.v = (const void *const *)&o->t[V];
    o->f.out = (void *const *)&o->t[OUT];
    o->b = (ulyx_dist_attention_backward_t)ULYX_DIST_ATTENTION_BACKWARD_INIT;
    o->b.out = (const void *const *)&o->t[OUT];
    o->b.dout = (const void *const *)&o->t[DOUT];
    o->b.dq = (void *const *)&o->t[DQ];
    o->b.dk = (void *const *)&o->t[DK];
    o->b.dv = (void *const *)&o->t[DV];
    o->f.workspace = o->b.workspace = window_take(c, r, workspace);
    o->f.workspace_bytes = o->b.workspace_bytes = workspace;
    o->f.saved = window_take(c, r, saved);
    o->b.saved = o->f.saved;
    o->f.saved_bytes = o->b.saved_bytes = saved;
}

static void
calls_make(struct calls *c)
{
    assert_status(calls_create(c), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++)
        own_take(c, r);
}

static void
calls_close(struct calls *c)
{
    for (int r = 0; r < RANKS; r++)
        assert_status(
            ulyx_dist_attention_destroy(c->own[r].dist), ULYX_SUCCESS);
    assert_int_equal(emu_fault_count(), 0);
    plan_close(&c->s);
}

/* Fills the inputs from the seed, and the outputs with poison. */
static void
calls_fill(struct calls *c, uint64_t seed)
{
    struct test_random random = {seed};
    float values[TENSOR];
    for (int r = 0; r < RANKS; r++)
        for (int t = 0; t < TENSORS; t++) {
            memset(values, 0xFF, sizeof(values));
            for (int i = 0; i < TENSOR && t <= DOUT; i++)
                values[i] = (float)test_random_normal(&random);
            good(cudaMemcpy(c->own[r].t[t], values, sizeof(values),
                cudaMemcpyHostToDevice));
        }
}

static int64_t
tensor_floats(int t)
{
    return t == K || t == V || t == DK || t == DV ? TENSOR / 2 : TENSOR;
}

/* The outputs of all ranks, one after the other. */
struct results {
    float values[RANKS][TENSORS][TENSOR];
};

static void
calls_results(struct calls *c, struct results *results_p)
{
    memset(results_p, 0, sizeof(*results_p));
    for (int r = 0; r < RANKS; r++)
        for (int t = OUT; t < TENSORS; t++)
            good(cudaMemcpy(results_p->values[r][t], c->own[r].t[t],
                (size_t)tensor_floats(t) * 4, cudaMemcpyDeviceToHost));
}

static bool
results_finite(const struct results *results)
{
    for (int r = 0; r < RANKS; r++)
        for (int t = OUT; t < TENSORS; t++)
            for (int64_t i = 0; i < tensor_floats(t); i++)
                if (!(results->values[r][t][i] - results->values[r][t][i] == 0))
                    return false;
    return true;
}

static ulyx_status_t
call_forward(struct calls *c, int r)
{
    return ulyx_dist_attention_forward(
        c->own[r].dist, &c->own[r].f, c->s.streams[r]);
}

static ulyx_status_t
call_backward(struct calls *c, int r)
{
    return ulyx_dist_attention_backward(
        c->own[r].dist, &c->own[r].b, c->s.streams[r]);
}

/* Runs a forward and a backward of all ranks, which must succeed. */
static void
calls_step(struct calls *c)
{
    for (int r = 0; r < RANKS; r++)
        assert_status(call_forward(c, r), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++)
        assert_status(call_backward(c, r), ULYX_SUCCESS);
    plan_sync(&c->s);
}

/* ---- captures ------------------------------------------------------------ */

/* Captures the forward and the backward of each rank as one graph. */
static void
capture_step(struct calls *c, cudaGraphExec_t *exec_p)
{
    for (int r = 0; r < RANKS; r++) {
        cudaGraph_t graph;
        good(cudaSetDevice(r % c->s.devices));
        good(cudaStreamBeginCapture(
            c->s.streams[r], cudaStreamCaptureModeThreadLocal));
        assert_status(call_forward(c, r), ULYX_SUCCESS);
        assert_status(call_backward(c, r), ULYX_SUCCESS);
        good(cudaStreamEndCapture(c->s.streams[r], &graph));
        good(cudaGraphInstantiate(&exec_p[r], graph, 0));
        good(cudaGraphDestroy(graph));
    }
}

static void
replay_step(struct calls *c, cudaGraphExec_t *exec)
{
    for (int r = 0; r < RANKS; r++)
        good(cudaGraphLaunch(exec[r], c->s.streams[r]));
    plan_sync(&c->s);
}

static void
drop_step(cudaGraphExec_t *exec)
{
    for (int r = 0; r < RANKS; r++)
        good(cudaGraphExecDestroy(exec[r]));
}

static void
check_replays(int32_t head_groups, ulyx_save_mode_t save)
{
    struct calls c;
    struct results *expected = malloc(sizeof(*expected));
    struct results *found = malloc(sizeof(*found));
    cudaGraphExec_t exec[RANKS];
    calls_open(&c, 0);
    c.p.head_groups = head_groups;
    c.p.save = save;
    calls_make(&c);
    for (int r = 0; r < RANKS && save == ULYX_SAVE_NONE; r++) {
        c.own[r].b.q = c.own[r].f.q;
        c.own[r].b.k = c.own[r].f.k;
        c.own[r].b.v = c.own[r].f.v;
    }
    calls_fill(&c, 1);
    calls_step(&c);
    capture_step(&c, exec);
    for (uint64_t seed = 2; seed < 6; seed++) {
        calls_fill(&c, seed);
        calls_step(&c); /* direct calls between the replays */
        calls_results(&c, expected);
        assert_true(results_finite(expected));
        calls_fill(&c, seed);
        replay_step(&c, exec);
        calls_results(&c, found);
        assert_memory_equal(found, expected, sizeof(*found));
    }
    drop_step(exec);
    calls_close(&c);
    free(expected);
    free(found);
}

static void
a_captured_step_is_replayed_with_new_data(void **state)
{
    (void)state;
    check_replays(1, ULYX_SAVE_HEADS);
    check_replays(2, ULYX_SAVE_NONE);
}

/* ---- what a call costs the host ------------------------------------------ */

#ifdef ULI_EMULATE
/* The number of driver calls that the two passes of a rank make. */
struct cost {
    long forward, backward;
};

static struct cost
calls_cost(int32_t head_groups)
{
    struct calls c;
    struct cost cost = {0, 0};
    calls_open(&c, 0);
    c.p.head_groups = head_groups;
    calls_make(&c);
    calls_fill(&c, 1);
    calls_step(&c);
    for (int r = 0; r < RANKS; r++) {
        long before = emu_driver_calls();
        assert_status(call_forward(&c, r), ULYX_SUCCESS);
        long between = emu_driver_calls();
        assert_status(call_backward(&c, r), ULYX_SUCCESS);
        cost.forward = between - before;
        cost.backward = emu_driver_calls() - between;
    }
    plan_sync(&c.s);
    calls_close(&c);
    return cost;
}

/* A call enters and leaves the context, sets and restores the capture mode,
 * queries whether the stream is being captured, and records an event behind
 * all. A plan queries whether its stream is being captured and records its
 * event. Arrays in windows cost no call. */
enum {
    CALL = 2 + 2 + 1 + 1,
    PLAN = 2,
    HEADER = 1 /* the zeroing of the header of saved */
};

static void
one_group_enters_the_context_once(void **state)
{
    struct cost cost = calls_cost(1);
    (void)state;
    assert_int_equal(cost.forward, CALL + HEADER + 2 * PLAN);
    assert_int_equal(cost.backward, CALL + 2 * PLAN);
}

/* Groups on two streams cost their plans and marks: one mark before the first
 * group, two of each group (brought, attended), and one at the end. A mark is
 * recorded and waited for. */
static void
head_groups_cost_their_plans_and_marks(void **state)
{
    enum { GROUPS = 2, MARKS = 2 * (1 + 2 * GROUPS + 1) };
    enum { TAILS = GROUPS }; /* saved: zeros behind the 96 bytes of lse */
    struct cost cost = calls_cost(GROUPS);
    (void)state;
    assert_int_equal(
        cost.forward, CALL + HEADER + TAILS + 2 * GROUPS * PLAN + MARKS);
    assert_int_equal(cost.backward, CALL + 2 * GROUPS * PLAN + MARKS);
}
#endif

/* ---- words --------------------------------------------------------------- */

static void
a_description_names_kernels_and_plans_of_the_device(void **state)
{
    struct calls c;
    char text[4096];
    (void)state;
    calls_open(&c, 0);
    calls_make(&c);
    assert_status(
        ulyx_dist_attention_describe(c.own[0].dist, text, sizeof(text)),
        ULYX_SUCCESS);
    assert_non_null(strstr(text, "forward: kernel mma ("));
    assert_non_null(strstr(text, "backward: kernel mma ("));
    assert_non_null(strstr(text, "direct on device memory"));
    assert_null(strstr(text, "thread"));
    calls_close(&c);
}

/* ---- documents ----------------------------------------------------------- */

static ulyx_docs_t
docs_of(const int64_t *begin, int64_t count)
{
    ulyx_docs_t docs = ULYX_DOCS_INIT;
    docs.count = count;
    docs.begin = begin;
    return docs;
}

static const int64_t two[] = {0, 9, ROWS}, other[] = {0, 14, ROWS};

/* The number of heads is not a multiple of the ranks, so they are cut by rows,
 * and the layout follows the documents. */
static void
calls_follow_docs(struct calls *c, const ulyx_docs_t *docs)
{
    c->p.work_split = ULYX_WORK_BALANCED;
    c->p.heads = c->p.kv_heads = HEADS - 1;
    c->p.docs_q = docs;
}

/* The layout follows the documents. A replay after an update would move other
 * rows than the ones to which it attends. */
static void
a_capture_before_an_update_is_stale(void **state)
{
    struct calls c;
    cudaGraphExec_t exec[RANKS];
    ulyx_docs_t first = docs_of(two, 2), second = docs_of(other, 2);
    (void)state;
    calls_open(&c, 0);
    calls_follow_docs(&c, &first);
    calls_make(&c);
    calls_fill(&c, 1);
    calls_step(&c);
    capture_step(&c, exec);
    replay_step(&c, exec);
    calls_step(&c);
    for (int r = 0; r < RANKS; r++)
        assert_status(ulyx_dist_attention_update(
                          c.own[r].dist, &second, NULL, c.s.streams[r]),
            ULYX_SUCCESS);
    calls_step(&c);
    replay_step(&c, exec);
    for (int r = 0; r < RANKS; r++) {
        assert_status(call_forward(&c, r), ULYX_ERR_MISMATCH);
        assert_true(error_has("captured before the last update"));
    }
    /* the captures of its plans */
    for (int r = 0; r < RANKS && by_messages; r++) {
        assert_status(call_backward(&c, r), ULYX_ERR_MISMATCH);
        assert_true(error_has("captured before the last update"));
    }
    plan_sync(&c.s);
    calls_step(&c);
    drop_step(exec);
    calls_close(&c);
}

/* The attention of a captured call has the rows of the time of the capture. */
static void
a_capture_before_other_rows_is_stale(void **state)
{
    static const int64_t fewer[] = {ROWS - 6};
    struct calls c;
    cudaGraphExec_t exec[RANKS];
    (void)state;
    calls_open(&c, 0);
    c.part.row_capacity = ROWS;
    calls_make(&c);
    calls_fill(&c, 1);
    calls_step(&c);
    capture_step(&c, exec);
    replay_step(&c, exec);
    for (int r = 0; r < RANKS; r++)
        assert_status(ulyx_dist_attention_update_rows(c.own[r].dist, fewer,
                          NULL, NULL, NULL, c.s.streams[r]),
            ULYX_SUCCESS);
    calls_step(&c);
    replay_step(&c, exec);
    for (int r = 0; r < RANKS; r++) {
        assert_status(call_forward(&c, r), ULYX_ERR_MISMATCH);
        assert_true(error_has("captured before the last update"));
    }
    plan_sync(&c.s);
    calls_step(&c);
    drop_step(exec);
    calls_close(&c);
}

static void
ranks_with_other_rows_get_an_error(void **state)
{
    static const int64_t fewer[] = {ROWS - 6};
    struct calls c;
    (void)state;
    calls_open(&c, 0);
    c.part.row_capacity = ROWS;
    calls_make(&c);
    calls_fill(&c, 1);
    calls_step(&c);
    c.own[0].f.rows = c.own[0].b.rows = fewer;
    for (int r = 0; r < RANKS; r++)
        assert_status(call_forward(&c, r), ULYX_SUCCESS);
    plan_sync(&c.s);
    c.own[1].f.rows = c.own[1].b.rows = fewer;
    for (int r = 0; r < RANKS; r++) {
        assert_status(call_forward(&c, r), ULYX_ERR_MISMATCH);
        assert_true(error_has("tables of rank"));
    }
    plan_sync(&c.s);
    calls_step(&c);
    calls_close(&c);
}

static void
an_update_in_a_capture_is_refused(void **state)
{
    struct calls c;
    cudaGraph_t graph;
    ulyx_docs_t first = docs_of(two, 2), second = docs_of(other, 2);
    (void)state;
    calls_open(&c, 0);
    calls_follow_docs(&c, &first);
    calls_make(&c);
    calls_fill(&c, 1);
    calls_step(&c);
    good(cudaSetDevice(0));
    good(cudaStreamBeginCapture(
        c.s.streams[0], cudaStreamCaptureModeThreadLocal));
    c.own[0].f.docs_q = &second;
    assert_status(call_forward(&c, 0), ULYX_ERR_INVALID_ARGUMENT);
    assert_true(error_has("the stream is being captured"));
    good(cudaStreamEndCapture(c.s.streams[0], &graph));
    good(cudaGraphDestroy(graph));
    c.own[0].f.docs_q = NULL;
    calls_step(&c); /* no call has taken place, so rank 1 misses none */
    calls_close(&c);
}

/* The layout does not follow the documents, but the attention does. */
static void
ranks_with_other_documents_get_an_error(void **state)
{
    struct calls c;
    ulyx_docs_t first = docs_of(two, 2), second = docs_of(other, 2);
    (void)state;
    calls_open(&c, 0);
    c.p.max_docs = 2;
    calls_make(&c);
    calls_fill(&c, 1);
    c.own[0].f.docs_q = c.own[0].b.docs_q = &first;
    c.own[1].f.docs_q = &second;
    for (int r = 0; r < RANKS; r++)
        assert_status(call_forward(&c, r), ULYX_SUCCESS);
    plan_sync(&c.s);
    c.own[1].f.docs_q = c.own[1].b.docs_q = &first;
    for (int r = 0; r < RANKS; r++) {
        assert_status(call_forward(&c, r), ULYX_ERR_MISMATCH);
        assert_true(error_has("document tables of rank"));
    }
    plan_sync(&c.s);
    calls_step(&c);
    calls_close(&c);
}

static void
saved_of_another_object_is_refused(void **state)
{
    struct calls c;
    ulyx_docs_t first = docs_of(two, 2), second = docs_of(other, 2);
    (void)state;
    calls_open(&c, 0);
    c.p.max_docs = 2;
    calls_make(&c);
    calls_fill(&c, 1);
    calls_step(&c);
    good(cudaMemset(c.own[0].f.saved, 0, 64));
    for (int r = 0; r < RANKS; r++)
        assert_status(call_backward(&c, r), ULYX_SUCCESS);
    plan_sync(&c.s);
    assert_status(call_forward(&c, 0), ULYX_ERR_INVALID_ARGUMENT);
    assert_true(error_has("saved was not written by a forward"));
    assert_status(call_forward(&c, 1), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++) {
        c.own[r].f.docs_q = &first;
        c.own[r].b.docs_q = &second;
        assert_status(call_forward(&c, r), ULYX_SUCCESS);
    }
    for (int r = 0; r < RANKS; r++)
        assert_status(call_backward(&c, r), ULYX_SUCCESS);
    plan_sync(&c.s);
    for (int r = 0; r < RANKS; r++) {
        assert_status(call_forward(&c, r), ULYX_ERR_INVALID_ARGUMENT);
        assert_true(
            error_has("saved was written by a forward with other documents"));
        c.own[r].b.docs_q = &first;
    }
    calls_step(&c);
    calls_close(&c);
}

/* ---- refusals ------------------------------------------------------------ */

static void
expect_no_creation(struct calls *c, ulyx_status_t status, const char *words)
{
    assert_status(calls_create(c), status);
    if (!error_has(words))
        fail_msg("expected: %s", words);
}

static void
creation_refuses_by_name(void **state)
{
    struct calls c;
    (void)state;
    calls_open(&c, 0);
    c.p.dtype = ULYX_DTYPE_F64;
    expect_no_creation(&c, ULYX_ERR_UNSUPPORTED, "dtype F64");
    c.p.dtype = ULYX_DTYPE_F32;
    c.p.dim_qk = 12;
    expect_no_creation(
        &c, ULYX_ERR_UNSUPPORTED, "dim_qk is 12, must be a multiple of 8");
    c.p.dim_qk = DIM;
    c.p.dim_v = 4;
    expect_no_creation(
        &c, ULYX_ERR_UNSUPPORTED, "dim_v is 4, must be a multiple of 8");
    c.p.dim_v = 0;
    c.p.kernel = "avx2";
    expect_no_creation(
        &c, ULYX_ERR_UNSUPPORTED, "no kernel avx2 for device memory");
    plan_close(&c.s);
}

/* Rank 0's forward is refused with these words and changes nothing. Rank 1's
 * call takes place, and rank 1's next call returns the refusal. */
static void
expect_refused(struct calls *c, const char *words)
{
    assert_status(call_forward(c, 1), ULYX_SUCCESS);
    assert_int_equal(call_forward(c, 0) == ULYX_SUCCESS, false);
    if (!error_has(words))
        fail_msg("expected: %s", words);
    plan_sync(&c->s);
}

static void
expect_usable(struct calls *c)
{
    assert_status(call_forward(c, 0), ULYX_SUCCESS);
    assert_status(call_forward(c, 1), ULYX_ERR_PEER_REFUSED);
    assert_true(error_has("rank 0 refused"));
    plan_sync(&c->s);
    calls_step(c);
}

static void
calls_refuse_by_name(void **state)
{
    const int64_t strides[1][3] = {{0, 1 << 20, 4 * DIM}};
    struct calls c;
    float *host[1] = {malloc(TENSOR * 4)};
    void *apart;
    (void)state;
    calls_open(&c, 0);
    calls_make(&c);
    calls_fill(&c, 1);
    struct own *o = &c.own[0];
    const ulyx_dist_attention_forward_t whole = o->f;
    o->f.q = (const void *const *)host;
    expect_refused(&c, "q: ");
    assert_true(error_has("is not device memory"));
    o->f = whole;
    expect_usable(&c);
    good(cudaSetDevice(0));
    good(cudaMalloc(&apart, (size_t)whole.workspace_bytes + 64));
    o->f.workspace = apart;
    if (by_messages) {
        calls_step(&c);
    } else {
        expect_refused(&c, "workspace (");
        assert_true(error_has("is not inside a window"));
    }
    o->f = whole;
    if (!by_messages)
        expect_usable(&c);
    o->f.q_strides = strides;
    expect_refused(&c, by_messages ? "not those of creation" : "src[0] (");
    assert_true(by_messages || error_has("is not inside a window"));
    o->f = whole;
    expect_usable(&c);
    good(cudaFree(apart));
    calls_close(&c);
    free(host[0]);
}

/* ---- ranks that do not come ---------------------------------------------- */

static void
destroy_waits_for_a_call(void **state)
{
    struct calls c;
    (void)state;
    calls_open(&c, 0);
    calls_make(&c);
    calls_fill(&c, 1);
    assert_status(call_forward(&c, 0), ULYX_SUCCESS);
    assert_status(ulyx_dist_attention_destroy(c.own[0].dist), ULYX_ERR_BUSY);
    assert_true(error_has("in flight"));
    assert_status(call_forward(&c, 1), ULYX_SUCCESS);
    plan_sync(&c.s);
    calls_step(&c);
    calls_close(&c);
}

static void
a_rank_that_stops_is_named(void **state)
{
    struct calls c;
    ulyx_status_t status = ULYX_SUCCESS;
    (void)state;
    calls_open(&c, 5); /* seconds; creation, too, must end within them */
    calls_make(&c);
    calls_fill(&c, 1);
    calls_step(&c);
    assert_status(call_forward(&c, 0), ULYX_SUCCESS);
    plan_sync(&c.s);
    assert_status(
        ulyx_comm_get_async_error(c.s.ranks.comms[0], &status), ULYX_SUCCESS);
    assert_int_equal(status, ULYX_ERR_TIMEOUT);
    assert_true(error_has("waiting for rank 1 ("));
    assert_status(call_backward(&c, 0), ULYX_ERR_TIMEOUT);
    assert_status(ulyx_comm_abort(c.s.ranks.comms[1]), ULYX_SUCCESS);
    plan_sync(&c.s);
    for (int r = 0; r < RANKS; r++) {
        assert_status(ulyx_dist_attention_destroy(c.own[r].dist), ULYX_SUCCESS);
        good(cudaStreamDestroy(c.s.streams[r]));
    }
    for (int r = 0; r < RANKS; r++)
        assert_status(ulyx_comm_destroy(c.s.ranks.comms[r]), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++)
        plan_free_window(c.s.mems[r]);
    assert_int_equal(emu_fault_count(), 0);
    plan_machine_close();
}

#define STAGED(name)                                                           \
    {                                                                          \
#name "_by_messages", name, set_up_staged, tear_down_staged, NULL      \
    }
static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_captured_step_is_replayed_with_new_data),
#ifdef ULI_EMULATE
    cmocka_unit_test(one_group_enters_the_context_once),
    cmocka_unit_test(head_groups_cost_their_plans_and_marks),
#endif
    cmocka_unit_test(a_description_names_kernels_and_plans_of_the_device),
    cmocka_unit_test(a_capture_before_an_update_is_stale),
    cmocka_unit_test(a_capture_before_other_rows_is_stale),
    cmocka_unit_test(ranks_with_other_rows_get_an_error),
    cmocka_unit_test(an_update_in_a_capture_is_refused),
    cmocka_unit_test(ranks_with_other_documents_get_an_error),
    cmocka_unit_test(saved_of_another_object_is_refused),
    cmocka_unit_test(creation_refuses_by_name),
    cmocka_unit_test(calls_refuse_by_name),
    cmocka_unit_test(destroy_waits_for_a_call),
    cmocka_unit_test(a_rank_that_stops_is_named),
#ifdef ULI_EMULATE
    STAGED(a_captured_step_is_replayed_with_new_data),
    STAGED(a_capture_before_an_update_is_stale),
    STAGED(ranks_with_other_documents_get_an_error),
    STAGED(calls_refuse_by_name),
    STAGED(a_rank_that_stops_is_named),
#endif
};

#ifdef ULI_EMULATE
ULI_TEST_MAIN("EmulateOperator", tests)
#else
ULI_TEST_MAIN("CardOperator", tests)
#endif
