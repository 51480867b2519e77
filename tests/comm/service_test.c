/* SPDX-License-Identifier: Apache-2.0
 *
 * The service: its thread's life, whom it lets in, what it does with
 * messages that are no requests, and that a fork leaves it alone.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>
#include "comm/meet.h"
#include "comm/service_internal.h"
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"

static unsigned char process_name[16];
static char socket_name[32];

/* Another process's view of a communicator of two ranks, without peers: the
 * registry only needs identities and tables. */
static ulyx_comm_t *
fake_comm(void)
{
    ulyx_comm_t *comm = calloc(1, sizeof(*comm));
    comm->nranks = 2;
    comm->rank = 0;
    comm->peers = calloc(2, sizeof(*comm->peers));
    memset(comm->peers[0].identity.endpoint, 0x5A, 16);
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
hold(void **state)
{
    ulyx_comm_t *comm = fake_comm();
    *state = comm;
    return uli_service_hold(process_name, socket_name) || uli_service_add(comm);
}

static int
release(void **state)
{
    free_comm(*state);
    uli_service_release();
    return 0;
}

static int
dial(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name);
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    memcpy(address.sun_path + 1, name, strlen(name));
    if (connect(fd, (struct sockaddr *)&address, (socklen_t)length) == 0)
        return fd;
    close(fd);
    return -1;
}

/* How many service threads run, and a field of the last one's status. By name:
 * a sanitizer has threads of its own. */
static int
count_services(const char *format, void *field_p)
{
    const struct dirent *entry;
    int threads = 0;
    DIR *folder = opendir("/proc/self/task");
    while ((entry = readdir(folder)) != NULL) {
        char path[300], line[256];
        bool service = false;
        if (entry->d_name[0] == '.')
            continue;
        snprintf(
            path, sizeof(path), "/proc/self/task/%s/status", entry->d_name);
        FILE *file = fopen(path, "r");
        while (file && fgets(line, sizeof(line), file)) {
            service |= strncmp(line, "Name:\tulyx-service", 18) == 0;
            if (service)
                sscanf(line, format, field_p);
        }
        if (file)
            fclose(file);
        threads += service;
    }
    closedir(folder);
    return threads;
}

static bool
answers_ping(const char *name)
{
    struct uli_service_request ping = {
        .protocol = ULI_PROTOCOL, .kind = ULI_SERVICE_PING};
    struct uli_service_answer answer;
    int fd = dial(name);
    if (fd < 0)
        return false;
    ulyx_status_t status =
        uli_service_exchange(fd, &ping, -1, NULL, uli_deadline_in(5), &answer);
    close(fd);
    return status == ULYX_SUCCESS && answer.verdict == ULI_SERVICE_DONE;
}

/* True when the other end closed without an answer. */
static bool
is_closed(int fd)
{
    char byte;
    struct pollfd entry = {fd, POLLIN, 0};
    return poll(&entry, 1, 5000) == 1 && recv(fd, &byte, 1, 0) <= 0;
}

/* ---- life ---------------------------------------------------------------- */

static void
thread_lives_with_holds(void **state)
{
    (void)state;
    unsigned char first[16], second[16];
    char name[32], again[32];
    unsigned long long blocked;
    assert_int_equal(count_services("SigBlk: %llx", &blocked), 0);
    assert_status(uli_service_hold(first, name), ULYX_SUCCESS);
    assert_status(uli_service_hold(second, again), ULYX_SUCCESS);
    assert_true(answers_ping(name));
    assert_int_equal(count_services("SigBlk: %llx", &blocked), 1);
    assert_memory_equal(first, second, 16);
    assert_string_equal(name, again);
    uli_service_release();
    assert_true(answers_ping(name));
    uli_service_release();
    assert_int_equal(count_services("SigBlk: %llx", &blocked), 0);
    assert_int_equal(dial(name), -1);
    assert_status(uli_service_hold(second, again), ULYX_SUCCESS);
    assert_memory_equal(first, second, 16); /* the process's name stays */
    assert_string_not_equal(name, again);
    uli_service_release();
}

/* All but KILL, STOP and the two that the C library keeps for itself. */
static void
thread_blocks_signals(void **state)
{
    (void)state;
    unsigned long long blocked = 0;
    assert_true(answers_ping(socket_name)); /* it has its name by now */
    assert_int_equal(count_services("SigBlk: %llx", &blocked), 1);
    assert_true((blocked | 0x180040100ull) == ~0ull);
}

