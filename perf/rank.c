/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of one row: its plan, windows, and the sets of tensors that it uses
 * in turn.
 */
#include "perf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool
perf_status_ok(const char *what, ulyx_status_t status)
{
    if (status == ULYX_SUCCESS)
        return true;
    fprintf(stderr, "ulyx_perf: %s: %s: %s\n", what, ulyx_status_name(status),
        ulyx_last_error());
    return false;
}

/* Bytes of the widest element of a side: partials of SEQ_TO_HEAD_ADJOINT may
 * have a wider type than the tensor. */
static int64_t
element_bytes(const struct perf_rank *rank, bool source)
{
    int64_t widest = 1;

    for (int32_t t = 0; t < rank->shape->params.ntensors; t++) {
        const ulyx_tensor_t *tensor = &rank->shape->tensors[t];
        int32_t dtype = tensor->dtype;
        int64_t bytes;

        if (rank->direction == ULYX_SEQ_TO_HEAD_ADJOINT && source)
            ulyx_plan_get_partial_dtype(rank->plan, t, &dtype);
        bytes = dtype == ULYX_DTYPE_BYTES ? tensor->elem_bytes
                                          : ulyx_dtype_size(dtype);
        widest = bytes > widest ? bytes : widest;
    }
    return widest;
}

/* Sets the offsets and extents of one set, in bytes. On the head side, the two
 * parts of a tensor have one base. Each tensor begins `elements` elements after
 * a multiple of 64 bytes. */
static bool
lay_out(
    struct perf_rank *rank, struct perf_side *side, int elements, bool source)
{
    int64_t unalign = elements * element_bytes(rank, source);
    int32_t n = rank->shape->params.ntensors;
    bool to_head = rank->direction == ULYX_SEQ_TO_HEAD ||
                   rank->direction == ULYX_HEAD_TO_SEQ_ADJOINT;
    bool joint = rank->shape->params.nparts > 1 && source != to_head;
    ulyx_side_t which = source ? ULYX_SIDE_SRC : ULYX_SIDE_DST;
    int64_t at = PERF_GUARD;

    for (int32_t t = 0; t < n; t++) {
        if (!perf_status_ok(
                "extent", ulyx_plan_get_extent(rank->plan, t, rank->direction,
                              which, &side->extent[t])))
            return false;
        if (joint && t >= n / 2) {
            /* The second part lies in the memory of tensor t - n/2. */
            side->offset[t] = side->offset[t - n / 2];
            continue;
        }
        at = (at + 63) / 64 * 64 + unalign;
        side->offset[t] = at;
        int64_t extent = side->extent[t];
        if (joint) {
            int64_t other;
            if (!perf_status_ok(
                    "extent", ulyx_plan_get_extent(rank->plan, t + n / 2,
                                  rank->direction, which, &other)))
                return false;
            extent = extent > other ? extent : other;
        }
        at += extent + 2 * PERF_GUARD;
    }
    side->set_bytes = (at + 4095) / 4096 * 4096;
    return true;
}

static bool
side_allocate(struct perf_rank *rank, struct perf_side *side, bool window)
{
    ulyx_mem_params_t params = ULYX_MEM_PARAMS_INIT;
    void *address;

    side->bytes = side->set_bytes * rank->sets;
    if (!window || rank->stream) {
        side->base = aligned_alloc(4096, (size_t)side->bytes);
        if (!side->base)
            return perf_status_ok("memory", ULYX_ERR_NO_MEMORY);
        side->where = side->base;
    }
    if (!window)
        return !rank->stream || perf_device_alloc(rank, side);
    if (rank->stream) {
        params.memory_kind = ULYX_MEMORY_CUDA;
        params.device = rank->device;
    }
    if (!perf_status_ok("window",
            ulyx_mem_alloc(side->bytes, &params, &side->mem, &address)))
        return false;
    side->where = address;
    if (!rank->stream)
        side->base = address;
    return perf_status_ok("attach", ulyx_mem_attach(rank->comm, side->mem));
}

static void
side_release(struct perf_rank *rank, struct perf_side *side)
{
    if (side->mem) {
        ulyx_mem_detach(rank->comm, side->mem);
        ulyx_mem_free(side->mem);
    } else if (rank->stream && side->where != side->base) {
        perf_device_free(rank, side);
    }
    if (!side->mem || rank->stream)
        free(side->base);
    memset(side, 0, sizeof(*side));
}

static bool
make_boxes(struct perf_rank *rank)
{
    rank->to = calloc((size_t)rank->nranks, sizeof(*rank->to));
    if (!rank->to ||
        !perf_status_ok("layout", uli_layout_create(&rank->shape->internal,
                                      NULL, NULL, &rank->layout)))
        return false;
    for (int32_t p = 0; p < rank->nranks; p++)
        if (!perf_boxes_make(
                rank->layout, rank->direction, p, rank->rank, &rank->to[p]))
            return perf_status_ok("comparator's boxes", ULYX_ERR_NO_MEMORY);
    return true;
}

/* The rank's plans exist already. Attaching windows is not collective. */
bool
perf_rank_open(struct perf_rank *rank, const struct perf_options *options)
{
    bool window = options->register_memory;

    perf_rank_use(rank, 1, 0);
    if (!lay_out(rank, &rank->src, options->unalign, true) ||
        !lay_out(rank, &rank->dst, options->unalign, false))
        return false;
    rank->back = rank->src;
    rank->sets = rank->shape->sets;
    rank->turn = 0;
    for (int a = 0; a < PERF_ALGOS; a++)
        rank->next[a] = a;
    if (options->cuda && !perf_device_open(rank))
        return false;
    return side_allocate(rank, &rank->src, window) &&
           side_allocate(rank, &rank->dst, window) &&
           side_allocate(rank, &rank->back, window) && make_boxes(rank) &&
           (!options->vs[PERF_VS_BEST] || perf_stream_open(rank)) &&
           (!options->vs[PERF_VS_FLAG] || perf_flag_open(rank)) &&
           (!options->vs[PERF_VS_MPI] || perf_mpi_open(rank));
}

void
perf_rank_use(struct perf_rank *ranks, int count_ranks, int algo)
{
    for (int r = 0; r < count_ranks; r++) {
        ranks[r].algo = algo;
        ranks[r].plan = ranks[r].plans[algo];
    }
}

void
perf_rank_close(struct perf_rank *rank)
{
    perf_mpi_close(rank);
    perf_flag_close(rank);
    perf_stream_close(rank);
    perf_device_wait(rank, 1);
    perf_peers_close(rank);
    for (int a = 0; a < rank->nplans; a++)
        ulyx_plan_destroy(rank->plans[a]);
    rank->nplans = 0;
    rank->plan = NULL;
    side_release(rank, &rank->src);
    side_release(rank, &rank->dst);
    side_release(rank, &rank->back);
    for (int32_t p = 0; rank->to && p < rank->nranks; p++)
        perf_boxes_free(&rank->to[p]);
    free(rank->to);
    rank->to = NULL;
    uli_layout_destroy(rank->layout);
    rank->layout = NULL;
    perf_device_close(rank);
}

void
perf_rank_pointers(const struct perf_rank *rank, const struct perf_side *side,
    int set, void **pointers_p)
{
    for (int32_t t = 0; t < rank->shape->params.ntensors; t++)
        pointers_p[t] =
            side->where + (int64_t)set * side->set_bytes + side->offset[t];
}
