/* SPDX-License-Identifier: Apache-2.0
 *
 * How much memory can be allocated. If a process uses more, the kernel does not
 * report an error but kills a process, so a caller asks first. The answer is
 * the least of MemAvailable of the machine, and of limit minus use of every
 * control group of this process (use without the file cache that the kernel
 * would drop).
 */
#include "topology/node.h"

#include <stdbool.h>
#include "base/size.h"
#include "topology/node_cgroup.h"

/* Names of the files of the two generations of cgroups. */
struct generation {
    const char *limit, *use, *cache;
};
static const struct generation unified_files = {
    "memory.max", "memory.current", "inactive_file"};
static const struct generation legacy_files = {
    "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};

/* Keeps the least room of the groups that were visited. */
static void
visit_room(const char *folder, bool unified, void *context)
{
    const struct generation *files = unified ? &unified_files : &legacy_files;
    int64_t *room = context, limit, use, cache = 0;
    if (!uli_cgroup_number(folder, files->limit, NULL, &limit) ||
        !uli_cgroup_number(folder, files->use, NULL, &use))
        return;
    if (!uli_cgroup_number(folder, "memory.stat", files->cache, &cache))
        cache = 0;
    *room =
        uli_min(*room, uli_max(0, uli_sat_sub(limit, uli_max(0, use - cache))));
}

int64_t
uli_node_memory_available(void)
{
    int64_t kib = 0, machine = INT64_MAX, room = INT64_MAX;
    if (uli_cgroup_number("/proc", "meminfo", "MemAvailable:", &kib) &&
        !uli_size_mul(kib, 1024, &machine))
        machine = INT64_MAX;
    uli_cgroup_walk(&uli_cgroups, "memory", visit_room, &room);
    return uli_min(machine, room);
}
