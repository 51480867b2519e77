/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives on device memory that cannot be mapped, through the public calls,
 * over each batch transport: drawn calls are compared with those of the host
 * bit for bit. Also refusals, ranks that differ, captures, deadlines, and the
 * end of communicators. Every rank calls from a thread of its own, because a
 * call returns only once all ranks have made theirs.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "base/status.h"
#include "emulate/driver/driver.h"
#include "emulate/plan/collective_scene.h"
#include "emulate/plan/gate.h"
#include "support/test.h"
#ifdef FAKE_NCCL_OK
#include "emulate/messages/fake_nccl_kernels.h"
#endif

#define good(call) assert_int_equal((call), cudaSuccess)
/* a timeout that tests wait out; creation must end within it */
#define LATE_S 6.0

/* ---- scenes -------------------------------------------------------------- */

static int
set_up_staged(void **state)
{
    (void)state;
    setenv("ULYX_NCCL_LIB", "/nowhere/libnccl.so", 1);
    setenv("ULYX_STAGE_CHUNK", "4K", 1);
    return setenv("ULYX_GPU_SMS", "2", 1); /* emulated threads are slow */
}

#ifdef FAKE_NCCL_OK
static struct fake_nccl *fake;

static int
set_up_nccl(void **state)
{
    (void)state;
    fake = fake_nccl_load();
    setenv("ULYX_GPU_SMS", "2", 1);
    return fake ? setenv("ULYX_NCCL_LIB", FAKE_NCCL_OK, 1) : -1;
}
#endif

static int
tear_down(void **state)
{
    (void)state;
    unsetenv("ULYX_GPU_RECV_BUFFER");
    unsetenv("ULYX_RANKS_PER_NODE");
    unsetenv("ULYX_STAGE_CHUNK");
#ifdef FAKE_NCCL_OK
    if (fake && fake->alive)
        fprintf(stderr, "left: %d NCCL communicators\n", fake->alive);
    return fake && fake->alive;
#else
    return 0;
#endif
}

static void
apart_open(
    struct coll_scene *c, int32_t nranks, int32_t devices, double timeout_s)
{
    ulyx_unique_id_t id;
    memset(c, 0, sizeof(*c));
    c->s.nranks = c->s.ranks.nranks = nranks;
    c->s.ranks.only = -1;
    c->s.devices = plan_machine(devices, 8, nranks);
    emu_driver_no_peers(true);
    assert_status(ulyx_unique_id_create(&id), ULYX_SUCCESS);
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int32_t r = 0; r < nranks; r++) {
        ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
        params.memory_kind = ULYX_MEMORY_CUDA;
        params.device = r % devices;
        params.timeout_s = timeout_s;
        assert_status(
            ulyx_comm_create(&id, nranks, r, &params, &c->s.ranks.comms[r]),
            ULYX_SUCCESS);
    }
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
    for (int32_t r = 0; r < nranks; r++) {
        void *memory = NULL;
        good(cudaSetDevice(r % devices));
        good(cudaMalloc(&memory, 2 * COLL_BYTES));
        c->s.windows[r] = memory;
        good(
            cudaStreamCreateWithFlags(&c->s.streams[r], cudaStreamNonBlocking));
    }
    coll_prepare(c);
}

static void
apart_close(struct coll_scene *c)
{
    coll_release(c);
    for (int32_t r = 0; r < c->s.nranks; r++) {
        good(cudaSetDevice(r % c->s.devices));
        good(cudaStreamDestroy(c->s.streams[r]));
        good(cudaFree(c->s.windows[r]));
    }
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    for (int32_t r = 0; r < c->s.nranks; r++)
        assert_status(ulyx_comm_destroy(c->s.ranks.comms[r]), ULYX_SUCCESS);
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
    assert_int_equal(emu_fault_count(), 0);
    emu_driver_no_peers(false);
    plan_machine_close();
}

/* ---- calls of all ranks at a time ---------------------------------------- */

