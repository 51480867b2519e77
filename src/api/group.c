/* SPDX-License-Identifier: Apache-2.0
 *
 * The queue of a thread's group, and how it runs.
 */
#include "api/group.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/handle.h"
#include "base/status.h"
#include "base/system/thread.h"
#include "collectives/exchange/request.h"
#include "ulyx/comm.h"

enum { TEXT_BYTES = 512, STACK_BYTES = 1 << 20 };

struct call {
    struct uli_list node;
    const void *key;
    const void *entered; /* the key's communicator, until the call has ended */
    ulyx_status_t (*run)(void *context);
    ulyx_status_t status;
    char text[TEXT_BYTES];
    _Alignas(16) unsigned char context[];
};

/* The calls of one communicator, in order, on a thread of their own. */
struct worker {
    struct uli_list node;
    struct uli_list calls;
    const void *key;    /* a communicator, or NULL */
    const void *caller; /* the thread for which it acts */
    pthread_t thread;
    bool running;
};

static _Thread_local int depth;
static _Thread_local struct uli_list calls; /* struct call */
static _Thread_local struct uli_list ops;   /* struct uli_group_op */

bool
uli_group_active(void)
{
    return depth > 0;
}

ulyx_status_t
uli_group_start(void)
{
    if (depth++ == 0) {
        uli_list_init(&calls);
        uli_list_init(&ops);
    }
    return ULYX_SUCCESS;
}

struct uli_outcome
uli_outcome_keep(ulyx_status_t status)
{
    struct uli_outcome outcome = {.status = status};

    snprintf(outcome.text, sizeof(outcome.text), "%s", uli_error_text());
    return outcome;
}

ulyx_status_t
uli_outcome_recall(const struct uli_outcome *outcome)
{
    return outcome->status == ULYX_SUCCESS
               ? ULYX_SUCCESS
               : uli_error_pass(outcome->status, outcome->text);
}

