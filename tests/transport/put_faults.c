/* SPDX-License-Identifier: Apache-2.0
 *
 * The part of the suite for ULI_TR_PUT that needs a second process: death,
 * standstill, departure and forks of a peer. The child opens its own end, swaps
 * addresses over a socket, calls progress, and obeys the letters that the test
 * sends over the socket.
 */
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "support/random.h"
#include "transport/ends.h"
#include "transport/put_conformance.h"

enum { WINDOW = 32 << 20 };

struct child {
    pid_t pid;
    int socket;
};

static struct uli_settings settings;

static void
settings_use(double keepalive_s)
{
    assert_status(uli_settings_load(&settings), ULYX_SUCCESS);
    settings.keepalive_s = keepalive_s;
}

/* The command 'e' makes the child close its end in good order. The test does
 * everything else to the child by signals. */
static void
be_child(int socket)
{
    char command = 0;
    setenv("CMOCKA_TEST_ABORT", "1", 1); /* a failure ends the child */
    struct end *end = end_open(put_subject, &settings, 1, 2, WINDOW);
    struct pollfd fd = {.fd = socket, .events = POLLIN};
    ends_swap(end, 0, socket);
    struct end_service *service = end_serve(end);
    while (poll(&fd, 1, 60000) > 0 && read(socket, &command, 1) == 1)
        if (command == 'e')
            break;
    end_service_stop(service);
    end_close(end, 10);
    _exit(command == 'e' ? 0 : 1);
}

