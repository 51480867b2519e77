/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a rank's helper threads and the library's own memory belong: at the
 * NUMA node of the rank's device, within the cores that the rank may use.
 *
 * Only threads and memory of the library are bound; a caller's thread stays
 * where it is, and so do threads and memory that cannot be bound (logged once
 * per process).
 */
#ifndef ULI_TOPOLOGY_BIND_H
#define ULI_TOPOLOGY_BIND_H

#include <pthread.h>
#include "topology/topology.h"

enum { ULI_BINDING_CORES = 8192, ULI_BINDING_TEXT = 192 };

struct uli_binding {
    uint64_t cores[ULI_BINDING_CORES / 64]; /* a bit per core, by system's
                                             * number */
    int32_t ncores;                         /* 0: threads stay as they are */
    int32_t memory; /* system's number of the NUMA node from which memory should
                     * come, or ULI_TOPO_UNKNOWN */
    char text[ULI_BINDING_TEXT]; /* where and why, or why not */
};

/* Near what a rank is bound: a GPU, by its address ("0000:1b:00.0"); else the
 * first of `nics` ("mlx5_0:1,..." or "eth0") that the machine has; else the
 * rank's own cores. */
struct uli_bind_preference {
    const char *gpu, *nics; /* or NULL */
};

/* Finds the binding, on that machine, of a rank that may use the given cores
 * (the system's numbers). With a device: those of the given cores that are in
 * the device's NUMA node, and the nearest memory. Without a device: the given
 * cores, if they are all in one NUMA node. Has no side effects. */
void uli_binding_find(const struct uli_topology *topology,
    const struct uli_bind_preference *preference, const int32_t *cores,
    int32_t ncores, struct uli_binding *binding_p);

/* As uli_binding_find, for the calling thread's cores on this machine; nothing
 * is bound if settings->bind is off. With one NUMA node the machine's topology
 * is not loaded. */
void uli_binding_make(const struct uli_settings *settings,
    const struct uli_bind_preference *preference,
    struct uli_binding *binding_p);

/* Adds the cores of `one` to those of `all`, for a thread that serves several
 * ranks. */
void uli_binding_add(struct uli_binding *all, const struct uli_binding *one);

/* Lets a thread of the library run on the cores only. */
void uli_bind_thread(const struct uli_binding *binding, pthread_t thread);
/* Binds whole pages: pages that are touched from now on come from the NUMA node
 * while it has free pages; pages that were touched before are moved. */
void uli_bind_memory(
    const struct uli_binding *binding, void *address, int64_t bytes);

/* As uli_bind_memory, for memory that a driver allocates in the calling thread
 * between begin and end; end restores the thread's own policy. */
struct uli_bind_scope {
    bool active;
    int mode;
    unsigned long nodes[16];
};
void uli_bind_begin(
    const struct uli_binding *binding, struct uli_bind_scope *scope_p);
void uli_bind_end(const struct uli_bind_scope *scope);

#endif