struct turn {
    struct coll_scene *c;
    struct coll_call call;
    int32_t rank;
    pthread_t thread;
    ulyx_status_t status;
    char text[512];
};

static void *
turn_run(void *context)
{
    struct turn *turn = context;
    turn->status = coll_run(turn->c, &turn->call, turn->rank);
    snprintf(turn->text, sizeof(turn->text), "%s", ulyx_last_error());
    return NULL;
}

static void
turn_start(struct turn *turn, struct coll_scene *c,
    const struct coll_call *call, int32_t rank)
{
    *turn = (struct turn){.c = c, .call = *call, .rank = rank};
    assert_int_equal(pthread_create(&turn->thread, NULL, turn_run, turn), 0);
}

static void
turn_end(struct turn *turn, ulyx_status_t status, const char *text)
{
    assert_int_equal(pthread_join(turn->thread, NULL), 0);
    if (turn->status != status || (text && !strstr(turn->text, text)))
        fail_msg("rank %d: status %d, \"%s\"; wanted %d, \"%s\"", turn->rank,
            turn->status, turn->text, status, text ? text : "");
}

/* Makes the calls of all ranks. The call of rank r must return wanted[r], and
 * no byte may arrive. */
static void
expect_errors(struct coll_scene *c, const struct coll_call *calls,
    const ulyx_status_t *wanted, const char *text)
{
    struct turn turns[PLAN_RANKS_MAX];
    for (int32_t r = 0; r < c->s.nranks; r++)
        turn_start(&turns[r], c, &calls[r], r);
    for (int32_t r = 0; r < c->s.nranks; r++)
        turn_end(&turns[r], wanted[r], wanted[r] == ULYX_SUCCESS ? NULL : text);
    coll_compare(c, &calls[0]);
}

/* ---- every bit ----------------------------------------------------------- */

static void
run_draws(int32_t nranks, int32_t devices, const char *room, int64_t count,
    uint64_t seed)
{
    struct test_random random = {test_seed(seed)};
    int64_t draws = test_draws(count);
    struct coll_scene c;
    setenv("ULYX_GPU_RECV_BUFFER", room, 1);
    apart_open(&c, nranks, devices, 0);
    coll_run_draws(&c, &random, draws);
    apart_close(&c);
}

static void
every_bit_is_the_hosts(void **state)
{
    (void)state;
    run_draws(4, 4, "1K", 8, 601);
    run_draws(3, 2, "3000", 8, 602);
    run_draws(2, 2, "2M", 5, 603);
}

/* First two ranks per node, then one: messages also go over the network. */
static void
every_bit_is_the_hosts_between_nodes(void **state)
{
    (void)state;
    setenv("ULYX_RANKS_PER_NODE", "2", 1);
    run_draws(3, 3, "1K", 5, 604);
    setenv("ULYX_RANKS_PER_NODE", "1", 1);
    run_draws(2, 2, "8K", 5, 605);
}

/* ---- differences --------------------------------------------------------- */

static void
sizes_that_differ_are_named_by_both(void **state)
{
    const ulyx_status_t wanted[] = {
        ULYX_ERR_MISMATCH, ULYX_ERR_MISMATCH, ULYX_SUCCESS};
    struct test_random random = {607};
    struct coll_scene c;
    (void)state;
    apart_open(&c, 3, 3, 0);
    struct coll_call calls[3], call = coll_plain(COLL_ALLTOALLV, 0, false);
    coll_fill(&c, &call, &random);
    call.bytes[0][1] = 100;
    call.come[1][0] = 90;
    for (int r = 0; r < 3; r++)
        calls[r] = call;
    expect_errors(&c, calls, wanted, "alltoallv: rank ");
    coll_expect_well(&c, COLL_ALLTOALL, false);
    /* the same with messages for other ranks, which arrive */
    struct turn turns[3];
    coll_fill(&c, &call, &random);
    call.bytes[0][2] = call.come[2][0] = 60;
    for (int32_t r = 0; r < 3; r++)
        turn_start(&turns[r], &c, &call, r);
    turn_end(&turns[0], ULYX_ERR_MISMATCH,
        "rank 1 sends 0 bytes to rank 0, which expects 0; rank 1 expects "
        "90 of the 100 bytes that rank 0 sends");
    turn_end(&turns[1], ULYX_ERR_MISMATCH,
        "rank 0 sends 100 bytes to rank 1, which expects 90; rank 0 "
        "expects 0 of the 0 bytes that rank 1 sends");
    turn_end(&turns[2], ULYX_SUCCESS, NULL);
    call.bytes[0][1] = call.come[1][0] = 0;
    coll_check(&c, &call);
    apart_close(&c);
}

