/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests to the services of other processes: connect, one message, one
 * answer. One connection per request costs some 50 us; nothing is left behind
 * when a peer is killed.
 *
 * "Gone" is certain: the name of a socket is random and used once, so a refused
 * connection means that the peer's process has ended or has closed its service.
 */
#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "comm/record/stand.h"
#include "comm/service/service_internal.h"

enum { SLICE_MS = 50 };

/* ---- connecting ---------------------------------------------------------- */

static socklen_t
make_address(const char name[32], struct sockaddr_un *address_p)
{
    size_t length = strnlen(name, 32);
    memset(address_p, 0, sizeof(*address_p));
    address_p->sun_family = AF_UNIX;
    memcpy(address_p->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

/* The name of the socket is secret, but does not prove that the socket is the
 * user's own. */
static ulyx_status_t
check_user(int fd, const struct uli_identity *peer)
{
    struct ucred user;
    socklen_t length = sizeof(user);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &user, &length))
        return uli_error_errno(
            "rank %d: the user of its service is not known", peer->rank);
    if (user.uid != geteuid())
        return uli_error(ULYX_ERR_AUTH,
            "rank %d's service belongs to user %u, this process to %u",
            peer->rank, user.uid, geteuid());
    return ULYX_SUCCESS;
}

/* Notes for which rank the caller waits. SUCCESS: the wait goes on; else the
 * communicator has failed, or the deadline is over. */
static ulyx_status_t
wait_check(struct uli_stand *stand, uli_deadline_t deadline)
{
    if (stand) {
        uli_stand_look(stand);
        ULI_TRY(uli_comm_check(stand->comm));
    }
    return uli_deadline_over(deadline) ? ULYX_ERR_TIMEOUT : ULYX_SUCCESS;
}

/* EAGAIN means a full queue: the peer is slow, or stopped. */
static ulyx_status_t
connect_to(int fd, const struct uli_identity *peer, struct uli_stand *stand,
    uli_deadline_t deadline, bool *gone_p)
{
    struct sockaddr_un address;
    socklen_t length = make_address(peer->service, &address);
    while (connect(fd, (struct sockaddr *)&address, length)) {
        if (errno == ECONNREFUSED) {
            *gone_p = true;
            return ULYX_IN_PROGRESS;
        }
        if (errno != EAGAIN && errno != EINTR)
            return uli_error_errno("rank %d: no connection to its service "
                                   "%.31s",
                peer->rank, peer->service);
        ULI_TRY(wait_check(stand, deadline));
        uli_clock_sleep_ns(ULI_SERVICE_RETRY_NS);
    }
    return check_user(fd, peer);
}

int
uli_service_connect(const struct uli_identity *peer, struct uli_stand *stand,
    uli_deadline_t deadline, bool *gone_p, ulyx_status_t *status_p)
{
    *gone_p = false;
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        *status_p =
            uli_error_errno("no socket for the service of rank %d", peer->rank);
        return -1;
    }
    *status_p = connect_to(fd, peer, stand, deadline, gone_p);
    if (*status_p == ULYX_SUCCESS)
        return fd;
    close(fd);
    return -1;
}

/* ---- one exchange -------------------------------------------------------- */

static ulyx_status_t
service_client_await(int socket_fd, short events, struct uli_stand *stand,
    uli_deadline_t deadline)
{
    for (;;) {
        struct pollfd entry = {socket_fd, events, 0};
        int slice = uli_deadline_poll_ms(deadline, SLICE_MS);
        int ready = poll(&entry, 1, slice);
        if (ready > 0)
            return ULYX_SUCCESS;
        if (ready < 0 && errno != EINTR)
            return uli_error_errno("poll of a connection to a service");
        ULI_TRY(wait_check(stand, deadline));
    }
}

/* Sends one message: the request, then the shares (exported device memory),
 * with the descriptors as ancillary data. */
