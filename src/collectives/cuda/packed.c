/* SPDX-License-Identifier: Apache-2.0
 *
 * See packed.h. One allocation on the device holds, in this order, the state,
 * the table of peers, the messages out and the messages in; message p lies at
 * the same offset of both, of the longer of the two directions over all
 * operations. The tables of each operation have an allocation of their own.
 */
#include "collectives/cuda/packed.h"

#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/cuda/exchange_table.h"

/* One operation. */
struct operation {
    struct uli_gpu_table table; /* items and sources on the device */
    void *tables;               /* both */
    int64_t *sent, *received;   /* [nranks] bytes of shares */
};

struct uli_packed {
    struct uli_packed_params params;
    int32_t nranks;
    struct operation ops[ULYX_OPERATIONS];
    int64_t *message_at; /* [nranks + 1] in the messages of one direction */
    bool *shares;        /* [nranks] */
    struct uli_batch_piece *pieces; /* [2 * nranks] of the call at hand */
    unsigned char *memory;
    int64_t memory_bytes, out_at, in_at, table_bytes;
    struct uli_gpu_report *report, *device_report;
};

#define DEVICE(packed, call, ...)                                              \
    ((packed)->params.device_ops->call((packed)->params.device, __VA_ARGS__))

/* ---- tables -------------------------------------------------------------- */

static ulyx_status_t
upload(struct uli_packed *packed, void *dst, const void *src, int64_t bytes,
    void *stream)
{
    return bytes ? DEVICE(packed, copy, dst, src, bytes, stream) : ULYX_SUCCESS;
}

/* Replaces the table's arrays by copies on the device. */
static ulyx_status_t
move_table(struct uli_packed *packed, struct operation *op,
    struct uli_gpu_table *table, void *stream)
{
    int64_t items = table->nitems * (int64_t)sizeof(*table->items);
    int64_t sources = table->nsources * (int64_t)sizeof(*table->sources);
    ULI_TRY(DEVICE(packed, alloc, uli_max(items + sources, 1), &op->tables));
    packed->table_bytes += items + sources;
    unsigned char *at = op->tables;
    ULI_TRY(upload(packed, at, table->items, items, stream));
    ULI_TRY(upload(packed, at + items, table->sources, sources, stream));
    ULI_TRY(DEVICE(packed, stream_wait, stream));
    op->table = *table;
    op->table.items = (struct uli_gpu_item *)at;
    op->table.sources = (struct uli_gpu_source *)(at + items);
    return ULYX_SUCCESS;
}

static ulyx_status_t
make_operation(
    struct uli_packed *packed, ulyx_operation_t operation, void *stream)
{
    const struct uli_packed_params *own = &packed->params;
    struct operation *op = &packed->ops[operation];
    struct uli_gpu_table table;
    op->sent = calloc(2 * (size_t)packed->nranks, sizeof(*op->sent));
    if (!op->sent)
        return uli_error(ULYX_ERR_NO_MEMORY, "packed exchange: no memory");
    op->received = op->sent + packed->nranks;
    struct uli_gpu_table_params params = {.layout = own->layout,
        .operation = operation,
        .rank = own->rank,
        .nodes = own->nodes,
        .strides = own->strides,
        .slot_bytes = INT64_MAX, /* a message takes whatever it has to */
        .workers = own->blocks * own->threads / 32,
        .sent_p = op->sent,
        .received_p = op->received};
    ULI_TRY(uli_gpu_table_build(&params, &table));
    ulyx_status_t status = move_table(packed, op, &table, stream);
    uli_gpu_table_free(&table);
    return status;
}

/* ---- messages ------------------------------------------------------------ */

static void
place_messages(struct uli_packed *packed)
{
    for (int32_t p = 0; p < packed->nranks; p++) {
        int64_t longest = 0;
        for (int o = 0; o < ULYX_OPERATIONS; o++)
            if (packed->params.operations >> o & 1)
                longest = uli_max(longest, uli_max(packed->ops[o].sent[p],
                                               packed->ops[o].received[p]));
        packed->shares[p] = longest > 0;
        packed->message_at[p + 1] =
            packed->message_at[p] +
            (longest ? ULI_PACKED_HEAD + uli_round_up(longest, ULI_GPU_LINE)
                     : 0);
    }
}

