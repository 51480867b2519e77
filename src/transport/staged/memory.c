/* SPDX-License-Identifier: Apache-2.0
 *
 * See staged.h: the pinned memory of a rank, the mapped memory of its peers,
 * and the table of queues on the device.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "device/device.h"
#include "device/pinned.h"
#include "transport/staged/staged.h"

enum { PAGE = 4096 };

/* ---- places -------------------------------------------------------------- */

static int64_t
ring_bytes(const struct uli_staged_shape *shape)
{
    return ULI_STAGED_SLOTS * shape->chunk_bytes;
}

int64_t
uli_staged_flags_at(
    const struct uli_staged_shape *shape, int32_t index, int32_t queue)
{
    return ((int64_t)index * shape->queues + queue) * ULI_STAGED_LINE;
}

int64_t
uli_staged_recv_at(
    const struct uli_staged_shape *shape, int32_t index, int32_t queue)
{
    return uli_round_up(uli_staged_flags_at(shape, shape->peers, 0), PAGE) +
           ((int64_t)index * shape->queues + queue) * ring_bytes(shape);
}

int64_t
uli_staged_own_flags_at(
    const struct uli_staged_shape *shape, int32_t remote, int32_t queue)
{
    return uli_staged_recv_at(shape, shape->peers, 0) +
           uli_staged_flags_at(shape, remote, queue);
}

int64_t
uli_staged_sending_at(const struct uli_staged_shape *shape, int32_t remotes,
    int32_t remote, int32_t queue)
{
    return uli_round_up(uli_staged_own_flags_at(shape, remotes, 0), PAGE) +
           ((int64_t)remote * shape->queues + queue) * ring_bytes(shape);
}

/* ---- own ----------------------------------------------------------------- */

static ulyx_status_t
make_own(
    struct uli_staged_memory *memory, const struct uli_batch_params *params)
{
    const struct uli_staged_shape *shape = &memory->shape;
    const struct uli_batch_hooks *hooks = &params->hooks;
    memory->peers = calloc((size_t)shape->peers + 1, sizeof(*memory->peers));
    if (!memory->peers)
        return uli_error(ULYX_ERR_NO_MEMORY, "staged: no memory");
    for (int32_t i = 0; i < shape->peers; i++) {
        struct uli_staged_peer *peer = &memory->peers[i];
        peer->rank = i < params->rank ? i : i + 1;
        peer->remote = hooks->is_remote(hooks->context, peer->rank)
                           ? memory->remotes++
                           : -1;
    }
    memory->bytes = uli_max(PAGE, /* also for a rank without peers */
        uli_staged_sending_at(shape, memory->remotes, memory->remotes, 0));
    ULI_TRY(hooks->memory_alloc(
        hooks->context, memory->bytes + PAGE, &memory->block));
    uintptr_t address = (uintptr_t)memory->block.address;
    int64_t skip = (int64_t)(-address % PAGE);
    memory->offset = memory->block.offset + skip;
    memory->base = (unsigned char *)memory->block.address + skip;
    void *there = NULL;
    ULI_TRY(
        uli_pinned_hold(params->device, memory->base, memory->bytes, &there));
    memory->there = there;
    return ULYX_SUCCESS;
}

/* ---- peers --------------------------------------------------------------- */

/* A rank's record in the gather of addresses. */
struct address {
    int32_t status;
    uint32_t window;
    int64_t offset, bytes;
    char text[200];
};

_Static_assert(sizeof(struct address) <= ULI_BATCH_ADDRESS_BYTES, "address");

static ulyx_status_t
take_addresses(struct uli_staged_memory *memory, int32_t nranks,
    const struct address *addresses)
{
    for (int32_t p = 0; p < nranks; p++)
        if (addresses[p].status != ULYX_SUCCESS)
            return uli_error((ulyx_status_t)addresses[p].status,
                "rank %d: %.*s", p, (int)sizeof(addresses[p].text),
                addresses[p].text);
    for (int32_t i = 0; memory && i < memory->shape.peers; i++) {
        struct uli_staged_peer *peer = &memory->peers[i];
        const struct address *address = &addresses[peer->rank];
        peer->window = address->window;
        peer->offset = address->offset;
        peer->bytes = address->bytes;
    }
    return ULYX_SUCCESS;
}

/* Collective, whatever has happened on this rank. status: this rank's outcome.
 * memory: NULL where it could not be made. */
static ulyx_status_t
exchange_addresses(struct uli_staged_memory *memory,
    const struct uli_batch_params *params, ulyx_status_t status)
{
    const struct uli_batch_hooks *hooks = &params->hooks;
    struct address mine = {.status = status};
    const void *all;
    if (memory) {
        mine.window = memory->block.window;
        mine.offset = memory->offset;
        mine.bytes = memory->bytes;
    }
    if (status != ULYX_SUCCESS)
        snprintf(mine.text, sizeof(mine.text), "%s", uli_error_text());
    ULI_TRY(hooks->gather(
        hooks->context, &mine, sizeof(mine), params->deadline, &all));
    return take_addresses(memory, params->nranks, all);
}