/* Nothing is moved on any rank, and every rank returns the error. */
static void
reductions_that_differ_move_nothing(void **state)
{
    static const char *const texts[] = {
        "allreduce: count is 700 on rank 0 and 701 on rank 1",
        "allreduce: dtype is ", "broadcast: root is 0 on rank 0 and 2 on rank"};
    const ulyx_status_t wanted[] = {
        ULYX_ERR_MISMATCH, ULYX_ERR_MISMATCH, ULYX_ERR_MISMATCH};
    struct test_random random = {608};
    struct coll_scene c;
    (void)state;
    apart_open(&c, 3, 3, 0);
    for (int what = 0; what < 3; what++) {
        struct coll_call calls[3];
        for (int r = 0; r < 3; r++)
            calls[r] = coll_plain(
                what == 2 ? COLL_BROADCAST : COLL_ALLREDUCE, 700, false);
        calls[1].count += what == 0 ? 1 : 0;
        calls[1].dtype = what == 1 ? ULYX_DTYPE_BF16 : ULYX_DTYPE_F32;
        calls[1].root = what == 2 ? 2 : 0;
        coll_fill(&c, &calls[0], &random);
        expect_errors(&c, calls, wanted, texts[what]);
    }
    coll_expect_well(&c, COLL_ALLREDUCE, false);
    apart_close(&c);
}

static void
different_calls_are_a_mismatch(void **state)
{
    const ulyx_status_t wanted[] = {ULYX_ERR_MISMATCH, ULYX_ERR_MISMATCH};
    struct test_random random = {609};
    struct coll_scene c;
    (void)state;
    apart_open(&c, 2, 2, 0);
    struct coll_call calls[2] = {coll_plain(COLL_ALLREDUCE, 300, false),
        coll_plain(COLL_ALLTOALL, 300, false)};
    coll_fill(&c, &calls[0], &random);
    expect_errors(&c, calls, wanted, "rank 1 calls alltoall, rank 0 allreduce");
    coll_expect_well(&c, COLL_BROADCAST, false);
    apart_close(&c);
}

/* ---- refusals ------------------------------------------------------------ */

/* Nothing is moved on any rank, and the peers return the cause. */
static void
what_is_wrong_with_a_call_is_named_everywhere(void **state)
{
    struct test_random random = {617};
    struct coll_scene c;
    (void)state;
    apart_open(&c, 3, 3, 0);
    for (int which = 0; which < COLL_WRONG; which++) {
        struct coll_call call = coll_plain(COLL_ALLREDUCE, 300, false);
        struct turn turns[3];
        ulyx_status_t status;
        coll_fill(&c, &call, &random);
        for (int32_t r = 1; r < 3; r++)
            turn_start(&turns[r], &c, &call, r);
        const char *text = coll_wrong(&c, which, &status);
        assert_status(status, ULYX_ERR_INVALID_ARGUMENT);
        if (!strstr(ulyx_last_error(), text))
            fail_msg("%d: no \"%s\" in \"%s\"", which, text, ulyx_last_error());
        for (int32_t r = 1; r < 3; r++) {
            turn_end(&turns[r], ULYX_ERR_PEER_REFUSED, "rank 0 refused: ");
            assert_non_null(strstr(turns[r].text, text));
        }
        coll_compare(&c, &call);
    }
    coll_expect_well(&c, COLL_ALLREDUCE, false);
    apart_close(&c);
}

