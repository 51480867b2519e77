/* SPDX-License-Identifier: Apache-2.0
 *
 * The root's thread: one epoll loop over listeners and connections, and four
 * timers (a stranger's handshake, a rank's deadline, the meeting's deadline,
 * the end of a failed meeting). Only the thread uses the loop's state; `refs`,
 * `unsent`, `stop`, `cancel`, `wakers`, `deaf`, `all_notified`, `state` and
 * `finished` are shared with the handle's owner.
 */
#include "bootstrap/meet/root.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"
#include "base/size.h"
#include "base/status.h"
#include "base/system/thread.h"
#include "bootstrap/meet/conn.h"

enum { EVENT_BATCH = 64, POLL_SLICE_MS = 60000 };
#define HANDSHAKE_S 10.0
#define LINGER_S    30.0
#define CANCEL_S    0.5 /* for the last messages of a cancelled meeting */

static atomic_int alive;

int
uli_root_count(void)
{
    return atomic_load(&alive);
}

static _Atomic double linger_limit_s = LINGER_S;

void
uli_root_limit_linger(double seconds)
{
    atomic_store(&linger_limit_s, seconds);
}

/* ---- timers -------------------------------------------------------------- */

static struct uli_conn *
oldest_stranger(const struct uli_root *root)
{
    if (uli_list_empty(&root->strangers))
        return NULL;
    return ULI_CONTAINER_OF(root->strangers.next, struct uli_conn, node);
}

static bool
root_whole(const struct uli_root *root)
{
    return root->meeting.nranks > 0 &&
           root->meeting.njoined == root->meeting.nranks;
}

static uli_deadline_t
next_timer(const struct uli_root *root)
{
    uli_deadline_t next = root->reopen;
    const struct uli_conn *oldest = oldest_stranger(root);
    if (oldest)
        next = uli_min(next, oldest->deadline);
    if (root->meeting.failed)
        next = uli_min(next, root->linger);
    if (root->meeting.failed || root->meeting.full) {
        const struct uli_list *node = root->members.next;
        for (; node != &root->members; node = node->next) {
            const struct uli_conn *conn =
                ULI_CONTAINER_OF(node, struct uli_conn, node);
            if (conn->draining)
                next = uli_min(next, conn->deadline);
        }
    }
    if (root->meeting.failed)
        return next;
    if (root->meeting.nranks > 0)
        next = uli_min(next, root->meeting.deadline);
    return root->state == ULI_ROOT_WHOLE ? next
                                         : uli_min(next, root->params.deadline);
}

/* Closes the connections of ranks that were notified and have not closed in
 * time. */
static void
end_drained(struct uli_root *root)
{
    struct uli_list *node = root->members.next;
    while (node != &root->members) {
        struct uli_conn *conn = ULI_CONTAINER_OF(node, struct uli_conn, node);
        node = node->next;
        if (conn->draining && uli_deadline_over(conn->deadline))
            uli_conn_close(conn);
    }
}

static void
run_timers(struct uli_root *root)
{
    int64_t now = uli_clock_ns();
    for (struct uli_conn *oldest = oldest_stranger(root);
         oldest && oldest->deadline <= now; oldest = oldest_stranger(root)) {
        char why[64];
        snprintf(why, sizeof(why), "no handshake within %g s",
            root->params.handshake_s);
        uli_conn_drop(oldest, why);
    }
    end_drained(root);
    if (root->reopen <= now)
        uli_listener_reopen(root);
    if (root->meeting.failed)
        return;
    if (root->meeting.nranks > 0 && root->meeting.deadline <= now)
        uli_meeting_expire(&root->meeting, now);
    if (!root_whole(root) && root->params.deadline <= now)
        uli_meeting_time_out(&root->meeting);
}

/* ---- the loop ------------------------------------------------------------ */

/* Sends a new failure to all ranks that have joined. */
static void
spread_failure(struct uli_root *root)
{
    if (!root->meeting.failed || root->linger != INT64_MAX)
        return;
    root->linger = uli_deadline_in(
        fmin(root->params.linger_s, atomic_load(&linger_limit_s)));
    /* The process may end before the linger time is over. */
    uli_listener_remove_file(root);
    atomic_fetch_add(&root->unsent, 1);
    struct uli_list *node = root->members.next;
    while (node != &root->members) {
        struct uli_conn *conn = ULI_CONTAINER_OF(node, struct uli_conn, node);
        node = node->next;
        uli_conn_send_failure(conn);
    }
    atomic_fetch_sub(&root->unsent, 1);
}