static ulyx_status_t
call_queue(const void *key, ulyx_status_t (*run)(void *context),
    const void *context, size_t bytes)
{
    struct call *call = calloc(1, sizeof(*call) + bytes);
    ulyx_status_t status = ULYX_SUCCESS;

    if (!call)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a queued call");
    if (key)
        status = uli_handle_enter(ULI_HANDLE_COMM, key, "comm", &call->entered);
    if (status != ULYX_SUCCESS) {
        free(call);
        return status;
    }
    call->key = key;
    call->run = run;
    memcpy(call->context, context, bytes);
    uli_list_append(&calls, &call->node);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_group_queue_op(struct uli_group_op *op)
{
    if (op->queued)
        return uli_error(ULYX_ERR_BUSY,
            "this plan already has an operation queued in the group");
    op->queued = true;
    uli_list_append(&ops, &op->node);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_group_run(const void *key, ulyx_status_t (*run)(void *context),
    void (*release)(void *context), void *context, size_t bytes)
{
    ulyx_status_t status;

    if (!uli_group_active())
        return run(context);
    status = call_queue(key, run, context, bytes);
    if (status != ULYX_SUCCESS && release)
        release(context);
    return status;
}

bool
uli_group_holds(const void *key)
{
    if (depth == 0)
        return false;
    for (struct uli_list *n = calls.next; n != &calls; n = n->next)
        if (ULI_CONTAINER_OF(n, struct call, node)->key == key)
            return true;
    return false;
}

static void
run_calls(struct worker *worker)
{
    uli_board_run_queue(true);
    for (struct uli_list *n = worker->calls.next; n != &worker->calls;
         n = n->next) {
        struct call *call = ULI_CONTAINER_OF(n, struct call, node);

        call->status = call->run(call->context);
        if (call->status != ULYX_SUCCESS)
            snprintf(call->text, sizeof(call->text), "%s", ulyx_last_error());
    }
    uli_board_run_queue(false);
}

static void *
worker_main(void *context)
{
    const struct worker *worker = context;

    uli_thread_act_for(worker->caller);
    run_calls(context);
    return NULL;
}

/* The communicator of a key: calls are queued per communicator. */
static ulyx_comm_t *
key_comm(const void *key)
{
    return (ulyx_comm_t *)(uintptr_t)key;
}

static struct worker *
worker_of(struct uli_list *workers, const void *key)
{
    struct worker *worker;

    for (struct uli_list *n = workers->next; n != workers; n = n->next) {
        worker = ULI_CONTAINER_OF(n, struct worker, node);
        if (key && worker->key == key)
            return worker;
    }
    worker = calloc(1, sizeof(*worker));
    if (!worker)
        return NULL;
    worker->key = key;
    worker->caller = uli_thread_caller();
    if (key)
        uli_board_queue(key_comm(key));
    uli_list_init(&worker->calls);
    uli_list_append(workers, &worker->node);
    return worker;
}

/* Distributes the queued calls to workers. If a call's worker cannot be
 * allocated, the call fails; the others run. */
static void
deal_calls(struct uli_list *workers, struct uli_list *failed)
{
    while (!uli_list_empty(&calls)) {
        struct call *call = ULI_CONTAINER_OF(calls.next, struct call, node);
        struct worker *worker = worker_of(workers, call->key);

        uli_list_remove(&call->node);
        if (worker) {
            uli_list_append(&worker->calls, &call->node);
            continue;
        }
        call->status = ULYX_ERR_NO_MEMORY;
        snprintf(call->text, sizeof(call->text), "no memory for a group");
        uli_list_append(failed, &call->node);
    }
}

/* Starts one thread for each worker from `first` on. */
static void
start_workers(struct uli_list *workers, struct uli_list *first)
{
    pthread_attr_t attributes;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    for (struct uli_list *n = first; n != workers; n = n->next) {
        struct worker *worker = ULI_CONTAINER_OF(n, struct worker, node);

        worker->running = pthread_create(&worker->thread, &attributes,
                              worker_main, worker) == 0;
        if (worker->running)
            continue;
        for (struct uli_list *c = worker->calls.next; c != &worker->calls;
             c = c->next) {
            struct call *call = ULI_CONTAINER_OF(c, struct call, node);

            call->status = ULYX_ERR_SYSTEM;
            snprintf(call->text, sizeof(call->text),
                "cannot start a thread for a queued call: put fewer ranks into "
                "one group");
        }
    }
    pthread_attr_destroy(&attributes);
}

static void
join_workers(struct uli_list *workers)
{
    for (struct uli_list *n = workers->next; n != workers; n = n->next) {
        struct worker *worker = ULI_CONTAINER_OF(n, struct worker, node);

        if (worker->running)
            pthread_join(worker->thread, NULL);
    }
}

/* Frees a list of calls; keeps the first error and its text. */
static void
group_reap(struct uli_list *list, ulyx_status_t *first_p, char *text_p)
{
    while (!uli_list_empty(list)) {
        struct call *call = ULI_CONTAINER_OF(list->next, struct call, node);

        if (call->status != ULYX_SUCCESS && *first_p == ULYX_SUCCESS) {
            *first_p = call->status;
            snprintf(text_p, TEXT_BYTES, "%s", call->text);
        }
        uli_list_remove(&call->node);
        uli_handle_leave(&call->entered);
        free(call);
    }
}

static void
reap_workers(struct uli_list *workers, ulyx_status_t *first_p, char *text_p)
{
    while (!uli_list_empty(workers)) {
        struct worker *worker =
            ULI_CONTAINER_OF(workers->next, struct worker, node);

        group_reap(&worker->calls, first_p, text_p);
        if (worker->key)
            uli_board_unqueue(key_comm(worker->key));
        uli_list_remove(&worker->node);
        free(worker);
    }
}

static void
keep_first(ulyx_status_t status, ulyx_status_t *first_p, char *text_p)
{
    if (status == ULYX_SUCCESS || *first_p != ULYX_SUCCESS)
        return;
    *first_p = status;
    snprintf(text_p, TEXT_BYTES, "%s", ulyx_last_error());
}

static void
start_ops(ulyx_status_t *first_p, char *text_p)
{
    uli_request_group(true);
    for (struct uli_list *n = ops.next; n != &ops; n = n->next) {
        struct uli_group_op *op =
            ULI_CONTAINER_OF(n, struct uli_group_op, node);

        op->started = op->start(op->context);
        keep_first(op->started, first_p, text_p);
    }
    uli_request_group(false);
}

static void
wait_for_ops(ulyx_status_t *first_p, char *text_p)
{
    while (!uli_list_empty(&ops)) {
        struct uli_group_op *op =
            ULI_CONTAINER_OF(ops.next, struct uli_group_op, node);

        uli_list_remove(&op->node);
        op->queued = false;
        if (op->started == ULYX_SUCCESS)
            keep_first(op->wait(op->context), first_p, text_p);
    }
}

/* The calling thread starts the operations and waits for them; if there are
 * none, it runs the calls of the first worker. */
static ulyx_status_t
run_all(char *text_p)
{
    char op_text[TEXT_BYTES] = "";
    struct uli_list workers, failed;
    ulyx_status_t first = ULYX_SUCCESS, first_op = ULYX_SUCCESS;
    bool drives = !uli_list_empty(&ops);

    uli_list_init(&workers);
    uli_list_init(&failed);
    deal_calls(&workers, &failed);
    start_ops(&first_op, op_text);
    if (!uli_list_empty(&workers)) {
        start_workers(&workers, drives ? workers.next : workers.next->next);
        if (!drives)
            run_calls(ULI_CONTAINER_OF(workers.next, struct worker, node));
    }
    wait_for_ops(&first_op, op_text);
    join_workers(&workers);
    reap_workers(&workers, &first, text_p);
    group_reap(&failed, &first, text_p);
    if (first == ULYX_SUCCESS && first_op != ULYX_SUCCESS) {
        first = first_op;
        memcpy(text_p, op_text, TEXT_BYTES);
    }
    return first;
}

ulyx_status_t
uli_group_end(void)
{
    char text[TEXT_BYTES] = "";
    ulyx_status_t status;

    if (depth == 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "group end without a group start in this thread");
    if (--depth > 0)
        return ULYX_SUCCESS;
    status = run_all(text);
    return status == ULYX_SUCCESS ? status : uli_error_pass(status, text);
}
