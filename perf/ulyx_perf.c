/* SPDX-License-Identifier: Apache-2.0
 *
 * The driver: which cases, which sizes, which ranks, and the exit code.
 */
#include "perf.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef ULYX_PERF_MPI
#include <mpi.h>
#endif

#include "comm/comm.h"

enum { MAX_CASES = 64 };

struct run {
    struct perf_options options;
    struct perf_case cases[MAX_CASES];
    int ncases, argc;
    char **argv;
    int32_t nranks, first_rank; /* of all, and this process's first */
    ulyx_comm_t **comms;        /* [threads * ranks_per_thread] */
    struct perf_report *report; /* at rank 0's process */
    int64_t wrong;              /* by rank 0's thread */
};

struct thread {
    struct run *run;
    struct perf_rank *ranks;
    pthread_t id;
    int code;
};

static void
add_cases(struct run *run, const char *name, int64_t heads, int64_t kv_heads,
    int64_t dim_qk, int64_t dim_v)
{
    for (int op = 0; op < ULYX_OPERATIONS && run->ncases < MAX_CASES; op++) {
        struct perf_case *one = &run->cases[run->ncases];

        if ((run->options.operations >> op & 1) == 0)
            continue;
        *one = (struct perf_case){.heads = heads,
            .kv_heads = kv_heads,
            .dim_qk = dim_qk,
            .dim_v = dim_v,
            .operation = op};
        snprintf(one->name, sizeof(one->name), "%s", name);
        run->ncases++;
    }
}

static bool
choose_cases(struct run *run)
{
    const struct perf_options *o = &run->options;
    const char *at = o->model;
    int count;
    const struct perf_model *models = perf_models(&count);

    if (at == NULL) {
        add_cases(run, "shape", o->heads, o->kv_heads, o->dim, o->dim_v);
        return true;
    }
    for (int i = 0; strcmp(at, "all") == 0 && i < count; i++)
        add_cases(run, models[i].name, models[i].heads, models[i].kv_heads,
            models[i].dim_qk, models[i].dim_v);
    while (strcmp(o->model, "all") != 0 && *at != 0) {
        char name[64];
        size_t length = strcspn(at, ",");
        const struct perf_model *model;

        snprintf(name, sizeof(name), "%.*s", (int)length, at);
        model = perf_model_find(name);
        if (model == NULL) {
            fprintf(
                stderr, "ulyx_perf: --model %s is unknown; see --help\n", name);
            return false;
        }
        add_cases(run, name, model->heads, model->kv_heads, model->dim_qk,
            model->dim_v);
        at += length + (at[length] == ',');
    }
    return true;
}

/* S of the i-th row of a case, or 0 after the last. */
static int64_t
row_seq(const struct run *run, const struct perf_case *one, int i)
{
    const struct perf_options *o = &run->options;
    double bytes = (double)o->min_bytes;

    if (o->seq > 0)
        return i == 0 ? o->seq : 0;
    for (int k = 0; k < i; k++)
        bytes = o->step_factor > 0 ? bytes * o->step_factor
                                   : bytes + (double)o->step_bytes;
    if (bytes > (double)o->max_bytes + 0.5)
        return 0;
    return perf_shape_seq(o, one, (int64_t)bytes, run->nranks);
}

static int
count_rows(const struct run *run)
{
    int rows = 0;

    for (int c = 0; c < run->ncases; c++)
        for (int i = 0; row_seq(run, &run->cases[c], i) > 0; i++)
            rows++;
    return rows;
}

static bool
create_plans(struct perf_rank *ranks, int count, struct perf_shape *shape)
{
    ulyx_status_t status = ULYX_SUCCESS, end;

    ulyx_group_start();
    for (int r = 0; r < count && status == ULYX_SUCCESS; r++)
        status =
            ulyx_plan_create(ranks[r].comm, &shape->params, &ranks[r].plan);
    end = ulyx_group_end();
    if (status == ULYX_SUCCESS && end == ULYX_SUCCESS)
        return true;
    fprintf(stderr, "ulyx_perf: plan: %s\n", ulyx_last_error());
    return false;
}

