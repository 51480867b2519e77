/* SPDX-License-Identifier: Apache-2.0
 *
 * See command.h.
 */
#include "support/command.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>

static double
children_cpu_s(void)
{
    struct rusage use;
    getrusage(RUSAGE_CHILDREN, &use);
    return (double)(use.ru_utime.tv_sec + use.ru_stime.tv_sec) +
           (double)(use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

int
command_run(const char *command, char *output_p, size_t bytes, double *cpu_s_p)
{
    double before = children_cpu_s();
    FILE *pipe = popen(command, "r");
    output_p[0] = 0;
    if (!pipe)
        return -1;
    output_p[fread(output_p, 1, bytes - 1, pipe)] = 0;
    int code = pclose(pipe);
    *cpu_s_p = children_cpu_s() - before;
    return WIFEXITED(code) ? WEXITSTATUS(code) : -1;
}
