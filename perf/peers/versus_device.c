/* SPDX-License-Identifier: Apache-2.0
 *
 * The comparators of exchanges on device memory, run by the same ranks at the
 * same time on the same tensors.
 *
 *   copy     one device copy of the bytes that the rank sends, including those
 *            to itself: the limit of memory
 *   permute  pack, copy, unpack, one tensor at a time, as frameworks do around
 *            an all-to-all; the copy stays on the device and nothing waits for
 *            other ranks, so that frameworks cannot be faster on one device
 *   nccl     ulyx's schedule by NCCL; and, for each tensor, permute, all-to-all
 *            of NCCL, permute
 *
 * pack and unpack are the kernels of messages.h; the copy is a batch that
 * copies outgoing messages to incoming ones.
 */
#include "perf.h"

#include <stdlib.h>
#include <string.h>

#include "collectives/device/mapped/exchange_gpu.h"
#include "collectives/device/messages/messages.h"
#include "device/cuda_context.h"
#include "device/cuda_driver.h"
#include "device/device.h"

enum { THREADS = 256 };

struct perf_peers {
    ulyx_plan_t *nccl, *each[PERF_TENSORS];
    struct uli_layout *layouts[PERF_TENSORS];
    struct uli_messages *packed[PERF_TENSORS];
    uli_strides_t (*strides)[ULI_TENSORS]; /* [tensors * nranks] */
};

/* ---- permute ------------------------------------------------------------- */

/* A uli_batch_ops run that copies each outgoing message to the incoming message
 * after it. Messages come in pairs: one to a peer, one from the same peer.
 * batch points to the perf_rank. */
static ulyx_status_t
copy_run(struct uli_batch *batch, const struct uli_batch_message *pieces,
    int32_t count, void *stream, uli_deadline_t deadline)
{
    const struct perf_rank *rank = (const struct perf_rank *)(void *)batch;
    const struct uli_device_ops *ops = uli_device_ops(ULYX_MEMORY_CUDA);
    ulyx_status_t status = ULYX_SUCCESS;

    (void)deadline;
    for (int32_t i = 0; i + 1 < count && status == ULYX_SUCCESS; i += 2) {
        int64_t out = pieces[i].bytes, in = pieces[i + 1].bytes;

        status = ops->copy(rank->device, pieces[i + 1].data, pieces[i].data,
            out < in ? out : in, stream);
    }
    return status;
}

static const struct uli_batch_ops copying = {.run = copy_run};

/* The number of blocks of a launch: one per multiprocessor. */
static bool
blocks_of(const struct perf_rank *rank, int32_t *blocks_p)
{
    return perf_status_ok("device", uli_cuda_enter(rank->device)) &&
           perf_status_ok("multiprocessors",
               uli_cuda_leave(uli_cuda_status(uli_gpu_multiprocessors(blocks_p),
                   "cudaDeviceGetAttribute")));
}

static bool
open_permute(struct perf_rank *rank, int32_t t)
{
    struct perf_peers *peers = rank->peers;
    struct uli_shape shape = rank->shape->internal;
    size_t n = (size_t)rank->nranks;
    uli_strides_t **strides = calloc(n, sizeof(*strides));
    int32_t *nodes = calloc(n, sizeof(*nodes));
    int32_t blocks = 0;
    bool ok = strides && nodes && blocks_of(rank, &blocks);

    shape.ntensors = 1;
    shape.tensors[0] = shape.tensors[t];
    ok = ok && perf_status_ok("layout",
                   uli_layout_create(&shape, NULL, NULL, &peers->layouts[t]));
    for (int32_t p = 0; ok && p < rank->nranks; p++) {
        strides[p] = peers->strides[(size_t)t * n + (size_t)p];
        ok = perf_status_ok(
            "strides", uli_plan_fix_strides(peers->layouts[t], p, strides[p]));
    }
    struct uli_messages_params params = {.layout = peers->layouts[t],
        .directions = UINT64_C(1) << rank->direction,
        .rank = rank->rank,
        .nodes = nodes,
        .strides = strides,
        .device_ops = uli_device_ops(ULYX_MEMORY_CUDA),
        .device = rank->device,
        .blocks = blocks,
        .threads = THREADS,
        .chunk_bytes = INT64_C(1) << 40, /* in one chunk */
        .batch_ops = &copying,
        .batch = (struct uli_batch *)(void *)rank};
    ok = ok && perf_status_ok(
                   "permute", uli_messages_create(&params, &peers->packed[t]));
    free(strides);
    free(nodes);
    return ok;
}

