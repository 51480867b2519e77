/* SPDX-License-Identifier: Apache-2.0
 *
 * See node_cgroup.h. A limit applies to a group and all groups below it, so all
 * groups count, from that of this process up to the root. A limit that cannot
 * be read does not count.
 */
#include "topology/node_cgroup.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include "base/size.h"

const struct uli_cgroups uli_cgroups = {"/proc/self/cgroup", "/sys/fs/cgroup"};

bool
uli_cgroup_number(
    const char *folder, const char *file, const char *key, int64_t *value_p)
{
    char path[1024], line[256];
    size_t skip = key ? strlen(key) : 0;
    bool found = false;
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    FILE *stream = fopen(path, "re");
    while (stream && !found && fgets(line, sizeof(line), stream))
        found = (!key || strncmp(line, key, skip) == 0) &&
                sscanf(line + skip, "%" SCNd64, value_p) == 1;
    if (stream)
        fclose(stream);
    return found;
}

/* Is the controller among "cpu,cpuacct"? */
static bool
has_controller(const char *controllers, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = controllers; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, name, length) == 0 &&
            (at[length] == ',' || at[length] == 0))
            return true;
    }
    return false;
}

/* Visits the groups from root + name up to root. */
static void
walk_path(const char *root, char *name, bool unified,
    void (*visit)(const char *folder, bool unified, void *context),
    void *context)
{
    for (;;) {
        char folder[900];
        snprintf(folder, sizeof(folder), "%s%s", root, name);
        visit(folder, unified, context);
        char *slash = strrchr(name, '/');
        if (!slash)
            return;
        *slash = 0;
    }
}

/* Lines "0::/path" (unified) and "N:controllers:/path". */
void
uli_cgroup_walk(const struct uli_cgroups *where, const char *controller,
    void (*visit)(const char *folder, bool unified, void *context),
    void *context)
{
    FILE *file = fopen(where->list, "re");
    char line[512], root[256];
    while (file && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = 0;
        char *controllers = strchr(line, ':');
        char *path = controllers ? strchr(++controllers, ':') : NULL;
        if (!path)
            continue;
        *path++ = 0;
        snprintf(root, sizeof(root), "%s", where->root);
        if (*controllers == 0) {
            walk_path(root, path, true, visit, context);
        } else if (has_controller(controllers, controller)) {
            snprintf(root, sizeof(root), "%s/%s", where->root, controller);
            walk_path(root, path, false, visit, context);
        }
    }
    if (file)
        fclose(file);
}

/* ---- time of cores ------------------------------------------------------- */

struct quota {
    int64_t cores;
    uint64_t group;
};

/* cpu.max is "QUOTA PERIOD" or "max PERIOD"; the first generation has a file
 * for each number, and -1 for no quota. */
static void
visit_quota(const char *folder, bool unified, void *context)
{
    struct quota *least = context;
    int64_t quota, period;
    char path[1024];
    bool there = false;
    struct stat about;
    snprintf(path, sizeof(path), "%s/cpu.max", folder);
    FILE *file = unified ? fopen(path, "re") : NULL;
    if (file) {
        there = fscanf(file, "%" SCNd64 " %" SCNd64, &quota, &period) == 2;
        fclose(file);
    } else if (!unified) {
        there = uli_cgroup_number(folder, "cpu.cfs_quota_us", NULL, &quota) &&
                uli_cgroup_number(folder, "cpu.cfs_period_us", NULL, &period);
    }
    if (!there || quota <= 0 || period <= 0)
        return;
    int64_t cores = uli_max(quota / period, 1);
    if (cores >= least->cores)
        return;
    least->cores = cores;
    least->group = stat(folder, &about) ? 0 : (uint64_t)about.st_ino;
}

int32_t
uli_cgroup_cores(const struct uli_cgroups *where, uint64_t *group_p)
{
    struct quota least = {INT32_MAX, 0};
    uli_cgroup_walk(where, "cpu", visit_quota, &least);
    *group_p = least.group;
    return (int32_t)least.cores;
}
