/* SPDX-License-Identifier: Apache-2.0
 *
 * What this process runs on: which node, how many cores, how much memory.
 *
 * Two processes are on one node if they can share memory: they have one running
 * kernel (boot id) and one network namespace, whose abstract sockets carry the
 * descriptors of shared memory. ULYX_HOSTID replaces both, so that simulated
 * nodes can share a machine.
 */
#ifndef ULI_TOPOLOGY_NODE_H
#define ULI_TOPOLOGY_NODE_H

#include <stdint.h>
#include "base/settings.h"
#include "base/status.h"

/* A hash that is equal for processes of one node. Any thread. This and the next
 * two functions return ERR_SYSTEM if there is a /proc that cannot be read at
 * present (no descriptor, no memory). */
ulyx_status_t uli_node_hash(
    const struct uli_settings *settings, uint64_t hash_p[2]);

/* A hash that is equal for processes of one running kernel, whatever their
 * ULYX_HOSTID and namespaces: different nodes with one hash are simulated, and
 * connected by memory. */
ulyx_status_t uli_node_machine_hash(uint64_t *hash_p);

/* The inode of this process's pid namespace; 0 if /proc does not give it. Only
 * processes with equal inodes can exchange pids. */
ulyx_status_t uli_node_pid_namespace(uint64_t *inode_p);

/* The number of cores that this process may use, at least 1: those of its
 * affinity, but no more than the quota of its control groups (cpu.max,
 * cpu.cfs_quota_us, as they were at the first call). */
int32_t uli_node_cores(void);

/* The quota of the control groups alone, in cores; INT32_MAX without a
 * quota. */
int32_t uli_node_quota(void);

/* The system's numbers of the cores of the affinity, ascending: writes at most
 * capacity and returns how many there are; 0 if the kernel does not report
 * them. */
int32_t uli_node_core_list(int32_t *cores_p, int32_t capacity);

/* A hash of the affinity's set, and of the control group with the smallest
 * quota: equal for threads and processes that share exactly the same cores. 0
 * if the kernel does not report them. */
uint64_t uli_node_cores_hash(void);

/* The bytes that can still be allocated without swapping and within the memory
 * limits of the process's control groups; INT64_MAX if the kernel does not
 * report them. This is a snapshot, because other processes allocate too. */
int64_t uli_node_memory_available(void);

#endif
