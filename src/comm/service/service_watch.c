/* SPDX-License-Identifier: Apache-2.0
 *
 * Death of peers. A pidfd becomes readable when its process has ended, in
 * whatever way, also while the process is a zombie; the communicators detect
 * the death within milliseconds.
 *
 * The watched process is the one at the other end of a connection to the peer's
 * service (SO_PEERPIDFD where the kernel has it). Else the pidfd is opened from
 * the pid while a request on that connection is not yet sent, and the service
 * answers the request afterwards: the process was alive after the open, so the
 * pid had not passed to another process.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/log.h"
#include "comm/record/stand.h"
#include "comm/service/service_internal.h"

#ifndef SO_PEERPIDFD /* Linux 6.5 */
#define SO_PEERPIDFD 77
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define WATCH_OF(n) ULI_CONTAINER_OF(n, struct uli_service_watch_entry, node)

static struct uli_service_watch_entry *
find_watch(const unsigned char process[16])
{
    for (struct uli_list *n = uli_service.watches.next;
         n != &uli_service.watches; n = n->next)
        if (memcmp(WATCH_OF(n)->process, process, 16) == 0)
            return WATCH_OF(n);
    return NULL;
}

/* Reports the death to every communicator that has ranks in the process; under
 * lock. */
static void
service_watch_notify(const unsigned char process[16])
{
    for (struct uli_list *n = uli_service.comms.next; n != &uli_service.comms;
         n = n->next) {
        ulyx_comm_t *comm = ULI_CONTAINER_OF(n, ulyx_comm_t, registry);
        for (int32_t p = 0; p < comm->nranks; p++)
            if (memcmp(comm->peers[p].identity.process, process, 16) == 0)
                uli_comm_rank_died(comm, p, "has ended");
    }
}

/* The number may belong to another descriptor by now: checks before
 * reporting. */
static bool
has_ended(int pidfd)
{
    struct pollfd entry = {pidfd, POLLIN, 0};
    return poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN);
}

void
uli_service_watch_fired(int fd)
{
    for (struct uli_list *n = uli_service.watches.next;
         n != &uli_service.watches; n = n->next) {
        struct uli_service_watch_entry *watch = WATCH_OF(n);
        if (watch->fd != fd || watch->dead || !has_ended(fd))
            continue;
        epoll_ctl(uli_service.epoll, EPOLL_CTL_DEL, fd, NULL);
        watch->dead = true;
        service_watch_notify(watch->process);
    }
}

static bool
watch_is_needed(const unsigned char process[16])
{
    for (struct uli_list *n = uli_service.comms.next; n != &uli_service.comms;
         n = n->next) {
        const ulyx_comm_t *comm = ULI_CONTAINER_OF(n, ulyx_comm_t, registry);
        for (int32_t p = 0; p < comm->nranks; p++)
            if (memcmp(comm->peers[p].identity.process, process, 16) == 0)
                return true;
    }
    return false;
}

void
uli_service_watch_sweep(void)
{
    struct uli_list *next;
    for (struct uli_list *n = uli_service.watches.next;
         n != &uli_service.watches; n = next) {
        struct uli_service_watch_entry *watch = WATCH_OF(n);
        next = n->next;
        if (watch_is_needed(watch->process))
            continue;
        uli_list_remove(n);
        close(watch->fd);
        free(watch);
    }
}

/* ---- opening ------------------------------------------------------------- */

/* A pidfd of the connection's peer; -1: the kernel gives none. */
static int
open_pidfd(int socket_fd)
{
    int fd = -1;
    struct ucred user;
    socklen_t length = sizeof(fd);
    if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERPIDFD, &fd, &length) == 0)
        return fd;
    length = sizeof(user);
    if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &user, &length) ||
        user.pid <= 0)
        return -1;
    return (int)syscall(SYS_pidfd_open, user.pid, 0);
}

/* *fd_p = -1 with SUCCESS: the kernel gives no pidfd. IN_PROGRESS: the peer is
 * gone (*gone_p), or its service closed the connection to make room. */
static ulyx_status_t
open_watch(ulyx_comm_t *comm, int32_t rank, uli_deadline_t deadline, int *fd_p,
    bool *gone_p)
{
    const struct uli_identity *peer = &comm->peers[rank].identity;
    struct uli_service_request ping = {
        .protocol = ULI_PROTOCOL, .kind = ULI_SERVICE_PING};
    struct uli_service_answer answer;
    struct uli_stand stand = {.comm = comm};
    ulyx_status_t status;
    uli_stand_begin(&stand, rank);
    int socket_fd =
        uli_service_connect(peer, &stand, deadline, gone_p, &status);
    if (socket_fd < 0)
        return status;
    *fd_p = open_pidfd(socket_fd);
    status =
        uli_service_exchange(socket_fd, &ping, NULL, &stand, deadline, &answer);
    close(socket_fd);
    if (status != ULYX_SUCCESS && *fd_p >= 0)
        close(*fd_p);
    return status;
}

