/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank fails while a peer reads its tensors - by loads from a window, reads
 * of ordinary memory, sums of loaded shares - and the rank's caller overwrites
 * the tensors at once, or unmaps them. The rank has done its own part of the
 * call, so the peer needs nothing more from it: the peer must still return the
 * failure, and never the bytes that it read. The reading function is wrapped at
 * link time, so that the failure happens just before the read.
 */
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "collectives/exchange/exchange.h"
#include "support/ranks.h"
#include "support/test.h"
#include "ulyx/ulyx.h"

enum { RANKS = 2, FAILING = 0, READING = 1, ROWS = 64, HEADS = 2, DIM = 512 };
enum { STEPS = 10 }; /* a request is tested in fewer steps than this */
#define BYTES   ((int64_t)ROWS * HEADS * DIM * (int64_t)sizeof(float))
#define SHORT_S 0.05

/* How the reading rank reads the tensors of the rank that fails. */
enum reads { BY_LOAD, BY_READ, BY_SUM, OF_NOTHING };

struct scene {
    enum reads reads;
    bool by_deadline; /* fails by its deadline; else by an abort */
    ulyx_comm_t *comms[RANKS];
    ulyx_plan_t *plans[RANKS];
    ulyx_mem_t *mems[RANKS];
    float *src[RANKS], *dst[RANKS];
    sem_t done, fail, failed;
    ulyx_status_t status; /* the status of the failing rank's call */
};

/* ---- just before the reading rank reads ---------------------------------- */

static struct scene *_Atomic armed;

static void
scene_strike(void)
{
    struct scene *s = atomic_exchange(&armed, NULL);
    if (!s)
        return;
    sem_post(&s->fail);
    sem_wait(&s->failed);
}

void __real_uli_box_copy(const struct uli_box *box, struct uli_box_span span,
    void *dst, const void *src, const struct uli_copy_way *way);
void __wrap_uli_box_copy(const struct uli_box *box, struct uli_box_span span,
    void *dst, const void *src, const struct uli_copy_way *way);
void
__wrap_uli_box_copy(const struct uli_box *box, struct uli_box_span span,
    void *dst, const void *src, const struct uli_copy_way *way)
{
    scene_strike();
    __real_uli_box_copy(box, span, dst, src, way);
}

bool __real_uli_direct_read(struct uli_exchange *exchange, int32_t p,
    const struct uli_item *item, struct uli_cursor *cursor);
bool __wrap_uli_direct_read(struct uli_exchange *exchange, int32_t p,
    const struct uli_item *item, struct uli_cursor *cursor);
bool
__wrap_uli_direct_read(struct uli_exchange *exchange, int32_t p,
    const struct uli_item *item, struct uli_cursor *cursor)
{
    scene_strike();
    return __real_uli_direct_read(exchange, p, item, cursor);
}

void __real_uli_sum_run(const struct uli_sum *sum, struct uli_box_span span,
    void *dst, const void *const *sources);
void __wrap_uli_sum_run(const struct uli_sum *sum, struct uli_box_span span,
    void *dst, const void *const *sources);
void
__wrap_uli_sum_run(const struct uli_sum *sum, struct uli_box_span span,
    void *dst, const void *const *sources)
{
    scene_strike();
    __real_uli_sum_run(sum, span, dst, sources);
}

/* ---- the scene ----------------------------------------------------------- */

static ulyx_direction_t
direction_of(const struct scene *s)
{
    static const ulyx_direction_t directions[] = {ULYX_SEQ_TO_HEAD,
        ULYX_HEAD_TO_SEQ, ULYX_SEQ_TO_HEAD_ADJOINT, ULYX_HEAD_TO_SEQ};
    return directions[s->reads];
}

static bool
is_window(const struct scene *s)
{
    return s->reads == BY_LOAD || s->reads == BY_SUM;
}

/* A layout of two query heads. For a sum there is one KV head, whose gradients
 * both ranks have. */
static ulyx_status_t
plan_create(struct scene *s, int rank)
{
    ulyx_part_t part = ULYX_PART_INIT;
    ulyx_tensor_t tensor = ULYX_TENSOR_INIT;
    ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
    part.rows = ROWS;
    tensor.dtype = ULYX_DTYPE_F32;
    tensor.heads = s->reads == BY_SUM ? 1 : HEADS;
    tensor.dim = DIM;
    tensor.ownership = s->reads == BY_SUM ? ULYX_HEADS_KV : ULYX_HEADS_QUERY;
    params.heads = HEADS;
    params.parts = &part;
    params.nparts = 1;
    params.tensors = &tensor;
    params.ntensors = 1;
    params.slot_bytes = -1;
    if (s->reads == BY_LOAD)
        params.seq_memory = ULYX_POINTER_WINDOW;
    if (s->reads == BY_SUM)
        params.head_memory = ULYX_POINTER_WINDOW;
    return ulyx_plan_create(s->comms[rank], &params, &s->plans[rank]);
}

static int
open_rank(int rank, int nranks, void *context)
{
    struct scene *s = context;
    void *address;
    (void)nranks;
    s->dst[rank] = calloc(1, (size_t)BYTES);
    if (!ranks_expect(ulyx_mem_alloc(BYTES, NULL, &s->mems[rank], &address) ==
                      ULYX_SUCCESS) ||
        !ranks_expect(
            ulyx_mem_attach(s->comms[rank], s->mems[rank]) == ULYX_SUCCESS))
        return 1;
    s->src[rank] = !is_window(s) ? calloc(1, (size_t)BYTES) : address;
    return !ranks_expect(plan_create(s, rank) == ULYX_SUCCESS);
}