static void
thread_takes_its_core(void **state)
{
    (void)state;
    cpu_set_t mine;
    unsigned char process[16];
    char name[32], number[16];
    int core = CPU_SETSIZE - 1, allowed = -1;
    assert_int_equal(sched_getaffinity(0, sizeof(mine), &mine), 0);
    while (core > 0 && !CPU_ISSET((size_t)core, &mine))
        core--;
    snprintf(number, sizeof(number), "%d", core);
    setenv("ULYX_SERVICE_CORE", number, 1);
    ulyx_status_t status = uli_service_hold(process, name);
    unsetenv("ULYX_SERVICE_CORE");
    assert_status(status, ULYX_SUCCESS);
    assert_true(answers_ping(name));
    assert_int_equal(count_services("Cpus_allowed_list: %d", &allowed), 1);
    assert_int_equal(allowed, core);
    uli_service_release();
}

/* ---- who and what is let in ---------------------------------------------- */

static void
unknown_endpoints_are_nobody(void **state)
{
    (void)state;
    struct uli_service_request request = {.protocol = ULI_PROTOCOL,
        .kind = ULI_SERVICE_WITHDRAW,
        .rank = 1,
        .window = 3};
    struct uli_service_answer answer;
    int fd = dial(socket_name);
    assert_status(uli_service_exchange(
                      fd, &request, -1, NULL, uli_deadline_in(5), &answer),
        ULYX_SUCCESS);
    assert_int_equal(answer.verdict, ULI_SERVICE_NOBODY);
    close(fd);
}

static struct uli_service_answer
ask(ulyx_comm_t *comm, struct uli_service_request request, int fd)
{
    struct uli_service_answer answer;
    int socket_fd = dial(socket_name);
    memcpy(request.endpoint, comm->peers[0].identity.endpoint, 16);
    assert_status(uli_service_exchange(socket_fd, &request, fd, NULL,
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
        {-1, 2, 5, 1, 4096, segment.fd, ULYX_ERR_INVALID_ARGUMENT},
        {2, 2, 5, 1, 4096, segment.fd, ULYX_ERR_INVALID_ARGUMENT},
        {0, 2, 5, 1, 4096, segment.fd, ULYX_ERR_INVALID_ARGUMENT},
        {1, 2, 1u << 20, 1, 4096, segment.fd, ULYX_ERR_NO_MEMORY},
        {1, 2, 5, 1, 4097, segment.fd, ULYX_ERR_SYSTEM},
        {1, 2, 5, 1, -1, segment.fd, ULYX_ERR_SYSTEM},
        {1, 2, 5, 1, 4096, -1, ULYX_ERR_SYSTEM},
        {1, 2, 5, 1, 4096, 0, ULYX_ERR_SYSTEM},
        {1, 99, 5, 1, 4096, segment.fd, ULYX_ERR_VERSION},
        {1, 2, 5, 9, 4096, segment.fd, ULYX_ERR_VERSION},
    };
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct uli_service_request request = good;
        request.rank = bad[i].rank;
        request.kind = bad[i].kind;
        request.window = bad[i].window;
        request.protocol = bad[i].protocol;
        request.bytes = bad[i].bytes;
        struct uli_service_answer answer = ask(comm, request, bad[i].fd);
        assert_int_equal(answer.verdict, ULI_SERVICE_FAILED);
        assert_int_equal(answer.status, bad[i].status);
        assert_true(strlen(answer.text) > 0);
        assert_null(uli_window_address(comm, 1, 5, 0, 1));
    }
    assert_int_equal(ask(comm, good, segment.fd).verdict, ULI_SERVICE_DONE);
    assert_non_null(uli_window_address(comm, 1, 5, 0, 4096));
    uli_segment_destroy(&segment);
}

/* Of any length and content, with and without descriptors. */
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
                      steady, &ping, -1, NULL, uli_deadline_in(5), &answer),
        ULYX_SUCCESS);
    close(steady);
}

/* More silent connections than there is room for do not keep others out. */
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

/* A burst of requests beyond the places: each is answered. */
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
        assert_int_equal(answer.verdict, ULI_SERVICE_DONE);
        close(fds[i]);
    }
}

static int
as_nobody(const char *name)
{
    if (setegid(65534) || seteuid(65534))
        return 77;
    int fd = dial(name);
    if (fd < 0)
        return 2;
    return is_closed(fd) ? 0 : 1;
}

static void
other_users_are_shut_out(void **state)
{
    (void)state;
    int status = 0;
    char name[32];
    memcpy(name, socket_name, sizeof(name));
    pid_t pid = fork();
    if (pid == 0)
        _exit(as_nobody(name));
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        test_skip("no right to become another user");
    assert_int_equal(status, 0);
    assert_true(answers_ping(socket_name));
}

/* And the other way round: a service of another user is not believed. */
static void
other_users_are_not_believed(void **state)
{
    (void)state;
    struct uli_identity peer;
    bool gone;
    ulyx_status_t status;
    memset(&peer, 0, sizeof(peer));
    memcpy(peer.service, socket_name, sizeof(peer.service));
    if (seteuid(65534))
        test_skip("no right to become another user");
    int fd = uli_service_connect(&peer, uli_deadline_in(1), &gone, &status);
    int back = seteuid(0);
    assert_int_equal(back, 0);
    assert_int_equal(fd, -1);
    assert_false(gone);
    assert_int_equal(status, ULYX_ERR_AUTH);
}

