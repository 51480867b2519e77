/* SPDX-License-Identifier: Apache-2.0
 *
 * The description of a rank's machine in a report.
 */
#include "perf.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "comm/comm.h"
#include "topology/node.h"

/* Reads the value of a line "key : value" of /proc/cpuinfo. */
static bool
read_cpuinfo(const char *key, char *text_p, size_t bytes)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];
    bool found = false;

    while (file && !found && fgets(line, sizeof(line), file)) {
        const char *colon = strchr(line, ':');

        if (!colon || strncmp(line, key, strlen(key)) != 0)
            continue;
        snprintf(text_p, bytes, "%s", colon + 1 + strspn(colon + 1, " \t"));
        text_p[strcspn(text_p, "\n")] = 0;
        found = text_p[0] != 0;
    }
    if (file)
        fclose(file);
    return found;
}

/* The processor's name in /proc/cpuinfo, else the kind of machine. */
static void
cpu_model(char *text_p, size_t bytes)
{
    struct utsname name;

    if (read_cpuinfo("model name", text_p, bytes) ||
        read_cpuinfo("Model", text_p, bytes))
        return;
    snprintf(text_p, bytes, "%.60s", uname(&name) == 0 ? name.machine : "?");
}

void
perf_place_fill(
    const struct perf_rank *rank, int64_t thread, struct perf_place *place_p)
{
    memset(place_p, 0, sizeof(*place_p)); /* padding is sent too */
    place_p->pid = getpid();
    place_p->thread = thread;
    place_p->memory_bytes = uli_node_memory_available();
    place_p->node = rank->comm->peers[rank->rank].node;
    place_p->nodes = rank->comm->nnodes;
    place_p->cores = uli_node_cores();
    gethostname(place_p->host, sizeof(place_p->host) - 1);
    cpu_model(place_p->cpu, sizeof(place_p->cpu));
}
