/* SPDX-License-Identifier: Apache-2.0
 *
 * One poll over the listener, the stop, and the connections that have sent
 * nothing yet, in order of arrival. A connection that has sent something is
 * served before more are accepted, and the awaited rank sends as it connects;
 * so a crowd of silent connections cannot displace it before its message has
 * come.
 */
#include "bootstrap/meet/knock.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "base/size.h"
#include "bootstrap/meet/socket.h"

enum { KNOCKERS_MAX = 64, SHORTAGE_PAUSE_MS = 5 };
#define SPEAK_S 2.0

struct knocker {
    int fd;
    size_t have;
    uli_deadline_t deadline;
    unsigned char message[ULI_KNOCK_BYTES_MAX];
};

struct hearing {
    int listener, stop_fd, wanted;
    size_t bytes; /* of a message */
    uli_knock_fn take;
    void *context;
    int count;
    struct knocker knockers[KNOCKERS_MAX]; /* the oldest first */
};

static void
remove_at(struct hearing *hearing, int at)
{
    hearing->count--;
    memmove(&hearing->knockers[at], &hearing->knockers[at + 1],
        (size_t)(hearing->count - at) * sizeof(hearing->knockers[0]));
}

static void
drop_oldest(struct hearing *hearing)
{
    close(hearing->knockers[0].fd);
    remove_at(hearing, 0);
}

/* Reads on. False where this one is done with: taken, or closed. */
static bool
hear_one(struct hearing *hearing, struct knocker *one)
{
    ssize_t got =
        recv(one->fd, one->message + one->have, hearing->bytes - one->have, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got > 0)
        one->have += (size_t)got;
    if (got > 0 && one->have < hearing->bytes)
        return true;
    if (got > 0 && hearing->wanted > 0 &&
        hearing->take(hearing->context, one->fd, one->message))
        hearing->wanted--;
    else
        close(one->fd);
    return false;
}

/* Accepts one connection; the queue may be empty again although poll said
 * readable. */
static void
let_in(struct hearing *hearing)
{
    int fd =
        accept4(hearing->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
            return;
        struct pollfd stop = {hearing->stop_fd, POLLIN, 0};
        if (hearing->count > 0)
            drop_oldest(hearing);
        else
            poll(&stop, 1, SHORTAGE_PAUSE_MS);
        return;
    }
    if (hearing->count == KNOCKERS_MAX)
        drop_oldest(hearing);
    struct knocker *one = &hearing->knockers[hearing->count];
    *one = (struct knocker){.fd = fd, .deadline = uli_deadline_in(SPEAK_S)};
    if (hear_one(hearing, one))
        hearing->count++;
}

/* One round. 0 or errno. */
static int
hear_all(struct hearing *hearing, uli_deadline_t deadline)
{
    struct pollfd entries[2 + KNOCKERS_MAX];
    int count = hearing->count;
    entries[0] = (struct pollfd){hearing->listener, POLLIN, 0};
    entries[1] = (struct pollfd){hearing->stop_fd, POLLIN, 0};
    for (int i = 0; i < count; i++)
        entries[2 + i] = (struct pollfd){hearing->knockers[i].fd, POLLIN, 0};
    if (count > 0)
        deadline = uli_min(deadline, hearing->knockers[0].deadline);
    int ready = poll(
        entries, (nfds_t)count + 2, uli_deadline_poll_ms(deadline, INT32_MAX));
    if (ready < 0)
        return errno == EINTR ? 0 : errno;
    if (entries[1].revents)
        return ECONNABORTED;
    for (int i = count - 1; i >= 0; i--)
        if (entries[2 + i].revents && !hear_one(hearing, &hearing->knockers[i]))
            remove_at(hearing, i);
    while (
        hearing->count > 0 && uli_deadline_over(hearing->knockers[0].deadline))
        drop_oldest(hearing);
    if (entries[0].revents && hearing->wanted > 0)
        let_in(hearing);
    return 0;
}

int
uli_knock_hear(int listener, int stop_fd, size_t bytes, int wanted,
    uli_knock_fn take, void *context, uli_deadline_t deadline)
{
    struct hearing hearing = {.listener = listener,
        .stop_fd = stop_fd,
        .wanted = wanted,
        .bytes = bytes,
        .take = take,
        .context = context};
    int number = 0;
    while (hearing.wanted > 0 && !number) {
        number = hear_all(&hearing, deadline);
        if (!number && hearing.wanted > 0 && uli_deadline_over(deadline))
            number = ETIMEDOUT;
    }
    while (hearing.count > 0)
        drop_oldest(&hearing);
    return number;
}
