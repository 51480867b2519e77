/* SPDX-License-Identifier: Apache-2.0
 *
 * The library's progress thread: one per process, alive while a plan needs it.
 * Operations arrive through a lock-free stack, so that start takes no lock. The
 * thread keeps them in a list of its own and posts an operation's semaphore
 * when the operation has ended. Without operations it sleeps on the semaphore
 * `wake`; with operations that all wait for peers it tries again every
 * SLICE_NS. It does not sleep on a doorbell, because a communicator may be
 * freed as soon as its last operation has ended.
 */
#include "collectives/exchange/request.h"

#include <pthread.h>
#include <string.h>
#include "base/system/thread.h"

#define SLICE_NS 50000

static struct {
    pthread_mutex_t lock; /* of holds, thread */
    int holds;
    pthread_t thread;
    struct uli_binding binding; /* under lock: the bindings of all holders
                                 * together */
    _Atomic bool stop;
    _Atomic(struct ulyx_request *) pending;
    struct uli_semaphore wake;
} library = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void
take_pending(struct uli_list *active)
{
    struct ulyx_request *request = atomic_exchange(&library.pending, NULL);
    for (struct ulyx_request *next; request; request = next) {
        next = request->pending_next;
        uli_list_append(active, &request->node);
    }
}

/* One pass over all operations; true when anything advanced. */
static bool
drive_active(struct uli_list *active)
{
    bool advanced = false;
    for (struct uli_list *node = active->next, *next; node != active;
         node = next) {
        next = node->next;
        struct ulyx_request *request =
            ULI_CONTAINER_OF(node, struct ulyx_request, node);
        advanced |= request->progress(request);
        if (atomic_load(&request->status) == ULYX_IN_PROGRESS)
            continue;
        advanced = true;
        uli_list_remove(node);
        /* last use: the request belongs to its owner from here */
        uli_semaphore_post(&request->finished);
    }
    return advanced;
}

static void *
thread_main(void *argument)
{
    (void)argument;
    struct uli_list active;
    pthread_setname_np(pthread_self(), "ulyx-progress");
    uli_list_init(&active);
    while (!atomic_load(&library.stop)) {
        take_pending(&active);
        if (uli_list_empty(&active)) {
            uli_semaphore_wait(&library.wake, -1);
            continue;
        }
        while (drive_active(&active))
            take_pending(&active);
        if (!uli_list_empty(&active))
            uli_semaphore_wait(&library.wake, SLICE_NS);
    }
    return NULL;
}

void
uli_request_thread_push(struct ulyx_request *request)
{
    struct ulyx_request *head = atomic_load(&library.pending);
    do {
        request->pending_next = head;
    } while (!atomic_compare_exchange_weak(&library.pending, &head, request));
    uli_semaphore_post(&library.wake);
}

static ulyx_status_t
start_thread(void)
{
    atomic_store(&library.stop, false);
    uli_semaphore_init(&library.wake);
    return uli_thread_start("progress", thread_main, NULL, &library.thread);
}

ulyx_status_t
uli_request_thread_hold(const struct uli_binding *binding)
{
    ulyx_status_t status = ULYX_SUCCESS;
    pthread_mutex_lock(&library.lock);
    if (!library.holds) {
        memset(&library.binding, 0, sizeof(library.binding));
        status = start_thread();
    }
    if (status == ULYX_SUCCESS) {
        library.holds++;
        uli_binding_add(&library.binding, binding);
        uli_bind_thread(&library.binding, library.thread);
    }
    pthread_mutex_unlock(&library.lock);
    return status;
}

void
uli_request_thread_release(void)
{
    pthread_mutex_lock(&library.lock);
    if (--library.holds == 0) {
        atomic_store(&library.stop, true);
        uli_semaphore_post(&library.wake);
        pthread_join(library.thread, NULL);
    }
    pthread_mutex_unlock(&library.lock);
}
