/* SPDX-License-Identifier: Apache-2.0
 *
 * The service: which connections it accepts, how it handles messages that are
 * no requests, and delivered windows.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "comm/record/stand.h"
#include "comm/service/service_dial.h"
#include "comm/service/service_internal.h"
#include "support/random.h"
#include "support/test.h"

static unsigned char process_name[16];
static char socket_name[32];

/* A communicator of two ranks without peers, as another process would have it.
 * The registry needs only identities, tables and the MAP transport. */
static ulyx_comm_t *
fake_comm(void)
{
    ulyx_comm_t *comm = calloc(1, sizeof(*comm));
    comm->nranks = 2;
    comm->rank = 0;
    comm->peers = calloc(2, sizeof(*comm->peers));
    memset(comm->peers[0].identity.endpoint, 0x5A, 16);
    comm->peers[1].map = &uli_tr_shm_ops;
    atomic_store(&comm->connected, true);
    uli_list_init(&comm->registry);
    uli_list_init(&comm->arenas);
    uli_list_init(&comm->attachments);
    pthread_mutex_init(&comm->lock, NULL);
    return comm;
}

static void
free_comm(ulyx_comm_t *comm)
{
    uli_windows_close(comm);
    free(comm->peers);
    free(comm);
}

static int
comms_hold(void **state)
{
    ulyx_comm_t *comm = fake_comm();
    *state = comm;
    return uli_service_hold(process_name, socket_name) || uli_service_add(comm);
}

static int
comms_release(void **state)
{
    free_comm(*state);
    uli_service_release();
    return 0;
}

/* Returns whether the other end has closed without an answer. */
static bool
is_closed(int fd)
{
    char byte;
    struct pollfd entry = {fd, POLLIN, 0};
    return poll(&entry, 1, 5000) == 1 && recv(fd, &byte, 1, 0) <= 0;
}

/* ---- accepted connections and requests ----------------------------------- */

static void
unknown_endpoints_are_no_peer(void **state)
{
    (void)state;
    struct uli_service_request request = {.protocol = ULI_PROTOCOL,
        .kind = ULI_SERVICE_WITHDRAW,
        .rank = 1,
        .window = 3};
    struct uli_service_answer answer;
    int fd = dial(socket_name);
    assert_status(uli_service_exchange(
                      fd, &request, NULL, NULL, uli_deadline_in(5), &answer),
        ULYX_SUCCESS);
    assert_int_equal(answer.outcome, ULI_SERVICE_NOBODY);
    close(fd);
}

static struct uli_service_answer
service_call(ulyx_comm_t *comm, struct uli_service_request request, int fd)
{
    struct uli_service_answer answer;
    struct uli_service_cargo cargo = {.nfds = fd >= 0, .fds = {fd}};
    int socket_fd = dial(socket_name);
    memcpy(request.endpoint, comm->peers[0].identity.endpoint, 16);
    assert_status(uli_service_exchange(socket_fd, &request, &cargo, NULL,
                      uli_deadline_in(5), &answer),
        ULYX_SUCCESS);
    close(socket_fd);
    return answer;
}

