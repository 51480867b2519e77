/* SPDX-License-Identifier: Apache-2.0
 *
 * Operations driven by the thread that started them.
 *
 * The operations of a thread are a thread-local list, so that a wait for one
 * operation moves the others too: a thread that drives several ranks of a
 * communicator would otherwise wait for itself. While all operations of the
 * thread belong to one communicator handle, the thread sleeps on that handle's
 * doorbell; otherwise it sleeps in short slices, because a futex waits for one
 * word only.
 */
#include "collectives/exchange/request.h"

#include <stdio.h>
#include <string.h>
#include "comm/remote/remote.h"

/* Seconds of one sleep while the doorbells of several handles are polled. */
#define SEVERAL_SLICE_S 100e-6
/* Nanoseconds of one sleep while waiting for the library's thread; the waiting
 * thread drives its other operations in between. */
#define LIBRARY_SLICE_NS 1000000

static _Thread_local struct uli_list thread_ops;
/* The address names the thread. */
static _Thread_local char thread_mark;
static _Thread_local bool thread_groups;

static struct uli_list *
my_ops(void)
{
    if (!thread_ops.next)
        uli_list_init(&thread_ops);
    return &thread_ops;
}

void
uli_request_init(struct ulyx_request *request)
{
    atomic_init(&request->status, ULYX_SUCCESS);
    atomic_init(&request->awaited, false);
    request->text[0] = 0;
    request->owner = NULL;
    request->pending_next = NULL;
    uli_list_init(&request->node);
    uli_semaphore_init(&request->finished);
}

void
uli_request_group(bool group)
{
    struct uli_list *ops = my_ops();
    thread_groups = group;
    for (struct uli_list *node = ops->next; !group && node != ops;
         node = node->next) {
        struct ulyx_request *request =
            ULI_CONTAINER_OF(node, struct ulyx_request, node);
        if (request->grouped)
            atomic_store(&request->awaited, true);
    }
}

bool
uli_request_is_alone(const struct ulyx_request *request)
{
    return atomic_load_explicit(&request->awaited, memory_order_relaxed) &&
           !request->by_library_thread &&
           request->node.next == request->node.prev;
}

void
uli_request_leave(struct ulyx_request *request)
{
    atomic_store(&request->awaited, false);
    uli_board_withdraw(request->comm, request);
}

void
uli_request_launch(struct ulyx_request *request, bool awaited)
{
    request->owner = &thread_mark;
    request->text[0] = 0;
    atomic_store_explicit(&request->awaited, awaited, memory_order_relaxed);
    request->grouped = thread_groups;
    atomic_store_explicit(
        &request->status, ULYX_IN_PROGRESS, memory_order_relaxed);
    atomic_fetch_add(&request->comm->nops, 1);
    if (request->by_library_thread)
        uli_request_thread_push(request);
    else
        uli_list_append(my_ops(), &request->node);
}

void
uli_request_finish(struct ulyx_request *request, ulyx_status_t status)
{
    if (status != ULYX_SUCCESS)
        snprintf(request->text, sizeof(request->text), "%s", uli_error_text());
    request->ended_ns = uli_clock_ns();
    uli_board_withdraw(request->comm, request);
    if (request->recorded)
        uli_recorder_end(&request->comm->control->recorder, request->recorded,
            status, request->ended_ns);
    atomic_store_explicit(&request->status, status, memory_order_release);
}

static ulyx_status_t
status_of(struct ulyx_request *request)
{
    return atomic_load_explicit(&request->status, memory_order_acquire);
}

/* Drives each operation of the calling thread once; true when one advanced. */
static bool
ops_drive(void)
{
    struct uli_list *ops = my_ops();
    bool advanced = false;
    for (struct uli_list *node = ops->next; node != ops; node = node->next) {
        struct ulyx_request *request =
            ULI_CONTAINER_OF(node, struct ulyx_request, node);
        if (status_of(request) == ULYX_IN_PROGRESS) {
            advanced |= uli_comm_progress(request->comm);
            advanced |= request->progress(request);
        }
    }
    return advanced;
}

