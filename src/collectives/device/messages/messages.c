/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of an exchange by messages; see messages.h. One allocation on the device
 * holds the state, the outgoing messages and the incoming messages. The
 * messages to peer p lie at the same offset among the outgoing ones as the
 * messages from p among the incoming ones, in two slots one after another.
 * Another allocation holds the hash of the document tables and the tables of
 * all directions. A buffer of pinned memory, from which this allocation is
 * filled, has the same layout. There are two such buffers if the tables can be
 * updated.
 */
#include "collectives/device/messages/messages_private.h"

#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"

static bool
messages_uses(const struct uli_messages *messages, int direction)
{
    return messages->params.directions >> direction & 1;
}

/* ---- tables -------------------------------------------------------------- */

static struct uli_messages_table_params
table_params(const struct uli_messages *messages, int direction)
{
    const struct uli_messages_params *own = &messages->params;
    struct uli_messages_table_params params = {
        .gpu = {.layout = own->layout,
            .direction = (ulyx_direction_t)direction,
            .rank = own->rank,
            .nodes = own->nodes,
            .strides = own->strides,
            .workers = (int64_t)own->blocks * own->threads / 32},
        .chunk_bytes = own->chunk_bytes};
    return params;
}

static ulyx_status_t
messages_measure(struct uli_messages *messages)
{
    int64_t at = ULI_GPU_LINE; /* the hash */
    ULI_TRY(uli_messages_scratch_create(messages->params.layout, &messages->scratch));
    for (int o = 0; o < ULYX_DIRECTIONS; o++) {
        struct uli_messages_table_params params = table_params(messages, o);
        if (messages_uses(messages, o))
            ULI_TRY(uli_messages_table_measure(
                &params, &messages->scratch, &messages->ops[o], &at));
    }
    messages->tables_bytes = at;
    return ULYX_SUCCESS;
}

static ulyx_status_t
fill_tables(struct uli_messages *messages, int buffer)
{
    unsigned char *base = messages->buffers[buffer];
    uint64_t hash = uli_layout_table_hash(messages->params.layout);
    memcpy(base, &hash, sizeof(hash));
    for (int o = 0; o < ULYX_DIRECTIONS; o++) {
        struct uli_messages_table_params params = table_params(messages, o);
        if (messages_uses(messages, o))
            ULI_TRY(uli_messages_table_fill(
                &params, &messages->scratch, &messages->ops[o], base));
    }
    messages->hash = hash;
    return ULYX_SUCCESS;
}

/* Peer p in round k. Offsets in a slot count the bytes of all rounds, so the
 * slot begins before the message, by the bytes that the earlier rounds have
 * carried. */
static struct uli_gpu_peer
peer_of(const struct uli_messages *messages, const struct uli_messages_table *table,
    int32_t p, int64_t k)
{
    int64_t at = k * messages->nranks + p;
    unsigned char *out = uli_messages_message(messages, p, 0, true);
    unsigned char *in = uli_messages_message(messages, p, 0, false);
    struct uli_gpu_peer peer = {.mine = (struct uli_gpu_flags *)(void *)in,
        .yours = (struct uli_gpu_flags *)(void *)out,
        .slot_in = uli_messages_message(messages, p, k, false) + ULI_MESSAGE_HEAD -
                   table->received[at],
        .slot_out = uli_messages_message(messages, p, k, true) + ULI_MESSAGE_HEAD -
                    table->sent[at],
        .shares = 1};
    return peer;
}

static void
fill_peers(struct uli_messages *messages, int buffer)
{
    for (int o = 0; o < ULYX_DIRECTIONS; o++) {
        const struct uli_messages_table *table = &messages->ops[o];
        struct uli_gpu_peer *peers =
            (void *)(messages->buffers[buffer] + table->peers_at);
        for (int64_t k = 0; messages_uses(messages, o) && k < table->rounds; k++)
            for (int32_t p = 0; p < messages->nranks; p++) {
                struct uli_gpu_peer none = {.shares = 0};
                peers[k * messages->nranks + p] =
                    messages->shares[p] ? peer_of(messages, table, p, k) : none;
            }
    }
}

/* ---- memory -------------------------------------------------------------- */

