/* SPDX-License-Identifier: Apache-2.0
 *
 * See batch_hooks.h.
 */
#include "comm/messages/batch_hooks.h"

#include "base/size.h"
#include "comm/device/gpu.h"
#include "comm/remote/remote.h"
#include "comm/device/residency.h"

static ulyx_comm_t *
comm_of(void *context)
{
    return ((struct uli_batch_context *)context)->comm;
}

/* ---- agreement ----------------------------------------------------------- */

static ulyx_status_t
hook_gather(void *context, const void *mine, size_t bytes,
    uli_deadline_t deadline, const void **all_p)
{
    struct uli_batch_context *own = context;
    if (bytes > ULI_BATCH_ADDRESS_BYTES)
        return uli_error(
            ULYX_ERR_INTERNAL, "a batch gathers %zu bytes per rank", bytes);
    *all_p = own->addresses;
    return uli_agree_gather(
        own->comm, &(struct uli_gather){.call = ULI_CALL_BATCH,
                       .mine = mine,
                       .bytes = (int64_t)bytes,
                       .max_bytes = (int64_t)bytes,
                       .all_p = own->addresses,
                       .deadline = deadline});
}

static bool
hook_has_failed(void *context)
{
    return atomic_load(&comm_of(context)->failed) != 0;
}

/* ---- memory -------------------------------------------------------------- */

static ulyx_status_t
hook_memory_alloc(
    void *context, int64_t bytes, struct uli_batch_memory *memory_p)
{
    struct uli_arena_block block;
    ULI_TRY(uli_arena_alloc(comm_of(context), bytes, &block));
    *memory_p = (struct uli_batch_memory){
        block.address, block.window, block.offset, block.bytes};
    return ULYX_SUCCESS;
}

static void
hook_memory_free(void *context, const struct uli_batch_memory *memory)
{
    const struct uli_arena_block block = {
        memory->window, memory->offset, memory->bytes, memory->address};
    uli_arena_free(comm_of(context), &block);
}

static bool
hook_is_remote(void *context, int32_t peer)
{
    return uli_comm_is_remote(comm_of(context), peer);
}

static void *
hook_address(
    void *context, int32_t peer, uint32_t window, int64_t offset, int64_t bytes)
{
    return uli_window_address(comm_of(context), peer, window, offset, bytes);
}

/* ---- the network --------------------------------------------------------- */

static ulyx_status_t
hook_put(void *context, int32_t peer, const struct uli_net_put *put)
{
    return uli_remote_put(comm_of(context), peer, put);
}

static bool
hook_progress(void *context)
{
    return uli_comm_progress(comm_of(context));
}

/* ---- the device ---------------------------------------------------------- */

static ulyx_status_t
hook_upload(void *context, void *dst, const void *src, int64_t bytes)
{
    ulyx_comm_t *comm = comm_of(context);
    return src ? uli_gpu_upload(comm, dst, src, bytes)
               : uli_gpu_zero(comm, dst, bytes);
}

static int32_t
hook_claim(
    void *context, int32_t multiprocessors, int32_t per_sm, int64_t requested)
{
    const ulyx_comm_t *comm = comm_of(context);
    struct uli_residency room = {
        .multiprocessors = multiprocessors, .per_sm = per_sm};
    int64_t most = uli_residency_sms(comm, 0, multiprocessors);
    uli_residency_choose(comm, uli_min(requested, most), 1, &room);
    return room.claimed;
}

static void
hook_release(void *context, int32_t per_sm, int32_t claimed)
{
    const struct uli_residency room = {.per_sm = per_sm,
        .claimed = claimed,
        .waits = claimed || per_sm == 0 ? 0 : 1};
    uli_residency_release(comm_of(context)->gpu->device, &room);
}

struct uli_batch_params
uli_batch_params_of(struct uli_batch_context *context)
{
    const ulyx_comm_t *comm = context->comm;
    return (struct uli_batch_params){.rank = comm->rank,
        .nranks = comm->nranks,
        .memory_kind = comm->memory_kind,
        .device = comm->gpu ? comm->gpu->device : 0,
        .settings = &comm->settings,
        .binding = &comm->binding,
        .poison = comm->gpu ? uli_gpu_poison(comm) : NULL,
        .hooks = {.context = context,
            .gather = hook_gather,
            .memory_alloc = hook_memory_alloc,
            .memory_free = hook_memory_free,
            .is_remote = hook_is_remote,
            .address = hook_address,
            .put = hook_put,
            .progress = hook_progress,
            .has_failed = hook_has_failed,
            .upload = hook_upload,
            .claim = hook_claim,
            .release = hook_release}};
}