static void
gone_is_known_at_once(void **state)
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
    /* Twice: an answer was lost and the client asks again. */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            ask(comm, request, segment.fd).verdict, ULI_SERVICE_DONE);
        char *there = uli_window_address(comm, 1, 7, 0, 8192);
        assert_non_null(there);
        assert_ptr_not_equal(there, segment.address);
        strcpy(segment.address, "written by the owner");
        assert_string_equal(there, "written by the owner");
    }
    request.kind = ULI_SERVICE_RETIRE;
    atomic_store(&comm->nops, 1);
    struct uli_service_answer answer = ask(comm, request, -1);
    assert_int_equal(answer.verdict, ULI_SERVICE_FAILED);
    assert_int_equal(answer.status, ULYX_ERR_BUSY);
    assert_non_null(uli_window_address(comm, 1, 7, 0, 8192));
    atomic_store(&comm->nops, 0);
    assert_int_equal(ask(comm, request, -1).verdict, ULI_SERVICE_DONE);
    assert_null(uli_window_address(comm, 1, 7, 0, 8192));
    request.kind = ULI_SERVICE_WITHDRAW; /* of nothing: fine */
    assert_int_equal(ask(comm, request, -1).verdict, ULI_SERVICE_DONE);
    uli_segment_destroy(&segment);
}

/* A client that gave up has nobody to withdraw its window. */
static void
unheard_deliveries_are_undone(void **state)
{
    ulyx_comm_t *comm = *state;
    struct uli_segment segment;
    assert_status(
        uli_segment_create(4096, true, false, &segment), ULYX_SUCCESS);
    struct uli_service_request request = {
        ULI_PROTOCOL, ULI_SERVICE_DELIVER, {0}, 1, 9, 4096};
    struct uli_service_answer answer;
    memcpy(request.endpoint, comm->peers[0].identity.endpoint, 16);
    uli_service_lock(); /* the service thread waits here */
    int fd = dial(socket_name);
    assert_status(uli_service_exchange(fd, &request, segment.fd, NULL,
                      uli_deadline_in(0), &answer),
        ULYX_ERR_TIMEOUT);
    close(fd);
    uli_service_unlock();
    assert_true(answers_ping(socket_name)); /* it has been through */
    assert_null(uli_window_address(comm, 1, 9, 0, 1));
    uli_segment_destroy(&segment);
}

/* ---- fork ---------------------------------------------------------------- */

/* The child does not keep the parent's socket alive. */
static void
children_hold_nothing(void **state)
{
    (void)state;
    unsigned char process[16];
    char name[32], byte;
    int gate[2], ready[2], status = 1;
    assert_int_equal(pipe(gate) | pipe(ready), 0);
    assert_status(uli_service_hold(process, name), ULYX_SUCCESS);
    pid_t pid = fork();
    if (pid == 0) {
        close(gate[1]);
        bool refused = uli_service_forked() &&
                       uli_service_hold(process, name) == ULYX_ERR_FORKED;
        bool told = write(ready[1], "", 1) == 1;
        _exit(told && read(gate[0], &byte, 1) == 0 && refused ? 0 : 1);
    }
    assert_int_equal(read(ready[0], &byte, 1), 1);
    assert_false(uli_service_forked());
    assert_true(answers_ping(name));
    uli_service_release();
    assert_int_equal(dial(name), -1);
    close(gate[0]);
    close(gate[1]);
    close(ready[0]);
    close(ready[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

/* Nothing in use: the child starts afresh, under a name of its own. */
static void
children_may_start_afresh(void **state)
{
    (void)state;
    unsigned char parent[16], child[16];
    char name[32];
    int status = 1;
    assert_status(uli_service_hold(parent, name), ULYX_SUCCESS);
    uli_service_release();
    pid_t pid = fork();
    if (pid == 0) {
        bool ok = uli_service_hold(child, name) == ULYX_SUCCESS &&
                  memcmp(parent, child, 16) != 0 && answers_ping(name);
        uli_service_release();
        _exit(!ok);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, hold, release)

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(thread_lives_with_holds),
    CASE(thread_blocks_signals),
    cmocka_unit_test(thread_takes_its_core),
    CASE(unknown_endpoints_are_nobody),
    CASE(bad_requests_change_nothing),
    CASE(noise_closes_its_connection_only),
    CASE(silent_clients_make_room),
    CASE(bursts_are_answered),
    CASE(other_users_are_shut_out),
    CASE(other_users_are_not_believed),
    CASE(gone_is_known_at_once),
    CASE(deliveries_map_and_unmap),
    CASE(unheard_deliveries_are_undone),
    cmocka_unit_test(children_hold_nothing),
    cmocka_unit_test(children_may_start_afresh),
};

ULI_TEST_MAIN("Service", tests)
