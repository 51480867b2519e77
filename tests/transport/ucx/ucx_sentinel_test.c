/* SPDX-License-Identifier: Apache-2.0
 *
 * A watcher whose answer is late makes a second connection. The connection that
 * it has given up must not replace the one that it watches, whichever the
 * watched rank reads first: the end of the watched connection means death.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "support/test.h"
#include "transport/ucx/net.h"

enum { WATCHED = 0, WATCHER = 1, RANKS = 2 };

static struct uli_net *
net_new(void)
{
    struct uli_net *net =
        calloc(1, sizeof(*net) + RANKS * sizeof(net->peers[0]));
    assert_non_null(net);
    net->rank = WATCHED;
    net->nranks = RANKS;
    net->token = 7;
    for (int i = 0; i < ULI_UCX_CALLERS; i++)
        net->callers[i].fd = -1;
    for (int p = 0; p < RANKS; p++)
        net->peers[p].watcher_fd = -1;
    net->peers[WATCHER].address = (void *)net; /* known, but never read */
    net->peers[WATCHER].token = 9;
    net->sentinel.fd = -1;
    return net;
}

static int
listener_open(struct sockaddr_in *at_p)
{
    socklen_t bytes = sizeof(*at_p);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    *at_p = (struct sockaddr_in){
        .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(bind(fd, (struct sockaddr *)at_p, bytes), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)at_p, &bytes), 0);
    return fd;
}

/* Connects as a watcher; *accepted_p is the watched rank's end of the
 * connection. */
static int
watcher_call(int listener, const struct sockaddr_in *at, int *accepted_p)
{
    const struct uli_ucx_hello hello = {.token = 7, .from = WATCHER};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)at, sizeof(*at)), 0);
    assert_int_equal(send(fd, &hello, sizeof(hello), 0), sizeof(hello));
    while ((*accepted_p = uli_ucx_accept(listener)) < 0)
        usleep(1000);
    return fd;
}

/* The watched rank reads both connections; the given-up one is in `slot`. */
static void
calls_receive(int slot)
{
    struct sockaddr_in at;
    struct uli_net *net = net_new();
    int listener = listener_open(&at), old_end, new_end;
    uint64_t token = 0;
    char more;
    close(watcher_call(listener, &at, &old_end));
    int watch = watcher_call(listener, &at, &new_end);
    net->callers[slot] = (struct uli_ucx_caller){.fd = old_end};
    net->callers[1 - slot] = (struct uli_ucx_caller){.fd = new_end};
    net->callers[0].since_ns = net->callers[1].since_ns = uli_clock_ns();
    while (net->callers[0].fd >= 0 || net->callers[1].fd >= 0)
        uli_ucx_sentinel_step(net, net->callers[0].since_ns);
    assert_int_equal(recv(watch, &token, sizeof(token), 0), sizeof(token));
    assert_int_equal(token, 9);
    assert_int_equal(recv(watch, &more, 1, MSG_DONTWAIT), -1);
    assert_int_equal(errno, EAGAIN);
    uli_ucx_sentinel_close(net);
    close(watch);
    close(listener);
    free(net);
}

static void
abandoned_connection_replaces_no_other(void **state)
{
    (void)state;
    for (int slot = 0; slot < 2; slot++)
        calls_receive(slot);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(abandoned_connection_replaces_no_other),
};

ULI_TEST_MAIN("UcxSentinel", tests)