static ulyx_status_t
allocate_messages(struct uli_packed *packed)
{
    int64_t peers = packed->nranks * (int64_t)sizeof(struct uli_gpu_peer);
    int64_t messages = packed->message_at[packed->nranks];
    void *memory;
    packed->out_at = ULI_GPU_LINE + uli_round_up(peers, ULI_GPU_LINE);
    packed->in_at = packed->out_at + messages;
    packed->memory_bytes = packed->in_at + messages;
    ULI_TRY(DEVICE(packed, alloc, packed->memory_bytes, &memory));
    packed->memory = memory;
    return ULYX_SUCCESS;
}

static ulyx_status_t
fill_peers(struct uli_packed *packed, void *stream)
{
    size_t n = (size_t)packed->nranks;
    struct uli_gpu_peer *peers = calloc(n, sizeof(*peers));
    if (!peers)
        return uli_error(ULYX_ERR_NO_MEMORY, "packed exchange: no memory");
    for (int32_t p = 0; p < packed->nranks; p++) {
        unsigned char *out =
            packed->memory + packed->out_at + packed->message_at[p];
        unsigned char *in =
            packed->memory + packed->in_at + packed->message_at[p];
        if (!packed->shares[p])
            continue;
        peers[p] = (struct uli_gpu_peer){.mine = (struct uli_gpu_words *)in,
            .yours = (struct uli_gpu_words *)out,
            .slot_in = in + ULI_PACKED_HEAD,
            .slot_out = out + ULI_PACKED_HEAD,
            .shares = 1};
    }
    ulyx_status_t status =
        DEVICE(packed, zero, packed->memory, packed->memory_bytes, stream);
    if (status == ULYX_SUCCESS)
        status = upload(packed, packed->memory + ULI_GPU_LINE, peers,
            (int64_t)(n * sizeof(*peers)), stream);
    if (status == ULYX_SUCCESS)
        status = DEVICE(packed, stream_wait, stream);
    free(peers);
    return status;
}

static ulyx_status_t
make_words(struct uli_packed *packed)
{
    void *host, *device;
    ULI_TRY(DEVICE(
        packed, host_alloc, (int64_t)sizeof(*packed->report), &host, &device));
    packed->report = host;
    packed->device_report = device;
    memset(host, 0, sizeof(*packed->report));
    return ULYX_SUCCESS;
}

/* ---- life ---------------------------------------------------------------- */

static ulyx_status_t
fill(struct uli_packed *packed, void *stream)
{
    for (int o = 0; o < ULYX_OPERATIONS; o++)
        if (packed->params.operations >> o & 1)
            ULI_TRY(make_operation(packed, (ulyx_operation_t)o, stream));
    place_messages(packed);
    ULI_TRY(allocate_messages(packed));
    ULI_TRY(fill_peers(packed, stream));
    return make_words(packed);
}

ulyx_status_t
uli_packed_create(
    const struct uli_packed_params *params, struct uli_packed **packed_p)
{
    int32_t nranks = uli_layout_shape(params->layout)->nranks;
    size_t n = (size_t)nranks;
    struct uli_packed *packed = calloc(1, sizeof(*packed));
    void *stream = NULL;
    ulyx_status_t status = ULYX_SUCCESS;
    if (!packed)
        return uli_error(ULYX_ERR_NO_MEMORY, "packed exchange: no memory");
    packed->params = *params;
    packed->nranks = nranks;
    packed->message_at = calloc(n + 1, sizeof(*packed->message_at));
    packed->shares = calloc(n, sizeof(*packed->shares));
    packed->pieces = calloc(2 * n, sizeof(*packed->pieces));
    if (!packed->message_at || !packed->shares || !packed->pieces)
        status = uli_error(ULYX_ERR_NO_MEMORY, "packed exchange: no memory");
    if (status == ULYX_SUCCESS)
        status = DEVICE(packed, stream_create, &stream);
    if (status == ULYX_SUCCESS)
        status = fill(packed, stream);
    if (stream)
        DEVICE(packed, stream_destroy, stream);
    if (status != ULYX_SUCCESS) {
        uli_packed_destroy(packed);
        return status;
    }
    *packed_p = packed;
    return ULYX_SUCCESS;
}

void
uli_packed_destroy(struct uli_packed *packed)
{
    if (!packed)
        return;
    for (int o = 0; o < ULYX_OPERATIONS; o++) {
        if (packed->ops[o].tables)
            DEVICE(packed, free, packed->ops[o].tables);
        free(packed->ops[o].sent);
    }
    if (packed->memory)
        DEVICE(packed, free, packed->memory);
    if (packed->report)
        DEVICE(packed, host_free, packed->report);
    free(packed->message_at);
    free(packed->shares);
    free(packed->pieces);
    free(packed);
}

