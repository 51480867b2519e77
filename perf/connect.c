/* SPDX-License-Identifier: Apache-2.0
 *
 * Communicators of this process's ranks: all made here, or, under a launcher,
 * one a process from its environment, by which several ranks a process then
 * learn the id of a communicator of all ranks.
 */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"

/* The id of the communicator of all ranks, from the processes' own one. */
static bool
share_id(ulyx_comm_t *processes, ulyx_unique_id_t *id_p)
{
    int64_t n = processes->nranks;
    ulyx_unique_id_t mine, *all = calloc((size_t)n, sizeof(*all));
    int64_t *bytes = calloc((size_t)n, sizeof(*bytes));
    ulyx_status_t *verdicts = calloc((size_t)n, sizeof(*verdicts));
    ulyx_status_t status = ULYX_SUCCESS;
    bool ok = all && bytes && verdicts;

    memset(&mine, 0, sizeof(mine));
    if (ok && processes->rank == 0)
        status = ulyx_unique_id_create(&mine);
    ok = ok &&
         uli_agree_gather(processes, ULI_CALL_BARRIER, status, &mine,
             sizeof(mine), sizeof(mine), all, bytes, verdicts,
             uli_deadline_in(processes->timeout_s)) == ULYX_SUCCESS &&
         verdicts[0] == ULYX_SUCCESS;
    if (ok)
        *id_p = all[0];
    free(all);
    free(bytes);
    free(verdicts);
    return ok;
}

/* A communicator of all ranks for a process that has `each` of them. */
static bool
spread(struct perf_run *run, ulyx_comm_t *processes, int each,
    const ulyx_comm_params_t *params)
{
    ulyx_unique_id_t id = {{0}};
    bool ok = share_id(processes, &id);

    ulyx_group_start();
    for (int i = 0; ok && i < each; i++)
        ok = ulyx_comm_create(&id, run->nranks, run->first_rank + i, params,
                 &run->comms[i]) == ULYX_SUCCESS;
    ok = ulyx_group_end() == ULYX_SUCCESS && ok;
    /* The id's root lives in rank 0's process, and all have met by here. */
    ok = ulyx_comm_barrier(processes) == ULYX_SUCCESS && ok;
    if (processes->rank == 0)
        ulyx_unique_id_destroy(&id);
    return ok;
}

static int
fail(struct perf_run *run, ulyx_status_t status)
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
    if (run->comms == NULL)
        return PERF_INTERNAL;
    if (run->launch.launcher == NULL) {
        run->nranks = each;
        status = ulyx_comm_create_local(each, &params, run->comms);
        return status == ULYX_SUCCESS ? PERF_OK : fail(run, status);
    }
    status = ulyx_comm_create_from_env(&params, &processes);
    if (status != ULYX_SUCCESS)
        return fail(run, status);
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
    ok = spread(run, processes, each, &params);
    ulyx_comm_destroy(processes);
    return ok ? PERF_OK : fail(run, ULYX_ERR_SYSTEM);
}
