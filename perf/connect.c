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

static bool
create_comms(struct perf_run *run)
{
    struct perf_options *o = &run->options;
    int each = o->threads * o->ranks_per_thread;
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_comm_t *processes = NULL;
    ulyx_unique_id_t id;
    ulyx_status_t status;
    bool ok;

    params.timeout_s = o->timeout_s;
    params.name = "ulyx_perf";
    run->comms = calloc((size_t)each, sizeof(*run->comms));
    if (run->comms == NULL)
        return false;
    if (!perf_launch_was()) {
        run->nranks = each;
        return ulyx_comm_create_local(each, &params, run->comms) ==
               ULYX_SUCCESS;
    }
    status = ulyx_comm_create_from_env(&params, &processes);
    if (status != ULYX_SUCCESS)
        return false;
    if (o->procs > 0 && o->procs != processes->nranks) {
        fprintf(stderr,
            "ulyx_perf: --procs %d, but the launcher has started %d\n",
            o->procs, processes->nranks);
        ulyx_comm_destroy(processes);
        return false;
    }
    run->nranks = processes->nranks * each;
    run->first_rank = processes->rank * each;
    if (each == 1) {
        run->comms[0] = processes;
        return true;
    }
    ok = share_id(processes, &id);
    ulyx_group_start();
    for (int i = 0; ok && i < each; i++)
        ok = ulyx_comm_create(&id, run->nranks, run->first_rank + i, &params,
                 &run->comms[i]) == ULYX_SUCCESS;
    ok = ulyx_group_end() == ULYX_SUCCESS && ok;
    /* The id's root thread lives in rank 0's process until all have met. */
    ok = ulyx_comm_barrier(processes) == ULYX_SUCCESS && ok;
    ulyx_comm_destroy(processes);
    return ok;
}

int
perf_run_connect(struct perf_run *run)
{
    if (create_comms(run))
        return PERF_OK;
    if (ulyx_last_error()[0] == 0)
        return PERF_USAGE;
    fprintf(stderr, "ulyx_perf: communicator: %s\n", ulyx_last_error());
    return strstr(ulyx_last_error(), "did not come") ? PERF_TIMEOUT
                                                     : PERF_LIBRARY;
}
