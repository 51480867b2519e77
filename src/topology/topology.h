/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine as the planner sees it: a small graph of our own. A tree has the
 * places of things
 *
 *     machine > package > NUMA node > PCI root > PCI switch > GPU or NIC
 *
 * (any level may be missing) and a list of links has what NVLink joins beside
 * it. The distance of two things is the kind of their lowest common ancestor.
 * Values that the system does not give stay unknown and are never taken for
 * 0: a device whose NUMA node is unknown hangs from the machine itself.
 *
 * The graph comes from hwloc (this machine, or a file in its XML of version
 * 2) or from NCCL's topology XML. It never changes once made, so all queries
 * may be called by any thread.
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
    ULI_LINK_SYSTEM,  /* across packages or NUMA nodes of different ones */
    ULI_LINK_UNKNOWN, /* the place of one of the two is not known */
    ULI_LINK_CLASSES
};

#define ULI_TOPO_NAME    32
#define ULI_TOPO_UNKNOWN (-1)

struct uli_topo_node {
    enum uli_topo_kind kind;
    int32_t id;       /* position in the graph */
    int32_t parent;   /* id; -1 for the machine and for NVSwitches */
    int32_t index;    /* among its kind: in PCI order, else as found */
    int32_t os_index; /* the system's number, or ULI_TOPO_UNKNOWN */
    uint64_t pci;     /* domain << 16 | bus << 8 | device << 3 | function, or
                       * ULI_TOPO_NO_PCI */
    char name[ULI_TOPO_NAME];     /* "mlx5_0", "cuda0"; "" when unknown */
    char net_name[ULI_TOPO_NAME]; /* the NIC's network device, or "" */
    double bytes_per_s;           /* towards the parent, a NIC's towards the
                                   * network; 0 unknown */
    double latency_s;             /* of a NIC; 0 unknown */
    int64_t memory_bytes;         /* of a NUMA node; -1 unknown */
};

#define ULI_TOPO_NO_PCI UINT64_MAX

/* Of a pair: 0 where bandwidth or latency is not known. */
struct uli_topo_link {
    enum uli_link_class class;
    double bytes_per_s, latency_s;
};

struct uli_topology;

/* ---- making one ---------------------------------------------------------- */

/* The machine that settings->topo_file describes, or this one. Any failure of
 * detection gives a flat machine (cores, nothing else) and is logged once per
 * process; the text of uli_topology_source has the reason. Writes
 * settings->topo_dump_file.
 * returns SUCCESS or NO_MEMORY. The caller frees *topology_p. */
ulyx_status_t uli_topology_load(
    const struct uli_settings *settings, struct uli_topology **topology_p);

/* As above without NVLink, kept by the process: loaded once for all
 * communicators, and once more for each other topo_file. NULL without memory.
 * Not to be freed.
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

/* Where the graph came from, and why it is flat when it is. */
const char *uli_topology_source(const struct uli_topology *topology);
int32_t uli_topology_count(
    const struct uli_topology *topology, enum uli_topo_kind kind);
/* NULL when index is out of range. */
const struct uli_topo_node *uli_topology_node(
    const struct uli_topology *topology, enum uli_topo_kind kind,
    int32_t index);
const struct uli_topo_node *uli_topology_parent(
    const struct uli_topology *topology, const struct uli_topo_node *node);
/* Processing units that may be used (affinity is not looked at). */
int32_t uli_topology_cores(const struct uli_topology *topology);
/* The system's number of core i, 0 <= i < cores. */
int32_t uli_topology_core_os_index(
    const struct uli_topology *topology, int32_t i);

const char *uli_topo_kind_name(enum uli_topo_kind kind);
const char *uli_link_class_name(enum uli_link_class class);
/* "0000:1b:00.0"; text_p holds at least 24 bytes. */
const char *uli_topo_pci_text(uint64_t pci, char *text_p, size_t bytes);

/* ---- distances ----------------------------------------------------------- */

/* Two GPUs, two NICs or one of each. */
struct uli_topo_link uli_topology_link(const struct uli_topology *topology,
    const struct uli_topo_node *a, const struct uli_topo_node *b);
/* Index of the NUMA node that a device or NUMA node is at, or
 * ULI_TOPO_UNKNOWN. On a machine with one NUMA node everything is there. */
int32_t uli_topology_numa_of(
    const struct uli_topology *topology, const struct uli_topo_node *node);
/* Index of the nearest NUMA node that has memory (in the same package first,
 * then the lowest): itself but for memoryless nodes. ULI_TOPO_UNKNOWN for
 * ULI_TOPO_UNKNOWN, and when none has. */
int32_t uli_topology_memory_near(
    const struct uli_topology *topology, int32_t numa);
/* Index of the NUMA node that holds all the given cores (the system's
 * numbers), or ULI_TOPO_UNKNOWN. */
int32_t uli_topology_numa_of_cores(
    const struct uli_topology *topology, const int32_t *cores, int32_t count);

/* The NICs at the least distance from a GPU or NUMA node are taken in turn:
 * `turn` 0, 1, 2, ... gives each of them once before any twice. Index of the
 * NIC, or ULI_TOPO_UNKNOWN when there is none. */
int32_t uli_topology_nearest_nic(const struct uli_topology *topology,
    const struct uli_topo_node *node, int32_t turn);

/* The system's numbers of the cores near a device: of its NUMA node, else of
 * its package, else all. Writes at most capacity; returns how many there are.
 */
int32_t uli_topology_cores_near(const struct uli_topology *topology,
    const struct uli_topo_node *node, int32_t *cores_p, int32_t capacity);

/* True when that many ranks cannot each have a core. */
bool uli_topology_is_crowded(
    const struct uli_topology *topology, int32_t ranks);

/* ---- ranks --------------------------------------------------------------- */

/* Indices, ULI_TOPO_UNKNOWN where there is none. */
struct uli_rank_place {
    int32_t gpu, nic, numa;
};

/* Places for local ranks 0 .. count - 1: rank i has GPU i mod GPUs, and its
 * NUMA node; without GPUs the ranks fill the NUMA nodes that have cores in
 * equal blocks. NICs as uli_topology_nearest_nic gives them, in turn among
 * the ranks with the same choice. */
void uli_topology_place_ranks(const struct uli_topology *topology,
    int32_t count, struct uli_rank_place *places_p);

/* The distance of two places. */
enum uli_link_class uli_topology_place_link(const struct uli_topology *topology,
    const struct uli_rank_place *a, const struct uli_rank_place *b);

#endif
