/* SPDX-License-Identifier: Apache-2.0
 *
 * Destroyed handles, and handles that are destroyed while another thread is in
 * a call on them: calls return errors that name the problem.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "support/test.h"
#include "ulyx/ulyx.h"

enum { ROWS = 8, HEADS = 2, DIM = 4 };

/* One object of each kind, on a communicator of one rank. */
struct objects {
    ulyx_comm_t *comm;
    ulyx_mem_t *mem;
    ulyx_plan_t *plan;
    ulyx_dist_attention_t *dist;
};

static void
make_plan(ulyx_comm_t *comm, ulyx_plan_t **plan_p)
{
    ulyx_part_t part = ULYX_PART_INIT;
    ulyx_tensor_t tensor = ULYX_TENSOR_INIT;
    ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
    part.rows = ROWS;
    tensor.heads = HEADS;
    tensor.dim = DIM;
    tensor.dtype = ULYX_DTYPE_F32;
    params.heads = HEADS;
    params.parts = &part;
    params.nparts = 1;
    params.tensors = &tensor;
    params.ntensors = 1;
    assert_status(ulyx_plan_create(comm, &params, plan_p), ULYX_SUCCESS);
}

static void
objects_make(struct objects *o)
{
    ulyx_part_t part = ULYX_PART_INIT;
    ulyx_dist_attention_params_t params = ULYX_DIST_ATTENTION_PARAMS_INIT;
    void *address;
    part.rows = ROWS;
    params.parts = &part;
    params.nparts = 1;
    params.heads = HEADS;
    params.kv_heads = HEADS;
    params.dim_qk = DIM;
    params.dtype = ULYX_DTYPE_F32;
    assert_status(ulyx_comm_create_local(1, NULL, &o->comm), ULYX_SUCCESS);
    assert_status(ulyx_mem_alloc(4096, NULL, &o->mem, &address), ULYX_SUCCESS);
    make_plan(o->comm, &o->plan);
    assert_status(
        ulyx_dist_attention_create(o->comm, &params, &o->dist), ULYX_SUCCESS);
}

static void
objects_destroy(struct objects *o)
{
    assert_status(ulyx_dist_attention_destroy(o->dist), ULYX_SUCCESS);
    assert_status(ulyx_plan_destroy(o->plan), ULYX_SUCCESS);
    assert_status(ulyx_mem_free(o->mem), ULYX_SUCCESS);
    assert_status(ulyx_comm_destroy(o->comm), ULYX_SUCCESS);
}

/* Checks that the call was refused and that the error names the kind of
 * handle. */
static void
assert_gone(ulyx_status_t status, const char *kind)
{
    char text[64];
    snprintf(text, sizeof(text), "is not a live %s", kind);
    assert_status(status, ULYX_ERR_INVALID_ARGUMENT);
    if (!strstr(ulyx_last_error(), text))
        fail_msg("\"%s\" does not say \"%s\"", ulyx_last_error(), text);
}

static void
expect_no_comm(ulyx_comm_t *comm)
{
    static const char kind[] = "communicator";
    float x = 1, y;
    int32_t n;
    ulyx_status_t status;
    ulyx_comm_t *other;
    ulyx_plan_t *plan;
    ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
    assert_gone(ulyx_comm_destroy(comm), kind);
    assert_gone(ulyx_comm_abort(comm), kind);
    assert_gone(ulyx_comm_barrier(comm), kind);
    assert_gone(ulyx_comm_get_rank(comm, &n), kind);
    assert_gone(ulyx_comm_get_async_error(comm, &status), kind);
    assert_gone(ulyx_comm_split(comm, 0, 0, NULL, &other), kind);
    assert_gone(ulyx_comm_shrink(comm, NULL, &other), kind);
    assert_gone(ulyx_alltoall(comm, &x, &y, 4, NULL), kind);
    assert_gone(ulyx_allreduce(comm, &x, &y, 1, ULYX_DTYPE_F32, NULL), kind);
    assert_gone(ulyx_plan_create(comm, &params, &plan), kind);
}

static void
expect_no_plan(ulyx_plan_t *plan)
{
    static const char kind[] = "plan";
    const void *src[] = {NULL};
    void *dst[] = {NULL};
    int64_t rows;
    ulyx_request_t *request;
    assert_gone(ulyx_plan_destroy(plan), kind);
    assert_gone(ulyx_plan_get_seq_rows(plan, 0, 0, &rows), kind);
    assert_gone(
        ulyx_reshuffle_execute(plan, ULYX_SEQ_TO_HEAD, src, dst, NULL), kind);
    assert_gone(
        ulyx_reshuffle_start(plan, ULYX_SEQ_TO_HEAD, src, dst, 0, &request),
        kind);
}

static void
destroyed_handles_are_refused(void **state)
{
    struct objects o;
    char text[64];
    void *address;
    int64_t bytes;
    (void)state;
    objects_make(&o);
    objects_destroy(&o);
    expect_no_comm(o.comm);
    expect_no_plan(o.plan);
    assert_gone(ulyx_mem_free(o.mem), "window");
    assert_gone(ulyx_mem_get_range(o.mem, &address, &bytes), "window");
    assert_gone(ulyx_dist_attention_destroy(o.dist), "distributed attention");
    assert_gone(ulyx_dist_attention_describe(o.dist, text, sizeof(text)),
        "distributed attention");
    objects_make(&o); /* the new objects reuse the memory of the first ones */
    objects_destroy(&o);
}

