/* SPDX-License-Identifier: Apache-2.0
 *
 * Reductions: one agreement, so that a difference is the same error on all
 * ranks before a byte moves; then messages by alltoall.
 *
 * A sum over ranks goes slice by slice. Each rank receives its share of the
 * slice from all ranks, adds the shares in rank order in fp32 (fp64 for F64),
 * rounds once, and sends the sum to all. Each rank sends, and receives,
 * 2 (P - 1) / P times its bytes. The order of additions, and so the bits,
 * depend on P alone. A slice is read whole before it is written, so src may be
 * dst. Scratch is one slice and one share.
 */
#include "collectives/channel/reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include "base/dtype.h"
#include "base/size.h"
#include "base/status.h"
#include "collectives/channel/alltoall.h"
#include "collectives/kernels/copy.h"

enum { PIECE_BYTES = 1 << 18 };

/* Bytes and offsets of the messages sent (src) and received (dst), [nranks]
 * each. */
struct messages {
    int64_t *src_bytes, *src_offsets, *dst_bytes, *dst_offsets;
};

/* All memory of one call, in one block. */
struct scratch {
    struct messages messages;
    const void **sources;    /* [nranks] */
    int32_t *group;          /* [nranks] zeros: one group */
    int64_t *offset;         /* [nranks] zeros */
    int64_t (*stride)[3];    /* [nranks] zeros */
    struct agreed *all;      /* [nranks] */
    int64_t *bytes;          /* [nranks] */
    ulyx_status_t *statuses; /* [nranks] */
    char *gathered, *sum;
};

struct agreed {
    int64_t values[4];
};

static int64_t
share_elements(const ulyx_comm_t *comm, const struct uli_reduce_args *args)
{
    int64_t most = PIECE_BYTES / uli_dtype_size(args->dtype);
    int64_t each = args->count / comm->nranks + 1;
    return uli_round_up(uli_min(each, most), 64);
}

static void *
scratch_allocate(const ulyx_comm_t *comm, const struct uli_reduce_args *args,
    bool sums, struct scratch *s)
{
    int64_t n = comm->nranks, share = 0;
    if (sums)
        share = share_elements(comm, args) * uli_dtype_size(args->dtype);
    size_t tables = (size_t)(n * (int64_t)(13 * 8 + sizeof(struct agreed)));
    char *at = calloc(1, tables + (size_t)(share * (n + 1)));
    void *block = at;
    if (!at)
        return NULL;
    s->all = (struct agreed *)at, at += n * (int64_t)sizeof(struct agreed);
    s->messages.src_bytes = (int64_t *)at, at += n * 8;
    s->messages.src_offsets = (int64_t *)at, at += n * 8;
    s->messages.dst_bytes = (int64_t *)at, at += n * 8;
    s->messages.dst_offsets = (int64_t *)at, at += n * 8;
    s->sources = (const void **)at, at += n * 8;
    s->offset = (int64_t *)at, at += n * 8;
    s->stride = (int64_t(*)[3])at, at += n * 24;
    s->bytes = (int64_t *)at, at += n * 8;
    s->group = (int32_t *)at, at += n * 8;
    s->statuses = (ulyx_status_t *)at, at += n * 8;
    s->gathered = at;
    s->sum = at + share * n;
    return block;
}

/* ---- agreement ----------------------------------------------------------- */

static const char *const value_names[4] = {
    "the call (1 allreduce, 2 allgather, 3 broadcast)", "count", "dtype",
    "root"};

static ulyx_status_t
check_peers(ulyx_comm_t *comm, const struct scratch *s)
{
    char reason[ULI_REFUSAL_TEXT_BYTES];
    for (int32_t p = 0; p < comm->nranks; p++)
        if (s->statuses[p] != ULYX_SUCCESS)
            return uli_error(ULYX_ERR_PEER_REFUSED,
                "reduction: rank %d refused: %s", p,
                uli_agree_reason(comm, p, reason));
    for (int i = 0; i < 4; i++)
        for (int32_t p = 1; p < comm->nranks; p++)
            if (s->all[p].values[i] != s->all[0].values[i])
                return uli_error(ULYX_ERR_MISMATCH,
                    "reduction: %s is %lld on rank 0 and %lld on rank %d",
                    value_names[i], (long long)s->all[0].values[i],
                    (long long)s->all[p].values[i], p);
    return ULYX_SUCCESS;
}

/* s NULL: this rank refuses with the outcome, whose text is set. */
static ulyx_status_t
reduce_agree(ulyx_comm_t *comm, const struct uli_reduce_args *args,
    struct scratch *s, ulyx_status_t outcome)
{
    const struct agreed mine = {
        {args->kind, args->count, args->dtype, args->root}};
    uli_deadline_t deadline = uli_comm_step_deadline(comm);
    if (!s)
        return uli_agree_refuse(comm, ULI_CALL_REDUCE_SETUP, outcome, deadline);
    ULI_TRY(uli_agree_gather(
        comm, &(struct uli_gather){.call = ULI_CALL_REDUCE_SETUP,
                  .mine = &mine,
                  .bytes = sizeof(mine),
                  .max_bytes = sizeof(mine),
                  .all_p = s->all,
                  .bytes_p = s->bytes,
                  .status_p = s->statuses,
                  .deadline = deadline}));
    return check_peers(comm, s);
}

/* ---- moving -------------------------------------------------------------- */

