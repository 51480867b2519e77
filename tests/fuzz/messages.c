/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages between ranks of several nodes: posts of agreements, votes, windows,
 * poison. The first byte selects the sender; the rest is a message, which gets
 * the token of the communicator. The communicator has two simulated nodes over
 * the tests' network.
 */
#include <stdlib.h>
#include <string.h>
#include "comm/remote/remote_internal.h"
#include "fuzz/fuzz.h"

/* LIVES: messages before the communicator is replaced */
enum { RANKS = 4, LIVES = 100000 };

static ulyx_comm_t *comms[RANKS];

static void
target_open(void)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.timeout_s = 20;
    setenv("ULYX_RANKS_PER_NODE", "2", 1);
    if (ulyx_comm_create_local(RANKS, &params, comms) || comms[0]->nnodes != 2)
        abort();
}

static void
target_close(void)
{
    for (int r = 0; r < RANKS; r++)
        ulyx_comm_abort(comms[r]);
    for (int r = 0; r < RANKS; r++)
        if (ulyx_comm_destroy(comms[r]))
            abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static int lives;
    unsigned char message[ULI_NET_MESSAGE_BYTES];
    struct uli_message_head head;
    if (bytes < 1 + sizeof(head) || bytes - 1 > sizeof(message))
        return 0;
    if (lives++ % LIVES == 0) {
        if (comms[0])
            target_close();
        target_open();
    }
    memcpy(message, data + 1, bytes - 1);
    memcpy(&head, message, sizeof(head));
    head.token = comms[0]->remote->token;
    if (data[0] & 128) /* otherwise the count is the input's */
        head.count = (uint32_t)(bytes - 1 - sizeof(struct uli_message));
    memcpy(message, &head, sizeof(head));
    uli_remote_receive(comms[0], 2 + (data[0] & 1), message, bytes - 1);
    return 0;
}
