/* SPDX-License-Identifier: Apache-2.0
 *
 * The comparators with MPI. One does what frameworks do: pack the message to
 * each peer, MPI_Alltoall (MPI_Alltoallv where sizes differ), unpack. The other
 * is MPI_Alltoallw with derived types from tensor to tensor, which is MPI's own
 * way to express the exchange. Built only into ulyx_perf_mpi, which runs under
 * mpirun.
 */
#include "perf.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef ULYX_PERF_MPI
#include <mpi.h>

struct mpi_state {
    int nranks;
    bool even;
    struct perf_boxes *from;       /* [nranks] what each rank sends here */
    unsigned char *send, *receive; /* packed messages */
    unsigned char *dst;            /* destination sets of the comparators */
    int *send_bytes, *send_at, *receive_bytes, *receive_at;
    int *ones, *zeros;
    MPI_Datatype *send_types, *receive_types;
};

bool
perf_mpi_available(void)
{
    return true;
}

static struct uli_box_span
box_span(const struct uli_box *box)
{
    return (struct uli_box_span){
        0, box->extent[0] * box->extent[1] * box->extent[2]};
}

/* A strided type for one side of a box, relative to the box's offset. */
static MPI_Datatype
box_type(const struct uli_box *box, bool source)
{
    const int64_t *stride = source ? box->src_stride : box->dst_stride;
    MPI_Datatype type, outer;

    MPI_Type_contiguous((int)box->run_bytes, MPI_BYTE, &type);
    for (int d = 2; d >= 0; d--) {
        MPI_Type_create_hvector(
            (int)box->extent[d], 1, (MPI_Aint)stride[d], type, &outer);
        MPI_Type_free(&type);
        type = outer;
    }
    return type;
}

/* One type for all boxes of a peer, relative to the begin of a set. */
static MPI_Datatype
peer_type(const struct perf_boxes *boxes, const int64_t *offsets, bool source)
{
    int n = (int)boxes->count;
    MPI_Datatype *types = calloc((size_t)n + 1, sizeof(*types)), all;
    MPI_Aint *at = calloc((size_t)n + 1, sizeof(*at));
    int *ones = calloc((size_t)n + 1, sizeof(*ones));

    for (int i = 0; i < n; i++) {
        const struct uli_box *box = &boxes->boxes[i];

        types[i] = box_type(box, source);
        at[i] = (MPI_Aint)(offsets[boxes->tensors[i]] +
                           (source ? box->src_offset : box->dst_offset));
        ones[i] = 1;
    }
    MPI_Type_create_struct(n, ones, at, types, &all);
    MPI_Type_commit(&all);
    for (int i = 0; i < n; i++)
        MPI_Type_free(&types[i]);
    free(types);
    free(at);
    free(ones);
    return all;
}

static bool
count_bytes(struct perf_rank *rank, struct mpi_state *s)
{
    int64_t send = 0, receive = 0, first = rank->to[0].bytes;

    s->even = true;
    for (int p = 0; p < s->nranks; p++) {
        if (!perf_boxes_make(
                rank->layout, rank->direction, rank->rank, p, &s->from[p]))
            return false;
        s->even =
            s->even && rank->to[p].bytes == first && s->from[p].bytes == first;
        s->send_bytes[p] = (int)rank->to[p].bytes;
        s->receive_bytes[p] = (int)s->from[p].bytes;
        s->send_at[p] = (int)send;
        s->receive_at[p] = (int)receive;
        s->ones[p] = 1;
        send += rank->to[p].bytes;
        receive += s->from[p].bytes;
    }
    if (send > INT_MAX || receive > INT_MAX) {
        fprintf(stderr,
            "ulyx_perf: --vs mpi: %lld bytes per rank are more than MPI's int "
            "counts hold\n",
            (long long)(send > receive ? send : receive));
        return false;
    }
    s->send = malloc((size_t)send + 1);
    s->receive = malloc((size_t)receive + 1);
    return s->send && s->receive;
}