/* Under lock. Takes fd. */
static ulyx_status_t
add_watch(const unsigned char process[16], int fd)
{
    struct uli_service_watch_entry *watch = calloc(1, sizeof(*watch));
    if (!watch) {
        close(fd);
        return uli_error(ULYX_ERR_NO_MEMORY, "watching a process: no memory");
    }
    watch->fd = fd;
    memcpy(watch->process, process, 16);
    ulyx_status_t status = uli_service_poll_add(ULI_SOURCE_WATCH, fd);
    if (status != ULYX_SUCCESS) {
        free(watch);
        close(fd);
        return status;
    }
    uli_list_append(&uli_service.watches, &watch->node);
    return ULYX_SUCCESS;
}

/* True when the process is watched already; if it has ended, its death is
 * reported. */
static bool
is_watched(ulyx_comm_t *comm, int32_t rank)
{
    pthread_mutex_lock(&uli_service.lock);
    struct uli_service_watch_entry *watch =
        find_watch(comm->peers[rank].identity.process);
    bool dead = watch && watch->dead;
    pthread_mutex_unlock(&uli_service.lock);
    if (dead)
        uli_comm_rank_died(comm, rank, "has ended");
    return watch;
}

/* Like open_watch, repeated while the service closes connections before its
 * answer, to make room for others. TIMEOUT: it still does so at the
 * deadline. */
static ulyx_status_t
open_watch_at_last(ulyx_comm_t *comm, int32_t rank, uli_deadline_t deadline,
    int *fd_p, bool *gone_p)
{
    for (;;) {
        ulyx_status_t status = open_watch(comm, rank, deadline, fd_p, gone_p);
        if (status != ULYX_IN_PROGRESS || *gone_p)
            return status;
        ULI_TRY(uli_comm_check(comm));
        if (uli_deadline_over(deadline))
            return ULYX_ERR_TIMEOUT;
        uli_clock_sleep_ns(ULI_SERVICE_RETRY_NS);
    }
}

static ulyx_status_t
watch_rank(ulyx_comm_t *comm, int32_t rank)
{
    int fd = -1;
    bool gone = false;
    ulyx_status_t status;
    uli_deadline_t deadline = uli_deadline_in(comm->timeout_s);
    if (is_watched(comm, rank))
        return ULYX_SUCCESS;
    status = open_watch_at_last(comm, rank, deadline, &fd, &gone);
    if (gone && atomic_load(&comm->control->left[rank]))
        return ULYX_SUCCESS;
    if (gone)
        ULI_TRY(uli_comm_check(comm)); /* poison may have the cause */
    if (gone)
        return uli_comm_fail(comm, ULYX_ERR_RANK_LOST, rank,
            "rank %d has ended or left its communicator",
            uli_comm_number(comm, rank));
    struct uli_late late = uli_late_one(ULI_LATE_ANSWER, rank);
    if (status == ULYX_ERR_TIMEOUT)
        return uli_comm_fail_late(comm, &late, "connecting to a service");
    ULI_TRY(status);
    if (fd < 0) {
        ULI_WARN(ULI_LOG_FAULT, comm->rank,
            "no pidfd of rank %d here (%s): its death will show as a timeout",
            uli_comm_number(comm, rank), strerror(errno));
        return ULYX_SUCCESS;
    }
    pthread_mutex_lock(&uli_service.lock);
    if (find_watch(comm->peers[rank].identity.process))
        close(fd); /* another rank of this process was faster */
    else
        status = add_watch(comm->peers[rank].identity.process, fd);
    pthread_mutex_unlock(&uli_service.lock);
    return status;
}

ulyx_status_t
uli_service_watch(ulyx_comm_t *comm)
{
    /* From the next rank on, so that the ranks do not all begin with rank 0. */
    for (int32_t i = 1; i < comm->nranks; i++) {
        int32_t p = (comm->rank + i) % comm->nranks;
        const struct uli_peer *peer = &comm->peers[p];
        if (peer->same_process || !peer->map)
            continue;
        uli_comm_notify_meeting(comm, p);
        ULI_TRY(watch_rank(comm, p));
    }
    return ULYX_SUCCESS;
}