static struct scene *
scene_new(enum reads reads, bool by_deadline)
{
    struct scene *s = calloc(1, sizeof(*s));
    s->reads = reads;
    s->by_deadline = by_deadline;
    sem_init(&s->done, 0, 0);
    sem_init(&s->fail, 0, 0);
    sem_init(&s->failed, 0, 0);
    setenv("ULYX_CMA_MIN_ROW", "8", 1);
    assert_status(ulyx_comm_create_local(RANKS, NULL, s->comms), ULYX_SUCCESS);
    unsetenv("ULYX_CMA_MIN_ROW");
    assert_int_equal(ranks_run_threads(RANKS, open_rank, s, 30), 0);
    return s;
}

static void
scene_free(struct scene *s)
{
    for (int r = 0; r < RANKS; r++)
        assert_status(ulyx_plan_destroy(s->plans[r]), ULYX_SUCCESS);
    for (int r = 0; r < RANKS; r++) {
        assert_status(ulyx_mem_detach(s->comms[r], s->mems[r]), ULYX_SUCCESS);
        if (!is_window(s))
            free(s->src[r]);
        assert_status(ulyx_mem_free(s->mems[r]), ULYX_SUCCESS);
        free(s->dst[r]);
    }
    for (int r = 0; r < RANKS; r++)
        assert_status(ulyx_comm_destroy(s->comms[r]), ULYX_SUCCESS);
    sem_destroy(&s->done);
    sem_destroy(&s->fail);
    sem_destroy(&s->failed);
    free(s);
}

static ulyx_status_t
rank_start(struct scene *s, int rank, double timeout_s, ulyx_request_t **p)
{
    const void *src = s->src[rank];
    void *dst = s->dst[rank];
    return ulyx_reshuffle_start(
        s->plans[rank], direction_of(s), &src, &dst, timeout_s, p);
}

/* The kernel's answer for a process that has unmapped the memory. */
static ulyx_status_t
read_nothing(pid_t pid, const struct iovec *local, size_t local_count,
    const struct iovec *remote, size_t remote_count)
{
    (void)pid, (void)local, (void)local_count, (void)remote, (void)remote_count;
    return uli_error(ULYX_ERR_SYSTEM, "Bad address");
}
static const struct uli_tr_ops nothing_ops = {
    .name = "nothing", .read = read_nothing};

/* Does this rank's whole part of the call, and then fails. Then its caller
 * overwrites the sources. */
static void *
failing_main(void *context)
{
    struct scene *s = context;
    ulyx_request_t *request;
    s->status = rank_start(s, FAILING, s->by_deadline ? SHORT_S : 30, &request);
    for (int i = 0; s->status == ULYX_SUCCESS && i < STEPS; i++)
        if (ulyx_request_test(request) != ULYX_IN_PROGRESS)
            s->status = ULYX_ERR_INTERNAL;
    sem_post(&s->done);
    sem_wait(&s->fail);
    if (!s->by_deadline)
        ulyx_comm_abort(s->comms[FAILING]);
    if (s->status == ULYX_SUCCESS)
        s->status = ulyx_request_wait(request);
    memset(s->src[FAILING], 0x5a, (size_t)BYTES);
    sem_post(&s->failed);
    return NULL;
}

static void
scene_run(enum reads reads, bool by_deadline)
{
    struct scene *s = scene_new(reads, by_deadline);
    ulyx_status_t expected = by_deadline ? ULYX_ERR_TIMEOUT : ULYX_ERR_ABORTED;
    ulyx_status_t status;
    ulyx_request_t *request;
    pthread_t failing;
    assert_status(rank_start(s, READING, 30, &request), ULYX_SUCCESS);
    if (reads == OF_NOTHING)
        ((struct uli_exchange *)request)->pairs[FAILING].reader = &nothing_ops;
    /* its own part; the peer's reads come last */
    for (int i = 0; i < STEPS; i++)
        assert_status(ulyx_request_test(request), ULYX_IN_PROGRESS);
    assert_int_equal(pthread_create(&failing, NULL, failing_main, s), 0);
    sem_wait(&s->done);
    atomic_store(&armed, s);
    while ((status = ulyx_request_test(request)) == ULYX_IN_PROGRESS)
        ;
    assert_null(atomic_load(&armed)); /* the read has happened */
    assert_true(error_has("rank 0"));
    assert_status(status, expected);
    pthread_join(failing, NULL);
    assert_status(s->status, expected);
    scene_free(s);
}

#define CASE(name, reads, by_deadline)                                         \
    static void name(void **state)                                             \
    {                                                                          \
        (void)state;                                                           \
        scene_run(reads, by_deadline);                                         \
    }
CASE(aborted_rank_is_loaded_from, BY_LOAD, false)
CASE(aborted_rank_is_read_from, BY_READ, false)
CASE(aborted_rank_has_shares_of_sums, BY_SUM, false)
CASE(aborted_rank_has_unmapped_what_is_read, OF_NOTHING, false)
CASE(late_rank_is_loaded_from, BY_LOAD, true)
CASE(late_rank_is_read_from, BY_READ, true)
CASE(late_rank_has_shares_of_sums, BY_SUM, true)

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(aborted_rank_is_loaded_from),
    cmocka_unit_test(aborted_rank_is_read_from),
    cmocka_unit_test(aborted_rank_has_shares_of_sums),
    cmocka_unit_test(aborted_rank_has_unmapped_what_is_read),
    cmocka_unit_test(late_rank_is_loaded_from),
    cmocka_unit_test(late_rank_is_read_from),
    cmocka_unit_test(late_rank_has_shares_of_sums),
};
ULI_TEST_MAIN("ReshuffleSources", tests)
