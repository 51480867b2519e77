/* SPDX-License-Identifier: Apache-2.0
 *
 * The service thread: waits on its socket, its connections and the pidfds of
 * peers' processes. All signals are blocked in the thread, and its stack has a
 * fixed size, so that neither handlers nor limits of the application affect the
 * thread.
 *
 * A connection lives for one request. A connection that sends nothing is closed
 * after IDLE_NS, or when its place is needed; the client tries again. When
 * descriptors have run out, a spare descriptor is closed to accept the next
 * peer and to answer with an error: without an answer the peer would wait until
 * its deadline.
 *
 * Where communicators of device memory are registered, the thread also checks,
 * every POISON_MS, the calls of their batches (batch.h), and for poison that
 * peers have posted: kernels wait for peers while no host thread waits, and
 * read only the communicator's own poison word.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <fcntl.h>
#include <unistd.h>
#include "base/log.h"
#include "base/system/thread.h"
#include "comm/messages/batch.h"
#include "comm/record/dump.h"
#include "comm/service/service_internal.h"

enum { EVENTS = 16, TICK_MS = 1000, POISON_MS = 10 };
#define IDLE_NS (INT64_C(5) * 1000 * 1000 * 1000)

/* ---- descriptors --------------------------------------------------------- */

ulyx_status_t
uli_service_poll_add(enum uli_service_source source, int fd)
{
    struct epoll_event event = {.events = EPOLLIN};
    event.data.u64 = (uint64_t)source << 32 | (uint32_t)fd;
    if (epoll_ctl(uli_service.epoll, EPOLL_CTL_ADD, fd, &event))
        return uli_error_errno("service: epoll");
    return ULYX_SUCCESS;
}

static void
close_one(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void
uli_service_close_descriptors(void)
{
    close_one(&uli_service.listener);
    close_one(&uli_service.epoll);
    close_one(&uli_service.stop);
    close_one(&uli_service.spare);
    close_one(&uli_service.poke);
    for (int i = 0; i < ULI_SERVICE_CONNECTIONS; i++)
        close_one(&uli_service.connections[i].fd);
    for (struct uli_list *n = uli_service.watches.next;
         n != &uli_service.watches; n = n->next)
        close_one(
            &ULI_CONTAINER_OF(n, struct uli_service_watch_entry, node)->fd);
}

static ulyx_status_t
open_listener(void)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(uli_service.name);
    memcpy(address.sun_path + 1, uli_service.name, length);
    length += offsetof(struct sockaddr_un, sun_path) + 1;
    uli_service.listener =
        socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (uli_service.listener < 0)
        return uli_error_errno("service: a socket");
    if (bind(uli_service.listener, (struct sockaddr *)&address,
            (socklen_t)length) ||
        listen(uli_service.listener, SOMAXCONN))
        return uli_error_errno("service: listening at @%s", uli_service.name);
    return ULYX_SUCCESS;
}

static ulyx_status_t
open_descriptors(void)
{
    ULI_TRY(open_listener());
    uli_service.epoll = epoll_create1(EPOLL_CLOEXEC);
    uli_service.stop = eventfd(0, EFD_CLOEXEC);
    uli_service.poke = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    uli_service.spare = fcntl(uli_service.listener, F_DUPFD_CLOEXEC, 0);
    if (uli_service.epoll < 0 || uli_service.stop < 0 ||
        uli_service.spare < 0 || uli_service.poke < 0)
        return uli_error_errno("service: descriptors");
    ULI_TRY(uli_service_poll_add(ULI_SOURCE_STOP, uli_service.stop));
    ULI_TRY(uli_service_poll_add(ULI_SOURCE_POKE, uli_service.poke));
    return uli_service_poll_add(ULI_SOURCE_LISTENER, uli_service.listener);
}

/* ---- connections --------------------------------------------------------- */

static void
connection_drop(struct uli_service_connection *connection)
{
    close_one(&connection->fd);
    if (uli_service.spare < 0)
        uli_service.spare = fcntl(uli_service.stop, F_DUPFD_CLOEXEC, 0);
}

/* A free place, or the place of the oldest connection, which is served if its
 * request has arrived, and closed. */
static struct uli_service_connection *
find_place(void)
{
    struct uli_service_connection *oldest = &uli_service.connections[0];
    for (int i = 0; i < ULI_SERVICE_CONNECTIONS; i++) {
        struct uli_service_connection *place = &uli_service.connections[i];
        if (place->fd < 0)
            return place;
        if (place->since_ns < oldest->since_ns)
            oldest = place;
    }
    uli_service_serve(oldest->fd);
    connection_drop(oldest);
    return oldest;
}

static int
accept_one(void)
{
    int flags = SOCK_CLOEXEC | SOCK_NONBLOCK;
    int fd = accept4(uli_service.listener, NULL, NULL, flags);
    if (fd < 0 && (errno == EMFILE || errno == ENFILE) &&
        uli_service.spare >= 0) {
        close_one(&uli_service.spare);
        fd = accept4(uli_service.listener, NULL, NULL, flags);
    }
    return fd;
}

