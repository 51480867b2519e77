/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks that are processes are copies of this program, which connect by a
 * unique id that the parent serves. Ranks that are threads have communicators
 * that were created together, in one process.
 */
#include "launch.h"

#include <cblas.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int
call_failed(const char *what)
{
    fprintf(stderr, "train_bytes: %s: %s\n", what, ulyx_last_error());
    return 3;
}

int
launch_query(ulyx_launch_t *launch_p)
{
    return ulyx_launch_query(launch_p) == ULYX_SUCCESS
               ? 0
               : call_failed("launcher");
}

/* Number of threads with which each rank computes, also in BLAS. */
static int
rank_threads(const struct options *options, bool one_process)
{
    cpu_set_t usable;
    int64_t threads = options->threads;

    if (threads == 0) {
        threads = sched_getaffinity(0, sizeof(usable), &usable) == 0
                      ? CPU_COUNT(&usable) / options->ranks
                      : 1;
        threads = threads < 1 ? 1 : threads;
    }
    /* BLAS has one number of threads per process. Where several ranks of a
     * process call it at the same time, each call uses one thread. */
    openblas_set_num_threads(
        one_process && options->ranks > 1 ? 1 : (int)threads);
    return (int)threads;
}

int (*train_rank_device)(const struct train_rank *self);

static int
train_rank_run(const struct train_rank *self)
{
    if (self->options->device)
        return train_rank_device(self);
    return self->options->f64 ? train_rank_f64(self) : train_rank_f32(self);
}

int
launch_one(const struct options *options)
{
    struct corpus corpus;
    struct train_rank self = {.options = options, .corpus = &corpus};
    int error = corpus_load(&corpus, options->files, options->file_count);

    if (error != 0)
        return error;
    self.threads = rank_threads(options, false);
    error = train_rank_run(&self);
    corpus_free(&corpus);
    return error;
}

int
launch_rank(struct options *options)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    struct corpus corpus;
    struct train_rank self = {.options = options, .corpus = &corpus};
    int32_t nranks;
    int error = corpus_load(&corpus, options->files, options->file_count);

    if (error != 0)
        return error;
    params.timeout_s = options->timeout_s;
    params.memory_kind = options->device ? ULYX_MEMORY_CUDA : ULYX_MEMORY_HOST;
    if (ulyx_comm_create_from_env(&params, &self.comm) != ULYX_SUCCESS ||
        ulyx_comm_get_nranks(self.comm, &nranks) != ULYX_SUCCESS ||
        ulyx_comm_get_rank(self.comm, &self.rank) != ULYX_SUCCESS) {
        corpus_free(&corpus);
        return call_failed("communicator");
    }
    options->ranks = nranks;
    options->as_threads = false;
    self.threads = rank_threads(options, false);
    error = train_rank_run(&self);
    ulyx_comm_destroy(self.comm);
    corpus_free(&corpus);
    return error;
}

static pid_t
start_one(int rank, int ranks, const char *id, char **argv)
{
    pid_t parent = getpid(), pid = fork();
    char text[2][16];

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(1);
    snprintf(text[0], sizeof(text[0]), "%d", rank);
    snprintf(text[1], sizeof(text[1]), "%d", ranks);
    setenv("ULYX_RANK", text[0], 1);
    setenv("ULYX_NRANKS", text[1], 1);
    setenv("ULYX_COMM_ID", id, 1);
    execv("/proc/self/exe", argv);
    _exit(1);
}

static int
exit_of(int status)
{
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    fprintf(stderr, "train_bytes: a rank was ended by signal %d\n",
        WTERMSIG(status));
    return 1;
}

int
launch_processes(const struct options *options, char **argv)
{
    ulyx_unique_id_t id;
    char text[640];
    int worst = 0, status, started = 0;

    if (ulyx_unique_id_create(&id) != ULYX_SUCCESS ||
        ulyx_unique_id_to_string(&id, text, sizeof(text)) != ULYX_SUCCESS)
        return call_failed("unique id");
    fflush(NULL);
    for (int r = 0; r < (int)options->ranks; r++)
        started += start_one(r, (int)options->ranks, text, argv) > 0;
    if (started < (int)options->ranks) {
        fprintf(stderr, "train_bytes: fork: %s\n", strerror(errno));
        worst = 1; /* the others end when their bootstrap fails */
    }
    while (started > 0 && (wait(&status) > 0 || errno == EINTR)) {
        int code = exit_of(status);

        worst = code > worst ? code : worst;
        started--;
    }
    ulyx_unique_id_destroy(&id);
    return worst;
}

struct rank_thread {
    struct train_rank self;
    pthread_t thread;
    int error;
};

static void *
thread_main(void *argument)
{
    struct rank_thread *rank = argument;

    rank->error = train_rank_run(&rank->self);
    return NULL;
}

/* Starts all threads and waits for them. returns: the worst error. */
static int
run_threads(struct rank_thread *threads, int32_t count)
{
    int32_t started = 0;
    int worst = 0;

    while (started < count && pthread_create(&threads[started].thread, NULL,
                                  thread_main, &threads[started]) == 0)
        started++;
    if (started < count) {
        fprintf(stderr, "train_bytes: no thread for rank %d\n", (int)started);
        ulyx_comm_abort(threads[started].self.comm);
        worst = 1;
    }
    for (int32_t r = 0; r < started; r++) {
        pthread_join(threads[r].thread, NULL);
        worst = threads[r].error > worst ? threads[r].error : worst;
    }
    return worst;
}

int
launch_threads(const struct options *options, const struct corpus *corpus,
    train_hook hook, void *context, bool quiet)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    int32_t ranks = (int32_t)options->ranks;
    struct rank_thread *threads = calloc((size_t)ranks, sizeof(*threads));
    ulyx_comm_t **comms = calloc((size_t)ranks, sizeof(*comms));
    int error = 3, each = rank_threads(options, true);

    params.timeout_s = options->timeout_s;
    params.memory_kind = options->device ? ULYX_MEMORY_CUDA : ULYX_MEMORY_HOST;
    if (threads && comms && (ranks > 1 || options->device) &&
        ulyx_comm_create_local(ranks, &params, comms) != ULYX_SUCCESS) {
        call_failed("communicator");
    } else if (threads && comms) {
        for (int32_t r = 0; r < ranks; r++)
            threads[r].self = (struct train_rank){
                options, corpus, comms[r], r, each, hook, context, quiet};
        error = run_threads(threads, ranks);
        for (int32_t r = 0; r < ranks; r++)
            ulyx_comm_destroy(comms[r]);
    }
    free(threads);
    free(comms);
    return error;
}
