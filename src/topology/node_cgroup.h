/* SPDX-License-Identifier: Apache-2.0
 *
 * The control groups that this process is in, of both generations, and what
 * they allow.
 */
#ifndef ULI_TOPOLOGY_NODE_CGROUP_H
#define ULI_TOPOLOGY_NODE_CGROUP_H

#include <stdbool.h>
#include <stdint.h>

/* Where control groups are read: /proc/self/cgroup and /sys/fs/cgroup; tests
 * have folders of their own. */
struct uli_cgroups {
    const char *list, *root;
};
extern const struct uli_cgroups uli_cgroups;

/* Calls visit for the folder of the process's group that has the controller
 * ("memory", "cpu"), and for all groups above it. unified: the group is of the
 * second generation. */
void uli_cgroup_walk(const struct uli_cgroups *where, const char *controller,
    void (*visit)(const char *folder, bool unified, void *context),
    void *context);

/* The number after `key` at the beginning of a line of folder/file (NULL: the
 * first number at the beginning of a line); false if there is none. */
bool uli_cgroup_number(
    const char *folder, const char *file, const char *key, int64_t *value_p);

/* The quota of the groups in cores, rounded down, at least 1; INT32_MAX without
 * a quota. *group_p: the inode of the group with the smallest quota, 0 without
 * a quota. */
int32_t uli_cgroup_cores(const struct uli_cgroups *where, uint64_t *group_p);

#endif
