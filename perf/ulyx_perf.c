/* SPDX-License-Identifier: Apache-2.0
 *
 * The main program: threads, sizes, rows, and the exit code.
 */
#include "run.h"
#include "tune.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef ULYX_PERF_MPI
#include <mpi.h>
#endif

struct thread {
    struct perf_run *run;
    struct perf_rank *ranks;
    pthread_t id;
    int number, code;
    bool gone;            /* nobody reads rank 0's output: the run ends */
    int64_t memory_bytes; /* available, on the node with the least */
};

/* ---- the reader of standard output --------------------------------------- */

/* Unix tools end by SIGPIPE when the program that reads their output, such as
 * `head`, has ended. A rank that ended at once would be a lost rank to its
 * peers. So the handler only notes the signal, and all ranks end together
 * before the next row. Where the parent process has set SIGPIPE to be ignored,
 * no signal comes, and the program ends with an error instead. */
static volatile sig_atomic_t pipe_broken;

static void
pipe_note(int number)
{
    (void)number;
    pipe_broken = 1;
}

static void
pipe_watch(void)
{
    struct sigaction action = {.sa_handler = pipe_note, .sa_flags = SA_RESTART};
    struct sigaction before;

    if (sigaction(SIGPIPE, NULL, &before) == 0 && before.sa_handler == SIG_DFL)
        sigaction(SIGPIPE, &action, NULL);
}

static bool
reader_gone(void)
{
    return ferror(stdout) && pipe_broken;
}

/* Ends the process by SIGPIPE, as if the first write had. */
static void
end_by_pipe(void)
{
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
}

/* ---- rows ---------------------------------------------------------------- */

/* Makes a plan with the schedule `algo` on each rank of the thread; "": the
 * library chooses. */
static bool
create_plans(struct perf_rank *ranks, int count, const char *algo,
    const struct perf_shape *shape)
{
    ulyx_plan_params_t params = shape->params;
    ulyx_status_t status = ULYX_SUCCESS, end;

    params.algo = algo[0] != 0 ? algo : NULL;
    ulyx_group_start();
    for (int r = 0; r < count && status == ULYX_SUCCESS; r++)
        status = ulyx_plan_create(
            ranks[r].comm, &params, &ranks[r].plans[ranks[r].nplans]);
    end = ulyx_group_end();
    for (int r = 0; r < count; r++)
        ranks[r].nplans++;
    if (status == ULYX_SUCCESS && end == ULYX_SUCCESS)
        return true;
    fprintf(stderr, "ulyx_perf: plan: %s\n", ulyx_last_error());
    return false;
}

static bool
open_ranks(struct thread *thread, const struct perf_case *one,
    struct perf_shape *shape)
{
    const struct perf_options *options = &thread->run->options;
    int count = options->ranks_per_thread;
    bool ok = true;

    for (int r = 0; r < count; r++) {
        thread->ranks[r].shape = shape;
        thread->ranks[r].direction = one->direction;
    }
    for (int a = 0; ok && a < options->nalgos; a++)
        ok = create_plans(thread->ranks, count, options->algos[a], shape);
    for (int r = 0; r < count && ok; r++)
        ok = perf_rank_open(&thread->ranks[r], options);
    return ok && perf_peers_open(thread->ranks, count, options);
}

/* One size of one case: a row per schedule. */
static int
one_size(struct thread *thread, const struct perf_case *one, int64_t seq)
{
    struct perf_run *run = thread->run;
    int count = run->options.ranks_per_thread, code = PERF_LIBRARY;
    struct perf_shape shape;
    struct perf_row *rows = calloc(PERF_ALGOS, sizeof(*rows));

    if (!rows)
        return PERF_INTERNAL;
    for (int a = 0; a < run->options.nalgos; a++)
        rows[a] = (struct perf_row){.one = one, .seq = seq};
    perf_shape_fill(&run->options, one, seq, run->nranks, &shape);
    if (open_ranks(thread, one, &shape))
        code = perf_measure(thread->ranks, count, &run->options, rows);
    for (int a = 0; code == PERF_OK && thread->ranks[0].rank == 0 &&
                    a < run->options.nalgos;
         a++) {
        rows[a].count = rows[a].size_bytes / one->dtype.bytes;
        perf_report_row(run->report, &rows[a]);
    }
    for (int r = 0; r < count; r++)
        perf_rank_close(&thread->ranks[r]);
    free(rows);
    return code;
}

