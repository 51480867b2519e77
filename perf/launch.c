/* SPDX-License-Identifier: Apache-2.0
 *
 * Starting the ranks: copies of this program that become ranks of one node, or,
 * for the comparison with MPI, the MPI build under mpirun. A process that a
 * launcher has started as one of several starts no others.
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

#include "base/settings.h"
#include "base/system/clock.h"
#include "base/system/random.h"

enum { JOB_BYTES = 16 };

bool
perf_launch_query(ulyx_launch_t *launch_p)
{
    if (ulyx_launch_query(launch_p) == ULYX_SUCCESS)
        return true;
    fprintf(stderr, "ulyx_perf: launcher: %s\n", ulyx_last_error());
    return false;
}

/* Must this program start further processes? Under a launcher only where it has
 * started a single process, as the shell of an interactive job does. */
bool
perf_launch_needed(
    const struct perf_options *options, const ulyx_launch_t *launch)
{
    if (launch->launcher)
        return launch->nranks == 1 && options->procs > 1;
    return options->procs > 1 || options->vs[PERF_VS_MPI];
}

/* <directory of this program>/ulyx_perf_mpi, if it was built. */
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
no_mpi(void)
{
    fprintf(stderr,
        "ulyx_perf: --vs mpi: this build has no MPI; install openmpi-bin "
        "and libopenmpi-dev and configure with -DULYX_MPI=ON\n");
    return PERF_NOT_IMPLEMENTED;
}

int
perf_launch_mpi_here(char **argv)
{
    char path[4096];

    if (mpi_program(path, sizeof(path)))
        execv(path, argv);
    return no_mpi();
}

static int
exec_mpirun(const struct perf_options *options, int argc, char **argv)
{
    char path[4096], count[16];
    char **words = calloc((size_t)argc + 16, sizeof(*words));
    int n = 0;

    if (!mpi_program(path, sizeof(path))) {
        free(words);
        return no_mpi();
    }
    if (!words)
        return PERF_INTERNAL;
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
    free(words);
    fprintf(stderr, "ulyx_perf: --vs mpi: mpirun: %s; install openmpi-bin\n",
        strerror(errno));
    return PERF_NOT_IMPLEMENTED;
}

static pid_t
start_one(int rank, int procs, const char *job, char **argv)
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
    setenv("ULYX_LOCAL_NRANKS", text[1], 1);
    setenv("ULYX_JOB", job, 1);
    unsetenv("ULYX_COMM_ID");
    execv("/proc/self/exe", argv);
    fprintf(stderr, "ulyx_perf: rank %d of --procs: /proc/self/exe: %s\n", rank,
        strerror(errno));
    _exit(PERF_INTERNAL);
}

static int
exit_of(int status)
{
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    if (WTERMSIG(status) == SIGPIPE)
        return PERF_CLOSED;
    fprintf(
        stderr, "ulyx_perf: a rank was ended by signal %d\n", WTERMSIG(status));
    return PERF_INTERNAL;
}

/* Seconds within which the other ranks end by themselves after one rank has
 * failed, because all waits have deadlines. */
static double
patience_s(const struct perf_options *options)
{
    struct uli_settings settings;

    if (options->timeout_s > 0)
        return options->timeout_s + 2;
    return uli_settings_load(&settings) == ULYX_SUCCESS ? settings.timeout_s + 2
                                                        : 5;
}

/* Waits for all processes. Once a rank has failed, the ranks that still run
 * after patience_s, for instance because they are stopped, are killed. Returns
 * the worst exit code. */
static int
wait_all(const struct perf_options *options, pid_t *pids, int count)
{
    uli_deadline_t deadline = INT64_MAX;
    int worst = PERF_OK;

    for (int left = count; left > 0;) {
        int status;
        pid_t pid = waitpid(-1, &status, worst == PERF_OK ? 0 : WNOHANG);

        if (pid > 0) {
            int code = exit_of(status);

            for (int r = 0; r < count; r++)
                pids[r] = pids[r] == pid ? 0 : pids[r];
            if (worst == PERF_OK && code != PERF_OK)
                deadline = uli_deadline_in(patience_s(options));
            worst = code > worst ? code : worst;
            left--;
        } else if (pid == 0 && uli_deadline_over(deadline)) {
            for (int r = 0; r < count; r++)
                if (pids[r] > 0)
                    kill(pids[r], SIGKILL);
            deadline = INT64_MAX;
        } else if (pid == 0) {
            usleep(20000);
        } else if (errno != EINTR) {
            break;
        }
    }
    return worst;
}

/* A name that no other job of this node has, and that no other user can
 * guess. */
static bool
job_name(char name_p[2 * JOB_BYTES + 1])
{
    unsigned char bytes[JOB_BYTES];

    if (!perf_status_ok(
            "name of the job", uli_random_bytes(bytes, sizeof(bytes))))
        return false;
    for (int i = 0; i < JOB_BYTES; i++)
        snprintf(name_p + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

/* Starts the processes. Each is one rank of the bootstrap, over which the ranks
 * of its threads make their communicator (connect.c). No network is needed: the
 * processes share only the name of the job. */
static int
processes_spawn(const struct perf_options *options, char **argv)
{
    char job[2 * JOB_BYTES + 1];
    pid_t *pids = calloc((size_t)options->procs, sizeof(*pids));
    int started = 0, worst;

    if (!pids || !job_name(job)) {
        free(pids);
        return PERF_LIBRARY;
    }
    for (int r = 0; r < options->procs; r++, started++) {
        pids[r] = start_one(r, options->procs, job, argv);
        if (pids[r] < 0)
            break;
    }
    if (started < options->procs) {
        fprintf(stderr, "ulyx_perf: process %d of %d cannot be started: %s\n",
            started + 1, options->procs, strerror(errno));
        for (int r = 0; r < started; r++)
            kill(pids[r], SIGKILL);
    }
    worst = wait_all(options, pids, started);
    free(pids);
    return started < options->procs ? PERF_INTERNAL : worst;
}

/* Can the file be written? Checked before anything is started. */
static bool
path_writable(const char *option, const char *path)
{
    FILE *file = path ? fopen(path, "a") : NULL;

    if (path && !file)
        fprintf(
            stderr, "ulyx_perf: %s %s: %s\n", option, path, strerror(errno));
    if (file)
        fclose(file);
    return !path || file;
}

int
perf_launch(const struct perf_options *options, int argc, char **argv)
{
    fflush(NULL);
    if (!path_writable("-J", options->json_file) ||
        !path_writable("--tune", options->tune))
        return PERF_USAGE;
    if (options->vs[PERF_VS_MPI])
        return exec_mpirun(options, argc, argv);
    return processes_spawn(options, argv);
}