struct uli_gpu_report *
uli_packed_report(struct uli_packed *packed)
{
    return packed->report;
}

bool
uli_packed_shares(const struct uli_packed *packed, int32_t p)
{
    return packed->shares[p];
}

int64_t
uli_packed_bytes(const struct uli_packed *packed)
{
    return packed->memory_bytes + packed->table_bytes;
}

/* ---- a call -------------------------------------------------------------- */

static void
fill_args(struct uli_packed *packed, const struct operation *op,
    struct uli_gpu_args *args_p)
{
    const struct uli_gpu_table *table = &op->table;
    *args_p = (struct uli_gpu_args){.items = table->items,
        .sources = table->sources,
        .nitems = table->nitems,
        .nfirst = table->nfirst,
        .ntiles = table->ntiles,
        .nfirst_tiles = table->nfirst_tiles,
        .tile_bytes = table->tile_bytes,
        .state = (struct uli_gpu_state *)packed->memory,
        .peers = (const struct uli_gpu_peer *)(packed->memory + ULI_GPU_LINE),
        .rank = packed->params.rank,
        .nranks = packed->nranks,
        .poison = packed->params.poison,
        .slots = 1,
        .sums = table->sums,
        .report = packed->device_report};
    memset(args_p->record, 0xFF, sizeof(args_p->record));
}

/* To and from every peer, from the next higher rank on. sent NULL: heads
 * only. Returns how many pieces. */
static int32_t
list_pieces(
    struct uli_packed *packed, const int64_t *sent, const int64_t *received)
{
    int32_t count = 0;
    for (int32_t q = 1; q < packed->nranks; q++) {
        int32_t p = (packed->params.rank + q) % packed->nranks;
        unsigned char *at = packed->memory + packed->message_at[p];
        if (!packed->shares[p])
            continue;
        packed->pieces[count++] =
            (struct uli_batch_piece){.data = at + packed->out_at,
                .bytes = ULI_PACKED_HEAD + (sent ? sent[p] : 0),
                .peer = p,
                .send = true};
        packed->pieces[count++] =
            (struct uli_batch_piece){.data = at + packed->in_at,
                .bytes = ULI_PACKED_HEAD + (received ? received[p] : 0),
                .peer = p,
                .send = false};
    }
    return count;
}

static ulyx_status_t
launched(int error, const char *what)
{
    if (!error)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_SYSTEM, "packed exchange: launch of %s: error %d",
        what, error);
}

ulyx_status_t
uli_packed_execute(struct uli_packed *packed, ulyx_operation_t operation,
    const void *const src[], void *const dst[], uint64_t hash,
    ulyx_status_t refusal, void *stream, uli_deadline_t deadline)
{
    const struct uli_packed_params *own = &packed->params;
    const struct operation *op = &packed->ops[operation];
    int32_t ntensors = uli_layout_shape(own->layout)->ntensors;
    struct uli_gpu_args args;
    fill_args(packed, op, &args);
    args.record[ULI_GPU_RECORD_CALL] =
        (uint64_t)(uint32_t)-refusal | (uint64_t)operation << 32;
    args.record[ULI_GPU_RECORD_HASH] = hash;
    for (int32_t t = 0; t < ntensors && refusal == ULYX_SUCCESS; t++) {
        args.src[t] = (unsigned char *)(uintptr_t)src[t];
        args.dst[t] = dst[t];
    }
    if (refusal != ULYX_SUCCESS)
        args.nfirst_tiles = args.ntiles = 0;
    ULI_TRY(launched(
        uli_packed_pack_launch(&args, own->blocks, own->threads, stream),
        "pack"));
    int32_t count = list_pieces(packed, op->sent, op->received);
    if (count)
        ULI_TRY(own->batch_ops->run(
            own->batch, packed->pieces, count, stream, deadline));
    return launched(
        uli_packed_unpack_launch(&args, own->blocks, own->threads, stream),
        "unpack");
}

ulyx_status_t
uli_packed_connect(
    struct uli_packed *packed, void *stream, uli_deadline_t deadline)
{
    const struct uli_packed_params *own = &packed->params;
    int32_t count = list_pieces(packed, NULL, NULL);
    if (!count)
        return ULYX_SUCCESS;
    ULI_TRY(own->batch_ops->run(
        own->batch, packed->pieces, count, stream, deadline));
    return DEVICE(packed, stream_wait, stream);
}