static void
bad_requests_change_nothing(void **state)
{
    ulyx_comm_t *comm = *state;
    struct uli_segment segment;
    assert_status(
        uli_segment_create(4096, true, false, &segment), ULYX_SUCCESS);
    const struct uli_service_request good = {
        ULI_PROTOCOL, ULI_SERVICE_DELIVER, {0}, 1, 5, 4096};
    struct {
        int32_t rank;
        uint32_t kind, window, protocol;
        int64_t bytes;
        int fd;
        ulyx_status_t status;
    } bad[] = {
        {-1, 2, 5, ULI_PROTOCOL, 4096, segment.fd, ULYX_ERR_INVALID_ARGUMENT},
        {2, 2, 5, ULI_PROTOCOL, 4096, segment.fd, ULYX_ERR_INVALID_ARGUMENT},
        {0, 2, 5, ULI_PROTOCOL, 4096, segment.fd, ULYX_ERR_INVALID_ARGUMENT},
        {1, 2, 1u << 20, ULI_PROTOCOL, 4096, segment.fd, ULYX_ERR_NO_MEMORY},
        {1, 2, 5, ULI_PROTOCOL, 4097, segment.fd, ULYX_ERR_SYSTEM},
        {1, 2, 5, ULI_PROTOCOL, -1, segment.fd, ULYX_ERR_SYSTEM},
        {1, 2, 5, ULI_PROTOCOL, 4096, -1, ULYX_ERR_SYSTEM},
        {1, 2, 5, ULI_PROTOCOL, 4096, 0, ULYX_ERR_SYSTEM},
        {1, 99, 5, ULI_PROTOCOL, 4096, segment.fd, ULYX_ERR_VERSION},
        {1, 2, 5, ULI_PROTOCOL + 1, 4096, segment.fd, ULYX_ERR_VERSION},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct uli_service_request request = good;
        request.rank = bad[i].rank;
        request.kind = bad[i].kind;
        request.window = bad[i].window;
        request.protocol = bad[i].protocol;
        request.bytes = bad[i].bytes;
        struct uli_service_answer answer =
            service_call(comm, request, bad[i].fd);
        assert_int_equal(answer.outcome, ULI_SERVICE_FAILED);
        assert_int_equal(answer.status, bad[i].status);
        assert_true(strlen(answer.text) > 0);
        assert_null(uli_window_address(comm, 1, 5, 0, 1));
    }
    assert_int_equal(
        service_call(comm, good, segment.fd).outcome, ULI_SERVICE_DONE);
    assert_non_null(uli_window_address(comm, 1, 5, 0, 4096));
    uli_segment_destroy(&segment);
}

/* Messages of any length and content, with and without descriptors. */
static void
noise_closes_its_connection_only(void **state)
{
    ulyx_comm_t *comm = *state;
    struct test_random random = {test_seed(31)};
    unsigned char bytes[512];
    int steady = dial(socket_name);
    for (int64_t i = 0; i < test_draws(300); i++) {
        size_t length = (size_t)test_random_in(&random, 1, sizeof(bytes));
        int fd = dial(socket_name);
        assert_true(fd >= 0);
        if (length == sizeof(struct uli_service_request))
            length++;
        for (size_t b = 0; b < length; b++)
            bytes[b] = (unsigned char)test_random_next(&random);
        assert_int_equal(send(fd, bytes, length, 0), length);
        assert_true(is_closed(fd));
        close(fd);
    }
    for (uint32_t w = 0; w < 64; w++)
        assert_null(uli_window_address(comm, 1, w, 0, 1));
    struct uli_service_request ping = {
        .protocol = ULI_PROTOCOL, .kind = ULI_SERVICE_PING};
    struct uli_service_answer answer;
    assert_status(uli_service_exchange(
                      steady, &ping, NULL, NULL, uli_deadline_in(5), &answer),
        ULYX_SUCCESS);
    close(steady);
}

/* More silent connections than there are places do not keep others out. */
static void
silent_clients_make_room(void **state)
{
    (void)state;
    enum { COUNT = 3 * ULI_SERVICE_CONNECTIONS };
    int fds[COUNT];
    for (int i = 0; i < COUNT; i++) {
        fds[i] = dial(socket_name);
        assert_true(fds[i] >= 0);
    }
    for (int i = 0; i < 5; i++)
        assert_true(answers_ping(socket_name));
    for (int i = 0; i < COUNT; i++)
        close(fds[i]);
    assert_true(answers_ping(socket_name));
}

/* A burst of more requests than there are places. Each is answered. */
static void
bursts_are_answered(void **state)
{
    (void)state;
    enum { COUNT = 4 * ULI_SERVICE_CONNECTIONS };
    int fds[COUNT];
    struct uli_service_request ping = {
        .protocol = ULI_PROTOCOL, .kind = ULI_SERVICE_PING};
    struct uli_service_answer answer;
    uli_service_lock(); /* the service thread waits here */
    for (int i = 0; i < COUNT; i++) {
        fds[i] = dial(socket_name);
        assert_int_equal(send(fds[i], &ping, sizeof(ping), 0), sizeof(ping));
    }
    uli_service_unlock();
    for (int i = 0; i < COUNT; i++) {
        assert_int_equal(
            recv(fds[i], &answer, sizeof(answer), 0), sizeof(answer));
        assert_int_equal(answer.outcome, ULI_SERVICE_DONE);
        close(fds[i]);
    }
}