static int
one_row(struct thread *thread, const struct perf_case *one, int64_t seq)
{
    struct run *run = thread->run;
    int count = run->options.ranks_per_thread, code = PERF_LIBRARY;
    struct perf_shape shape;
    struct perf_row row = {.one = one, .seq = seq, .type = run->options.dtype};
    bool ok;

    perf_shape_fill(&run->options, one, seq, run->nranks, &shape);
    for (int r = 0; r < count; r++) {
        thread->ranks[r].shape = &shape;
        thread->ranks[r].operation = one->operation;
    }
    ok = create_plans(thread->ranks, count, &shape);
    for (int r = 0; r < count && ok; r++)
        ok = perf_rank_open(&thread->ranks[r], &run->options);
    if (ok)
        code = perf_measure(thread->ranks, count, &run->options, &row);
    if (code == PERF_OK && thread->ranks[0].rank == 0) {
        int64_t element = shape.internal.tensors[0].elem_bytes;

        row.count = row.size_bytes / element;
        perf_report_row(run->report, &row);
        run->wrong += row.wrong > 0 ? row.wrong : 0;
    }
    for (int r = 0; r < count; r++)
        perf_rank_close(&thread->ranks[r]);
    return code;
}

static void *
thread_main(void *context)
{
    struct thread *thread = context;
    struct run *run = thread->run;
    int rows = count_rows(run), cycles = run->options.cycles, done = 0;

    for (int cycle = 0; cycles == 0 || cycle < cycles; cycle++)
        for (int c = 0; c < run->ncases; c++)
            for (int i = 0;; i++) {
                int64_t seq = row_seq(run, &run->cases[c], i);

                if (seq == 0)
                    break;
                if (thread->ranks[0].rank == 0)
                    perf_report_progress(run->report, done++, rows * cycles);
                thread->code = one_row(thread, &run->cases[c], seq);
                if (thread->code != PERF_OK)
                    return NULL;
            }
    return NULL;
}

static int
run_threads(struct run *run)
{
    int threads = run->options.threads, each = run->options.ranks_per_thread;
    struct thread *all = calloc((size_t)threads, sizeof(*all));
    struct perf_rank *ranks =
        calloc((size_t)threads * (size_t)each, sizeof(*ranks));
    int worst = PERF_OK;

    if (all == NULL || ranks == NULL)
        return PERF_INTERNAL;
    for (int i = 0; i < threads * each; i++) {
        ranks[i].rank = run->first_rank + i;
        ranks[i].nranks = run->nranks;
        ranks[i].comm = run->comms[i];
    }
    for (int t = 0; t < threads; t++) {
        all[t] = (struct thread){.run = run, .ranks = &ranks[t * each]};
        if (t > 0 && pthread_create(&all[t].id, NULL, thread_main, &all[t]))
            return PERF_INTERNAL;
    }
    thread_main(&all[0]);
    for (int t = 0; t < threads; t++) {
        if (t > 0)
            pthread_join(all[t].id, NULL);
        worst = all[t].code > worst ? all[t].code : worst;
    }
    free(all);
    free(ranks);
    return worst;
}

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
create_comms(struct run *run)
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
    if (!perf_launch_needed(o) && getenv("ULYX_RANK") == NULL &&
        o->procs <= 1 && !o->vs[PERF_VS_MPI] &&
        getenv("OMPI_COMM_WORLD_SIZE") == NULL && getenv("PMI_SIZE") == NULL &&
        getenv("WORLD_SIZE") == NULL) {
        run->nranks = each;
        return ulyx_comm_create_local(each, &params, run->comms) ==
               ULYX_SUCCESS;
    }
    status = ulyx_comm_create_from_env(&params, &processes);
    if (status != ULYX_SUCCESS)
        return false;
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