static ssize_t
send_request(int socket_fd, const struct uli_service_request *request,
    const struct uli_service_cargo *cargo)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * ULI_SHARE_RUN)];
    } control;
    struct iovec vector[2] = {{(void *)(uintptr_t)request, sizeof(*request)}};
    struct msghdr message = {.msg_iov = vector, .msg_iovlen = 1};
    if (cargo && cargo->nshares > 0) {
        vector[1].iov_base = (void *)(uintptr_t)cargo->shares;
        vector[1].iov_len = (size_t)cargo->nshares * sizeof(*cargo->shares);
        message.msg_iovlen = 2;
    }
    if (cargo && cargo->nfds > 0) {
        size_t bytes = (size_t)cargo->nfds * sizeof(int);
        memset(&control, 0, sizeof(control));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(bytes);
        struct cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(bytes);
        memcpy(CMSG_DATA(header), cargo->fds, bytes);
    }
    return sendmsg(socket_fd, &message, MSG_NOSIGNAL);
}

static bool
is_broken(int number)
{
    return number == EPIPE || number == ECONNRESET || number == ENOTCONN;
}

ulyx_status_t
uli_service_exchange(int socket_fd, const struct uli_service_request *request,
    const struct uli_service_cargo *cargo, struct uli_stand *stand,
    uli_deadline_t deadline, struct uli_service_answer *answer_p)
{
    while (send_request(socket_fd, request, cargo) < 0) {
        if (is_broken(errno))
            return ULYX_IN_PROGRESS;
        /* The queue is full, or too many descriptors are in flight. */
        if (errno == EAGAIN || errno == ETOOMANYREFS)
            ULI_TRY(service_client_await(socket_fd, POLLOUT, stand, deadline));
        else if (errno != EINTR)
            return uli_error_errno("sending a request to a peer's service");
        if (uli_deadline_over(deadline))
            return ULYX_ERR_TIMEOUT;
    }
    for (;;) {
        ULI_TRY(service_client_await(socket_fd, POLLIN, stand, deadline));
        ssize_t got = recv(socket_fd, answer_p, sizeof(*answer_p), 0);
        if (got == sizeof(*answer_p) && answer_p->protocol == ULI_PROTOCOL)
            break;
        if (got == 0 || (got < 0 && is_broken(errno)))
            return ULYX_IN_PROGRESS;
        if (got >= 0)
            return uli_error(ULYX_ERR_VERSION,
                "a peer's service answers in another version of the protocol");
        if (errno != EAGAIN && errno != EINTR)
            return uli_error_errno("receiving the answer of a peer's service");
    }
    answer_p->text[sizeof(answer_p->text) - 1] = 0;
    return ULYX_SUCCESS;
}

/* Connects and exchanges once. */
static ulyx_status_t
service_client_query(const struct uli_identity *peer,
    const struct uli_service_request *request,
    const struct uli_service_cargo *cargo, struct uli_stand *stand,
    uli_deadline_t deadline, bool *gone_p, struct uli_service_answer *answer_p)
{
    ulyx_status_t status;
    int socket_fd = uli_service_connect(peer, stand, deadline, gone_p, &status);
    if (socket_fd < 0)
        return status;
    status = uli_service_exchange(
        socket_fd, request, cargo, stand, deadline, answer_p);
    close(socket_fd);
    return status;
}

static struct uli_service_request
make_request(enum uli_service_kind kind, const struct uli_identity *peer,
    int32_t rank, uint32_t window, int64_t bytes)
{
    struct uli_service_request request;
    memset(&request, 0, sizeof(request));
    request.protocol = ULI_PROTOCOL;
    request.kind = kind;
    memcpy(request.endpoint, peer->endpoint, sizeof(request.endpoint));
    request.rank = rank;
    request.window = window;
    request.bytes = bytes;
    return request;
}

/* ---- deliver, withdraw, recall ------------------------------------------- */

static bool
has_left(ulyx_comm_t *comm, int32_t rank)
{
    return atomic_load(&comm->control->left[rank]) != 0;
}

static ulyx_status_t
service_client_lost(ulyx_comm_t *comm, int32_t rank)
{
    const struct uli_identity *peer = &comm->peers[rank].identity;
    ULI_TRY(uli_comm_check(comm)); /* poison may have the cause */
    return uli_comm_fail(comm, ULYX_ERR_RANK_LOST, rank,
        "rank %d (%.63s, pid %d) has ended or left its communicator",
        uli_comm_number(comm, rank), peer->host, peer->pid);
}

/* Repeats the request until the peer has answered. A peer that has not made its
 * communicator yet gets the request again; a peer that has left gets none. */
