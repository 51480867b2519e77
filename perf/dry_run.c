/* SPDX-License-Identifier: Apache-2.0
 *
 * --dry-run: makes the plans of all ranks in this process and prints what a run
 * would move; nothing is moved, and no tensor is allocated.
 */
#include "run.h"

#include <stdio.h>
#include <stdlib.h>

#include "report/report.h"

static bool
dry_case(struct perf_run *run, const struct perf_case *one, int64_t seq,
    const char *algo)
{
    struct perf_shape shape;
    ulyx_plan_t **plans = calloc((size_t)run->nranks, sizeof(*plans));
    char text[1024];

    perf_shape_fill(&run->options, one, seq, run->nranks, &shape);
    shape.params.algo = algo[0] != 0 ? algo : NULL;
    ulyx_group_start();
    for (int r = 0; r < run->nranks; r++)
        ulyx_plan_create(run->comms[r], &shape.params, &plans[r]);
    if (ulyx_group_end() != ULYX_SUCCESS) {
        fprintf(stderr, "ulyx_perf: plan: %s\n", ulyx_last_error());
        free(plans);
        return false;
    }
    ulyx_plan_describe(plans[0], text, sizeof(text));
    printf("# %s %s, S %lld, %lld bytes per rank: %s\n", one->name,
        perf_direction_name(one->direction), (long long)seq,
        (long long)perf_shape_bytes(&run->options, one, seq, run->nranks),
        text);
    printf("# %6s %12s %8s %8s %14s %14s %14s\n", "rank", "rows", "heads", "kv",
        "sent (B)", "received (B)", "local (B)");
    for (int r = 0; r < run->nranks; r++) {
        ulyx_traffic_t traffic = ULYX_TRAFFIC_INIT;
        int64_t rows = 0, first, heads = 0, kv = 0;

        ulyx_plan_get_traffic(plans[r], one->direction, &traffic);
        ulyx_plan_get_seq_rows(plans[r], 0, r, &rows);
        ulyx_plan_get_heads(plans[r], 0, r, &first, &heads);
        if (shape.params.ntensors > 1)
            ulyx_plan_get_heads(plans[r], 1, r, &first, &kv);
        printf("  %6d %12lld %8lld %8lld %14lld %14lld %14lld\n", r,
            (long long)rows, (long long)heads, (long long)kv,
            (long long)traffic.sent_bytes, (long long)traffic.received_bytes,
            (long long)traffic.local_bytes);
    }
    for (int r = 0; r < run->nranks; r++)
        ulyx_plan_destroy(plans[r]);
    free(plans);
    return true;
}

int
perf_run_dry(struct perf_run *run)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    int procs = run->options.procs > 0 ? run->options.procs : 1;
    bool ok = true;

    run->nranks = procs * run->options.threads * run->options.ranks_per_thread;
    run->comms = calloc((size_t)run->nranks, sizeof(*run->comms));
    if (!run->comms || ulyx_comm_create_local(
                           run->nranks, &params, run->comms) != ULYX_SUCCESS) {
        fprintf(stderr, "ulyx_perf: communicator: %s\n", ulyx_last_error());
        return PERF_LIBRARY;
    }
    for (int c = 0; c < run->ncases; c++) {
        struct perf_sweep sweep = {0};

        while (ok && perf_sweep_next(run, &run->cases[c], INT64_MAX, &sweep))
            for (int a = 0; ok && a < run->options.nalgos; a++)
                ok =
                    dry_case(run, &sweep.one, sweep.seq, run->options.algos[a]);
    }
    for (int r = 0; r < run->nranks; r++)
        ulyx_comm_destroy(run->comms[r]);
    free(run->comms);
    return ok ? PERF_OK : PERF_LIBRARY;
}
