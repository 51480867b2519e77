/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine as the planner sees it: a small graph. A tree has the places of
 * devices
 *
 *     machine > package > NUMA node > PCI root > PCI switch > GPU or NIC
 *
 * (any level may be missing), and a list has the NVLinks. The distance of two
 * nodes is the kind of their lowest common ancestor. Values that the system
 * does not give stay unknown and are never taken for 0: a device whose NUMA
 * node is unknown is a child of the machine.
 *
 * The graph comes from hwloc (this machine, or a file with hwloc's XML of
 * version 2 or 3) or from NCCL's topology XML. A finished graph never changes,
 * so any thread may call all queries.
 */
#ifndef ULI_TOPOLOGY_TOPOLOGY_H
#define ULI_TOPOLOGY_TOPOLOGY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/settings.h"

enum uli_topo_kind {
    ULI_TOPO_MACHINE,
    ULI_TOPO_PACKAGE,
    ULI_TOPO_NUMA,
    ULI_TOPO_PCI_ROOT,
    ULI_TOPO_PCI_SWITCH,
    ULI_TOPO_GPU,
    ULI_TOPO_NIC,
    ULI_TOPO_NVSWITCH,
    ULI_TOPO_KINDS
};

/* Nearest first. */
enum uli_link_class {
    ULI_LINK_SELF,
    ULI_LINK_NVLINK,  /* direct or through NVSwitches */
    ULI_LINK_SWITCH,  /* below one PCI switch */
    ULI_LINK_NUMA,    /* below one PCI root or in one NUMA node */
    ULI_LINK_PACKAGE, /* in one package */
    ULI_LINK_SYSTEM,  /* in different packages, or in NUMA nodes whose packages
                       * are not known */
    ULI_LINK_UNKNOWN, /* the place of one of the two is not known */
    ULI_LINK_CLASSES
};

#define ULI_TOPO_NAME    32
#define ULI_TOPO_UNKNOWN (-1)

struct uli_topo_node {
    enum uli_topo_kind kind;
    int32_t id;       /* position in the graph */
    int32_t parent;   /* id; -1 for the machine and for NVSwitches */
    int32_t index;    /* number within its kind: in PCI order, else in the order
                       * found */
    int32_t os_index; /* the system's number, or ULI_TOPO_UNKNOWN */
    uint64_t pci;     /* domain << 16 | bus << 8 | device << 3 | function, or
                       * ULI_TOPO_NO_PCI */
    char name[ULI_TOPO_NAME];     /* "mlx5_0", "cuda0"; "" when unknown */
    char net_name[ULI_TOPO_NAME]; /* the NIC's network device, or "" */
    double bytes_per_s;           /* to the parent, or of a NIC to the network;
                                   * 0 unknown */
    double latency_s;             /* of a NIC; 0 unknown */
    int64_t memory_bytes;         /* of a NUMA node; -1 unknown */
};

#define ULI_TOPO_NO_PCI UINT64_MAX

/* The link between two nodes. bytes_per_s and latency_s are 0 if unknown. */
struct uli_topo_link {
    enum uli_link_class class;
    double bytes_per_s, latency_s;
};

struct uli_topology;

/* ---- making one ---------------------------------------------------------- */

/* The machine that settings->topo_file describes, or this machine. If detection
 * fails, the result is a flat machine (cores and nothing else); the failure is
 * logged once per process, and the text of uli_topology_source has the reason.
 * Writes settings->topo_dump_file.
 * returns SUCCESS or NO_MEMORY. The caller frees *topology_p. */
ulyx_status_t uli_topology_load(
    const struct uli_settings *settings, struct uli_topology **topology_p);

/* As uli_topology_load, but without NVLink, and kept by the process: it is
 * loaded once per topo_file, for all communicators. Not to be freed. NULL: no
 * memory.
 */
const struct uli_topology *uli_topology_shared(
    const struct uli_settings *settings);

/* The machine in a file of hwloc's or NCCL's XML.
 * Errors: SYSTEM (cannot be read), INVALID_ARGUMENT (not such a file, broken,
 * or of a version that is not read), NO_MEMORY. */