/* Gathers the places of all ranks; the thread of rank 0 prints the header. */
static bool
thread_introduce(struct thread *thread)
{
    struct perf_run *run = thread->run;
    int count = run->options.ranks_per_thread;
    size_t all_count = (size_t)run->nranks;
    struct perf_place *all = calloc(all_count, sizeof(*all));
    struct perf_place *mine = calloc((size_t)count, sizeof(*mine));
    bool ok = all && mine;

    for (int r = 0; ok && r < count; r++)
        perf_place_fill(&thread->ranks[r], thread->number, &mine[r]);
    ok = ok && perf_gather(thread->ranks, count, mine, sizeof(*mine), all);
    thread->memory_bytes = INT64_MAX;
    for (size_t p = 0; ok && p < all_count; p++)
        if (all[p].memory_bytes < thread->memory_bytes)
            thread->memory_bytes = all[p].memory_bytes;
    if (ok && thread->ranks[0].rank == 0)
        perf_report_begin(run->report, all);
    free(all);
    free(mine);
    return ok;
}

static void
note_left_out(const struct thread *thread, const struct perf_sweep *sweep)
{
    if (sweep->left_out_bytes > 0)
        perf_report_note(thread->run->report,
            "%s: sizes from %lld bytes per rank on are left out: %lld bytes of "
            "memory are available for all ranks together",
            sweep->one.name, (long long)sweep->left_out_bytes,
            (long long)thread->memory_bytes);
}

/* With --nccl-format, notes what would mislead a program that looks for rows by
 * size: sizes that are not as requested, and sizes with several rows. */
static void
note_sizes(const struct perf_run *run, int requested, int exact)
{
    int each = run->ncases * run->options.nalgos;

    if (!run->options.nccl_format)
        return;
    if (exact < requested)
        perf_report_note(run->report,
            "%d of %d sizes are not the requested ones: they are rounded to "
            "whole tokens, and equal sizes make one row",
            (requested - exact) / run->ncases, requested / run->ncases);
    if (each > 1)
        perf_report_note(run->report,
            "each size has %d rows, for the operations, models, types and "
            "schedules: a program that keeps one row per size loses the others",
            each);
}

/* The number of sizes of all cases. At rank 0, prints notes about sizes. */
static int
count_sizes(const struct thread *thread)
{
    const struct perf_run *run = thread->run;
    bool prints = thread->ranks[0].rank == 0;
    int sizes = 0, requested = 0, exact = 0;

    for (int c = 0; c < run->ncases; c++) {
        struct perf_sweep sweep = {0};

        while (
            perf_sweep_next(run, &run->cases[c], thread->memory_bytes, &sweep))
            sizes++;
        requested += sweep.requested;
        exact += sweep.exact;
        if (prints)
            note_left_out(thread, &sweep);
    }
    if (prints)
        note_sizes(run, requested, exact);
    return sizes;
}

/* Sets thread->gone, alike on all ranks, where rank 0's output has no reader
 * any more. */
static void
ask_reader(struct thread *thread)
{
    size_t nranks = (size_t)thread->run->nranks;
    size_t count = (size_t)thread->run->options.ranks_per_thread;
    bool prints = thread->ranks[0].rank == 0;
    bool *all = calloc(nranks, sizeof(*all));
    bool *mine = calloc(count, sizeof(*mine));

    if (mine)
        mine[0] = prints && reader_gone();
    if (all && mine &&
        perf_gather(thread->ranks, (int)count, mine, sizeof(*mine), all)) {
        thread->gone = all[0];
        thread->code = thread->gone && prints ? PERF_CLOSED : PERF_OK;
    } else {
        fprintf(stderr, "ulyx_perf: %s\n", ulyx_last_error());
        thread->code = PERF_LIBRARY;
    }
    free(all);
    free(mine);
}

static void
run_cases(struct thread *thread, int sizes, int *done)
{
    struct perf_run *run = thread->run;

    for (int c = 0; c < run->ncases; c++) {
        struct perf_sweep sweep = {0};

        while (perf_sweep_next(
            run, &run->cases[c], thread->memory_bytes, &sweep)) {
            ask_reader(thread);
            if (thread->code != PERF_OK || thread->gone)
                return;
            if (thread->ranks[0].rank == 0)
                perf_report_progress(
                    run->report, (*done)++, sizes * run->options.cycles);
            thread->code = one_size(thread, &sweep.one, sweep.seq);
            if (thread->code != PERF_OK)
                return;
        }
    }
}