/* Carries out a cancel: ranks that have joined are notified; ranks that come
 * later find no root. */
static void
act_on_cancel(struct uli_root *root)
{
    if (!atomic_load(&root->cancel) || root->cancelled)
        return;
    root->cancelled = true;
    uli_listener_shut(root);
    root->params.linger_s = CANCEL_S;
    if (root->linger != INT64_MAX)
        root->linger = uli_min(root->linger, uli_deadline_in(CANCEL_S));
    if (uli_list_empty(&root->members))
        atomic_store(&root->stop, true);
    else
        uli_meeting_fail(&root->meeting, ULYX_ERR_ABORTED,
            "the unique id of this meeting was destroyed");
}

static bool
root_finished(const struct uli_root *root)
{
    const struct uli_meeting *meeting = &root->meeting;
    if (atomic_load(&root->stop))
        return true;
    if (!meeting->failed)
        return root->state == ULI_ROOT_OVER &&
               (!root->params.stays || root->cancelled ||
                   uli_deadline_over(root->params.deadline));
    if (uli_deadline_over(root->linger) ||
        (root->cancelled && uli_list_empty(&root->members)))
        return true;
    if (meeting->nranks == 0 || !uli_list_empty(&root->members))
        return false;
    for (int32_t rank = 0; rank < meeting->nranks; rank++)
        if (!meeting->members[rank].notified && !meeting->members[rank].left)
            return false;
    return true;
}

/* data.ptr is a connection, or lies in root->params.listeners, or is
 * &root->event_fd. */
static void
root_dispatch(struct uli_root *root, const struct epoll_event *event)
{
    int *source = event->data.ptr;
    if (source >= root->params.listeners &&
        source < root->params.listeners + ULI_ADDRESS_MAX) {
        if (root->params.listener_count)
            uli_listener_accept(root, *source);
    } else if (source != &root->event_fd) {
        uli_conn_event(event->data.ptr, event->events);
    } else {
        uint64_t calls;
        ssize_t got = read(root->event_fd, &calls, sizeof(calls));
        (void)got; /* `stop` and `cancel` have the reason */
    }
}

static void
root_serve(struct uli_root *root)
{
    struct epoll_event events[EVENT_BATCH];
    while (!root_finished(root)) {
        int wait_ms = uli_deadline_poll_ms(next_timer(root), POLL_SLICE_MS);
        int count = epoll_wait(root->epoll_fd, events, EVENT_BATCH, wait_ms);
        for (int i = 0; i < count; i++)
            root_dispatch(root, &events[i]);
        if (root_whole(root) && root->meeting.nleft == root->meeting.nranks)
            atomic_store(&root->state, ULI_ROOT_OVER);
        act_on_cancel(root);
        run_timers(root);
        spread_failure(root);
        uli_conn_free_dead(root);
        if (root->meeting.failed && uli_list_empty(&root->members))
            atomic_store(&root->all_notified, true);
    }
}

/* ---- life ---------------------------------------------------------------- */

static void
root_unref(struct uli_root *root)
{
    if (atomic_fetch_sub(&root->refs, 1) == 1)
        free(root);
}

/* Closes the descriptors at the end of the thread, however long the handle is
 * kept. First waits for owners that are in root_wake. There is no lock, because
 * a forked child could inherit it locked. */
static void
close_loop(struct uli_root *root)
{
    atomic_store(&root->deaf, true);
    while (atomic_load(&root->wakers) > 0)
        sched_yield();
    if (root->event_fd >= 0)
        close(root->event_fd);
    if (root->epoll_fd >= 0)
        close(root->epoll_fd);
}

static void
close_all(struct uli_root *root, struct uli_list *head)
{
    while (!uli_list_empty(head))
        uli_conn_close(ULI_CONTAINER_OF(head->next, struct uli_conn, node));
    uli_conn_free_dead(root);
}

static void *
root_run(void *context)
{
    struct uli_root *root = context;
    root_serve(root);
    uli_listener_shut(root);
    close_all(root, &root->strangers);
    close_all(root, &root->members);
    uli_meeting_free(&root->meeting);
    close_loop(root);
    atomic_store(&root->finished, true);
    root_unref(root);
    atomic_fetch_sub(&alive, 1);
    return NULL;
}