static struct end *
child_start(struct child *child_p)
{
    int sockets[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    child_p->pid = fork();
    assert_true(child_p->pid >= 0);
    if (child_p->pid == 0) {
        close(sockets[0]);
        be_child(sockets[1]);
    }
    close(sockets[1]);
    child_p->socket = sockets[0];
    struct end *end = end_open(put_subject, &settings, 0, 2, WINDOW);
    ends_swap(end, 1, child_p->socket);
    return end;
}

/* The first message and its answer: both ends have their connection. */
static void
end_release(struct end *end)
{
    unsigned char *source = calloc(1, 1 << 20);
    assert_status(end_put(end, 1, source, 1 << 20, 0, 0, 1), ULYX_SUCCESS);
    assert_true(ends_wait_count(end, NULL, &end->pending, 0, 30));
    free(source);
}

static int
child_reap(struct child *child)
{
    int state = 0;
    assert_int_equal(waitpid(child->pid, &state, 0), child->pid);
    close(child->socket);
    return state;
}

/* ---- death --------------------------------------------------------------- */

static void
check_death(bool busy)
{
    struct child child;
    settings_use(10);
    struct end *end = child_start(&child);
    unsigned char *source = calloc(1, WINDOW);
    end_release(end);
    for (int i = 0; busy && i < 50; i++)
        assert_status(end_put(end, 1, source, WINDOW, 0, 1, (uint64_t)i + 1),
            ULYX_SUCCESS);
    for (int i = 0; busy && i < 100; i++)
        end->ops->progress(end->net);
    int64_t killed = uli_clock_ns();
    kill(child.pid, SIGKILL);
    assert_true(ends_wait_count(end, NULL, &end->lost[1], 1, 30));
    print_message("noticed after %.1f ms: %s\n",
        (double)(uli_clock_ns() - killed) / 1e6, end->how[1]);
    assert_true(strlen(end->how[1]) > 0);
    assert_true(ends_wait_count(end, NULL, &end->pending, 0, 30));
    assert_true(ends_wait_settled(end, NULL, 1, 30));
    assert_status(end_put(end, 1, source, 8, 0, 1, 1), ULYX_ERR_RANK_LOST);
    assert_status(
        end->ops->message(end->net, 1, source, 8), ULYX_ERR_RANK_LOST);
    for (int i = 0; i < 100; i++)
        end->ops->progress(end->net);
    assert_int_equal(atomic_load(&end->lost[1]), 1); /* once */
    child_reap(&child);
    free(source);
    end_close(end, 10);
}

void
put_notices_death_when_idle(void **state)
{
    (void)state;
    check_death(false);
}

void
put_notices_death_when_busy(void **state)
{
    (void)state;
    check_death(true);
}

/* The end of the test has only received; it made its own connection when the
 * first message arrived. */
void
put_notices_death_of_the_sender(void **state)
{
    (void)state;
    struct child child;
    settings_use(10);
    int sockets[2];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    child.pid = fork();
    if (child.pid == 0) {
        setenv("CMOCKA_TEST_ABORT", "1", 1);
        struct end *end = end_open(put_subject, &settings, 1, 2, 64);
        ends_swap(end, 0, sockets[1]);
        assert_status(end->ops->message(end->net, 0, "hello", 5), ULYX_SUCCESS);
        for (;;)
            end->ops->progress(end->net), usleep(100);
    }
    struct end *end = end_open(put_subject, &settings, 0, 2, 64);
    ends_swap(end, 1, sockets[0]);
    child.socket = sockets[0];
    close(sockets[1]);
    assert_true(ends_wait_count(end, NULL, &end->messages[1], 1, 30));
    /* time for the connection back to the child */
    int64_t until = uli_deadline_in(0.2);
    while (!uli_deadline_over(until))
        end->ops->progress(end->net);
    kill(child.pid, SIGKILL);
    assert_true(ends_wait_count(end, NULL, &end->lost[1], 1, 30));
    child_reap(&child);
    end_close(end, 10);
}

/* ---- standstill ---------------------------------------------------------- */

/* Stopped for three times the keepalive, with more on its way than all buffers
 * hold: slow, not dead. */
void
put_waits_for_a_stopped_peer(void **state)
{
    (void)state;
    struct child child;
    settings_use(1);
    struct end *end = child_start(&child);
    unsigned char *source = calloc(1, WINDOW);
    end_release(end);
    kill(child.pid, SIGSTOP);
    assert_status(end_put(end, 1, source, 4 << 20, 0, 1, 1), ULYX_SUCCESS);
    for (int i = 0; i < 400; i++)
        assert_status(end_put(end, 1, source, 30000, 0, 1, (uint64_t)i + 2),
            ULYX_SUCCESS);
    int64_t until = uli_deadline_in(3 * (double)test_draws(1));
    while (!uli_deadline_over(until))
        end->ops->progress(end->net), usleep(100);
    assert_int_equal(atomic_load(&end->lost[1]), 0);
    assert_true(atomic_load(&end->pending) > 0);
    kill(child.pid, SIGCONT);
    bool done = ends_wait_count(end, NULL, &end->pending, 0, 45);
    if (!done)
        print_message("%d on their way, lost %d: %s\n",
            (int)atomic_load(&end->pending), (int)atomic_load(&end->lost[1]),
            end->how[1]);
    assert_true(done);
    assert_int_equal(atomic_load(&end->lost[1]), 0);
    assert_int_equal(write(child.socket, "e", 1), 1);
    struct end_service *service = end_serve(end);
    assert_int_equal(child_reap(&child), 0);
    end_service_stop(service);
    assert_int_equal(atomic_load(&end->lost[1]), 0);
    free(source);
    end_close(end, 10);
}

/* A peer that stands still does not make close outlast its deadline. */
void
put_close_ends_although_a_peer_stands_still(void **state)
{
    (void)state;
    struct child child;
    settings_use(10);
    struct end *end = child_start(&child);
    unsigned char *source = calloc(1, WINDOW);
    end_release(end);
    kill(child.pid, SIGSTOP);
    assert_status(end_put(end, 1, source, WINDOW, 0, 1, 1), ULYX_SUCCESS);
    end_close(end, 0.3);
    kill(child.pid, SIGKILL);
    child_reap(&child);
    free(source);
}

/* ---- departure ----------------------------------------------------------- */

void
put_reports_no_departure_as_death(void **state)
{
    (void)state;
    struct child child;
    settings_use(10);
    struct end *end = child_start(&child);
    end_release(end);
    struct end_service *service = end_serve(end);
    assert_int_equal(write(child.socket, "e", 1), 1);
    assert_int_equal(child_reap(&child), 0);
    usleep(100000);
    end_service_stop(service);
    assert_int_equal(atomic_load(&end->lost[1]), 0);
    assert_status(end->ops->message(end->net, 1, "x", 1), ULYX_ERR_RANK_LOST);
    end_close(end, 10);
}

static void *
close_end(void *argument)
{
    struct end *end = argument;
    end->ops->close(end->net, uli_deadline_in(1));
    return NULL;
}

/* Rank 0 closes and waits for rank 2, which stands still; rank 1 has answered
 * rank 0 and closes too. Rank 0 must not report that as a death. */
void
put_close_reports_no_leaver_as_dead(void **state)
{
    struct end *ends[3];
    pthread_t thread;
    (void)state;
    settings_use(4);
    for (int i = 0; i < 3; i++)
        ends[i] = end_open(put_subject, &settings, i, 3, 64);
    for (int i = 0; i < 3; i++)
        ends_join(ends[i], ends[(i + 1) % 3]);
    for (int i = 0; i < 3; i++) {
        struct end *to = ends[(i + 1) % 3];
        assert_status(
            end_put(ends[i], to->rank, "x", 1, 0, i, 1), ULYX_SUCCESS);
        assert_true(ends_wait(ends[i], to, &to->words[i], 1, 10));
    }
    pthread_create(&thread, NULL, close_end, ends[0]);
    int64_t deadline = uli_deadline_in(10);
    while (ends[1]->ops->message(ends[1]->net, 0, "x", 1) == ULYX_SUCCESS) {
        assert_false(uli_deadline_over(deadline));
        ends[1]->ops->progress(ends[1]->net);
    }
    ends[1]->ops->close(ends[1]->net, uli_deadline_in(0.1));
    pthread_join(thread, NULL);
    assert_int_equal(ends[0]->lost[1], 0);
    assert_int_equal(ends[0]->lost[2], 0);
    assert_int_equal(ends[1]->lost[0], 0);
    for (int i = 0; i < 2; i++) {
        free(ends[i]->memory);
        free(ends[i]);
    }
    end_close(ends[2], 1);
}

/* A forked child closes its copy of the test's end, without any effect. */
void
put_survives_a_fork(void **state)
{
    (void)state;
    struct child child;
    int status = 0;
    settings_use(10);
    struct end *end = child_start(&child);
    end_release(end);
    pid_t fork_of_ours = fork();
    assert_true(fork_of_ours >= 0);
    if (fork_of_ours == 0) {
        end->ops->close(end->net, uli_deadline_in(10));
        _exit(0);
    }
    assert_int_equal(waitpid(fork_of_ours, &status, 0), fork_of_ours);
    assert_int_equal(status, 0);
    end_release(end);
    assert_int_equal(atomic_load(&end->lost[1]), 0);
    assert_int_equal(write(child.socket, "e", 1), 1);
    struct end_service *service = end_serve(end);
    assert_int_equal(child_reap(&child), 0);
    end_service_stop(service);
    end_close(end, 10);
}
