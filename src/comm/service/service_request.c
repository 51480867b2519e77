/* SPDX-License-Identifier: Apache-2.0
 *
 * One request of a peer, carried out by the service thread. Each message is
 * checked first: a malformed message ends its connection and changes nothing.
 *
 * A window is published before the answer is sent, since the peer may use the
 * window as soon as it has the answer. If the answer cannot be sent, the peer
 * no longer waits and would not withdraw the window: the window is withdrawn
 * here, unless it is the peer's control segment.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/log.h"
#include "comm/device/gpu.h"
#include "comm/service/service_internal.h"
#include "comm/memory/windows.h"

/* ---- receiving ----------------------------------------------------------- */

/* A received request. */
struct parcel {
    struct uli_service_request request;
    struct uli_share shares[ULI_SHARE_RUN];
    int fds[ULI_SHARE_RUN];
    int nfds;
    bool cut; /* some descriptors of the message could not be received */
};

static void
take_descriptors(struct msghdr *message, struct parcel *parcel)
{
    struct cmsghdr *header = CMSG_FIRSTHDR(message);
    if (!header || header->cmsg_level != SOL_SOCKET ||
        header->cmsg_type != SCM_RIGHTS || header->cmsg_len < CMSG_LEN(0))
        return;
    size_t bytes = header->cmsg_len - CMSG_LEN(0);
    parcel->nfds = (int)(bytes / sizeof(int));
    memcpy(parcel->fds, CMSG_DATA(header), (size_t)parcel->nfds * sizeof(int));
}

static void
close_descriptors(struct parcel *parcel)
{
    for (int i = 0; i < parcel->nfds; i++)
        close(parcel->fds[i]);
    parcel->nfds = 0;
}

/* Whether the message holds exactly as many shares as the request states. */
static bool
is_whole(const struct parcel *parcel, size_t got)
{
    size_t least = sizeof(parcel->request);
    return got >= least && parcel->request.nshares >= 0 &&
           parcel->request.nshares <= ULI_SHARE_RUN &&
           got == least + (size_t)parcel->request.nshares *
                              sizeof(parcel->shares[0]);
}

/* False: the message is no request that needs an answer. */
static bool
service_request_receive(int socket_fd, struct parcel *parcel)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * ULI_SHARE_RUN)];
    } control;
    struct iovec vector[2] = {{&parcel->request, sizeof(parcel->request)},
        {parcel->shares, sizeof(parcel->shares)}};
    struct msghdr message = {.msg_iov = vector,
        .msg_iovlen = 2,
        .msg_control = &control,
        .msg_controllen = sizeof(control)};
    parcel->nfds = 0;
    ssize_t got = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
    if (got < 0)
        return false;
    take_descriptors(&message, parcel);
    parcel->cut = message.msg_flags & MSG_CTRUNC;
    bool whole =
        is_whole(parcel, (size_t)got) && !(message.msg_flags & MSG_TRUNC);
    if (!whole && got > 0)
        ULI_INFO(ULI_LOG_FAULT, -1,
            "service: a malformed message of %zd bytes was dropped", got);
    if (!whole)
        close_descriptors(parcel);
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

/* The control segment stays mapped from its delivery to the end of the
 * communicator: threads of this process use it through peers[].control at any
 * time. */
static bool
is_control(const struct uli_service_request *request)
{
    return request->window == 0;
}

/* A control segment that is sent again, because an answer was lost, must be the
 * one that is mapped already. No other replaces it. */
static ulyx_status_t
keep_control(ulyx_comm_t *comm, const struct uli_service_request *request)
{
    int64_t bytes = request->bytes;
    if (uli_window_address(comm, request->rank, 0, 0, bytes) &&
        !uli_window_address(comm, request->rank, 0, bytes, 1))
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "rank %d has the control segment of rank %d, and takes no other of "
        "%" PRId64 " bytes",
        uli_comm_number(comm, comm->rank), uli_comm_number(comm, request->rank),
        bytes);
}

static ulyx_status_t
service_request_deliver(
    ulyx_comm_t *comm, const struct uli_service_request *request, int fd)
{
    struct uli_tr_handle handle = {fd, NULL, request->bytes, NULL};
    if (is_control(request) && comm->peers[request->rank].control)
        return keep_control(comm, request);
    if (is_control(request) && request->bytes < uli_control_bytes(comm->nranks))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "the control segment of rank %d has %" PRId64
            " bytes, it needs %" PRId64,
            uli_comm_number(comm, request->rank), request->bytes,
            uli_control_bytes(comm->nranks));
    return uli_window_map(comm, request->rank, request->window, &handle);
}

/* The descriptor numbers in the shares mean nothing in this process: the
 * received descriptors belong to the shares in order. */
