/* SPDX-License-Identifier: Apache-2.0
 *
 * One request of a peer, carried out by the service thread. Nothing in a
 * message is believed before it was checked: a malformed one ends its
 * connection and changes nothing.
 *
 * A window is published before the answer is sent, since the peer may use it
 * as soon as it has that. If the answer cannot be sent, the peer has given up
 * and nobody would withdraw the window: it is withdrawn here, unless it is the
 * peer's control segment.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/log.h"
#include "comm/service_internal.h"
#include "comm/windows.h"

/* ---- receiving ----------------------------------------------------------- */

static int
take_descriptor(struct msghdr *message)
{
    int fd = -1;
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    if (header && header->cmsg_level == SOL_SOCKET &&
        header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&fd, CMSG_DATA(header), sizeof(fd));
    return fd;
}

/* False: nothing that deserves an answer. *fd_p is -1 without a descriptor;
 * *cut_p: one was sent and could not be received. */
static bool
receive(int socket_fd, struct uli_service_request *request_p, int *fd_p,
    bool *cut_p)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec piece = {request_p, sizeof(*request_p)};
    struct msghdr message = {.msg_iov = &piece,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control)};
    ssize_t got = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
    if (got < 0)
        return false;
    *fd_p = take_descriptor(&message);
    *cut_p = message.msg_flags & MSG_CTRUNC;
    bool whole = got == sizeof(*request_p) && !(message.msg_flags & MSG_TRUNC);
    if (!whole && got > 0)
        ULI_INFO(ULI_LOG_FAULT, -1,
            "service: a malformed message of %zd bytes was dropped", got);
    if (!whole && *fd_p >= 0)
        close(*fd_p);
    return whole;
}

/* ---- carrying out -------------------------------------------------------- */

static ulyx_status_t
no_descriptor(bool cut)
{
    struct rlimit limit = {0, 0};
    if (!cut)
        return uli_error(
            ULYX_ERR_SYSTEM, "a window came without its descriptor");
    getrlimit(RLIMIT_NOFILE, &limit);
    return uli_error(ULYX_ERR_SYSTEM,
        "no descriptor is left to receive a window (ulimit -n %" PRIu64 ")",
        (uint64_t)limit.rlim_cur);
}

/* Mapped from its delivery to the end of the communicator: this process's
 * threads use it through peers[].control at any time. */
static bool
is_control(const struct uli_service_request *request)
{
    return request->window == 0;
}

static ulyx_status_t
deliver(ulyx_comm_t *comm, const struct uli_service_request *request, int fd)
{
    struct uli_tr_handle handle = {fd, NULL, request->bytes};
    void *address;
    if (is_control(request) &&
        uli_window_address(comm, request->rank, 0, 0, request->bytes))
        return ULYX_SUCCESS; /* sent again: an answer got lost */
    ULI_TRY(uli_tr_shm_ops.window_map(&handle, &address));
    ulyx_status_t status = uli_window_publish_mapped(
        comm, request->rank, request->window, address, request->bytes);
    if (status != ULYX_SUCCESS)
        uli_tr_shm_ops.window_unmap(address, request->bytes);
    return status;
}

static ulyx_status_t
retire(ulyx_comm_t *comm, const struct uli_service_request *request)
{
    if (uli_window_retire(comm, request->rank, request->window))
        return ULYX_SUCCESS;
    return uli_error_pass(ULYX_ERR_BUSY, "an operation is in flight");
}

static ulyx_status_t
carry_out(ulyx_comm_t *comm, const struct uli_service_request *request, int fd,
    bool cut)
{
    if (request->rank < 0 || request->rank >= comm->nranks ||
        request->rank == comm->rank)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "a window of rank %d of %d for rank %d", request->rank,
            comm->nranks, comm->rank);
    if (request->kind != ULI_SERVICE_DELIVER && is_control(request))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "the control segment of rank %d cannot be taken back",
            request->rank);
    switch (request->kind) {
    case ULI_SERVICE_DELIVER:
        return fd < 0 ? no_descriptor(cut) : deliver(comm, request, fd);
    case ULI_SERVICE_WITHDRAW:
        uli_window_withdraw(comm, request->rank, request->window);
        return ULYX_SUCCESS;
    case ULI_SERVICE_RETIRE:
        return retire(comm, request);
    default:
        return uli_error(ULYX_ERR_VERSION, "service: request %u is not known",
            request->kind);
    }
}

/* ---- answering ----------------------------------------------------------- */

static bool
answer(int socket_fd, enum uli_service_verdict verdict, ulyx_status_t status)
{
    struct uli_service_answer message;
    memset(&message, 0, sizeof(message));
    message.protocol = ULI_PROTOCOL;
    message.verdict = verdict;
    message.status = status;
    if (verdict == ULI_SERVICE_FAILED)
        snprintf(message.text, sizeof(message.text), "%s", uli_error_text());
    return send(socket_fd, &message, sizeof(message), MSG_NOSIGNAL) ==
           sizeof(message);
}

static void
answer_request(
    int socket_fd, const struct uli_service_request *request, int fd, bool cut)
{
    if (request->protocol != ULI_PROTOCOL) {
        ulyx_status_t status =
            uli_error(ULYX_ERR_VERSION, "service: protocol %u came, this is %d",
                request->protocol, ULI_PROTOCOL);
        answer(socket_fd, ULI_SERVICE_FAILED, status);
        return;
    }
    if (request->kind == ULI_SERVICE_PING) {
        answer(socket_fd, ULI_SERVICE_DONE, ULYX_SUCCESS);
        return;
    }
    ulyx_comm_t *comm = uli_service_find_locked(request->endpoint);
    if (!comm) {
        answer(socket_fd, ULI_SERVICE_NOBODY, ULYX_SUCCESS);
        return;
    }
    ulyx_status_t status = carry_out(comm, request, fd, cut);
    bool sent = answer(socket_fd,
        status == ULYX_SUCCESS ? ULI_SERVICE_DONE : ULI_SERVICE_FAILED, status);
    if (!sent && status == ULYX_SUCCESS &&
        request->kind == ULI_SERVICE_DELIVER && !is_control(request))
        uli_window_withdraw(comm, request->rank, request->window);
}

bool
uli_service_serve(int socket_fd)
{
    struct uli_service_request request;
    int fd = -1;
    bool cut = false;
    errno = 0;
    if (!receive(socket_fd, &request, &fd, &cut))
        return errno != EAGAIN;
    answer_request(socket_fd, &request, fd, cut);
    if (fd >= 0)
        close(fd);
    return true;
}