static ulyx_status_t
chunk_move(
    ulyx_comm_t *comm, const struct scratch *s, const char *src, char *dst)
{
    const struct uli_alltoall_args args = {src, dst, false,
        s->messages.src_bytes, s->messages.src_offsets, s->messages.dst_bytes,
        s->messages.dst_offsets, NULL};
    return uli_alltoall_host(comm, &args, ULYX_SUCCESS);
}

static ulyx_status_t
allgather_run(
    ulyx_comm_t *comm, const struct uli_reduce_args *args, struct scratch *s)
{
    int64_t bytes = args->count;
    bool in_place = args->src == args->dst + comm->rank * bytes;
    for (int32_t p = 0; p < comm->nranks; p++) {
        int64_t moved = in_place && p == comm->rank ? 0 : bytes;
        s->messages.src_bytes[p] = s->messages.dst_bytes[p] = moved;
        s->messages.src_offsets[p] = 0;
        s->messages.dst_offsets[p] = p * bytes;
    }
    return chunk_move(comm, s, args->src, args->dst);
}

static ulyx_status_t
broadcast_run(
    ulyx_comm_t *comm, const struct uli_reduce_args *args, struct scratch *s)
{
    bool root = comm->rank == args->root;
    for (int32_t p = 0; p < comm->nranks; p++)
        s->messages.src_bytes[p] = root && p != args->root ? args->count : 0;
    s->messages.dst_bytes[args->root] = root ? 0 : args->count;
    return chunk_move(comm, s, args->dst, args->dst);
}

/* ---- sums ---------------------------------------------------------------- */

static void
add_shares(const ulyx_comm_t *comm, const struct uli_reduce_args *args,
    struct scratch *s, int64_t elements)
{
    int64_t bytes = elements * uli_dtype_size(args->dtype);
    const struct uli_sum sum = {.extent = {1, 1, 1},
        .run = elements,
        .dtype = args->dtype,
        .partial_dtype = args->dtype,
        .nsources = comm->nranks,
        .group = s->group,
        .src_offset = s->offset,
        .src_stride = (const int64_t(*)[3])s->stride};
    for (int32_t p = 0; p < comm->nranks; p++)
        s->sources[p] = s->gathered + p * bytes;
    uli_sum_run(&sum, (struct uli_box_span){0, 1}, s->sum, s->sources);
}

/* Sums elements [at, at + n) of the tensors; each rank adds a share of them. */
static ulyx_status_t
reduce_slice(ulyx_comm_t *comm, const struct uli_reduce_args *args,
    struct scratch *s, int64_t at, int64_t n)
{
    int64_t elem = uli_dtype_size(args->dtype);
    int64_t each = (n + comm->nranks - 1) / comm->nranks;
    int64_t mine = uli_min(each, uli_max(n - comm->rank * each, 0));
    for (int32_t p = 0; p < comm->nranks; p++) {
        s->messages.src_offsets[p] = uli_min(p * each, n) * elem;
        s->messages.src_bytes[p] =
            uli_min(each, uli_max(n - p * each, 0)) * elem;
        s->messages.dst_offsets[p] = p * mine * elem;
        s->messages.dst_bytes[p] = mine * elem;
    }
    ULI_TRY(chunk_move(comm, s, args->src + at * elem, s->gathered));
    if (mine)
        add_shares(comm, args, s, mine);
    for (int32_t p = 0; p < comm->nranks; p++) {
        s->messages.dst_offsets[p] = s->messages.src_offsets[p];
        s->messages.dst_bytes[p] = s->messages.src_bytes[p];
        s->messages.src_offsets[p] = 0;
    }
    for (int32_t p = 0; p < comm->nranks; p++)
        s->messages.src_bytes[p] = mine * elem;
    return chunk_move(comm, s, s->sum, args->dst + at * elem);
}

static ulyx_status_t
reduce_all(
    ulyx_comm_t *comm, const struct uli_reduce_args *args, struct scratch *s)
{
    int64_t slice = share_elements(comm, args) * comm->nranks;
    for (int64_t at = 0; at < args->count; at += slice)
        ULI_TRY(
            reduce_slice(comm, args, s, at, uli_min(slice, args->count - at)));
    return ULYX_SUCCESS;
}

/* ---- the call ------------------------------------------------------------ */

static ulyx_status_t
reduce_run(
    ulyx_comm_t *comm, const struct uli_reduce_args *args, struct scratch *s)
{
    switch (args->kind) {
    case ULI_ALLREDUCE:
        return reduce_all(comm, args, s);
    case ULI_ALLGATHER:
        return allgather_run(comm, args, s);
    default:
        return broadcast_run(comm, args, s);
    }
}

ulyx_status_t
uli_reduce_host(ulyx_comm_t *comm, const struct uli_reduce_args *args,
    ulyx_status_t outcome)
{
    struct scratch s;
    void *block = NULL;
    if (outcome == ULYX_SUCCESS) {
        block = scratch_allocate(comm, args, args->kind == ULI_ALLREDUCE, &s);
        if (!block)
            outcome = uli_error(ULYX_ERR_NO_MEMORY, "no memory to reduce");
    }
    ulyx_status_t status = reduce_agree(comm, args, block ? &s : NULL, outcome);
    if (status == ULYX_SUCCESS && args->count)
        status = reduce_run(comm, args, &s);
    free(block);
    return status;
}
