/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the exchange by messages share.
 */
#ifndef ULI_COLLECTIVES_DEVICE_MESSAGES_MESSAGES_PRIVATE_H
#define ULI_COLLECTIVES_DEVICE_MESSAGES_MESSAGES_PRIVATE_H

#include "collectives/device/messages/messages.h"
#include "collectives/device/messages/messages_table.h"

struct uli_messages {
    struct uli_messages_params params;
    int32_t nranks;
    int slots; /* 1 or 2 of each peer, for messages to it and from it each */
    struct uli_messages_table ops[ULYX_DIRECTIONS];
    struct uli_messages_scratch scratch;
    uint64_t hash; /* of the tables that calls are enqueued with */

    int64_t *message_at; /* [nranks + 1] in the messages of one direction */
    int64_t *slot_bytes; /* [nranks], with the words in front */
    bool *shares;        /* [nranks] */
    unsigned char *memory;
    int64_t memory_bytes, out_at, in_at;
    unsigned char *tables; /* on the device; each buffer has this layout */
    int64_t tables_bytes;

    struct uli_gpu_report *report, *device_report;
    struct uli_messages_reason *reason, *device_reason;
    int64_t pinned_bytes;
    unsigned char *buffers[2];
    void *copied[2]; /* events: the copy of the buffer has ended */
    int nbuffers, next_buffer;

    void *inner;        /* stream of batches, with two slots */
    void *packed_event; /* the messages of the present round are packed */
    void *carried[2];   /* events: the slot's batch has ended */
    struct uli_batch_message *batch_messages; /* [2 * nranks], of the present
                                               * batch */
};

#define ULI_MESSAGES_DEVICE(messages, call, ...)                                   \
    ((messages)->params.device_ops->call((messages)->params.device, __VA_ARGS__))

/* Where the message to or from p of round k begins. */
static inline unsigned char *
uli_messages_message(
    const struct uli_messages *messages, int32_t p, int64_t k, bool out)
{
    return messages->memory + (out ? messages->out_at : messages->in_at) +
           messages->message_at[p] + k % 2 * messages->slot_bytes[p];
}

#endif
