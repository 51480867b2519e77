/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory can be had. The kernel answers a reservation beyond it not
 * with an error but by killing a process, so we ask first: MemAvailable of the
 * machine, and limit minus use of every cgroup above us (use without the file
 * cache that the kernel would drop).
 */
#include "topology/node.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/size.h"

/* The first number in the file, or after `key` at a line's begin. */
static bool
read_number(const char *path, const char *key, int64_t *value_p)
{
    FILE *file = fopen(path, "re");
    char line[256];
    bool found = false;
    size_t skip = key ? strlen(key) : 0;
    while (file && !found && fgets(line, sizeof(line), file))
        found = (!key || strncmp(line, key, skip) == 0) &&
                sscanf(line + skip, "%" SCNd64, value_p) == 1;
    if (file)
        fclose(file);
    return found;
}

/* Names of the files of the two generations of cgroups. */
struct generation {
    const char *limit, *use, *cache;
};
static const struct generation unified = {
    "memory.max", "memory.current", "inactive_file"};
static const struct generation legacy = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};

/* Room in the cgroup at `folder`; INT64_MAX without a limit. */
static int64_t
group_room(const char *folder, const struct generation *files)
{
    char path[1024];
    int64_t limit, use, cache = 0;
    snprintf(path, sizeof(path), "%s/%s", folder, files->limit);
    if (!read_number(path, NULL, &limit))
        return INT64_MAX;
    snprintf(path, sizeof(path), "%s/%s", folder, files->use);
    if (!read_number(path, NULL, &use))
        return INT64_MAX;
    snprintf(path, sizeof(path), "%s/memory.stat", folder);
    if (!read_number(path, files->cache, &cache))
        cache = 0;
    return uli_max(0, uli_sat_sub(limit, uli_max(0, use - cache)));
}

/* The smallest room from the group at root + name up to root. */
static int64_t
path_room(const char *root, char *name, const struct generation *files)
{
    int64_t room = INT64_MAX;
    for (;;) {
        char folder[900];
        snprintf(folder, sizeof(folder), "%s%s", root, name);
        room = uli_min(room, group_room(folder, files));
        char *slash = strrchr(name, '/');
        if (!slash)
            return room;
        *slash = 0;
    }
}

/* Lines "0::/path" (unified) and "N:memory:/path" of /proc/self/cgroup. */
static int64_t
cgroup_room(void)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[512];
    int64_t room = INT64_MAX;
    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(controllers + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        if (strcmp(controllers, ":") == 0)
            room = uli_min(room, path_room("/sys/fs/cgroup", path, &unified));
        else if (strstr(controllers, "memory"))
            room = uli_min(
                room, path_room("/sys/fs/cgroup/memory", path, &legacy));
    }
    if (file)
        fclose(file);
    return room;
}

int64_t
uli_node_memory_available(void)
{
    int64_t kib = 0, machine = INT64_MAX;
    if (read_number("/proc/meminfo", "MemAvailable:", &kib) &&
        !uli_size_mul(kib, 1024, &machine))
        machine = INT64_MAX;
    return uli_min(machine, cgroup_room());
}
