/* SPDX-License-Identifier: Apache-2.0
 *
 * Starting the ranks: copies of this program that meet at an id which the
 * parent serves, or, for the MPI comparison, the MPI build under mpirun.
 * Whoever was started by mpirun, srun or torchrun starts nothing.
 */
#include "perf.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static bool
launched(void)
{
    static const char *const marks[] = {
        "ULYX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"};

    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++)
        if (getenv(marks[i]) != NULL)
            return true;
    return getenv("RANK") != NULL && getenv("WORLD_SIZE") != NULL;
}

bool
perf_launch_needed(const struct perf_options *options)
{
    return !launched() && !options->dry_run &&
           (options->procs > 1 || options->vs[PERF_VS_MPI]);
}

/* <directory of this program>/ulyx_perf_mpi, when it was built. */
static bool
mpi_program(char *path_p, size_t bytes)
{
    ssize_t length = readlink("/proc/self/exe", path_p, bytes - 8);

    if (length <= 0)
        return false;
    path_p[length] = 0;
    if (length < 4 || strcmp(path_p + length - 4, "_mpi") != 0)
        strcat(path_p, "_mpi");
    return access(path_p, X_OK) == 0;
}

static int
exec_mpirun(const struct perf_options *options, int argc, char **argv)
{
    char path[4096], count[16];
    char **words = calloc((size_t)argc + 16, sizeof(*words));
    int n = 0;

    if (words == NULL)
        return PERF_INTERNAL;
    if (!mpi_program(path, sizeof(path))) {
        fprintf(stderr,
            "ulyx_perf: --vs mpi: this build has no MPI; install openmpi-bin "
            "and libopenmpi-dev and configure with -DULYX_MPI=ON\n");
        return PERF_NOT_IMPLEMENTED;
    }
    snprintf(
        count, sizeof(count), "%d", options->procs > 0 ? options->procs : 1);
    words[n++] = (char *)"mpirun";
    if (geteuid() == 0)
        words[n++] = (char *)"--allow-run-as-root";
    words[n++] = (char *)"--oversubscribe";
    words[n++] = (char *)"--bind-to";
    words[n++] = (char *)"none";
    words[n++] = (char *)"-np";
    words[n++] = count;
    words[n++] = path;
    for (int i = 1; i < argc; i++)
        words[n++] = argv[i];
    execvp(words[0], words);
    fprintf(stderr, "ulyx_perf: --vs mpi: mpirun: %s; install openmpi-bin\n",
        strerror(errno));
    return PERF_NOT_IMPLEMENTED;
}

static pid_t
start_one(int rank, int procs, const char *id, char **argv)
{
    pid_t parent = getpid(), pid = fork();
    char text[2][16];

    if (pid != 0)
        return pid;
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent)
        _exit(PERF_INTERNAL);
    snprintf(text[0], sizeof(text[0]), "%d", rank);
    snprintf(text[1], sizeof(text[1]), "%d", procs);
    setenv("ULYX_RANK", text[0], 1);
    setenv("ULYX_NRANKS", text[1], 1);
    setenv("ULYX_COMM_ID", id, 1);
    execv("/proc/self/exe", argv);
    _exit(PERF_INTERNAL);
}

static int
exit_of(int status)
{
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    fprintf(
        stderr, "ulyx_perf: a rank was ended by signal %d\n", WTERMSIG(status));
    return PERF_INTERNAL;
}

/* Each process is one bootstrap rank; its threads' ranks split from there. */
static int
spawn(const struct perf_options *options, char **argv)
{
    ulyx_unique_id_t id;
    char text[640];
    int worst = PERF_OK, status, started = 0;

    if (ulyx_unique_id_create(&id) != ULYX_SUCCESS ||
        ulyx_unique_id_to_string(&id, text, sizeof(text)) != ULYX_SUCCESS) {
        fprintf(stderr, "ulyx_perf: no meeting point: %s\n", ulyx_last_error());
        return PERF_LIBRARY;
    }
    for (int r = 0; r < options->procs; r++)
        started += start_one(r, options->procs, text, argv) > 0;
    while (started > 0 && (wait(&status) > 0 || errno == EINTR)) {
        int code = exit_of(status);

        /* The others end by themselves: every wait of theirs is bounded. */
        worst = code > worst ? code : worst;
        started--;
    }
    return worst;
}

int
perf_launch(const struct perf_options *options, int argc, char **argv)
{
    fflush(NULL);
    if (options->vs[PERF_VS_MPI])
        return exec_mpirun(options, argc, argv);
    return spawn(options, argv);
}