static void *
thread_main(void *context)
{
    struct thread *thread = context;
    int cycles = thread->run->options.cycles, done = 0, sizes;

    if (thread->run->options.tune) {
        thread->code = perf_tune(&thread->run->options, thread->ranks);
        return NULL;
    }
    if (!thread_introduce(thread)) {
        fprintf(stderr, "ulyx_perf: %s\n", ulyx_last_error());
        thread->code = PERF_LIBRARY;
        return NULL;
    }
    sizes = count_sizes(thread);
    if (sizes == 0)
        thread->code = PERF_USAGE; /* note_left_out has printed the reason */
    for (int n = 0; (cycles == 0 || n < cycles) && thread->code == PERF_OK &&
                    !thread->gone;
         n++)
        run_cases(thread, sizes, &done);
    return NULL;
}

static int
run_threads(struct perf_run *run)
{
    int threads = run->options.threads, each = run->options.ranks_per_thread;
    struct thread *all = calloc((size_t)threads, sizeof(*all));
    struct perf_rank *ranks =
        calloc((size_t)threads * (size_t)each, sizeof(*ranks));
    int worst = PERF_OK;

    if (!all || !ranks)
        return PERF_INTERNAL;
    for (int i = 0; i < threads * each; i++) {
        ranks[i].rank = run->first_rank + i;
        ranks[i].nranks = run->nranks;
        ranks[i].comm = run->comms[i];
    }
    for (int t = 0; t < threads; t++) {
        all[t] =
            (struct thread){.run = run, .ranks = &ranks[t * each], .number = t};
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

/* Is the average bus bandwidth of all rows below nine tenths of the floor in
 * ULYX_PERF_MIN_BW? The nine tenths are those of nccl-tests. */
static bool
under_floor(const struct perf_report *report)
{
    const char *text = getenv("ULYX_PERF_MIN_BW");

    return text && perf_report_average(report) < 0.9 * atof(text);
}

static int
run_measure(struct perf_run *run)
{
    int each = run->options.threads * run->options.ranks_per_thread;
    int code = run->options.cuda ? perf_devices_open(&run->options) : PERF_OK;

    if (code == PERF_OK)
        code = perf_run_connect(run);
    if (code != PERF_OK)
        return code;
    if (run->first_rank == 0 && !run->options.tune) {
        run->report =
            perf_report_open(&run->options, run->nranks, run->argc, run->argv);
        if (!run->report)
            return PERF_USAGE;
    }
    code = run_threads(run);
    for (int i = 0; i < each; i++) {
        ulyx_status_t state = ULYX_SUCCESS;

        ulyx_comm_get_async_error(run->comms[i], &state);
        if (state == ULYX_ERR_TIMEOUT)
            code = PERF_TIMEOUT;
        ulyx_comm_destroy(run->comms[i]);
    }
    free(run->comms);
    if (!run->report)
        return code;
    if (code == PERF_OK &&
        (perf_report_wrong(run->report) > 0 || under_floor(run->report)))
        code = PERF_WRONG_DATA;
    return perf_report_close(run->report) ? code : PERF_INTERNAL;
}

static int
command_run(int argc, char **argv)
{
    static const ulyx_launch_t no_launch = ULYX_LAUNCH_INIT;
    static struct perf_run run;
    int code;

    run.argc = argc;
    run.argv = argv;
    if (!perf_options_parse(argc, argv, &run.options, &code))
        return code;
    if (!perf_run_choose(&run))
        return PERF_USAGE;
    if (run.options.dry_run)
        return perf_run_dry(&run);
    run.launch = no_launch;
    if (!perf_launch_query(&run.launch))
        return PERF_USAGE;
    if (perf_launch_needed(&run.options, &run.launch))
        return perf_launch(&run.options, argc, argv);
    if (run.options.vs[PERF_VS_MPI] && !perf_mpi_available())
        return perf_launch_mpi_here(argv);
#ifdef ULYX_PERF_MPI
    MPI_Init(&argc, &argv);
#endif
    code = run_measure(&run);
#ifdef ULYX_PERF_MPI
    MPI_Finalize();
#endif
    return code;
}

/* The exit code is 0 only if all output has been written: a full disk is an
 * error. */
int
main(int argc, char **argv)
{
    int code;

    pipe_watch();
    code = command_run(argc, argv);
    if (fflush(stdout) == 0 && !ferror(stdout) && code != PERF_CLOSED)
        return code;
    if (reader_gone() || code == PERF_CLOSED)
        end_by_pipe();
    fprintf(stderr, "ulyx_perf: standard output cannot be written\n");
    return code == PERF_OK ? PERF_INTERNAL : code;
}