static ulyx_status_t
pin_peers(
    struct uli_staged_memory *memory, const struct uli_batch_params *params)
{
    const struct uli_batch_hooks *hooks = &params->hooks;
    for (int32_t i = 0; i < memory->shape.peers; i++) {
        struct uli_staged_peer *peer = &memory->peers[i];
        void *there = NULL;
        if (peer->remote >= 0)
            continue;
        void *address = hooks->address(hooks->context, peer->rank, peer->window,
            peer->offset, peer->bytes);
        if (!address)
            return uli_error(ULYX_ERR_INTERNAL,
                "staged: the memory of rank %d is not mapped", peer->rank);
        ULI_TRY(uli_pinned_hold(params->device, address, peer->bytes, &there));
        peer->mapped = address;
        peer->there = there;
    }
    return ULYX_SUCCESS;
}

/* ---- queues -------------------------------------------------------------- */

static void
fill_queue(const struct uli_staged_memory *memory, int32_t rank, int32_t i,
    int32_t l, struct uli_staged_queue *queue_p)
{
    const struct uli_staged_shape *shape = &memory->shape;
    const struct uli_staged_peer *peer = &memory->peers[i];
    int32_t self = uli_staged_index(rank, peer->rank);
    unsigned char *mine = memory->there, *out, *posted;
    if (peer->remote < 0) {
        out = peer->there + uli_staged_recv_at(shape, self, l);
        posted = peer->there + uli_staged_flags_at(shape, self, l);
    } else {
        out = mine +
              uli_staged_sending_at(shape, memory->remotes, peer->remote, l);
        posted = mine + uli_staged_own_flags_at(shape, peer->remote, l);
    }
    *queue_p = (struct uli_staged_queue){.out = out,
        .in = mine + uli_staged_recv_at(shape, i, l),
        .posted = (struct uli_staged_flags *)(void *)posted,
        .polled =
            (const struct uli_staged_flags *)(const void *)(mine +
                                                            uli_staged_flags_at(
                                                                shape, i, l))};
}

static ulyx_status_t
make_queues(
    struct uli_staged_memory *memory, const struct uli_batch_params *params)
{
    const struct uli_staged_shape *shape = &memory->shape;
    const struct uli_batch_hooks *hooks = &params->hooks;
    int64_t bytes = (int64_t)shape->peers * shape->queues *
                    (int64_t)sizeof(*memory->queues);
    bytes = uli_max(bytes, 1);
    struct uli_staged_queue *queues = calloc(1, (size_t)bytes);
    void *there = NULL;
    if (!queues)
        return uli_error(ULYX_ERR_NO_MEMORY, "staged: no memory");
    for (int32_t i = 0; i < shape->peers; i++)
        for (int32_t l = 0; l < shape->queues; l++)
            fill_queue(
                memory, params->rank, i, l, &queues[i * shape->queues + l]);
    ulyx_status_t status = uli_device_cuda.alloc(params->device, bytes, &there);
    memory->queues = there;
    if (status == ULYX_SUCCESS)
        status = hooks->upload(hooks->context, there, queues, bytes);
    free(queues);
    return status;
}

/* ---- life ---------------------------------------------------------------- */

ulyx_status_t
uli_staged_memory_open(struct uli_staged_memory *memory,
    const struct uli_batch_params *params, const struct uli_staged_shape *shape)
{
    *memory = (struct uli_staged_memory){.shape = *shape};
    ulyx_status_t status = make_own(memory, params);
    status = exchange_addresses(memory, params, status);
    if (status == ULYX_SUCCESS)
        status = pin_peers(memory, params);
    if (status == ULYX_SUCCESS)
        status = make_queues(memory, params);
    if (status != ULYX_SUCCESS)
        uli_staged_memory_close(memory, params, false);
    return status;
}

ulyx_status_t
uli_staged_memory_refuse(
    const struct uli_batch_params *params, ulyx_status_t status)
{
    return exchange_addresses(NULL, params, status);
}

void
uli_staged_memory_close(struct uli_staged_memory *memory,
    const struct uli_batch_params *params, bool used)
{
    const struct uli_batch_hooks *hooks = &params->hooks;
    if (memory->queues)
        (void)uli_device_cuda.free(params->device, memory->queues);
    for (int32_t i = 0; memory->peers && i < memory->shape.peers; i++)
        if (memory->peers[i].mapped)
            (void)uli_pinned_drop(params->device, memory->peers[i].mapped);
    if (memory->there)
        (void)uli_pinned_drop(params->device, memory->base);
    if (memory->block.address && !used)
        hooks->memory_free(hooks->context, &memory->block);
    free(memory->peers);
    *memory = (struct uli_staged_memory){0};
}
