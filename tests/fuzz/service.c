/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests of peers to the service thread of a process. The first byte gives
 * the number and kind of descriptors that accompany the message; the rest is
 * the message, which gets the endpoint of an existing communicator.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>
#include "comm/service/service.h"
#include "comm/service/service_internal.h"
#include "fuzz/fuzz.h"
#include "transport/segment.h"

static ulyx_comm_t *comms[2];
static ulyx_unique_id_t id;
static struct uli_segment segment;
static int unsealed, other;

static void *
second_main(void *context)
{
    (void)context;
    if (ulyx_comm_create(&id, 2, 1, NULL, &comms[1]))
        abort();
    return NULL;
}

static void
target_open(void)
{
    pthread_t second;
    if (ulyx_unique_id_create(&id) ||
        pthread_create(&second, NULL, second_main, NULL) ||
        ulyx_comm_create(&id, 2, 0, NULL, &comms[0]) ||
        pthread_join(second, NULL) ||
        uli_segment_create(65536, true, false, &segment))
        abort();
    unsealed = memfd_create("unsealed", 0);
    other = open("/dev/null", O_RDONLY);
}

static void
message_send(int fd, const void *bytes, size_t count, unsigned how)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(2 * sizeof(int))];
    } control = {0};
    const int kinds[] = {segment.fd, unsealed, other};
    int fds[2] = {kinds[(how >> 2) % 3], kinds[(how >> 4) % 3]};
    size_t nfds = (how & 3) % 3;
    struct iovec piece = {(void *)(uintptr_t)bytes, count};
    struct msghdr message = {.msg_iov = &piece, .msg_iovlen = 1};
    if (nfds) {
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(nfds * sizeof(int));
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(nfds * sizeof(int));
        memcpy(CMSG_DATA(&control.header), fds, nfds * sizeof(int));
    }
    if (sendmsg(fd, &message, MSG_NOSIGNAL) < 0)
        abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    unsigned char message[8192];
    struct uli_service_request *request = (void *)message;
    int fds[2];
    if (!comms[0])
        target_open();
    if (bytes < 2 || bytes > sizeof(message))
        return 0;
    memset(message, 0, sizeof(*request));
    memcpy(message, data + 1, bytes - 1);
    if (!(data[0] & 128)) /* otherwise the protocol is the input's */
        request->protocol = ULI_PROTOCOL;
    memcpy(request->endpoint, comms[0]->peers[0].identity.endpoint,
        sizeof(request->endpoint));
    if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, fds))
        abort();
    message_send(fds[1], message, bytes - 1, data[0]);
    uli_service_lock();
    uli_service_serve(fds[0]);
    uli_service_unlock();
    if (comms[0]->peers[1].control == NULL)
        abort();
    close(fds[0]);
    close(fds[1]);
    return 0;
}