static int
as_nobody(const char *name, int times)
{
    if (setegid(65534) || seteuid(65534))
        return 77;
    for (int i = 0; i < times; i++) {
        int fd = dial(name);
        if (fd < 0)
            return 2;
        if (!is_closed(fd))
            return 1;
        close(fd);
    }
    return 0;
}

/* Connects so many times as another user. Each connection must be closed. */
static void
knock_as_nobody(int times)
{
    int status = 0;
    char name[32];
    memcpy(name, socket_name, sizeof(name));
    pid_t pid = fork();
    if (pid == 0)
        _exit(as_nobody(name, times));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        test_skip("no right to become another user");
    assert_int_equal(status, 0);
}

static void
other_users_are_shut_out(void **state)
{
    (void)state;
    knock_as_nobody(1);
    assert_true(answers_ping(socket_name));
}

/* The thread logs each refusal, with its lock held, to a pipe that no process
 * reads. */
static void
full_log_does_not_block_the_service(void **state)
{
    int ends[2], kept = dup(STDERR_FILENO);
    char filling[4096] = "";
    (void)state;
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], filling, sizeof(filling)) > 0)
        ;
    fcntl(ends[1], F_SETFL, 0);
    dup2(ends[1], STDERR_FILENO);
    knock_as_nobody(200);
    bool serves = answers_ping(socket_name);
    dup2(kept, STDERR_FILENO);
    close(kept);
    close(ends[0]);
    close(ends[1]);
    assert_true(serves);
}

/* The opposite case: a service of another user is refused. */
static void
other_users_are_refused(void **state)
{
    (void)state;
    struct uli_identity peer;
    bool gone;
    ulyx_status_t status;
    memset(&peer, 0, sizeof(peer));
    memcpy(peer.service, socket_name, sizeof(peer.service));
    if (seteuid(65534))
        test_skip("no right to become another user");
    int fd =
        uli_service_connect(&peer, NULL, uli_deadline_in(1), &gone, &status);
    int back = seteuid(0);
    assert_int_equal(back, 0);
    assert_int_equal(fd, -1);
    assert_false(gone);
    assert_int_equal(status, ULYX_ERR_AUTH);
}

static void
recall_from_an_ended_peer_returns_at_once(void **state)
{
    (void)state;
    struct uli_identity peer;
    memset(&peer, 0, sizeof(peer));
    strcpy(peer.service, "ulyx-nobody-has-this-name");
    int64_t start = uli_clock_ns();
    assert_true(uli_service_recall(&peer, 0, 1, true, uli_deadline_in(30)));
    assert_true(uli_clock_ns() - start < INT64_C(10000000000));
}

/* ---- windows of other processes ------------------------------------------ */

static void
deliveries_map_and_unmap(void **state)
{
    ulyx_comm_t *comm = *state;
    struct uli_segment segment;
    assert_status(
        uli_segment_create(8192, true, false, &segment), ULYX_SUCCESS);
    struct uli_service_request request = {
        ULI_PROTOCOL, ULI_SERVICE_DELIVER, {0}, 1, 7, 8192};
    /* The request arrives twice, as when an answer was lost and the client
     * repeats its request. */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            service_call(comm, request, segment.fd).outcome, ULI_SERVICE_DONE);
        char *there = uli_window_address(comm, 1, 7, 0, 8192);
        assert_non_null(there);
        assert_ptr_not_equal(there, segment.address);
        strcpy(segment.address, "written by the owner");
        assert_string_equal(there, "written by the owner");
    }
    request.kind = ULI_SERVICE_RETIRE;
    atomic_store(&comm->nops, 1);
    struct uli_service_answer answer = service_call(comm, request, -1);
    assert_int_equal(answer.outcome, ULI_SERVICE_FAILED);
    assert_int_equal(answer.status, ULYX_ERR_BUSY);
    assert_non_null(uli_window_address(comm, 1, 7, 0, 8192));
    atomic_store(&comm->nops, 0);
    assert_int_equal(service_call(comm, request, -1).outcome, ULI_SERVICE_DONE);
    assert_null(uli_window_address(comm, 1, 7, 0, 8192));
    request.kind = ULI_SERVICE_WITHDRAW; /* there is no such window: no error */
    assert_int_equal(service_call(comm, request, -1).outcome, ULI_SERVICE_DONE);
    uli_segment_destroy(&segment);
}

