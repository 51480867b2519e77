/* SPDX-License-Identifier: Apache-2.0
 *
 * Sum over ranks by two exchanges: each rank receives all parts of its P-th of
 * the values, adds them in rank order in double, rounds once, and sends the
 * result to all. 2 (P - 1) / P of the values leave each rank.
 */
#include "reduce.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Pieces of P ranks, in bytes. */
struct pieces {
    int32_t nranks, rank;
    int64_t width;                        /* bytes of a value */
    int64_t *mine_bytes, *mine_offsets;   /* this rank's piece, P times */
    int64_t *whole_bytes, *whole_offsets; /* everybody's piece */
    int64_t *zeros;
    char *parts; /* [P][this rank's piece] */
};

static void
pieces_free(struct pieces *p)
{
    free(p->mine_bytes);
    free(p->parts);
}

static int
pieces_create(struct pieces *p, ulyx_comm_t *comm, int64_t count, int64_t width)
{
    int64_t mine;
    size_t ranks;

    memset(p, 0, sizeof(*p));
    if (ulyx_comm_get_nranks(comm, &p->nranks) != ULYX_SUCCESS ||
        ulyx_comm_get_rank(comm, &p->rank) != ULYX_SUCCESS)
        return -1;
    ranks = (size_t)p->nranks;
    p->width = width;
    p->mine_bytes = calloc(5 * ranks, sizeof(int64_t));
    if (p->mine_bytes == NULL)
        return -1;
    p->mine_offsets = p->mine_bytes + ranks;
    p->whole_bytes = p->mine_offsets + ranks;
    p->whole_offsets = p->whole_bytes + ranks;
    p->zeros = p->whole_offsets + ranks;
    for (int32_t r = 0; r < p->nranks; r++) {
        int64_t begin = count * r / p->nranks,
                end = count * (r + 1) / p->nranks;

        p->whole_offsets[r] = begin * width;
        p->whole_bytes[r] = (end - begin) * width;
    }
    mine = p->whole_bytes[p->rank];
    for (int32_t r = 0; r < p->nranks; r++) {
        p->mine_bytes[r] = mine;
        p->mine_offsets[r] = mine * r;
    }
    p->parts = malloc((size_t)mine * ranks + 1);
    return p->parts == NULL ? -1 : 0;
}

/* The first part becomes the sum of all. */
static void
add_parts(const struct pieces *p)
{
    int64_t n = p->mine_bytes[0] / p->width;
    float *f32 = (float *)(void *)p->parts;
    double *f64 = (double *)(void *)p->parts;

    for (int64_t i = 0; i < n; i++) {
        double sum = 0;

        for (int32_t r = 0; r < p->nranks; r++)
            sum += p->width == 4 ? (double)f32[r * n + i] : f64[r * n + i];
        if (p->width == 4)
            f32[i] = (float)sum;
        else
            f64[i] = sum;
    }
}

int
reduce_sum(ulyx_comm_t *comm, ulyx_dtype_t dtype, int64_t count, void *values,
    int64_t *sent_p)
{
    struct pieces p;
    ulyx_status_t status = ULYX_ERR_NO_MEMORY;

    if (comm == NULL)
        return 0;
    if (pieces_create(&p, comm, count, ulyx_dtype_size(dtype)) == 0) {
        status = ulyx_alltoallv(comm, values, p.whole_bytes, p.whole_offsets,
            p.parts, p.mine_bytes, p.mine_offsets, NULL);
        if (status == ULYX_SUCCESS) {
            add_parts(&p);
            status = ulyx_alltoallv(comm, p.parts, p.mine_bytes, p.zeros,
                values, p.whole_bytes, p.whole_offsets, NULL);
        }
        *sent_p += count * p.width - p.mine_bytes[0] +
                   p.mine_bytes[0] * (p.nranks - 1);
    }
    pieces_free(&p);
    if (status == ULYX_SUCCESS)
        return 0;
    fprintf(stderr, "train_bytes: sum over ranks: %s\n", ulyx_last_error());
    return 3;
}