ulyx_status_t uli_topology_read(
    const char *path, struct uli_topology **topology_p);

void uli_topology_free(struct uli_topology *topology);

/* ---- what is there ------------------------------------------------------- */

/* Where the graph came from and, if it is flat, why. */
const char *uli_topology_source(const struct uli_topology *topology);
int32_t uli_topology_count(
    const struct uli_topology *topology, enum uli_topo_kind kind);
/* NULL when index is out of range. */
const struct uli_topo_node *uli_topology_node(
    const struct uli_topology *topology, enum uli_topo_kind kind,
    int32_t index);
const struct uli_topo_node *uli_topology_parent(
    const struct uli_topology *topology, const struct uli_topo_node *node);
/* The number of processing units that may be used; the affinity of threads is
 * not considered. */
int32_t uli_topology_cores(const struct uli_topology *topology);
/* The system's number of core i, 0 <= i < cores. */
int32_t uli_topology_core_os_index(
    const struct uli_topology *topology, int32_t i);

const char *uli_topo_kind_name(enum uli_topo_kind kind);
const char *uli_link_class_name(enum uli_link_class class);
/* "0000:1b:00.0"; text_p holds at least 24 bytes. */
const char *uli_topo_pci_text(uint64_t pci, char *text_p, size_t bytes);

/* ---- distances ----------------------------------------------------------- */

/* The link between two GPUs, NICs or NUMA nodes. */
struct uli_topo_link uli_topology_link(const struct uli_topology *topology,
    const struct uli_topo_node *a, const struct uli_topo_node *b);
/* The index of the NUMA node in which a device is, or of a NUMA node itself; or
 * ULI_TOPO_UNKNOWN. On a machine with one NUMA node everything is in it. */
int32_t uli_topology_numa_of(
    const struct uli_topology *topology, const struct uli_topo_node *node);
/* The index of the NUMA node with memory that is nearest to node `numa`: the
 * node itself unless it has no memory, else one in its package, else the
 * lowest. ULI_TOPO_UNKNOWN if numa is ULI_TOPO_UNKNOWN, or no node has
 * memory. */
int32_t uli_topology_memory_near(
    const struct uli_topology *topology, int32_t numa);
/* The index of the NUMA node that has all the given cores (the system's
 * numbers), or ULI_TOPO_UNKNOWN. */
int32_t uli_topology_numa_of_cores(
    const struct uli_topology *topology, const int32_t *cores, int32_t count);

/* The index of a NIC at the least distance from a GPU or NUMA node, or
 * ULI_TOPO_UNKNOWN if there is no NIC. turn = 0, 1, 2, ... gives each of the
 * NICs at this distance once, and then again from the first. */
int32_t uli_topology_nearest_nic(const struct uli_topology *topology,
    const struct uli_topo_node *node, int32_t turn);

/* The system's numbers of the cores near a device: those of its NUMA node; if
 * that is unknown, of its package; else all cores. Writes at most capacity;
 * returns how many there are.
 */
int32_t uli_topology_cores_near(const struct uli_topology *topology,
    const struct uli_topo_node *node, int32_t *cores_p, int32_t capacity);

/* Are there fewer cores than ranks? */
bool uli_topology_is_crowded(
    const struct uli_topology *topology, int32_t ranks);

/* ---- ranks --------------------------------------------------------------- */

/* Indices; ULI_TOPO_UNKNOWN: there is none. */
struct uli_rank_place {
    int32_t gpu, nic, numa;
};

/* Places for local ranks 0 .. count - 1. Rank i gets GPU (i mod number of GPUs)
 * and the GPU's NUMA node. Without GPUs the ranks are divided in equal blocks
 * among the NUMA nodes that have cores. NICs are those of
 * uli_topology_nearest_nic; ranks with the same nearest NICs use them in
 * turn. */
void uli_topology_place_ranks(const struct uli_topology *topology,
    int32_t count, struct uli_rank_place *places_p);

/* The distance of two places. */
enum uli_link_class uli_topology_place_link(const struct uli_topology *topology,
    const struct uli_rank_place *a, const struct uli_rank_place *b);

#endif