bool
perf_mpi_open(struct perf_rank *rank)
{
    struct mpi_state *s = calloc(1, sizeof(*s));
    size_t n = (size_t)rank->nranks;
    int even, mine;

    if (!s)
        return false;
    rank->mpi = s;
    s->nranks = rank->nranks;
    s->from = calloc(n, sizeof(*s->from));
    s->send_bytes = calloc(6 * n, sizeof(int));
    s->send_types = calloc(2 * n, sizeof(MPI_Datatype));
    s->dst = malloc((size_t)(rank->dst.set_bytes * rank->sets));
    if (!s->from || !s->send_bytes || !s->send_types || !s->dst)
        return false;
    s->send_at = s->send_bytes + n;
    s->receive_bytes = s->send_at + n;
    s->receive_at = s->receive_bytes + n;
    s->ones = s->receive_at + n;
    s->zeros = s->ones + n;
    s->receive_types = s->send_types + n;
    if (!count_bytes(rank, s))
        return false;
    mine = s->even;
    MPI_Allreduce(&mine, &even, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    s->even = even != 0;
    for (int p = 0; p < s->nranks; p++) {
        s->send_types[p] = peer_type(&rank->to[p], rank->src.offset, true);
        s->receive_types[p] = peer_type(&s->from[p], rank->dst.offset, false);
    }
    return true;
}

void
perf_mpi_close(struct perf_rank *rank)
{
    struct mpi_state *s = rank->mpi;

    if (!s)
        return;
    for (int p = 0; p < s->nranks; p++) {
        if (s->from)
            perf_boxes_free(&s->from[p]);
        if (s->receive_types) {
            MPI_Type_free(&s->send_types[p]);
            MPI_Type_free(&s->receive_types[p]);
        }
    }
    free(s->from);
    free(s->send_bytes);
    free(s->send_types);
    free(s->send);
    free(s->receive);
    free(s->dst);
    free(s);
    rank->mpi = NULL;
}

static unsigned char *
dst_set(const struct perf_rank *rank, const struct mpi_state *s)
{
    return s->dst + (int64_t)rank->turn * rank->dst.set_bytes;
}

static unsigned char *
src_set(const struct perf_rank *rank)
{
    return rank->src.base + (int64_t)rank->turn * rank->src.set_bytes;
}

/* The way in which ulyx copies the box, but without streaming stores, because
 * packed memory is read again at once. */
static struct uli_copy_way
packing_way(const struct uli_box *box)
{
    const struct uli_copy_call call =
        uli_copy_call_of(uli_copy_defaults(), uli_box_bytes(box));
    struct uli_copy_way way = uli_copy_way_of(&call, box);

    way.stream = false;
    return way;
}

static void
pack_all(const struct perf_rank *rank, struct mpi_state *s)
{
    const unsigned char *src = src_set(rank);

    for (int p = 0; p < s->nranks; p++) {
        unsigned char *at = s->send + s->send_at[p];

        for (int64_t i = 0; i < rank->to[p].count; i++) {
            const struct uli_box *box = &rank->to[p].boxes[i];
            const struct uli_copy_way way = packing_way(box);

            uli_box_pack(box, box_span(box), at,
                src + rank->src.offset[rank->to[p].tensors[i]], &way);
            at += uli_box_bytes(box);
        }
    }
}

static void
unpack_all(const struct perf_rank *rank, struct mpi_state *s)
{
    for (int p = 0; p < s->nranks; p++) {
        const unsigned char *at = s->receive + s->receive_at[p];

        for (int64_t i = 0; i < s->from[p].count; i++) {
            const struct uli_box *box = &s->from[p].boxes[i];
            const struct uli_copy_way way = packing_way(box);

            uli_box_unpack(box, box_span(box),
                dst_set(rank, s) + rank->dst.offset[s->from[p].tensors[i]], at,
                &way);
            at += uli_box_bytes(box);
        }
    }
}

bool
perf_run_mpi(struct perf_rank *rank, int count_ranks, int count, int typed)
{
    struct mpi_state *s = rank->mpi;
    int code = MPI_SUCCESS;

    (void)count_ranks;
    for (int i = 0; i < count && code == MPI_SUCCESS; i++) {
        if (typed) {
            code = MPI_Alltoallw(src_set(rank), s->ones, s->zeros,
                s->send_types, dst_set(rank, s), s->ones, s->zeros,
                s->receive_types, MPI_COMM_WORLD);
        } else {
            pack_all(rank, s);
            code = s->even ? MPI_Alltoall(s->send, s->send_bytes[0], MPI_BYTE,
                                 s->receive, s->receive_bytes[0], MPI_BYTE,
                                 MPI_COMM_WORLD)
                           : MPI_Alltoallv(s->send, s->send_bytes, s->send_at,
                                 MPI_BYTE, s->receive, s->receive_bytes,
                                 s->receive_at, MPI_BYTE, MPI_COMM_WORLD);
            unpack_all(rank, s);
        }
        rank->turn = (rank->turn + 1) % rank->sets;
    }
    return code == MPI_SUCCESS;
}

#else

bool
perf_mpi_available(void)
{
    return false;
}

bool
perf_mpi_open(struct perf_rank *rank)
{
    (void)rank;
    return true;
}

void
perf_mpi_close(struct perf_rank *rank)
{
    (void)rank;
}

bool
perf_run_mpi(struct perf_rank *rank, int count_ranks, int count, int typed)
{
    (void)rank;
    (void)count_ranks;
    (void)count;
    (void)typed;
    return false;
}
#endif