static void
handles_of_another_kind_are_refused(void **state)
{
    struct objects o;
    (void)state;
    objects_make(&o);
    expect_no_comm((ulyx_comm_t *)o.mem);
    expect_no_plan((ulyx_plan_t *)o.comm);
    assert_gone(ulyx_mem_attach(o.comm, (ulyx_mem_t *)o.plan), "window");
    objects_destroy(&o);
}

static void
requests_of_destroyed_plans_are_refused(void **state)
{
    struct objects o;
    static float a[ROWS * HEADS * DIM], b[ROWS * HEADS * DIM];
    const void *src[] = {a};
    void *dst[] = {b};
    ulyx_request_t *request;
    (void)state;
    objects_make(&o);
    assert_status(
        ulyx_reshuffle_start(o.plan, ULYX_SEQ_TO_HEAD, src, dst, 0, &request),
        ULYX_SUCCESS);
    assert_status(ulyx_plan_destroy(o.plan), ULYX_ERR_BUSY);
    assert_status(ulyx_request_wait(request), ULYX_SUCCESS);
    assert_status(ulyx_request_wait(request), ULYX_ERR_INVALID_ARGUMENT);
    objects_destroy(&o);
    assert_status(ulyx_request_wait(request), ULYX_ERR_INVALID_ARGUMENT);
    assert_non_null(strstr(ulyx_last_error(), "belongs to no plan"));
    assert_status(ulyx_request_test(request), ULYX_ERR_INVALID_ARGUMENT);
}

/* ---- while another thread is in a call ----------------------------------- */

struct waiter {
    ulyx_comm_t *comm;
    atomic_bool entered;
    ulyx_status_t status;
};

static void *
wait_in_barrier(void *context)
{
    struct waiter *waiter = context;
    atomic_store(&waiter->entered, true);
    waiter->status = ulyx_comm_barrier(waiter->comm);
    return NULL;
}

static void
destroy_while_another_thread_waits_is_busy(void **state)
{
    ulyx_comm_t *comms[2];
    pthread_t thread;
    (void)state;
    assert_status(ulyx_comm_create_local(2, NULL, comms), ULYX_SUCCESS);
    struct waiter waiter = {.comm = comms[0]};
    assert_int_equal(
        pthread_create(&thread, NULL, wait_in_barrier, &waiter), 0);
    while (!atomic_load(&waiter.entered))
        usleep(1000);
    usleep(50000);
    assert_status(ulyx_comm_destroy(comms[0]), ULYX_ERR_BUSY);
    assert_string_equal(ulyx_last_error(),
        "the communicator has 1 other call in flight, to be ended before "
        "destroy");
    assert_status(ulyx_comm_barrier(comms[1]), ULYX_SUCCESS);
    pthread_join(thread, NULL);
    assert_status(waiter.status, ULYX_SUCCESS);
    assert_status(ulyx_comm_destroy(comms[0]), ULYX_SUCCESS);
    assert_status(ulyx_comm_destroy(comms[1]), ULYX_SUCCESS);
}

/* Two threads without synchronization: one queries without pause, the other
 * destroys. */
static void *
query_until_gone(void *context)
{
    struct waiter *waiter = context;
    int32_t rank;
    atomic_store(&waiter->entered, true);
    do
        waiter->status = ulyx_comm_get_rank(waiter->comm, &rank);
    while (waiter->status == ULYX_SUCCESS);
    return NULL;
}

static void
calls_that_race_with_destroy_are_refused(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct waiter waiter = {.comm = NULL};
        pthread_t thread;
        ulyx_status_t status;
        assert_status(
            ulyx_comm_create_local(1, NULL, &waiter.comm), ULYX_SUCCESS);
        assert_int_equal(
            pthread_create(&thread, NULL, query_until_gone, &waiter), 0);
        while (!atomic_load(&waiter.entered))
            usleep(100);
        do
            status = ulyx_comm_destroy(waiter.comm);
        while (status == ULYX_ERR_BUSY);
        /* An attempt that returned BUSY may have refused the other thread. */
        assert_status(status, ULYX_SUCCESS);
        pthread_join(thread, NULL);
        assert_status(waiter.status, ULYX_ERR_INVALID_ARGUMENT);
    }
}

static void
a_queued_call_keeps_its_communicator(void **state)
{
    ulyx_comm_t *comm;
    (void)state;
    assert_status(ulyx_comm_create_local(1, NULL, &comm), ULYX_SUCCESS);
    assert_status(ulyx_group_start(), ULYX_SUCCESS);
    assert_status(ulyx_comm_barrier(comm), ULYX_SUCCESS);
    assert_status(ulyx_comm_destroy(comm), ULYX_ERR_BUSY);
    assert_status(ulyx_group_end(), ULYX_SUCCESS);
    assert_status(ulyx_comm_destroy(comm), ULYX_SUCCESS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(destroyed_handles_are_refused),
    cmocka_unit_test(handles_of_another_kind_are_refused),
    cmocka_unit_test(requests_of_destroyed_plans_are_refused),
    cmocka_unit_test(destroy_while_another_thread_waits_is_busy),
    cmocka_unit_test(calls_that_race_with_destroy_are_refused),
    cmocka_unit_test(a_queued_call_keeps_its_communicator),
};
ULI_TEST_MAIN("Handles", tests)
