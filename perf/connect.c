/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the communicators of this process's ranks. Without a launcher, all
 * ranks are in this process. Under a launcher, the processes make a
 * communicator from their environment, in which each process is one rank. Where
 * a process has several ranks, the processes use this communicator to make the
 * communicator of all ranks.
 */
#include "run.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"

/* ---- several ranks per process ------------------------------------------- */

/* An allgather of all ranks over the communicator of the processes: the last
 * rank of this process to arrive gathers for all ranks of the process. */
struct allgather {
    ulyx_comm_t *processes;
    int each, arrived; /* ranks per process; those in this round */
    uint64_t round;    /* gathers completed */
    bool ok;           /* of the last gather */
    unsigned char *mine, *all;
    pthread_mutex_t lock;
    pthread_cond_t done;
    struct timespec deadline;
};

struct member {
    struct allgather *allgather;
    int number; /* of the rank within this process */
};

static bool
allgather_processes(struct allgather *m, size_t bytes)
{
    size_t n = (size_t)m->processes->nranks, each = (size_t)m->each * bytes;
    int64_t *counts = calloc(n, sizeof(*counts));
    ulyx_status_t *outcomes = calloc(n, sizeof(*outcomes));
    unsigned char *all = realloc(m->all, n * each + 1);
    bool ok = counts && outcomes && all;

    m->all = all ? all : m->all;
    const struct uli_gather gather = {.call = ULI_CALL_BARRIER,
        .mine = m->mine,
        .bytes = (int64_t)each,
        .max_bytes = (int64_t)each,
        .all_p = m->all,
        .bytes_p = counts,
        .status_p = outcomes,
        .deadline = uli_deadline_in(m->processes->timeout_s)};
    ok = ok && uli_agree_gather(m->processes, &gather) == ULYX_SUCCESS;
    free(counts);
    free(outcomes);
    return ok;
}

/* A ulyx_allgather_fn. The result in m->all is not overwritten too early: the
 * next gather begins only when all ranks of the process have called again,
 * hence have copied the result of this one. */
static int
allgather_ranks(void *context, const void *mine, void *all_p, size_t bytes)
{
    const struct member *member = context;
    struct allgather *m = member->allgather;
    size_t nranks = (size_t)m->processes->nranks * (size_t)m->each;
    bool ok;

    pthread_mutex_lock(&m->lock);
    const uint64_t round = m->round;
    unsigned char *grown = realloc(m->mine, (size_t)m->each * bytes + 1);
    ok = grown != NULL;
    m->mine = ok ? grown : m->mine;
    if (ok)
        memcpy(m->mine + (size_t)member->number * bytes, mine, bytes);
    if (ok && ++m->arrived == m->each) {
        m->arrived = 0;
        m->ok = allgather_processes(m, bytes);
        m->round++;
        pthread_cond_broadcast(&m->done);
    }
    while (ok && m->round == round)
        ok = pthread_cond_timedwait(&m->done, &m->lock, &m->deadline) == 0;
    ok = ok && m->ok;
    if (ok)
        memcpy(all_p, m->all, nranks * bytes);
    pthread_mutex_unlock(&m->lock);
    return ok ? 0 : 1;
}

/* Makes the communicator of all ranks; each process has `each` ranks. */
static bool
comms_spread(struct perf_run *run, ulyx_comm_t *processes, int each,
    const ulyx_comm_params_t *params)
{
    struct allgather all = {.processes = processes,
        .each = each,
        .lock = PTHREAD_MUTEX_INITIALIZER,
        .done = PTHREAD_COND_INITIALIZER};
    struct member *members = calloc((size_t)each, sizeof(*members));
    bool ok = members != NULL;

    clock_gettime(CLOCK_REALTIME, &all.deadline);
    all.deadline.tv_sec += (time_t)processes->timeout_s + 1;
    ulyx_group_start();
    for (int i = 0; ok && i < each; i++) {
        members[i] = (struct member){&all, i};
        ok = ulyx_comm_create_from_allgather(allgather_ranks, &members[i],
                 run->nranks, run->first_rank + i, params,
                 &run->comms[i]) == ULYX_SUCCESS;
    }
    ok = ulyx_group_end() == ULYX_SUCCESS && ok;
    free(members);
    free(all.mine);
    free(all.all);
    return ok;
}

static int
run_fail(struct perf_run *run, ulyx_status_t status)
{
    fprintf(stderr, "ulyx_perf: communicator: %s\n", ulyx_last_error());
    free(run->comms);
    return status == ULYX_ERR_TIMEOUT ? PERF_TIMEOUT : PERF_LIBRARY;
}

int
perf_run_connect(struct perf_run *run)
{
    struct perf_options *o = &run->options;
    int each = o->threads * o->ranks_per_thread;
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *processes = NULL;
    ulyx_status_t status;
    bool ok = true;

    params.timeout_s = o->timeout_s;
    params.name = "ulyx_perf";
    if (o->cuda)
        params.memory_kind = ULYX_MEMORY_CUDA;
    run->comms = calloc((size_t)each, sizeof(*run->comms));
    if (!run->comms)
        return PERF_INTERNAL;
    if (!run->launch.launcher) {
        run->nranks = each;
        status = ulyx_comm_create_local(each, &params, run->comms);
        return status == ULYX_SUCCESS ? PERF_OK : run_fail(run, status);
    }
    status = ulyx_comm_create_from_env(&params, &processes);
    if (status != ULYX_SUCCESS)
        return run_fail(run, status);
    run->nranks = processes->nranks * each;
    run->first_rank = processes->rank * each;
    if (o->procs > 0 && o->procs != processes->nranks) {
        fprintf(stderr,
            "ulyx_perf: --procs %d, but the launcher has started %d\n",
            o->procs, processes->nranks);
        free(run->comms);
        ulyx_comm_destroy(processes);
        return PERF_USAGE;
    }
    if (each == 1) {
        run->comms[0] = processes;
        return PERF_OK;
    }
    ok = comms_spread(run, processes, each, &params);
    ulyx_comm_destroy(processes);
    return ok ? PERF_OK : run_fail(run, ULYX_ERR_SYSTEM);
}
