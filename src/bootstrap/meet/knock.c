/* SPDX-License-Identifier: Apache-2.0
 *
 * See knock.h. One poll waits for the listener, the stop descriptor, and the
 * connections whose message is not complete, in order of arrival. Connections
 * that have sent something are served before more are accepted, and an awaited
 * rank sends as soon as it connects. So a flood of silent connections cannot
 * displace an awaited rank before its message has arrived.
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
#define MESSAGE_S 2.0

struct knocker {
    int fd;
    size_t have;
    uli_deadline_t deadline;
    unsigned char message[ULI_KNOCK_BYTES_MAX];
};

struct receiver {
    int listener, stop_fd, awaited;
    size_t bytes; /* of a message */
    uli_knock_fn take;
    void *context;
    int count;
    struct knocker knockers[KNOCKERS_MAX]; /* the oldest first */
};

static void
remove_at(struct receiver *receiver, int at)
{
    receiver->count--;
    memmove(&receiver->knockers[at], &receiver->knockers[at + 1],
        (size_t)(receiver->count - at) * sizeof(receiver->knockers[0]));
}

static void
drop_oldest(struct receiver *receiver)
{
    close(receiver->knockers[0].fd);
    remove_at(receiver, 0);
}

/* Reads more bytes. False: the connection has been taken or closed. */
static bool
knocker_receive(struct receiver *receiver, struct knocker *one)
{
    ssize_t got =
        recv(one->fd, one->message + one->have, receiver->bytes - one->have, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (got > 0)
        one->have += (size_t)got;
    if (got > 0 && one->have < receiver->bytes)
        return true;
    if (got > 0 && receiver->awaited > 0 &&
        receiver->take(receiver->context, one->fd, one->message))
        receiver->awaited--;
    else
        close(one->fd);
    return false;
}

/* Accepts one connection; the queue may be empty again although poll
 * returned. */
static void
let_in(struct receiver *receiver)
{
    int fd =
        accept4(receiver->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
            return;
        struct pollfd stop = {receiver->stop_fd, POLLIN, 0};
        if (receiver->count > 0)
            drop_oldest(receiver);
        else
            poll(&stop, 1, SHORTAGE_PAUSE_MS);
        return;
    }
    if (receiver->count == KNOCKERS_MAX)
        drop_oldest(receiver);
    struct knocker *one = &receiver->knockers[receiver->count];
    *one = (struct knocker){.fd = fd, .deadline = uli_deadline_in(MESSAGE_S)};
    if (knocker_receive(receiver, one))
        receiver->count++;
}

/* Waits once, and handles what has happened. returns 0 or errno. */
static int
receiver_poll(struct receiver *receiver, uli_deadline_t deadline)
{
    struct pollfd entries[2 + KNOCKERS_MAX];
    int count = receiver->count;
    entries[0] = (struct pollfd){receiver->listener, POLLIN, 0};
    entries[1] = (struct pollfd){receiver->stop_fd, POLLIN, 0};
    for (int i = 0; i < count; i++)
        entries[2 + i] = (struct pollfd){receiver->knockers[i].fd, POLLIN, 0};
    if (count > 0)
        deadline = uli_min(deadline, receiver->knockers[0].deadline);
    int ready = poll(
        entries, (nfds_t)count + 2, uli_deadline_poll_ms(deadline, INT32_MAX));
    if (ready < 0)
        return errno == EINTR ? 0 : errno;
    if (entries[1].revents)
        return ECONNABORTED;
    for (int i = count - 1; i >= 0; i--)
        if (entries[2 + i].revents &&
            !knocker_receive(receiver, &receiver->knockers[i]))
            remove_at(receiver, i);
    while (receiver->count > 0 &&
           uli_deadline_over(receiver->knockers[0].deadline))
        drop_oldest(receiver);
    if (entries[0].revents && receiver->awaited > 0)
        let_in(receiver);
    return 0;
}

int
uli_knock_receive(int listener, int stop_fd, size_t bytes, int awaited,
    uli_knock_fn take, void *context, uli_deadline_t deadline)
{
    struct receiver receiver = {.listener = listener,
        .stop_fd = stop_fd,
        .awaited = awaited,
        .bytes = bytes,
        .take = take,
        .context = context};
    int number = 0;
    while (receiver.awaited > 0 && !number) {
        number = receiver_poll(&receiver, deadline);
        if (!number && receiver.awaited > 0 && uli_deadline_over(deadline))
            number = ETIMEDOUT;
    }
    while (receiver.count > 0)
        drop_oldest(&receiver);
    return number;
}
