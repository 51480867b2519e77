/* SPDX-License-Identifier: Apache-2.0
 *
 * Answers of a launcher by PMI-1 (and of Slurm's PMI-2 server), to rank 0,
 * which stores, and to rank 1, which reads: the client must get text that ends
 * within its buffer, or refuse.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include "bootstrap/launch/pmi1.h"
#include "fuzz/fuzz.h"

enum { MOST_BYTES = 65536, VALUE_BYTES = 600 };

static void
pmi_answer(const uint8_t *data, size_t bytes, int32_t rank)
{
    char value[VALUE_BYTES] = "ulyx:stored";
    int fds[2];
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds))
        abort();
    if (send(fds[1], data, bytes, MSG_NOSIGNAL) != (ssize_t)bytes ||
        shutdown(fds[1], SHUT_WR))
        abort();
    if (uli_pmi1_share(fds[0], rank, "key", value, sizeof(value),
            uli_deadline_in(5)) == ULYX_SUCCESS &&
        !memchr(value, 0, sizeof(value)))
        abort();
    close(fds[0]);
    close(fds[1]);
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes <= MOST_BYTES) {
        pmi_answer(data, bytes, 0);
        pmi_answer(data, bytes, 1);
    }
    return 0;
}