static void
dry_case(struct run *run, const struct perf_case *one, int64_t seq)
{
    struct perf_shape shape;
    ulyx_plan_t **plans = calloc((size_t)run->nranks, sizeof(*plans));
    char text[1024];

    perf_shape_fill(&run->options, one, seq, run->nranks, &shape);
    ulyx_group_start();
    for (int r = 0; r < run->nranks; r++)
        ulyx_plan_create(run->comms[r], &shape.params, &plans[r]);
    if (ulyx_group_end() != ULYX_SUCCESS) {
        fprintf(stderr, "ulyx_perf: plan: %s\n", ulyx_last_error());
        free(plans);
        return;
    }
    ulyx_plan_describe(plans[0], text, sizeof(text));
    printf("%s S %lld: %s\n", one->name, (long long)seq, text);
    printf("  %6s %12s %8s %8s %14s %14s %14s\n", "rank", "rows", "heads", "kv",
        "sent (B)", "received (B)", "local (B)");
    for (int r = 0; r < run->nranks; r++) {
        ulyx_traffic_t traffic = ULYX_TRAFFIC_INIT;
        int64_t rows = 0, first, heads = 0, kv = 0;

        ulyx_plan_get_traffic(plans[r], one->operation, &traffic);
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
}

static int
dry_run(struct run *run)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    int procs = run->options.procs > 0 ? run->options.procs : 1;

    run->nranks = procs * run->options.threads * run->options.ranks_per_thread;
    run->comms = calloc((size_t)run->nranks, sizeof(*run->comms));
    if (run->comms == NULL || ulyx_comm_create_local(run->nranks, &params,
                                  run->comms) != ULYX_SUCCESS)
        return PERF_LIBRARY;
    for (int c = 0; c < run->ncases; c++)
        for (int i = 0; row_seq(run, &run->cases[c], i) > 0; i++)
            dry_case(run, &run->cases[c], row_seq(run, &run->cases[c], i));
    for (int r = 0; r < run->nranks; r++)
        ulyx_comm_destroy(run->comms[r]);
    free(run->comms);
    return PERF_OK;
}

/* nccl-tests' floor: fails when the average is under nine tenths of it. */
static bool
under_floor(const struct perf_report *report)
{
    const char *text = getenv("ULYX_PERF_MIN_BW");

    return text != NULL && perf_report_average(report) < 0.9 * atof(text);
}

static int
measure(struct run *run)
{
    int code;

    if (!create_comms(run)) {
        fprintf(stderr, "ulyx_perf: communicator: %s\n", ulyx_last_error());
        return strstr(ulyx_last_error(), "did not come") ? PERF_TIMEOUT
                                                         : PERF_LIBRARY;
    }
    if (run->first_rank == 0) {
        run->report =
            perf_report_open(&run->options, run->nranks, run->argc, run->argv);
        if (run->report == NULL)
            return PERF_INTERNAL;
    }
    code = run_threads(run);
    for (int i = 0; i < run->options.threads * run->options.ranks_per_thread;
         i++) {
        ulyx_status_t state = ULYX_SUCCESS;

        ulyx_comm_get_async_error(run->comms[i], &state);
        if (state == ULYX_ERR_TIMEOUT)
            code = PERF_TIMEOUT;
        ulyx_comm_destroy(run->comms[i]);
    }
    free(run->comms);
    if (run->report == NULL)
        return code;
    if (code == PERF_OK && (run->wrong > 0 || under_floor(run->report)))
        code = PERF_WRONG_DATA;
    return perf_report_close(run->report, run->wrong) ? code : PERF_INTERNAL;
}

int
main(int argc, char **argv)
{
    static struct run run;
    int code;

    run.argc = argc;
    run.argv = argv;
    if (!perf_options_parse(argc, argv, &run.options, &code))
        return code;
    if (!choose_cases(&run))
        return PERF_USAGE;
    if (run.options.dry_run)
        return dry_run(&run);
    if (perf_launch_needed(&run.options))
        return perf_launch(&run.options, argc, argv);
    if (run.options.vs[PERF_VS_MPI] && !perf_mpi_available()) {
        fprintf(stderr, "ulyx_perf: --vs mpi: start ulyx_perf_mpi\n");
        return PERF_USAGE;
    }
#ifdef ULYX_PERF_MPI
    MPI_Init(&argc, &argv);
#endif
    code = measure(&run);
#ifdef ULYX_PERF_MPI
    MPI_Finalize();
#endif
    return code;
}
