/* SPDX-License-Identifier: Apache-2.0
 *
 * Connects to a service; see service_dial.h.
 */
#include "comm/service/service_dial.h"

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "comm/service/service_internal.h"

int
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

bool
answers_ping(const char *name)
{
    struct uli_service_request ping = {
        .protocol = ULI_PROTOCOL, .kind = ULI_SERVICE_PING};
    struct uli_service_answer answer;
    int fd = dial(name);
    if (fd < 0)
        return false;
    ulyx_status_t status = uli_service_exchange(
        fd, &ping, NULL, NULL, uli_deadline_in(5), &answer);
    close(fd);
    return status == ULYX_SUCCESS && answer.outcome == ULI_SERVICE_DONE;
}