/* Where documents may change, any message may become as long as a chunk. */
static void
place_messages(struct uli_messages *messages)
{
    bool change = uli_layout_has_tables(messages->params.layout);
    messages->slots = 1;
    for (int o = 0; o < ULYX_DIRECTIONS; o++)
        if (messages_uses(messages, o) && (messages->ops[o].rounds > 1 ||
                                   (change && messages->ops[o].round_room > 1)))
            messages->slots = 2;
    for (int32_t p = 0; p < messages->nranks; p++) {
        int64_t longest = 0;
        for (int o = 0; o < ULYX_DIRECTIONS; o++)
            if (messages_uses(messages, o))
                longest =
                    uli_max(longest, uli_messages_table_longest(
                                         &messages->ops[o], messages->nranks, p));
        if (change)
            longest = messages->params.chunk_bytes;
        messages->shares[p] = longest > 0 && p != messages->params.rank;
        messages->slot_bytes[p] =
            messages->shares[p]
                ? ULI_MESSAGE_HEAD + uli_round_up(longest, ULI_GPU_LINE)
                : 0;
        messages->message_at[p + 1] =
            messages->message_at[p] + messages->slots * messages->slot_bytes[p];
    }
}

static ulyx_status_t
allocate_device(struct uli_messages *messages)
{
    int64_t bytes = messages->message_at[messages->nranks];
    void *memory, *tables;
    messages->out_at = ULI_GPU_LINE;
    messages->in_at = messages->out_at + bytes;
    messages->memory_bytes = messages->in_at + bytes;
    ULI_TRY(ULI_MESSAGES_DEVICE(messages, alloc, messages->memory_bytes, &memory));
    messages->memory = memory;
    ULI_TRY(ULI_MESSAGES_DEVICE(messages, alloc, messages->tables_bytes, &tables));
    messages->tables = tables;
    return ULYX_SUCCESS;
}

static ulyx_status_t
allocate_pinned(struct uli_messages *messages)
{
    void *host, *device;
    int64_t words = ULI_GPU_LINE +
                    uli_round_up(sizeof(*messages->reason), ULI_GPU_LINE);
    messages->nbuffers = uli_layout_has_tables(messages->params.layout) ? 2 : 1;
    messages->pinned_bytes =
        words + messages->nbuffers * messages->tables_bytes;
    ULI_TRY(ULI_MESSAGES_DEVICE(
        messages, host_alloc, messages->pinned_bytes, &host, &device));
    memset(host, 0, (size_t)messages->pinned_bytes);
    messages->report = host;
    messages->device_report = device;
    messages->reason = (void *)((unsigned char *)host + ULI_GPU_LINE);
    messages->device_reason = (void *)((unsigned char *)device + ULI_GPU_LINE);
    for (int b = 0; b < messages->nbuffers; b++) {
        messages->buffers[b] =
            (unsigned char *)host + words + b * messages->tables_bytes;
        ULI_TRY(ULI_MESSAGES_DEVICE(messages, event_create, &messages->copied[b]));
    }
    return ULYX_SUCCESS;
}

/* Makes the inner stream and its events, for calls of several rounds. */
static ulyx_status_t
make_inner(struct uli_messages *messages)
{
    if (messages->slots < 2)
        return ULYX_SUCCESS;
    ULI_TRY(ULI_MESSAGES_DEVICE(messages, stream_create, &messages->inner));
    ULI_TRY(ULI_MESSAGES_DEVICE(messages, event_create, &messages->packed_event));
    for (int s = 0; s < 2; s++)
        ULI_TRY(ULI_MESSAGES_DEVICE(messages, event_create, &messages->carried[s]));
    return ULYX_SUCCESS;
}

/* ---- life ---------------------------------------------------------------- */

static ulyx_status_t
messages_fill(struct uli_messages *messages, void *stream)
{
    ULI_TRY(messages_measure(messages));
    ULI_TRY(allocate_pinned(messages));
    ULI_TRY(fill_tables(messages, 0));
    place_messages(messages);
    ULI_TRY(allocate_device(messages));
    ULI_TRY(make_inner(messages));
    fill_peers(messages, 0);
    ULI_TRY(ULI_MESSAGES_DEVICE(
        messages, zero, messages->memory, messages->memory_bytes, stream));
    ULI_TRY(ULI_MESSAGES_DEVICE(messages, copy, messages->tables, messages->buffers[0],
        messages->tables_bytes, stream));
    return ULI_MESSAGES_DEVICE(messages, stream_wait, stream);
}

static bool
allocate_arrays(struct uli_messages *messages)
{
    size_t n = (size_t)messages->nranks;
    messages->message_at = calloc(n + 1, sizeof(*messages->message_at));
    messages->slot_bytes = calloc(n, sizeof(*messages->slot_bytes));
    messages->shares = calloc(n, sizeof(*messages->shares));
    messages->batch_messages = calloc(2 * n, sizeof(*messages->batch_messages));
    return messages->message_at && messages->slot_bytes && messages->shares &&
           messages->batch_messages;
}