/* Threads of this process use the control segment at any time: the first one
 * stays. */
static void
control_segment_is_never_replaced(void **state)
{
    ulyx_comm_t *comm = *state;
    struct uli_segment segment, larger;
    int64_t bytes = uli_control_bytes(2);
    struct uli_service_request request = {
        ULI_PROTOCOL, ULI_SERVICE_DELIVER, {0}, 1, 0, 4096};
    assert_status(
        uli_segment_create(bytes, true, false, &segment), ULYX_SUCCESS);
    assert_status(
        uli_segment_create(2 * bytes, true, false, &larger), ULYX_SUCCESS);
    struct uli_service_answer answer = service_call(comm, request, segment.fd);
    /* the size is too small */
    assert_int_equal(answer.status, ULYX_ERR_INVALID_ARGUMENT);
    assert_null(comm->peers[1].control);
    request.bytes = segment.bytes;
    assert_int_equal(
        service_call(comm, request, segment.fd).outcome, ULI_SERVICE_DONE);
    struct uli_control *control = comm->peers[1].control;
    assert_non_null(control);
    assert_int_equal(
        service_call(comm, request, segment.fd).outcome, ULI_SERVICE_DONE);
    request.bytes = larger.bytes;
    assert_int_equal(service_call(comm, request, larger.fd).status,
        ULYX_ERR_INVALID_ARGUMENT);
    request.bytes = 4096;
    assert_int_equal(service_call(comm, request, segment.fd).status,
        ULYX_ERR_INVALID_ARGUMENT);
    assert_ptr_equal(comm->peers[1].control, control);
    atomic_store(&((struct uli_control *)segment.address)->poison, 7);
    assert_true(atomic_load(&control->poison) == 7);
    uli_segment_destroy(&segment);
    uli_segment_destroy(&larger);
}

/* A client that gave up does not withdraw its window. */
static void
unacknowledged_deliveries_are_undone(void **state)
{
    ulyx_comm_t *comm = *state;
    struct uli_segment segment;
    assert_status(
        uli_segment_create(4096, true, false, &segment), ULYX_SUCCESS);
    struct uli_service_request request = {
        ULI_PROTOCOL, ULI_SERVICE_DELIVER, {0}, 1, 9, 4096};
    struct uli_service_answer answer;
    struct uli_service_cargo cargo = {.nfds = 1, .fds = {segment.fd}};
    memcpy(request.endpoint, comm->peers[0].identity.endpoint, 16);
    uli_service_lock(); /* the service thread waits here */
    int fd = dial(socket_name);
    assert_status(uli_service_exchange(
                      fd, &request, &cargo, NULL, uli_deadline_in(0), &answer),
        ULYX_ERR_TIMEOUT);
    close(fd);
    uli_service_unlock();
    assert_true(answers_ping(socket_name)); /* the request is handled */
    assert_null(uli_window_address(comm, 1, 9, 0, 1));
    uli_segment_destroy(&segment);
}

static socklen_t
abstract_address(const char *name, struct sockaddr_un *address_p)
{
    *address_p = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(address_p->sun_path + 1, name, strlen(name));
    return (
        socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name));
}

/* Returns a socket that listens under this name, as a service's socket does. */
static int
service_named(const char *name, int backlog)
{
    struct sockaddr_un address;
    socklen_t length = abstract_address(name, &address);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(fd, backlog), 0);
    return fd;
}

/* Makes a socket under this name whose queue is full and from which no process
 * accepts. fds_p: the socket, and the connections that fill the queue. */
static int
queue_fill(const char *name, int fds_p[8])
{
    struct sockaddr_un address;
    socklen_t length = abstract_address(name, &address);
    int count = 1;
    fds_p[0] = service_named(name, 0);
    bool full = false;
    while (!full && count < 8) {
        int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0);
        full = connect(fd, (struct sockaddr *)&address, length) != 0;
        fds_p[count++] = fd;
    }
    assert_true(full);
    return count;
}

