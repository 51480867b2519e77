/* SPDX-License-Identifier: Apache-2.0
 *
 * See bind.h. Affinity and memory policies are set by the kernel's own calls:
 * hwloc can bind only on a machine that it has detected itself, but here a file
 * may describe the machine. The policy is "preferred", because a full NUMA node
 * must not make an allocation fail.
 */
#include "topology/bind.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "base/log.h"
#include "topology/graph.h"
#include "topology/node.h"

enum { WORD_BITS = 8 * sizeof(unsigned long), NODES_MAX = 1024 };

/* ---- where --------------------------------------------------------------- */

static void __attribute__((format(printf, 2, 3)))
binding_note(struct uli_binding *binding, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(binding->text, sizeof(binding->text), format, arguments);
    va_end(arguments);
}

static bool
has_core(const struct uli_binding *binding, int32_t core)
{
    return core >= 0 && core < ULI_BINDING_CORES &&
           binding->cores[core / 64] >> core % 64 & 1;
}

static void
add_core(struct uli_binding *binding, int32_t core)
{
    if (core < 0 || core >= ULI_BINDING_CORES || has_core(binding, core))
        return;
    binding->cores[core / 64] |= UINT64_C(1) << core % 64;
    binding->ncores++;
}

/* Finds the NIC of the first name in the list that a NIC of the machine has. */
static const struct uli_topo_node *
find_nic(const struct uli_topology *t, const char *names)
{
    while (names && *names) {
        size_t length = strcspn(names, ",:");
        for (int32_t i = 0; i < uli_topology_count(t, ULI_TOPO_NIC); i++) {
            const struct uli_topo_node *nic =
                uli_topology_node(t, ULI_TOPO_NIC, i);
            if ((strncmp(nic->name, names, length) == 0 &&
                    nic->name[length] == 0) ||
                (strncmp(nic->net_name, names, length) == 0 &&
                    nic->net_name[length] == 0))
                return nic;
        }
        names += strcspn(names, ",");
        names += *names == ',';
    }
    return NULL;
}

static const struct uli_topo_node *
find_gpu(const struct uli_topology *t, const char *address)
{
    uint64_t pci;
    bool known = uli_graph_parse_pci(address, &pci);
    for (int32_t i = 0; known && i < uli_topology_count(t, ULI_TOPO_GPU); i++) {
        const struct uli_topo_node *gpu = uli_topology_node(t, ULI_TOPO_GPU, i);
        if (gpu->pci == pci)
            return gpu;
    }
    return NULL;
}

/* Finds the preferred device, or NULL. name_p: its name for messages, "GPU
 * 0000:1b:00.0" or "NIC mlx5_0". */
static const struct uli_topo_node *
find_device(const struct uli_topology *t,
    const struct uli_bind_preference *preference, char *name_p, size_t bytes)
{
    if (preference->gpu) {
        snprintf(name_p, bytes, "GPU %s", preference->gpu);
        return find_gpu(t, preference->gpu);
    }
    const struct uli_topo_node *nic = find_nic(t, preference->nics);
    snprintf(name_p, bytes, "NIC %s", nic ? nic->name : preference->nics);
    return nic;
}

/* Adds the cores near the device that the rank may use. The list of the
 * machine's cores may be long, so it is read only once. */
static void
add_near(struct uli_binding *binding, const struct uli_topology *t,
    const struct uli_topo_node *device, const int32_t *cores, int32_t ncores)
{
    int32_t capacity = uli_topology_cores(t);
    int32_t *near = malloc((size_t)(capacity + 1) * sizeof(*near));
    struct uli_binding *set = calloc(1, sizeof(*set));
    int32_t count =
        near && set ? uli_topology_cores_near(t, device, near, capacity) : 0;
    for (int32_t i = 0; i < count; i++)
        add_core(set, near[i]);
    for (int32_t i = 0; set && i < ncores; i++)
        if (has_core(set, cores[i]))
            add_core(binding, cores[i]);
    free(near);
    free(set);
}

/* Sets the memory of the binding to that near a NUMA node (an index), and
 * describes the binding. */
static void
binding_settle(struct uli_binding *binding, const struct uli_topology *t,
    int32_t numa, const char *near)
{
    const struct uli_topo_node *home =
        uli_topology_node(t, ULI_TOPO_NUMA, numa);
    const struct uli_topo_node *memory =
        uli_topology_node(t, ULI_TOPO_NUMA, uli_topology_memory_near(t, numa));
    binding->memory = memory ? memory->os_index : ULI_TOPO_UNKNOWN;
    int32_t first = 0, last = ULI_BINDING_CORES - 1;
    while (first < last && !has_core(binding, first))
        first++;
    while (last > first && !has_core(binding, last))
        last--;
    char threads[64] = "the rank may use no core there: threads not bound";
    if (binding->ncores > 0)
        snprintf(threads, sizeof(threads),
            "threads on %" PRId32 " core%s %" PRId32 " to %" PRId32,
            binding->ncores, binding->ncores == 1 ? "," : "s,", first, last);
    char where[32] = "not bound";
    if (binding->memory >= 0)
        snprintf(
            where, sizeof(where), "at NUMA node %" PRId32, binding->memory);
    binding_note(binding, "near %s, at NUMA node %" PRId32 ": %s; memory %s",
        near, home->os_index, threads, where);
}