ulyx_status_t
uli_messages_create(
    const struct uli_messages_params *params, struct uli_messages **messages_p)
{
    struct uli_messages *messages = calloc(1, sizeof(*messages));
    void *stream = NULL;
    ulyx_status_t status = ULYX_SUCCESS;
    if (!messages)
        return uli_error(ULYX_ERR_NO_MEMORY, "exchange by messages: no memory");
    messages->params = *params;
    messages->nranks = uli_layout_shape(params->layout)->nranks;
    if (!allocate_arrays(messages))
        status = uli_error(ULYX_ERR_NO_MEMORY, "exchange by messages: no memory");
    if (status == ULYX_SUCCESS)
        status = ULI_MESSAGES_DEVICE(messages, stream_create, &stream);
    if (status == ULYX_SUCCESS)
        status = messages_fill(messages, stream);
    if (stream)
        ULI_MESSAGES_DEVICE(messages, stream_destroy, stream);
    if (status != ULYX_SUCCESS) {
        uli_messages_destroy(messages);
        return status;
    }
    *messages_p = messages;
    return ULYX_SUCCESS;
}

static void
free_event(struct uli_messages *messages, void *event)
{
    if (event)
        (void)ULI_MESSAGES_DEVICE(messages, event_destroy, event);
}

void
uli_messages_destroy(struct uli_messages *messages)
{
    if (!messages)
        return;
    for (int o = 0; o < ULYX_DIRECTIONS; o++)
        uli_messages_table_free(&messages->ops[o]);
    uli_messages_scratch_free(&messages->scratch);
    if (messages->inner)
        ULI_MESSAGES_DEVICE(messages, stream_destroy, messages->inner);
    free_event(messages, messages->packed_event);
    for (int i = 0; i < 2; i++) {
        free_event(messages, messages->carried[i]);
        free_event(messages, messages->copied[i]);
    }
    if (messages->memory)
        ULI_MESSAGES_DEVICE(messages, free, messages->memory);
    if (messages->tables)
        ULI_MESSAGES_DEVICE(messages, free, messages->tables);
    if (messages->report)
        ULI_MESSAGES_DEVICE(messages, host_free, messages->report);
    free(messages->message_at);
    free(messages->slot_bytes);
    free(messages->shares);
    free(messages->batch_messages);
    free(messages);
}

/* ---- update -------------------------------------------------------------- */

void *
uli_messages_buffer_event(const struct uli_messages *messages)
{
    return messages->copied[messages->next_buffer];
}

ulyx_status_t
uli_messages_update(struct uli_messages *messages, void *stream)
{
    int buffer = messages->next_buffer;
    ULI_TRY(fill_tables(messages, buffer));
    fill_peers(messages, buffer);
    ULI_TRY(ULI_MESSAGES_DEVICE(messages, copy, messages->tables,
        messages->buffers[buffer], messages->tables_bytes, stream));
    ULI_TRY(ULI_MESSAGES_DEVICE(
        messages, event_record, messages->copied[buffer], stream));
    messages->next_buffer = (buffer + 1) % messages->nbuffers;
    return ULYX_SUCCESS;
}

/* ---- what it is ---------------------------------------------------------- */

struct uli_gpu_report *
uli_messages_report(struct uli_messages *messages)
{
    return messages->report;
}

/* The text is that of `cause` only if the cause is there both before and after
 * the copy. */
bool
uli_messages_reason(const struct uli_messages *messages, uint64_t cause,
    char text_p[ULI_REFUSAL_BYTES])
{
    const struct uli_messages_reason *reason = messages->reason;
    if (__atomic_load_n(&reason->cause, __ATOMIC_ACQUIRE) != cause)
        return false;
    memcpy(text_p, reason->text, ULI_REFUSAL_BYTES);
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
    return __atomic_load_n(&reason->cause, __ATOMIC_RELAXED) == cause;
}

const bool *
uli_messages_shares(const struct uli_messages *messages)
{
    return messages->shares;
}

int32_t
uli_messages_rounds(const struct uli_messages *messages, ulyx_direction_t direction)
{
    return messages->ops[direction].rounds;
}

int64_t
uli_messages_bytes(const struct uli_messages *messages)
{
    return messages->memory_bytes + messages->tables_bytes + messages->pinned_bytes;
}
