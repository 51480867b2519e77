/* SPDX-License-Identifier: Apache-2.0
 *
 * A stranger (stranger.h) attacks a rank: with each verb the stranger reads and
 * writes nothing of its memory, its peer's puts arrive whole, and the rank
 * continues. With puts over TCP, as ULYX_INSECURE=1 allows, the same stranger
 * does read and write, which proves that its attack works.
 *   ucx_stranger            on this host; its packets to TCP's own put come
 *                           from 127.0.0.2, its client of UCX, which cannot
 *                           choose, from an address that a peer has
 *   netns-test.sh run ucx_stranger    on another host than the ranks
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include "transport/ends.h"
#include "transport/ucx/stranger.h"
#include "transport/ucx/net.h"

enum { PIECES = 20, PORT = 7778, LIMIT_S = 30 };

static const struct {
    const char *verb;
    bool insecure;
} cases[] = {{"AUTO", false}, {"AM", false}, {"TAG", false}, {"PUT", true}};
enum { CASES = sizeof(cases) / sizeof(cases[0]) };

static char secret[STRANGER_BYTES] = "nobody but this process knows this";

/* ---- the rank ------------------------------------------------------------ */

static struct end *
open_end(int32_t rank, int which)
{
    static struct uli_settings settings;
    assert_status(uli_settings_load(&settings), ULYX_SUCCESS);
    snprintf(
        settings.ucx_verb, sizeof(settings.ucx_verb), "%s", cases[which].verb);
    settings.insecure = cases[which].insecure;
    return end_open(
        &uli_tr_ucx_ops, &settings, rank, 2, (int64_t)PIECES * STRANGER_PIECE);
}

static void
ends_exchange(struct end *a, struct end *b, uint64_t value, int byte)
{
    unsigned char *source = malloc(STRANGER_PIECE);
    memset(source, byte, STRANGER_PIECE);
    for (int i = 0; i < PIECES; i++)
        assert_status(end_put(b, 0, source, STRANGER_PIECE,
                          i * (int64_t)STRANGER_PIECE, i, value),
            ULYX_SUCCESS);
    for (int i = 0; i < PIECES; i++)
        assert_true(ends_wait(a, b, &a->words[i], value, LIMIT_S));
    assert_true(ends_wait_count(a, b, &b->pending, 0, LIMIT_S));
    free(source);
}

/* Counts bytes that differ from the peer's last put. */
static int64_t
count_wrong(const struct end *a, int byte)
{
    int64_t wrong = 0;
    for (int64_t i = 0; i < a->bytes; i++)
        wrong += end_data(a)[i] != byte;
    return wrong;
}

static void
ends_receive(
    struct end *a, struct end *b, int socket, struct stranger_report *report)
{
    size_t got = 0;
    while (got < sizeof(*report)) {
        ssize_t part = recv(
            socket, (char *)report + got, sizeof(*report) - got, MSG_DONTWAIT);
        assert_true(part != 0);
        got += part > 0 ? (size_t)part : 0;
        a->ops->progress(a->net);
        b->ops->progress(b->net);
    }
}

/* Returns 0 if the report is as it should be. */
static int
report_judge(int which, const struct stranger_report *report, bool elsewhere,
    int64_t wrong)
{
    static const char before[] = "nobody but this process knows this";
    bool read = memcmp(report->read, before, sizeof(before)) == 0;
    bool written = memcmp(secret, before, sizeof(before)) != 0;
    printf("%s%s: the stranger %s a socket, %s UCX; memory %s, %s; %lld bytes "
           "of the peer's puts are wrong\n",
        cases[which].verb, cases[which].insecure ? ", insecure" : "",
        report->connected ? "connected" : "could not connect",
        report->reached ? "reached" : "did not reach",
        read ? "READ" : "not read", written ? "WRITTEN" : "not written",
        (long long)wrong);
    if (cases[which].insecure)
        return read && written ? 0 : 1;
    return read || written || wrong || (elsewhere && report->connected);
}

static int
be_rank(int which, int socket, bool here)
{
    struct stranger_report report;
    struct stranger_aim aim = {.elsewhere = here,
        .open = cases[which].insecure,
        .address = (uint64_t)(uintptr_t)secret,
        .port = {.sin_family = AF_INET}};
    struct end *a = open_end(0, which);
    aim.port.sin_port = stranger_port(a->net->listener, &aim.port.sin_addr);
    snprintf(aim.device, sizeof(aim.device), "%.31s", a->net->devices);
    aim.keepalive_connection = a->net->place.v4.sin_port;
    struct end *b = open_end(1, which);
    ends_join(a, b);
    a->ops->watch(a->net, 1);
    b->ops->watch(b->net, 0);
    ends_exchange(a, b, 1, 0x11);
    assert_int_equal(write(socket, &aim, sizeof(aim)), sizeof(aim));
    ends_receive(a, b, socket, &report);
    ends_exchange(a, b, 2, 0x22);
    int64_t wrong = count_wrong(a, 0x22);
    int bad = report_judge(which, &report, true, wrong);
    assert_int_equal(atomic_load(&a->lost[1]), 0);
    struct end_service *service = end_serve(b);
    end_close(a, 10);
    end_service_stop(service);
    end_close(b, 10);
    return bad;
}

static int
be_stranger(int socket)
{
    struct stranger_aim aim;
    struct stranger_report report = {0};
    if (recv(socket, &aim, sizeof(aim), MSG_WAITALL) != sizeof(aim))
        return 1;
    if (!aim.open)
        stranger_write_raw(&aim, &report);
    stranger_pester(&aim);
    stranger_send_ucx(&aim, &report, socket, socket);
    _exit(0); /* exits without closing */
}

/* ---- both ---------------------------------------------------------------- */

static int
ended_with(pid_t child)
{
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        printf("ended by signal %d\n", WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* Each case has a new process, which has not used UCX. */
static int
in_child(int which, int socket, bool rank, bool here)
{
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        alarm(3 * LIMIT_S);
        int bad = rank ? be_rank(which, socket, here) : be_stranger(socket);
        fflush(stdout);
        _exit(bad);
    }
    close(socket);
    return child;
}

int
main(void)
{
    const char *rank = getenv("ULYX_RANK"), *master = getenv("MASTER_ADDR");
    int bad = 0;
    for (int i = 0; i < CASES; i++) {
        int pair[2];
        if (rank && master) {
            bool first = atoi(rank) == 0;
            int socket = ends_meet(first ? NULL : master, PORT + i);
            bad |= ended_with(in_child(i, socket, first, false));
            continue;
        }
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
        pid_t victim = in_child(i, pair[0], true, true);
        pid_t stranger = in_child(i, pair[1], false, true);
        bad |= ended_with(victim);
        bad |= ended_with(stranger);
    }
    return bad;
}