void
uli_binding_find(const struct uli_topology *topology,
    const struct uli_bind_preference *preference, const int32_t *cores,
    int32_t ncores, struct uli_binding *binding_p)
{
    char name[ULI_TOPO_NAME + 64] = "its cores";
    bool device = preference->gpu || preference->nics;
    memset(binding_p, 0, sizeof(*binding_p));
    binding_p->memory = ULI_TOPO_UNKNOWN;
    if (uli_topology_count(topology, ULI_TOPO_NUMA) < 2) {
        binding_note(binding_p, "not bound: no two NUMA nodes");
        return;
    }
    const struct uli_topo_node *at =
        device ? find_device(topology, preference, name, sizeof(name)) : NULL;
    int32_t numa =
        device ? (at ? uli_topology_numa_of(topology, at) : ULI_TOPO_UNKNOWN)
               : uli_topology_numa_of_cores(topology, cores, ncores);
    if (device && !at) {
        binding_note(binding_p,
            "not bound: %s is not in the machine's description", name);
    } else if (numa == ULI_TOPO_UNKNOWN) {
        binding_note(binding_p,
            device ? "not bound: the NUMA node of %s is not known"
                   : "not bound: %s are of several NUMA nodes",
            name);
    } else {
        if (device)
            add_near(binding_p, topology, at, cores, ncores);
        for (int32_t i = 0; !device && i < ncores; i++)
            add_core(binding_p, cores[i]);
        binding_settle(binding_p, topology, numa, name);
    }
}

/* Reads one file of sysfs, because loading the machine's topology takes
 * milliseconds. */
static bool
has_one_node(void)
{
    char text[16] = "";
    FILE *file = fopen("/sys/devices/system/node/online", "re");
    if (!file)
        return false;
    bool one = fgets(text, sizeof(text), file) && strcmp(text, "0\n") == 0;
    fclose(file);
    return one;
}

void
uli_binding_make(const struct uli_settings *settings,
    const struct uli_bind_preference *preference, struct uli_binding *binding_p)
{
    const struct uli_topology *topology = NULL;
    int32_t *cores = NULL, count = 0;
    memset(binding_p, 0, sizeof(*binding_p));
    binding_p->memory = ULI_TOPO_UNKNOWN;
    if (strcmp(settings->bind, "off") == 0) {
        binding_note(binding_p, "not bound: ULYX_BIND=off");
        return;
    }
    if (!settings->topo_file[0] && has_one_node()) {
        binding_note(binding_p, "not bound: one NUMA node");
        return;
    }
    cores = malloc(ULI_BINDING_CORES * sizeof(*cores));
    topology = uli_topology_shared(settings);
    if (cores)
        count = uli_node_core_list(cores, ULI_BINDING_CORES);
    if (topology && count > 0 && count <= ULI_BINDING_CORES)
        uli_binding_find(topology, preference, cores, count, binding_p);
    else
        binding_note(binding_p, "not bound: the rank's cores are not known");
    free(cores);
}

void
uli_binding_add(struct uli_binding *all, const struct uli_binding *one)
{
    for (int32_t core = 0; one->ncores > 0 && core < ULI_BINDING_CORES; core++)
        if (has_core(one, core))
            add_core(all, core);
}

/* ---- binding ------------------------------------------------------------- */

static void
warn_once(const char *what, int error)
{
    static atomic_flag logged = ATOMIC_FLAG_INIT;
    if (!atomic_flag_test_and_set(&logged))
        ULI_WARN(ULI_LOG_TOPO, -1,
            "%s cannot be bound near the rank's device and stays where it is: "
            "%s; ULYX_BIND=off turns this off",
            what, strerror(error));
}

void
uli_bind_thread(const struct uli_binding *binding, pthread_t thread)
{
    if (binding->ncores == 0)
        return;
    cpu_set_t *set = CPU_ALLOC(ULI_BINDING_CORES);
    size_t bytes = CPU_ALLOC_SIZE(ULI_BINDING_CORES);
    if (!set)
        return;
    CPU_ZERO_S(bytes, set);
    for (int32_t core = 0; core < ULI_BINDING_CORES; core++)
        if (has_core(binding, core))
            CPU_SET_S((size_t)core, bytes, set);
    int failed = pthread_setaffinity_np(thread, bytes, set);
    CPU_FREE(set);
    if (failed)
        warn_once("a thread", failed);
}

static bool
set_node(int32_t node, unsigned long nodes_p[NODES_MAX / WORD_BITS])
{
    memset(nodes_p, 0, NODES_MAX / 8);
    if (node < 0 || node >= NODES_MAX)
        return false;
    nodes_p[node / WORD_BITS] = 1UL << node % WORD_BITS;
    return true;
}

void
uli_bind_memory(const struct uli_binding *binding, void *address, int64_t bytes)
{
    unsigned long nodes[NODES_MAX / WORD_BITS];
    if (!set_node(binding->memory, nodes))
        return;
    if (syscall(SYS_mbind, address, (unsigned long)bytes, MPOL_PREFERRED, nodes,
            NODES_MAX + 1UL, MPOL_MF_MOVE))
        warn_once("memory", errno);
}

void
uli_bind_begin(
    const struct uli_binding *binding, struct uli_bind_scope *scope_p)
{
    unsigned long nodes[NODES_MAX / WORD_BITS];
    memset(scope_p, 0, sizeof(*scope_p));
    if (!set_node(binding->memory, nodes) ||
        syscall(SYS_get_mempolicy, &scope_p->mode, scope_p->nodes,
            NODES_MAX + 1UL, NULL, 0UL))
        return;
    scope_p->active =
        syscall(SYS_set_mempolicy, MPOL_PREFERRED, nodes, NODES_MAX + 1UL) == 0;
    if (!scope_p->active)
        warn_once("pinned memory", errno);
}

void
uli_bind_end(const struct uli_bind_scope *scope)
{
    if (scope->active)
        (void)syscall(SYS_set_mempolicy, scope->mode,
            scope->mode == MPOL_DEFAULT ? NULL : scope->nodes, NODES_MAX + 1UL);
}