static void *
abort_soon(void *comm)
{
    uli_clock_sleep_ns(100000000);
    ulyx_comm_abort(comm);
    return NULL;
}

/* If a peer stands still with a full queue, the wait ends when the communicator
 * fails, before the deadline. */
static void
failure_ends_the_wait_for_a_full_queue(void **state)
{
    static const char name[] = "ulyx-test-full-queue";
    ulyx_comm_t *comm;
    struct uli_identity peer = {.rank = 0};
    pthread_t thread;
    bool gone;
    int fds[8];
    ulyx_status_t status;
    (void)state;
    assert_status(ulyx_comm_create_local(1, NULL, &comm), ULYX_SUCCESS);
    int count = queue_fill(name, fds);
    memcpy(peer.service, name, sizeof(name));
    struct uli_stand stand = {.comm = comm};
    uli_stand_begin(&stand, 0);
    int64_t start = uli_clock_ns();
    pthread_create(&thread, NULL, abort_soon, comm);
    int fd =
        uli_service_connect(&peer, &stand, uli_deadline_in(60), &gone, &status);
    pthread_join(thread, NULL);
    assert_int_equal(fd, -1);
    assert_false(gone);
    assert_int_equal(status, ULYX_ERR_ABORTED);
    assert_true(uli_clock_ns() - start < INT64_C(30000000000));
    while (count-- > 0)
        close(fds[count]);
    ulyx_comm_destroy(comm);
}

struct closer {
    int fd;
    _Atomic int accepted;
    _Atomic bool over;
};

static void *
close_all(void *argument)
{
    struct closer *closer = argument;
    while (!atomic_load(&closer->over)) {
        struct pollfd entry = {closer->fd, POLLIN, 0};
        if (poll(&entry, 1, 20) != 1)
            continue;
        close(accept(closer->fd, NULL, NULL));
        atomic_fetch_add(&closer->accepted, 1);
    }
    return NULL;
}

/* A service that closes every connection is connected to again, at intervals,
 * until the deadline, and then named. */
static void
service_that_always_closes_times_out(void **state)
{
    static const char name[] = "ulyx-test-closer";
    ulyx_comm_t *comms[2];
    struct closer closer = {.over = false};
    pthread_t thread;
    (void)state;
    assert_status(ulyx_comm_create_local(2, NULL, comms), ULYX_SUCCESS);
    closer.fd = service_named(name, 16);
    pthread_create(&thread, NULL, close_all, &closer);
    struct uli_peer *peer = &comms[0]->peers[1];
    memcpy(peer->identity.service, name, sizeof(name));
    memset(peer->identity.process, 0x77, sizeof(peer->identity.process));
    peer->same_process = false;
    comms[0]->timeout_s = 0.3;
    assert_status(uli_service_watch(comms[0]), ULYX_ERR_TIMEOUT);
    assert_non_null(strstr(ulyx_last_error(), "rank 1"));
    assert_in_range(atomic_load(&closer.accepted), 2, 400);
    atomic_store(&closer.over, true);
    pthread_join(thread, NULL);
    close(closer.fd);
    peer->same_process = true;
    for (int r = 0; r < 2; r++)
        ulyx_comm_destroy(comms[r]);
}

#define CASE(name)                                                             \
    cmocka_unit_test_setup_teardown(name, comms_hold, comms_release)

static const struct CMUnitTest tests[] = {
    CASE(unknown_endpoints_are_no_peer),
    CASE(bad_requests_change_nothing),
    CASE(noise_closes_its_connection_only),
    CASE(silent_clients_make_room),
    CASE(bursts_are_answered),
    CASE(other_users_are_shut_out),
    CASE(full_log_does_not_block_the_service),
    CASE(other_users_are_refused),
    CASE(recall_from_an_ended_peer_returns_at_once),
    CASE(failure_ends_the_wait_for_a_full_queue),
    CASE(service_that_always_closes_times_out),
    CASE(deliveries_map_and_unmap),
    CASE(control_segment_is_never_replaced),
    CASE(unacknowledged_deliveries_are_undone),
};

ULI_TEST_MAIN("Service", tests)