static bool
root_watch(struct uli_root *root, int *source)
{
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = source};
    return epoll_ctl(root->epoll_fd, EPOLL_CTL_ADD, *source, &event) == 0;
}

static ulyx_status_t
open_loop(struct uli_root *root)
{
    root->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    root->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    bool good = root->epoll_fd >= 0 && root->event_fd >= 0 &&
                root_watch(root, &root->event_fd);
    for (int i = 0; i < root->params.listener_count && good; i++)
        good = root_watch(root, &root->params.listeners[i]);
    if (!good)
        return uli_error_errno("the event loop of a meeting's root");
    return ULYX_SUCCESS;
}

static ulyx_status_t
start_thread(struct uli_root *root)
{
    pthread_t thread;
    atomic_fetch_add(&alive, 1);
    ulyx_status_t status =
        uli_thread_start("the root of a meeting", root_run, root, &thread);
    if (status == ULYX_SUCCESS)
        pthread_detach(thread);
    else
        atomic_fetch_sub(&alive, 1);
    return status;
}

static void
root_fill(struct uli_root *root, const struct uli_root_params *params)
{
    root->params = *params;
    if (root->params.handshake_s <= 0)
        root->params.handshake_s = HANDSHAKE_S;
    if (root->params.linger_s <= 0)
        root->params.linger_s = LINGER_S;
    if (params->unlink_path)
        snprintf(root->unlink_path, sizeof(root->unlink_path), "%s",
            params->unlink_path);
    root->params.unlink_path = NULL;
    root->linger = root->reopen = INT64_MAX;
    uli_list_init(&root->strangers);
    uli_list_init(&root->members);
    uli_list_init(&root->dead);
    atomic_init(&root->refs, 2); /* one for the owner and one for the thread */
}

ulyx_status_t
uli_root_start(const struct uli_root_params *params, struct uli_root **root_p)
{
    struct uli_root *root = calloc(1, sizeof(*root));
    ulyx_status_t status = ULYX_ERR_NO_MEMORY;
    if (!root) {
        for (int i = 0; i < params->listener_count; i++)
            close(params->listeners[i]);
        return uli_error(status, "out of memory for a meeting's root");
    }
    root_fill(root, params);
    status = open_loop(root);
    if (!status)
        status = start_thread(root);
    if (status) {
        uli_listener_shut(root);
        close_loop(root);
        atomic_store(&root->refs, 1);
        root_unref(root);
        return status;
    }
    *root_p = root;
    return ULYX_SUCCESS;
}

void
uli_root_release(struct uli_root *root, double wait_s)
{
    if (!root)
        return;
    const struct timespec step = {0, 1000000};
    uli_deadline_t deadline = uli_deadline_in(wait_s);
    while (atomic_load(&root->unsent) > 0 && !atomic_load(&root->finished) &&
           !uli_deadline_over(deadline))
        nanosleep(&step, NULL);
    root_unref(root);
}

static void
root_wake(struct uli_root *root)
{
    const uint64_t one = 1;
    atomic_fetch_add(&root->wakers, 1);
    while (!atomic_load(&root->deaf) &&
           write(root->event_fd, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    atomic_fetch_sub(&root->wakers, 1);
}

/* Sets the flag, wakes the thread, and waits for its end. */
static void
end_by(struct uli_root *root, atomic_bool *flag, double wait_s)
{
    const struct timespec step = {0, 1000000};
    uli_deadline_t deadline = uli_deadline_in(wait_s);
    atomic_store(flag, true);
    root_wake(root);
    while (!atomic_load(&root->finished) && !uli_deadline_over(deadline))
        nanosleep(&step, NULL);
    root_unref(root);
}

void
uli_root_stop(struct uli_root *root, double wait_s)
{
    if (root)
        end_by(root, &root->stop, wait_s);
}

void
uli_root_cancel(struct uli_root *root, double wait_s)
{
    if (root)
        end_by(root, &root->cancel, wait_s);
}

enum uli_root_state
uli_root_state(const struct uli_root *root)
{
    return atomic_load(&root->state);
}

bool
uli_root_awaits_late(const struct uli_root *root)
{
    return atomic_load(&root->all_notified) ||
           atomic_load(&root->state) == ULI_ROOT_OVER;
}

bool
uli_root_ended(const struct uli_root *root)
{
    return atomic_load(&root->finished);
}