bool
perf_run_permute(
    struct perf_rank *ranks, int count_ranks, int count, int variant)
{
    (void)variant;
    for (int i = 0; i < count; i++)
        for (int r = 0; r < count_ranks; r++) {
            struct perf_rank *rank = &ranks[r];
            void *src[PERF_TENSORS], *dst[PERF_TENSORS];

            perf_rank_pointers(rank, &rank->src, rank->turn, src);
            perf_rank_pointers(rank, &rank->dst, rank->turn, dst);
            for (int32_t t = 0; t < rank->shape->params.ntensors; t++) {
                const struct uli_messages_call call = {
                    .direction = rank->direction,
                    .src = (const void *const *)src + t,
                    .dst = dst + t,
                    .stream = rank->stream};

                if (!perf_status_ok("permute",
                        uli_messages_execute(rank->peers->packed[t], &call)))
                    return false;
            }
            rank->turn = (rank->turn + 1) % rank->sets;
        }
    return true;
}

/* ---- copy ---------------------------------------------------------------- */

/* Copies from the source to the spare side `back`, in parts of at most one
 * set. */
bool
perf_run_copy(struct perf_rank *ranks, int count_ranks, int count, int variant)
{
    const struct uli_device_ops *ops = uli_device_ops(ULYX_MEMORY_CUDA);

    (void)variant;
    for (int i = 0; i < count; i++)
        for (int r = 0; r < count_ranks; r++) {
            struct perf_rank *rank = &ranks[r];
            int64_t left = 0, room = rank->src.set_bytes;

            for (int32_t p = 0; p < rank->nranks; p++)
                left += rank->to[p].bytes;
            while (left > 0) {
                int64_t piece = left < room ? left : room;

                if (!perf_status_ok(
                        "copy", ops->copy(rank->device,
                                    rank->back.where + rank->turn * room,
                                    rank->src.where + rank->turn * room, piece,
                                    rank->stream)))
                    return false;
                left -= piece;
            }
            rank->turn = (rank->turn + 1) % rank->sets;
        }
    return true;
}

/* ---- nccl ---------------------------------------------------------------- */

/* Makes the plan by NCCL of tensor t; t < 0: of all tensors. Collective. */
static bool
create_nccl(struct perf_rank *ranks, int count_ranks, int32_t t)
{
    ulyx_plan_params_t params = ranks[0].shape->params;
    ulyx_status_t status = ULYX_SUCCESS, end;

    params.algo = "nccl";
    params.directions = UINT64_C(1) << ranks[0].direction;
    if (t >= 0) {
        params.tensors += t;
        params.ntensors = 1;
    }
    ulyx_group_start();
    for (int r = 0; r < count_ranks && status == ULYX_SUCCESS; r++) {
        struct perf_peers *peers = ranks[r].peers;

        status = ulyx_plan_create(
            ranks[r].comm, &params, t < 0 ? &peers->nccl : &peers->each[t]);
    }
    end = ulyx_group_end();
    return perf_status_ok(
        "plan by nccl", status == ULYX_SUCCESS ? end : status);
}

bool
perf_run_nccl(struct perf_rank *ranks, int count_ranks, int count, int each)
{
    for (int i = 0; i < count; i++)
        for (int r = 0; r < count_ranks; r++) {
            struct perf_rank *rank = &ranks[r];
            int32_t n = each ? rank->shape->params.ntensors : 1;

            for (int32_t t = 0; t < n; t++)
                if (!perf_status_ok("nccl",
                        perf_execute(rank,
                            each ? rank->peers->each[t] : rank->peers->nccl,
                            each ? t : 0)))
                    return false;
            rank->turn = (rank->turn + 1) % rank->sets;
        }
    return true;
}

/* ---- life ---------------------------------------------------------------- */

static bool
rank_allocate(struct perf_rank *rank)
{
    size_t n = (size_t)rank->nranks * (size_t)rank->shape->params.ntensors;

    rank->peers = calloc(1, sizeof(*rank->peers));
    if (rank->peers)
        rank->peers->strides = calloc(n, sizeof(*rank->peers->strides));
    return rank->peers && rank->peers->strides;
}

bool
perf_peers_open(struct perf_rank *ranks, int count_ranks,
    const struct perf_options *options)
{
    int32_t n = ranks[0].shape->params.ntensors;

    if (!options->cuda)
        return true;
    for (int r = 0; r < count_ranks; r++) {
        if (!rank_allocate(&ranks[r]))
            return perf_status_ok("comparators", ULYX_ERR_NO_MEMORY);
        for (int32_t t = 0; t < n && options->vs[PERF_VS_PERMUTE]; t++)
            if (!open_permute(&ranks[r], t))
                return false;
    }
    if (!options->vs[PERF_VS_NCCL])
        return true;
    for (int32_t t = -1; t < n; t++)
        if (!create_nccl(ranks, count_ranks, t))
            return false;
    return true;
}

void
perf_peers_close(struct perf_rank *rank)
{
    struct perf_peers *peers = rank->peers;

    if (!peers)
        return;
    ulyx_plan_destroy(peers->nccl);
    for (int32_t t = 0; t < PERF_TENSORS; t++) {
        ulyx_plan_destroy(peers->each[t]);
        uli_messages_destroy(peers->packed[t]);
        uli_layout_destroy(peers->layouts[t]);
    }
    free(peers->strides);
    free(peers);
    rank->peers = NULL;
}