/* Takes the result of an operation that has ended, and releases it. */
static ulyx_status_t
op_take_status(struct ulyx_request *request, ulyx_status_t status)
{
    char text[sizeof(request->text)];
    if (status != ULYX_SUCCESS)
        memcpy(text, request->text, sizeof(text));
    if (!request->by_library_thread)
        uli_list_remove(&request->node);
    request->owner = NULL;
    atomic_fetch_sub(&request->comm->nops, 1);
    if (status != ULYX_SUCCESS)
        uli_comm_acknowledge(request->comm);
    request->release(request);
    return status == ULYX_SUCCESS ? status : uli_error_pass(status, text);
}

static ulyx_status_t
check_owner(const struct ulyx_request *request)
{
    if (request->owner == &thread_mark)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        request->owner
            ? "an operation is tested and waited for by the thread that "
              "started it"
            : "the operation has already ended");
}

ulyx_status_t
uli_request_test(struct ulyx_request *request)
{
    ULI_TRY(check_owner(request));
    if (!request->by_library_thread || status_of(request) == ULYX_IN_PROGRESS)
        ops_drive();
    ulyx_status_t status = status_of(request);
    if (status == ULYX_IN_PROGRESS)
        return status;
    if (request->by_library_thread)
        uli_semaphore_wait(&request->finished, -1);
    return op_take_status(request, status);
}

/* ---- waiting ------------------------------------------------------------- */

struct driven {
    bool (*ready)(void *context);
    void *context;
};

/* Drives until nothing advances, so that the caller sleeps only when all
 * operations wait for other ranks. */
static bool
drive_ready(void *argument)
{
    struct driven *driven = argument;
    do {
        if (driven->ready(driven->context))
            return true;
    } while (ops_drive());
    return driven->ready(driven->context);
}

static bool
several_handles(const ulyx_comm_t *comm)
{
    struct uli_list *ops = my_ops();
    for (struct uli_list *node = ops->next; node != ops; node = node->next) {
        struct ulyx_request *request =
            ULI_CONTAINER_OF(node, struct ulyx_request, node);
        if (request->comm != comm && status_of(request) == ULYX_IN_PROGRESS)
            return true;
    }
    return false;
}

ulyx_status_t
uli_request_drive_until(ulyx_comm_t *comm, bool (*ready)(void *context),
    void *context, uli_deadline_t deadline)
{
    struct driven driven = {ready, context};
    for (;;) {
        uli_deadline_t slice = deadline;
        if (several_handles(comm)) {
            slice = uli_deadline_in(SEVERAL_SLICE_S);
            if (slice > deadline)
                slice = deadline;
        }
        ulyx_status_t status = uli_comm_wait(comm, drive_ready, &driven, slice);
        if (status != ULYX_ERR_TIMEOUT || uli_deadline_over(deadline))
            return status;
    }
}

static bool
op_ended(void *context)
{
    return status_of(context) != ULYX_IN_PROGRESS;
}

static ulyx_status_t
wait_for_library(struct ulyx_request *request)
{
    for (;;) {
        ops_drive();
        if (uli_semaphore_wait(&request->finished, LIBRARY_SLICE_NS))
            return op_take_status(request, status_of(request));
    }
}

ulyx_status_t
uli_request_wait(struct ulyx_request *request)
{
    ULI_TRY(check_owner(request));
    atomic_store_explicit(&request->awaited, true, memory_order_relaxed);
    if (request->by_library_thread)
        return wait_for_library(request);
    if (!op_ended(request))
        ops_drive(); /* small calls end here */
    while (!op_ended(request)) {
        /* On a deadline or failure the operation ends in its own progress,
         * which names what it waits for; here they only end the sleep. */
        uli_request_drive_until(
            request->comm, op_ended, request, request->deadline);
        if (!op_ended(request))
            ops_drive();
    }
    return op_take_status(request, status_of(request));
}