static bool
is_our_user(int fd)
{
    struct ucred user;
    socklen_t length = sizeof(user);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &length) == 0 &&
        user.uid == geteuid())
        return true;
    ULI_WARN_LIMITED(ULI_LOG_FAULT, -1,
        "service: a connection of user %u was refused", user.uid);
    return false;
}

static void
accept_all(void)
{
    for (int i = 0; i < ULI_SERVICE_CONNECTIONS; i++) {
        struct uli_service_connection *place = find_place();
        place->fd = accept_one();
        place->since_ns = uli_clock_ns();
        if (place->fd < 0)
            return;
        if (!is_our_user(place->fd) ||
            uli_service_poll_add(ULI_SOURCE_CONNECTION, place->fd))
            connection_drop(place);
    }
}

static void
service_thread_serve(int fd)
{
    for (int i = 0; i < ULI_SERVICE_CONNECTIONS; i++) {
        if (uli_service.connections[i].fd != fd)
            continue;
        if (uli_service_serve(fd))
            connection_drop(&uli_service.connections[i]);
    }
}

/* Closes idle connections. Returns how many are left. */
static int
drop_idle(void)
{
    int left = 0;
    int64_t now = uli_clock_ns();
    for (int i = 0; i < ULI_SERVICE_CONNECTIONS; i++) {
        struct uli_service_connection *connection = &uli_service.connections[i];
        if (connection->fd >= 0 && now - connection->since_ns > IDLE_NS)
            connection_drop(connection);
        left += connection->fd >= 0;
    }
    return left;
}

/* ---- poison -------------------------------------------------------------- */

void
uli_service_poke(void)
{
    uint64_t one = 1;
    if (uli_service.poke >= 0)
        (void)!write(uli_service.poke, &one, sizeof(one));
}

static void
take_poke(void)
{
    uint64_t count;
    (void)!read(uli_service.poke, &count, sizeof(count));
}

/* Takes poison and watches batches. Whether there is a communicator to check
 * again. Under lock. */
static bool
look_for_poison(void)
{
    bool any = false;
    for (struct uli_list *n = uli_service.comms.next; n != &uli_service.comms;
         n = n->next) {
        ulyx_comm_t *comm = ULI_CONTAINER_OF(n, ulyx_comm_t, registry);
        if (!comm->gpu)
            continue;
        any = any || !atomic_load(&comm->failed);
        uli_comm_take_poison(comm);
        uli_batch_look(comm);
    }
    return any;
}

/* ---- the loop ------------------------------------------------------------ */

/* Handles one event. False: stop. */
static bool
service_thread_handle(uint64_t data)
{
    int fd = (int)(uint32_t)data;
    switch ((enum uli_service_source)(data >> 32)) {
    case ULI_SOURCE_STOP:
        return false;
    case ULI_SOURCE_LISTENER:
        accept_all();
        break;
    case ULI_SOURCE_CONNECTION:
        service_thread_serve(fd);
        break;
    case ULI_SOURCE_WATCH:
        uli_service_watch_fired(fd);
        break;
    case ULI_SOURCE_POKE:
        take_poke();
        break;
    }
    return true;
}

static void
take_core(void)
{
    cpu_set_t set;
    if (uli_service.core < 0 || uli_service.core >= CPU_SETSIZE)
        return;
    CPU_ZERO(&set);
    CPU_SET((size_t)uli_service.core, &set);
    int failed = pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
    if (failed)
        ULI_WARN(ULI_LOG_INIT, -1, "ULYX_SERVICE_CORE=%d: %s",
            (int)uli_service.core, strerror(failed));
}

static void *
thread_main(void *unused)
{
    struct epoll_event events[EVENTS];
    int connections = 0;
    bool go = true, devices = false;
    (void)unused;
    pthread_setname_np(pthread_self(), "ulyx-service");
    take_core();
    uli_dump_never_wait();
    while (go) {
        int tick = devices ? POISON_MS : connections ? TICK_MS : -1;
        int count = epoll_wait(uli_service.epoll, events, EVENTS, tick);
        pthread_mutex_lock(&uli_service.lock);
        for (int i = 0; i < count && go; i++)
            go = service_thread_handle(events[i].data.u64);
        connections = drop_idle();
        devices = look_for_poison();
        pthread_mutex_unlock(&uli_service.lock);
    }
    return NULL;
}

ulyx_status_t
uli_service_thread_start(void)
{
    for (int i = 0; i < ULI_SERVICE_CONNECTIONS; i++)
        uli_service.connections[i].fd = -1;
    ulyx_status_t status = open_descriptors();
    if (status == ULYX_SUCCESS)
        status =
            uli_thread_start("service", thread_main, NULL, &uli_service.thread);
    if (status != ULYX_SUCCESS)
        uli_service_close_descriptors();
    return status;
}

void
uli_service_thread_stop(void)
{
    uint64_t one = 1;
    while (write(uli_service.stop, &one, sizeof(one)) < 0 && errno == EINTR)
        ;
    pthread_join(uli_service.thread, NULL);
    pthread_mutex_lock(&uli_service.lock);
    uli_service_close_descriptors();
    pthread_mutex_unlock(&uli_service.lock);
}
