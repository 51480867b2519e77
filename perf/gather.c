/* SPDX-License-Identifier: Apache-2.0
 *
 * Communication of the tool itself over the control path of the communicator: a
 * barrier, and a gather of records. For a thread that drives several ranks, the
 * gather runs on one thread per rank.
 */
#include "perf.h"

#include <pthread.h>
#include <stdlib.h>

#include "comm/comm.h"

bool
perf_barrier(struct perf_rank *ranks, int count)
{
    if (count == 1)
        return ulyx_comm_barrier(ranks[0].comm) == ULYX_SUCCESS;
    ulyx_group_start();
    for (int i = 0; i < count; i++)
        ulyx_comm_barrier(ranks[i].comm);
    return ulyx_group_end() == ULYX_SUCCESS;
}

struct gathering {
    ulyx_comm_t *comm;
    const void *mine;
    size_t bytes;
    void *all;
    pthread_t thread;
    bool started, ok;
};

static void *
gather_main(void *context)
{
    struct gathering *g = context;
    size_t nranks = (size_t)g->comm->nranks;
    int64_t *bytes = calloc(nranks, sizeof(*bytes));
    ulyx_status_t *outcomes = calloc(nranks, sizeof(*outcomes));

    const struct uli_gather gather = {.call = ULI_CALL_BARRIER,
        .mine = g->mine,
        .bytes = (int64_t)g->bytes,
        .max_bytes = (int64_t)g->bytes,
        .all_p = g->all,
        .bytes_p = bytes,
        .status_p = outcomes,
        .deadline = uli_deadline_in(g->comm->timeout_s)};
    if (bytes && outcomes)
        g->ok = uli_agree_gather(g->comm, &gather) == ULYX_SUCCESS;
    free(bytes);
    free(outcomes);
    return NULL;
}

bool
perf_gather(struct perf_rank *ranks, int count, const void *mine, size_t bytes,
    void *all)
{
    size_t room = (size_t)ranks[0].nranks * bytes;
    struct gathering *each = calloc((size_t)count, sizeof(*each));
    unsigned char *spare = calloc((size_t)count, room);
    bool ok = each && spare;

    for (int i = 0; ok && i < count; i++) {
        each[i] = (struct gathering){.comm = ranks[i].comm,
            .mine = (const unsigned char *)mine + (size_t)i * bytes,
            .bytes = bytes,
            .all = i == 0 ? all : spare + (size_t)i * room};
        each[i].started = i > 0 && pthread_create(&each[i].thread, NULL,
                                       gather_main, &each[i]) == 0;
    }
    if (ok)
        gather_main(&each[0]);
    for (int i = 0; each && i < count; i++) {
        if (each[i].started)
            pthread_join(each[i].thread, NULL);
        ok = ok && each[i].ok;
    }
    free(each);
    free(spare);
    return ok;
}
