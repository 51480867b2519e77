/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank of a communicator over hosts, from its environment, for
 * scripts/netns-suite.sh. Exchanges q, k and v back and forth and checks every
 * byte, until the calls are done or one fails:
 *
 *     hosts_rank CALLS [ROWS]
 *
 * Prints "rank R of P on N nodes: done" and ends with 0; or "rank R: STATUS
 * after T s of at most D: cause", T the time that the failing call took, and
 * ends with 3; with 4 where bytes are wrong.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/clock.h"
#include "comm/comm.h"
#include "ulyx/ulyx.h"

enum { HEADS = 8, KV_HEADS = 2, DIM = 32, TENSORS = 3 };

struct self {
    ulyx_comm_t *comm;
    ulyx_plan_t *plan;
    int32_t rank, nranks;
    int64_t rows;
    unsigned char *seq[TENSORS], *back[TENSORS], *head[TENSORS];
    size_t bytes[TENSORS], head_bytes[TENSORS];
    int64_t began_ns;
};

static int
report(const struct self *self, ulyx_status_t status)
{
    double spent = 1e-9 * (double)(uli_clock_ns() - self->began_ns);
    const char *timeout = getenv("ULYX_TIMEOUT");
    double most =
        self->comm ? self->comm->timeout_s : (timeout ? atof(timeout) : 600);
    const char *text = ulyx_last_error();
    printf("rank %d: %s after %.1f s of at most %.0f: %s\n", self->rank,
        ulyx_status_name(status), spent, most, text);
    fflush(stdout);
    return 3;
}

static int64_t
tensor_heads(int t)
{
    return t == 0 ? HEADS : KV_HEADS;
}

static ulyx_status_t
make_plan(struct self *self)
{
    ulyx_part_t part = ULYX_PART_INIT;
    ulyx_tensor_t tensors[TENSORS] = {
        ULYX_TENSOR_INIT, ULYX_TENSOR_INIT, ULYX_TENSOR_INIT};
    ulyx_plan_params_t params = ULYX_PLAN_PARAMS_INIT;
    part.rows = self->rows;
    for (int t = 0; t < TENSORS; t++) {
        tensors[t].heads = tensor_heads(t);
        tensors[t].dim = DIM;
        tensors[t].ownership = t == 0 ? ULYX_SPLIT : ULYX_READERS;
    }
    params.batch = 1;
    params.heads = HEADS;
    params.parts = &part;
    params.nparts = 1;
    params.tensors = tensors;
    params.ntensors = TENSORS;
    return ulyx_plan_create(self->comm, &params, &self->plan);
}

static ulyx_status_t
allocate(struct self *self)
{
    int64_t rows = 0;
    ulyx_status_t status =
        ulyx_plan_get_seq_rows(self->plan, 0, self->rank, &rows);
    for (int t = 0; t < TENSORS && status == ULYX_SUCCESS; t++) {
        int64_t first, heads = 0;
        status = ulyx_plan_get_heads(self->plan, t, self->rank, &first, &heads);
        self->bytes[t] = (size_t)(rows * tensor_heads(t) * DIM * 2);
        self->head_bytes[t] = (size_t)(self->rows * heads * DIM * 2);
        self->seq[t] = malloc(self->bytes[t] + 1);
        self->back[t] = malloc(self->bytes[t] + 1);
        self->head[t] = malloc(self->head_bytes[t] + 1);
        if (!self->seq[t] || !self->back[t] || !self->head[t])
            return ULYX_ERR_NO_MEMORY;
    }
    return status;
}

/* There and back: what comes is what went. */
static int
call(struct self *self, unsigned n)
{
    ulyx_status_t status;
    for (int t = 0; t < TENSORS; t++) {
        for (size_t i = 0; i < self->bytes[t]; i++)
            self->seq[t][i] =
                (unsigned char)(i * 7 + n + (size_t)self->rank + (size_t)t);
        memset(self->back[t], 0x5a, self->bytes[t]);
        memset(self->head[t], 0x5a, self->head_bytes[t]);
    }
    self->began_ns = uli_clock_ns();
    status = ulyx_reshuffle_execute(self->plan, ULYX_SEQ_TO_HEAD,
        (const void *const *)self->seq, (void *const *)self->head, NULL);
    if (status != ULYX_SUCCESS)
        return report(self, status);
    self->began_ns = uli_clock_ns();
    status = ulyx_reshuffle_execute(self->plan, ULYX_HEAD_TO_SEQ,
        (const void *const *)self->head, (void *const *)self->back, NULL);
    if (status != ULYX_SUCCESS)
        return report(self, status);
    for (int t = 0; t < TENSORS; t++)
        if (memcmp(self->seq[t], self->back[t], self->bytes[t]) != 0) {
            printf(
                "rank %d: tensor %d of call %u is wrong\n", self->rank, t, n);
            return 4;
        }
    return 0;
}

static int
run(struct self *self, unsigned calls)
{
    char text[1024];
    ulyx_status_t status;
    self->began_ns = uli_clock_ns();
    status = ulyx_comm_create_from_env(NULL, &self->comm);
    if (status == ULYX_SUCCESS) {
        ulyx_comm_get_rank(self->comm, &self->rank);
        ulyx_comm_get_nranks(self->comm, &self->nranks);
        status = make_plan(self);
    }
    if (status == ULYX_SUCCESS)
        status = allocate(self);
    if (status != ULYX_SUCCESS)
        return report(self, status);
    if (self->rank == 0 &&
        ulyx_plan_describe(self->plan, text, sizeof(text)) == ULYX_SUCCESS)
        printf("%s\n", text);
    for (unsigned n = 0; n < calls; n++) {
        int code = call(self, n);
        if (code != 0)
            return code;
        if (n == 0) {
            printf("rank %d has begun\n", self->rank);
            fflush(stdout);
        }
    }
    self->began_ns = uli_clock_ns();
    status = ulyx_plan_destroy(self->plan);
    self->plan = NULL;
    if (status == ULYX_SUCCESS)
        status = ulyx_comm_barrier(self->comm);
    if (status != ULYX_SUCCESS)
        return report(self, status);
    printf("rank %d of %d on %d nodes: done\n", self->rank, self->nranks,
        self->comm->nnodes);
    return 0;
}

int
main(int argc, char **argv)
{
    struct self self = {.rows = argc > 2 ? atoll(argv[2]) : 512};
    const char *rank = getenv("ULYX_RANK");
    self.rank = rank ? atoi(rank) : -1;
    int code = run(&self, argc > 1 ? (unsigned)atol(argv[1]) : 10);
    ulyx_plan_destroy(self.plan);
    ulyx_comm_destroy(self.comm);
    for (int t = 0; t < TENSORS; t++) {
        free(self.seq[t]);
        free(self.back[t]);
        free(self.head[t]);
    }
    return code;
}
