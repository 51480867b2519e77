/* SPDX-License-Identifier: Apache-2.0
 *
 * What this process stands on: which node, how many cores, how much memory.
 *
 * Two processes are on one node when they can hand memory to each other: one
 * running kernel (boot id) and one network namespace, in which the abstract
 * sockets live that carry the descriptors. ULYX_HOSTID replaces both, so that
 * simulated nodes can share a machine.
 */
#ifndef ULI_TOPOLOGY_NODE_H
#define ULI_TOPOLOGY_NODE_H

#include <stdint.h>
#include "base/settings.h"
#include "base/status.h"

/* Equal for processes of one node. Any thread. This and the next two:
 * ERR_SYSTEM where /proc is there but cannot be read now (no descriptor, no
 * memory). */
ulyx_status_t uli_node_hash(
    const struct uli_settings *settings, uint64_t hash_p[2]);

/* Equal for processes of one running kernel, for any ULYX_HOSTID and
 * namespaces: nodes that share it are simulated, and are joined by memory. */
ulyx_status_t uli_node_machine_hash(uint64_t *hash_p);

/* Inode of this process's pid namespace; 0 when /proc does not give it. A pid
 * means the same process to two processes only where these are equal. */
ulyx_status_t uli_node_pid_namespace(uint64_t *inode_p);

/* Cores that this process may use: of its affinity, and no more than the time
 * of its control groups is (cpu.max, cpu.cfs_quota_us as they were at the first
 * call), at least 1. */
int32_t uli_node_cores(void);

/* The quota of these groups alone; INT32_MAX without one. */
int32_t uli_node_quota(void);

/* The system's numbers of those cores, ascending: writes at most capacity and
 * returns how many there are; 0 when the kernel does not give them. */
int32_t uli_node_core_list(int32_t *cores_p, int32_t capacity);

/* Hash of the affinity's set, and of the group whose quota is the smallest:
 * equal for threads and processes that share exactly the same cores. 0 when
 * the kernel does not give them. */
uint64_t uli_node_cores_hash(void);

/* Bytes that can still be had without swapping or meeting a memory limit of
 * the process's cgroups; INT64_MAX when the kernel does not give them. A
 * snapshot: others allocate too. */
int64_t uli_node_memory_available(void);

#endif