/* ---- captures ------------------------------------------------------------ */

struct capture {
    struct coll_scene *c;
    const struct coll_call *calls;
    int32_t rank;
    cudaGraphExec_t exec;
    bool good;
};

static void *
capture_run(void *context)
{
    struct capture *p = context;
    cudaStream_t stream = p->c->s.streams[p->rank];
    cudaGraph_t graph = NULL;
    p->good = cudaSetDevice(p->rank % p->c->s.devices) == cudaSuccess &&
              cudaStreamBeginCapture(
                  stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess;
    for (int i = 0; i < 2 && p->good; i++)
        p->good = coll_run(p->c, &p->calls[i], p->rank) == ULYX_SUCCESS;
    p->good = cudaStreamEndCapture(stream, &graph) == cudaSuccess && p->good &&
              cudaGraphInstantiate(&p->exec, graph, 0) == cudaSuccess;
    cudaGraphDestroy(graph);
    return NULL;
}

/* A sum, and the pieces of another kind of call; between the replays there are
 * direct calls. */
static void
captured_calls_are_replayed_with_new_data(void **state)
{
    struct test_random random = {612};
    struct coll_scene c;
    (void)state;
    setenv("ULYX_GPU_RECV_BUFFER", "4K", 1);
    apart_open(&c, 3, 3, 0);
    coll_expect_well(&c, COLL_ALLTOALL, false);
    struct coll_call calls[2] = {coll_plain(COLL_ALLREDUCE, 3000, false),
        coll_plain(COLL_ALLTOALL, 3001, false)};
    struct capture captures[3];
    pthread_t threads[3];
    calls[1].dst_at[0] = 20000;
    coll_fill(&c, &calls[0], &random);
    for (int32_t r = 0; r < 3; r++) {
        captures[r] = (struct capture){&c, calls, r, NULL, false};
        pthread_create(&threads[r], NULL, capture_run, &captures[r]);
    }
    for (int32_t r = 0; r < 3; r++) {
        pthread_join(threads[r], NULL);
        assert_true(captures[r].good);
    }
    for (int i = 0; i < 3; i++) {
        coll_fill(&c, &calls[0], &random);
        for (int32_t r = 0; r < 3; r++)
            good(cudaGraphLaunch(captures[r].exec, c.s.streams[r]));
        coll_host(&c, &calls[0]);
        coll_check(&c, &calls[1]);
        if (i == 1)
            coll_expect_well(&c, COLL_ALLREDUCE, false);
    }
    for (int32_t r = 0; r < 3; r++)
        good(cudaGraphExecDestroy(captures[r].exec));
    apart_close(&c);
}

static void
the_first_call_is_refused_in_a_capture(void **state)
{
    struct coll_scene c;
    cudaGraph_t graph;
    struct turn turn;
    (void)state;
    apart_open(&c, 2, 2, 0);
    struct coll_call call = coll_plain(COLL_ALLTOALL, 100, false);
    struct test_random random = {614};
    coll_fill(&c, &call, &random);
    good(cudaSetDevice(0));
    good(cudaStreamBeginCapture(
        c.s.streams[0], cudaStreamCaptureModeThreadLocal));
    turn_start(&turn, &c, &call, 1);
    assert_status(coll_run(&c, &call, 0), ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(ulyx_last_error(), "before the capture"));
    turn_end(&turn, ULYX_ERR_PEER_REFUSED, "before the capture");
    good(cudaStreamEndCapture(c.s.streams[0], &graph));
    good(cudaGraphDestroy(graph));
    coll_expect_well(&c, COLL_ALLTOALL, false);
    apart_close(&c);
}

/* ---- ranks that do not come ---------------------------------------------- */

static uint32_t *
gate_put(struct coll_scene *c, int32_t rank)
{
    void *open = NULL;
    good(cudaSetDevice(rank % c->s.devices));
    good(cudaHostAlloc(&open, sizeof(uint32_t), cudaHostAllocMapped));
    memset(open, 0, sizeof(uint32_t));
    good(gate_launch(open, c->s.streams[rank]));
    return open;
}

/* Opens the gate and waits until the stream has ended. */
static void
gate_open(struct coll_scene *c, int32_t rank, uint32_t *gate)
{
    cudaStream_t other;
    good(cudaSetDevice(rank % c->s.devices));
    good(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    good(gate_open_launch(gate, other));
    good(cudaStreamSynchronize(c->s.streams[rank]));
    good(cudaStreamDestroy(other));
    good(cudaFreeHost(gate));
}

/* The calls of ranks 0 and 1 have returned, although rank 1's stream does not
 * continue. */
static void
a_blocked_stream_delays_streams_but_no_call(void **state)
{
    struct test_random random = {615};
    struct coll_scene c;
    (void)state;
    apart_open(&c, 2, 2, 0);
    coll_expect_well(&c, COLL_ALLTOALL, false);
    struct coll_call call = coll_plain(COLL_ALLREDUCE, 900, false);
    coll_fill(&c, &call, &random);
    uint32_t *gate = gate_put(&c, 1);
    coll_run_all(&c, &call);
    good(cudaSetDevice(0));
    assert_int_equal(cudaStreamQuery(c.s.streams[0]), cudaErrorNotReady);
    assert_status(ulyx_comm_destroy(c.s.ranks.comms[0]), ULYX_ERR_BUSY);
    gate_open(&c, 1, gate);
    coll_check(&c, &call);
    apart_close(&c);
}

static ulyx_status_t
failure_of(ulyx_comm_t *comm)
{
    ulyx_status_t status = ULYX_SUCCESS;
    for (int i = 0; i < 30000 && status == ULYX_SUCCESS; i++) {
        assert_status(ulyx_comm_get_async_error(comm, &status), ULYX_SUCCESS);
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    return status;
}

static void
a_rank_with_a_blocked_stream_is_named_after_the_deadline(void **state)
{
    struct test_random random = {616};
    struct coll_scene c;
    (void)state;
    apart_open(&c, 2, 2, LATE_S);
    coll_expect_well(&c, COLL_ALLTOALL, false);
    struct coll_call call = coll_plain(COLL_ALLREDUCE, 400, false);
    coll_fill(&c, &call, &random);
    uint32_t *gate = gate_put(&c, 1);
    coll_run_all(&c, &call);
    assert_int_equal(failure_of(c.s.ranks.comms[0]), ULYX_ERR_TIMEOUT);
    assert_non_null(strstr(ulyx_last_error(), "collective, call 2, after "));
    assert_non_null(strstr(ulyx_last_error(), "waiting for rank 1 "));
    good(cudaStreamSynchronize(c.s.streams[0]));
    assert_status(coll_run(&c, &call, 0), ULYX_ERR_TIMEOUT);
    gate_open(&c, 1, gate);
    plan_sync(&c.s);
    apart_close(&c);
}

static void
a_rank_that_does_not_call_is_named_after_the_deadline(void **state)
{
    struct coll_scene c;
    (void)state;
    apart_open(&c, 3, 3, LATE_S);
    coll_expect_well(&c, COLL_ALLTOALL, false);
    struct coll_call call = coll_plain(COLL_ALLREDUCE, 400, false);
    struct test_random random = {621};
    struct turn turns[2];
    coll_fill(&c, &call, &random);
    for (int32_t r = 0; r < 2; r++)
        turn_start(&turns[r], &c, &call, r);
    for (int32_t r = 0; r < 2; r++)
        turn_end(&turns[r], ULYX_ERR_TIMEOUT, "rank 2");
    apart_close(&c);
}

/* Rank 0 waits in its call, and rank 1's stream waits in the batch. */
static void
an_abort_ends_calls_and_streams(void **state)
{
    struct test_random random = {618};
    struct coll_scene c;
    struct turn turn;
    (void)state;
    apart_open(&c, 2, 2, 0);
    coll_expect_well(&c, COLL_ALLTOALL, false);
    struct coll_call call = coll_plain(COLL_ALLREDUCE, 400, false);
    coll_fill(&c, &call, &random);
    uint32_t *gate = gate_put(&c, 1);
    coll_run_all(&c, &call);
    turn_start(&turn, &c, &call, 0);
    assert_status(ulyx_comm_abort(c.s.ranks.comms[1]), ULYX_SUCCESS);
    turn_end(&turn, ULYX_ERR_ABORTED, NULL);
    good(cudaStreamSynchronize(c.s.streams[0]));
    gate_open(&c, 1, gate);
    plan_sync(&c.s);
    apart_close(&c);
}

static void
a_rank_that_has_left_is_named_by_the_next_call(void **state)
{
    struct coll_scene c;
    (void)state;
    apart_open(&c, 2, 2, 30);
    coll_expect_well(&c, COLL_ALLGATHER, false);
    struct coll_call call = coll_plain(COLL_ALLREDUCE, 400, false);
    struct test_random random = {619};
    coll_fill(&c, &call, &random);
    assert_status(ulyx_comm_destroy(c.s.ranks.comms[1]), ULYX_SUCCESS);
    c.s.ranks.comms[1] = NULL;
    assert_int_not_equal(coll_run(&c, &call, 0), ULYX_SUCCESS);
    assert_non_null(strstr(ulyx_last_error(), "rank 1"));
    coll_compare(&c, &call);
    apart_close(&c);
}

static void
without_any_batch_transport_the_reasons_are_named(void **state)
{
    struct coll_scene c;
    (void)state;
    setenv("ULYX_TRANSPORTS", "^staged", 1);
    apart_open(&c, 2, 2, 0);
    struct coll_call call = coll_plain(COLL_ALLREDUCE, 400, false);
    struct test_random random = {620};
    struct turn turns[2];
    coll_fill(&c, &call, &random);
    for (int i = 0; i < 2; i++) {
        for (int32_t r = 0; r < 2; r++)
            turn_start(&turns[r], &c, &call, r);
        for (int32_t r = 0; r < 2; r++) {
            turn_end(&turns[r], ULYX_ERR_UNSUPPORTED, "nccl: /nowhere/libnccl");
            assert_non_null(strstr(turns[r].text, "staged: ULYX_TRANSPORTS"));
        }
    }
    apart_close(&c);
    unsetenv("ULYX_TRANSPORTS");
}

/* ---- the cases ----------------------------------------------------------- */

#define STAGED(name)                                                           \
    {                                                                          \
#name "_by_staging", name, set_up_staged, tear_down, NULL              \
    }
#ifdef FAKE_NCCL_OK
#define CASE(name)                                                             \
    STAGED(name),                                                              \
    {                                                                          \
#name "_by_nccl", name, set_up_nccl, tear_down, NULL                   \
    }
#else
#define CASE(name) STAGED(name)
#endif
static const struct CMUnitTest tests[] = {
    CASE(every_bit_is_the_hosts),
#ifdef HAVE_NODES
    STAGED(every_bit_is_the_hosts_between_nodes),
#endif
    CASE(sizes_that_differ_are_named_by_both),
    CASE(reductions_that_differ_move_nothing),
    CASE(different_calls_are_a_mismatch),
    CASE(what_is_wrong_with_a_call_is_named_everywhere),
    CASE(captured_calls_are_replayed_with_new_data),
    CASE(the_first_call_is_refused_in_a_capture),
    CASE(a_blocked_stream_delays_streams_but_no_call),
    CASE(a_rank_with_a_blocked_stream_is_named_after_the_deadline),
    CASE(a_rank_that_does_not_call_is_named_after_the_deadline),
    CASE(an_abort_ends_calls_and_streams),
    CASE(a_rank_that_has_left_is_named_by_the_next_call),
    STAGED(without_any_batch_transport_the_reasons_are_named),
};

ULI_TEST_MAIN("EmulateCollectiveApart", tests)
