/* SPDX-License-Identifier: Apache-2.0
 *
 * See hosts.h.
 */
#include "support/hosts.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HOSTS_MAX = 64 };

/* Reads process ids that blanks separate. Returns how many there are. */
static int
read_hosts(const char *text, long pids_p[HOSTS_MAX])
{
    int count = 0;
    char *end;
    while (count < HOSTS_MAX) {
        long pid = strtol(text, &end, 10);
        if (end == text)
            break;
        pids_p[count++] = pid;
        text = end;
    }
    return count;
}

static int
namespace_enter(long pid, const char *name, int type)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%ld/ns/%s", pid, name);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || setns(fd, type)) {
        perror(path);
        return -1;
    }
    close(fd);
    return 0;
}

static int
hosts_count(long pids_p[HOSTS_MAX])
{
    const char *text = getenv("ULYX_TEST_HOSTS");
    return text ? read_hosts(text, pids_p) : 0;
}

int
hosts_of(int rank, int nranks)
{
    const char *placement = getenv("ULYX_TEST_PLACEMENT");
    long pids[HOSTS_MAX];
    int count = hosts_count(pids);
    if (count == 0)
        return 0;
    return placement && !strcmp(placement, "cyclic")
               ? rank % count
               : (int)((long)rank * count / nranks);
}

void
hosts_enter_switch(void)
{
    const char *pid = getenv("ULYX_TEST_SWITCH");
    if (!pid || namespace_enter(strtol(pid, NULL, 10), "net", CLONE_NEWNET))
        _exit(1);
}

void
hosts_enter(int rank, int nranks)
{
    long pids[HOSTS_MAX];
    if (hosts_count(pids) == 0)
        return;
    int host = hosts_of(rank, nranks);
    if (namespace_enter(pids[host], "net", CLONE_NEWNET) ||
        namespace_enter(pids[host], "ipc", CLONE_NEWIPC) ||
        namespace_enter(pids[host], "uts", CLONE_NEWUTS))
        _exit(1);
}
