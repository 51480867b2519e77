/* SPDX-License-Identifier: Apache-2.0
 *
 * Life of a packed exchange; see messages.h. One allocation on the device holds
 * the state, the messages out and the messages in; message p lies at the same
 * offset of both, two slots one after another. Another holds the hash of the
 * document tables and all directions' tables, laid out as in pinned memory,
 * where there are two of it if they can be updated.
 */
#include "collectives/device/messages/messages_private.h"

#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"

static bool
messages_uses(const struct uli_messages *packed, int direction)
{
    return packed->params.directions >> direction & 1;
}

/* ---- tables -------------------------------------------------------------- */

static struct uli_messages_table_params
table_params(const struct uli_messages *packed, int direction)
{
    const struct uli_messages_params *own = &packed->params;
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
messages_measure(struct uli_messages *packed)
{
    int64_t at = ULI_GPU_LINE; /* the hash */
    ULI_TRY(uli_messages_scratch_create(packed->params.layout, &packed->scratch));
    for (int o = 0; o < ULYX_DIRECTIONS; o++) {
        struct uli_messages_table_params params = table_params(packed, o);
        if (messages_uses(packed, o))
            ULI_TRY(uli_messages_table_measure(
                &params, &packed->scratch, &packed->ops[o], &at));
    }
    packed->tables_bytes = at;
    return ULYX_SUCCESS;
}

static ulyx_status_t
fill_tables(struct uli_messages *packed, int buffer)
{
    unsigned char *base = packed->buffers[buffer];
    uint64_t hash = uli_layout_table_hash(packed->params.layout);
    memcpy(base, &hash, sizeof(hash));
    for (int o = 0; o < ULYX_DIRECTIONS; o++) {
        struct uli_messages_table_params params = table_params(packed, o);
        if (messages_uses(packed, o))
            ULI_TRY(uli_messages_table_fill(
                &params, &packed->scratch, &packed->ops[o], base));
    }
    packed->hash = hash;
    return ULYX_SUCCESS;
}

/* One rank's entry in round k: its slots begin as many bytes before the
 * message as the rounds before have carried. */
static struct uli_gpu_peer
peer_of(const struct uli_messages *packed, const struct uli_messages_table *table,
    int32_t p, int64_t k)
{
    int64_t at = k * packed->nranks + p;
    unsigned char *out = uli_messages_message(packed, p, 0, true);
    unsigned char *in = uli_messages_message(packed, p, 0, false);
    struct uli_gpu_peer peer = {.mine = (struct uli_gpu_flags *)(void *)in,
        .yours = (struct uli_gpu_flags *)(void *)out,
        .slot_in = uli_messages_message(packed, p, k, false) + ULI_PACKED_HEAD -
                   table->received[at],
        .slot_out = uli_messages_message(packed, p, k, true) + ULI_PACKED_HEAD -
                    table->sent[at],
        .shares = 1};
    return peer;
}

static void
fill_peers(struct uli_messages *packed, int buffer)
{
    for (int o = 0; o < ULYX_DIRECTIONS; o++) {
        const struct uli_messages_table *table = &packed->ops[o];
        struct uli_gpu_peer *peers =
            (void *)(packed->buffers[buffer] + table->peers_at);
        for (int64_t k = 0; messages_uses(packed, o) && k < table->rounds; k++)
            for (int32_t p = 0; p < packed->nranks; p++) {
                struct uli_gpu_peer none = {.shares = 0};
                peers[k * packed->nranks + p] =
                    packed->shares[p] ? peer_of(packed, table, p, k) : none;
            }
    }
}

/* ---- memory -------------------------------------------------------------- */

/* Where documents may change any message may become as long as a chunk. */
static void
place_messages(struct uli_messages *packed)
{
    bool change = uli_layout_has_tables(packed->params.layout);
    packed->slots = 1;
    for (int o = 0; o < ULYX_DIRECTIONS; o++)
        if (messages_uses(packed, o) && (packed->ops[o].rounds > 1 ||
                                   (change && packed->ops[o].round_room > 1)))
            packed->slots = 2;
    for (int32_t p = 0; p < packed->nranks; p++) {
        int64_t longest = 0;
        for (int o = 0; o < ULYX_DIRECTIONS; o++)
            if (messages_uses(packed, o))
                longest =
                    uli_max(longest, uli_messages_table_longest(
                                         &packed->ops[o], packed->nranks, p));
        if (change)
            longest = packed->params.chunk_bytes;
        packed->shares[p] = longest > 0 && p != packed->params.rank;
        packed->slot_bytes[p] =
            packed->shares[p]
                ? ULI_PACKED_HEAD + uli_round_up(longest, ULI_GPU_LINE)
                : 0;
        packed->message_at[p + 1] =
            packed->message_at[p] + packed->slots * packed->slot_bytes[p];
    }
}

static ulyx_status_t
allocate_device(struct uli_messages *packed)
{
    int64_t messages = packed->message_at[packed->nranks];
    void *memory, *tables;
    packed->out_at = ULI_GPU_LINE;
    packed->in_at = packed->out_at + messages;
    packed->memory_bytes = packed->in_at + messages;
    ULI_TRY(ULI_MESSAGES_DEVICE(packed, alloc, packed->memory_bytes, &memory));
    packed->memory = memory;
    ULI_TRY(ULI_MESSAGES_DEVICE(packed, alloc, packed->tables_bytes, &tables));
    packed->tables = tables;
    return ULYX_SUCCESS;
}

static ulyx_status_t
allocate_pinned(struct uli_messages *packed)
{
    void *host, *device;
    packed->nbuffers = uli_layout_has_tables(packed->params.layout) ? 2 : 1;
    packed->pinned_bytes =
        ULI_GPU_LINE + packed->nbuffers * packed->tables_bytes;
    ULI_TRY(ULI_MESSAGES_DEVICE(
        packed, host_alloc, packed->pinned_bytes, &host, &device));
    memset(host, 0, (size_t)packed->pinned_bytes);
    packed->report = host;
    packed->device_report = device;
    for (int b = 0; b < packed->nbuffers; b++) {
        packed->buffers[b] =
            (unsigned char *)host + ULI_GPU_LINE + b * packed->tables_bytes;
        ULI_TRY(ULI_MESSAGES_DEVICE(packed, event_create, &packed->copied[b]));
    }
    return ULYX_SUCCESS;
}

/* For calls of several rounds. */
static ulyx_status_t
make_inner(struct uli_messages *packed)
{
    if (packed->slots < 2)
        return ULYX_SUCCESS;
    ULI_TRY(ULI_MESSAGES_DEVICE(packed, stream_create, &packed->inner));
    ULI_TRY(ULI_MESSAGES_DEVICE(packed, event_create, &packed->messages_event));
    for (int s = 0; s < 2; s++)
        ULI_TRY(ULI_MESSAGES_DEVICE(packed, event_create, &packed->carried[s]));
    return ULYX_SUCCESS;
}

/* ---- life ---------------------------------------------------------------- */

static ulyx_status_t
messages_fill(struct uli_messages *packed, void *stream)
{
    ULI_TRY(messages_measure(packed));
    ULI_TRY(allocate_pinned(packed));
    ULI_TRY(fill_tables(packed, 0));
    place_messages(packed);
    ULI_TRY(allocate_device(packed));
    ULI_TRY(make_inner(packed));
    fill_peers(packed, 0);
    ULI_TRY(ULI_MESSAGES_DEVICE(
        packed, zero, packed->memory, packed->memory_bytes, stream));
    ULI_TRY(ULI_MESSAGES_DEVICE(packed, copy, packed->tables, packed->buffers[0],
        packed->tables_bytes, stream));
    return ULI_MESSAGES_DEVICE(packed, stream_wait, stream);
}

static bool
allocate_arrays(struct uli_messages *packed)
{
    size_t n = (size_t)packed->nranks;
    packed->message_at = calloc(n + 1, sizeof(*packed->message_at));
    packed->slot_bytes = calloc(n, sizeof(*packed->slot_bytes));
    packed->shares = calloc(n, sizeof(*packed->shares));
    packed->batch_messages = calloc(2 * n, sizeof(*packed->batch_messages));
    return packed->message_at && packed->slot_bytes && packed->shares &&
           packed->batch_messages;
}

ulyx_status_t
uli_messages_create(
    const struct uli_messages_params *params, struct uli_messages **packed_p)
{
    struct uli_messages *packed = calloc(1, sizeof(*packed));
    void *stream = NULL;
    ulyx_status_t status = ULYX_SUCCESS;
    if (!packed)
        return uli_error(ULYX_ERR_NO_MEMORY, "packed exchange: no memory");
    packed->params = *params;
    packed->nranks = uli_layout_shape(params->layout)->nranks;
    if (!allocate_arrays(packed))
        status = uli_error(ULYX_ERR_NO_MEMORY, "packed exchange: no memory");
    if (status == ULYX_SUCCESS)
        status = ULI_MESSAGES_DEVICE(packed, stream_create, &stream);
    if (status == ULYX_SUCCESS)
        status = messages_fill(packed, stream);
    if (stream)
        ULI_MESSAGES_DEVICE(packed, stream_destroy, stream);
    if (status != ULYX_SUCCESS) {
        uli_messages_destroy(packed);
        return status;
    }
    *packed_p = packed;
    return ULYX_SUCCESS;
}

static void
free_event(struct uli_messages *packed, void *event)
{
    if (event)
        (void)ULI_MESSAGES_DEVICE(packed, event_destroy, event);
}

void
uli_messages_destroy(struct uli_messages *packed)
{
    if (!packed)
        return;
    for (int o = 0; o < ULYX_DIRECTIONS; o++)
        uli_messages_table_free(&packed->ops[o]);
    uli_messages_scratch_free(&packed->scratch);
    if (packed->inner)
        ULI_MESSAGES_DEVICE(packed, stream_destroy, packed->inner);
    free_event(packed, packed->messages_event);
    for (int i = 0; i < 2; i++) {
        free_event(packed, packed->carried[i]);
        free_event(packed, packed->copied[i]);
    }
    if (packed->memory)
        ULI_MESSAGES_DEVICE(packed, free, packed->memory);
    if (packed->tables)
        ULI_MESSAGES_DEVICE(packed, free, packed->tables);
    if (packed->report)
        ULI_MESSAGES_DEVICE(packed, host_free, packed->report);
    free(packed->message_at);
    free(packed->slot_bytes);
    free(packed->shares);
    free(packed->batch_messages);
    free(packed);
}

/* ---- update -------------------------------------------------------------- */

void *
uli_messages_buffer_event(const struct uli_messages *packed)
{
    return packed->copied[packed->next_buffer];
}

ulyx_status_t
uli_messages_update(struct uli_messages *packed, void *stream)
{
    int buffer = packed->next_buffer;
    ULI_TRY(fill_tables(packed, buffer));
    fill_peers(packed, buffer);
    ULI_TRY(ULI_MESSAGES_DEVICE(packed, copy, packed->tables,
        packed->buffers[buffer], packed->tables_bytes, stream));
    ULI_TRY(ULI_MESSAGES_DEVICE(
        packed, event_record, packed->copied[buffer], stream));
    packed->next_buffer = (buffer + 1) % packed->nbuffers;
    return ULYX_SUCCESS;
}

/* ---- what it is ---------------------------------------------------------- */

struct uli_gpu_report *
uli_messages_report(struct uli_messages *packed)
{
    return packed->report;
}

const bool *
uli_messages_shares(const struct uli_messages *packed)
{
    return packed->shares;
}

int32_t
uli_messages_rounds(const struct uli_messages *packed, ulyx_direction_t direction)
{
    return packed->ops[direction].rounds;
}

int64_t
uli_messages_bytes(const struct uli_messages *packed)
{
    return packed->memory_bytes + packed->tables_bytes + packed->pinned_bytes;
}