static ulyx_status_t
service_client_require(struct uli_stand *stand,
    const struct uli_service_request *request,
    const struct uli_service_cargo *cargo, uli_deadline_t deadline)
{
    ulyx_comm_t *comm = stand->comm;
    int32_t rank = stand->rank;
    const struct uli_identity *peer = &comm->peers[rank].identity;
    struct uli_service_answer answer;
    for (int wait_ms = 1;; wait_ms = wait_ms < 10 ? wait_ms * 2 : 10) {
        bool gone;
        ulyx_status_t status = service_client_query(
            peer, request, cargo, stand, deadline, &gone, &answer);
        if (status == ULYX_SUCCESS && answer.outcome == ULI_SERVICE_DONE)
            return ULYX_SUCCESS;
        if (status == ULYX_SUCCESS && answer.outcome == ULI_SERVICE_FAILED)
            return uli_error(answer.status, "rank %d: %s",
                uli_comm_number(comm, rank), answer.text);
        if (status != ULYX_SUCCESS && status != ULYX_IN_PROGRESS)
            return status;
        if (has_left(comm, rank))
            return ULYX_SUCCESS;
        if (gone)
            return service_client_lost(comm, rank);
        if (status == ULYX_SUCCESS && request->kind != ULI_SERVICE_DELIVER)
            return ULYX_SUCCESS; /* no communicator of the peer has it */
        uli_stand_look(stand);
        ULI_TRY(uli_comm_check(comm));
        if (uli_deadline_over(deadline))
            return ULYX_ERR_TIMEOUT;
        uli_clock_sleep_ns(wait_ms * INT64_C(1000000));
    }
}

static void
load_cargo(const struct uli_tr_handle *handle,
    struct uli_service_request *request, struct uli_service_cargo *cargo)
{
    const struct uli_tr_device_handle *device = handle->device;
    cargo->shares = device ? device->shares : NULL;
    cargo->nshares = device ? device->nshares : 0;
    cargo->nfds = 0;
    if (!device && handle->fd >= 0)
        cargo->fds[cargo->nfds++] = handle->fd;
    for (int32_t i = 0; i < cargo->nshares; i++)
        if (cargo->shares[i].form == ULI_SHARE_DESCRIPTOR)
            cargo->fds[cargo->nfds++] = cargo->shares[i].fd;
    request->address = device ? device->address : 0;
    request->nshares = cargo->nshares;
}

ulyx_status_t
uli_service_deliver(struct uli_stand *stand, uint32_t window,
    const struct uli_tr_handle *handle, uli_deadline_t deadline)
{
    const ulyx_comm_t *comm = stand->comm;
    struct uli_service_request request = make_request(ULI_SERVICE_DELIVER,
        &comm->peers[stand->rank].identity, comm->rank, window, handle->bytes);
    struct uli_service_cargo cargo;
    load_cargo(handle, &request, &cargo);
    return service_client_require(stand, &request, &cargo, deadline);
}

ulyx_status_t
uli_service_withdraw(
    struct uli_stand *stand, uint32_t window, uli_deadline_t deadline)
{
    const ulyx_comm_t *comm = stand->comm;
    struct uli_service_request request = make_request(ULI_SERVICE_WITHDRAW,
        &comm->peers[stand->rank].identity, comm->rank, window, 0);
    return service_client_require(stand, &request, NULL, deadline);
}

bool
uli_service_recall(const struct uli_identity *peer, int32_t rank,
    uint32_t window, bool retire, uli_deadline_t deadline)
{
    struct uli_service_request request =
        make_request(retire ? ULI_SERVICE_RETIRE : ULI_SERVICE_WITHDRAW, peer,
            rank, window, 0);
    struct uli_service_answer answer;
    ulyx_status_t status;
    for (;;) {
        bool gone;
        status = service_client_query(
            peer, &request, NULL, NULL, deadline, &gone, &answer);
        if (gone)
            return true;
        if (status != ULYX_IN_PROGRESS || uli_deadline_over(deadline))
            break;
        uli_clock_sleep_ns(ULI_SERVICE_RETRY_NS);
    }
    return status == ULYX_SUCCESS && answer.outcome != ULI_SERVICE_FAILED;
}