static ulyx_status_t
assign_descriptors(struct parcel *parcel)
{
    int used = 0;
    for (int32_t i = 0; i < parcel->request.nshares; i++) {
        struct uli_share *share = &parcel->shares[i];
        bool needs = share->form == ULI_SHARE_DESCRIPTOR;
        if (needs && used == parcel->nfds)
            return no_descriptor(parcel->cut);
        share->fd = needs ? parcel->fds[used++] : -1;
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
deliver_device(ulyx_comm_t *comm, struct parcel *parcel)
{
    const struct uli_service_request *request = &parcel->request;
    const struct uli_peer *peer = &comm->peers[request->rank];
    struct uli_tr_device_handle device = {.device = peer->identity.device,
        .process = peer->identity.process,
        .address = request->address,
        .bytes = request->bytes,
        .shares = parcel->shares,
        .nshares = request->nshares};
    struct uli_tr_handle handle = {-1, NULL, request->bytes, &device};
    ULI_TRY(uli_gpu_admit(comm));
    if (is_control(request) || !peer->map_device)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "rank %d cannot take window %u of rank %d in device memory",
            comm->rank, request->window, request->rank);
    ULI_TRY(assign_descriptors(parcel));
    return uli_window_map(comm, request->rank, request->window, &handle);
}

static ulyx_status_t
service_request_retire(
    ulyx_comm_t *comm, const struct uli_service_request *request)
{
    if (uli_window_retire(comm, request->rank, request->window))
        return ULYX_SUCCESS;
    return uli_error_pass(ULYX_ERR_BUSY, "an operation is in flight");
}

static ulyx_status_t
deliver_any(ulyx_comm_t *comm, struct parcel *parcel)
{
    if (parcel->request.nshares > 0)
        return deliver_device(comm, parcel);
    if (parcel->nfds != 1)
        return no_descriptor(parcel->cut);
    return service_request_deliver(comm, &parcel->request, parcel->fds[0]);
}

static ulyx_status_t
carry_out(ulyx_comm_t *comm, struct parcel *parcel)
{
    const struct uli_service_request *request = &parcel->request;
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
        return deliver_any(comm, parcel);
    case ULI_SERVICE_WITHDRAW:
        uli_window_withdraw(comm, request->rank, request->window);
        return ULYX_SUCCESS;
    case ULI_SERVICE_RETIRE:
        return service_request_retire(comm, request);
    default:
        return uli_error(ULYX_ERR_VERSION, "service: request %u is not known",
            request->kind);
    }
}

/* ---- answering ----------------------------------------------------------- */

static bool
service_request_answer(
    int socket_fd, enum uli_service_outcome outcome, ulyx_status_t status)
{
    struct uli_service_answer message;
    memset(&message, 0, sizeof(message));
    message.protocol = ULI_PROTOCOL;
    message.outcome = outcome;
    message.status = status;
    if (outcome == ULI_SERVICE_FAILED)
        snprintf(message.text, sizeof(message.text), "%s", uli_error_text());
    return send(socket_fd, &message, sizeof(message), MSG_NOSIGNAL) ==
           sizeof(message);
}

/* Whether this rank is ready for the request. A window may arrive before this
 * rank has chosen its transports or has its table of device memory, because the
 * peer is ahead in creation; the peer tries again. */
static bool
is_awaited(const ulyx_comm_t *comm, const struct uli_service_request *request)
{
    if (request->kind != ULI_SERVICE_DELIVER)
        return true;
    return atomic_load(&comm->connected) &&
           (request->nshares == 0 || !comm->gpu ||
               uli_gpu_admit(comm) != ULYX_IN_PROGRESS);
}

static void
answer_request(int socket_fd, struct parcel *parcel)
{
    const struct uli_service_request *request = &parcel->request;
    if (request->protocol != ULI_PROTOCOL) {
        ulyx_status_t status = uli_error(ULYX_ERR_VERSION,
            "service: the request has protocol %u, this process has %d",
            request->protocol, ULI_PROTOCOL);
        service_request_answer(socket_fd, ULI_SERVICE_FAILED, status);
        return;
    }
    if (request->kind == ULI_SERVICE_PING) {
        service_request_answer(socket_fd, ULI_SERVICE_DONE, ULYX_SUCCESS);
        return;
    }
    ulyx_comm_t *comm = uli_service_find_locked(request->endpoint);
    if (!comm || !is_awaited(comm, request)) {
        service_request_answer(socket_fd, ULI_SERVICE_NOBODY, ULYX_SUCCESS);
        return;
    }
    ulyx_status_t status = carry_out(comm, parcel);
    bool sent = service_request_answer(socket_fd,
        status == ULYX_SUCCESS ? ULI_SERVICE_DONE : ULI_SERVICE_FAILED, status);
    if (!sent && status == ULYX_SUCCESS &&
        request->kind == ULI_SERVICE_DELIVER && !is_control(request))
        uli_window_withdraw(comm, request->rank, request->window);
}

bool
uli_service_serve(int socket_fd)
{
    struct parcel parcel;
    errno = 0;
    if (!service_request_receive(socket_fd, &parcel))
        return errno != EAGAIN;
    answer_request(socket_fd, &parcel);
    close_descriptors(&parcel);
    return true;
}
