/* SPDX-License-Identifier: Apache-2.0
 *
 * The internals of a topology, for its importers. An importer adds nodes,
 * parents before children, so that there can be no cycle, and calls
 * uli_graph_finish at the end.
 */
#ifndef ULI_TOPOLOGY_GRAPH_H
#define ULI_TOPOLOGY_GRAPH_H

#include "topology/topology.h"

/* Far beyond any machine; a file with more is refused. */
enum {
    ULI_GRAPH_NODES_MAX = 65536,
    ULI_GRAPH_CORES_MAX = 1 << 20,
    ULI_GRAPH_LINKS_MAX = 65536
};

/* numa, package: ids of nodes, or -1 if unknown. */
struct uli_graph_core {
    int32_t os_index, numa, package;
};

struct uli_graph_link {
    int32_t a, b; /* ids */
    double bytes_per_s;
};

struct uli_topology {
    char source[512];
    struct uli_topo_node *nodes;
    int32_t nnodes, nodes_capacity;
    struct uli_graph_core *cores;
    int32_t ncores, cores_capacity;
    struct uli_graph_link *links; /* NVLink */
    int32_t nlinks, links_capacity;
    int32_t *of_kind[ULI_TOPO_KINDS]; /* ids by index */
    int32_t counts[ULI_TOPO_KINDS];
};

/* A machine with nothing in it; NULL: no memory. */
struct uli_topology *uli_graph_create(void);

/* Adds a node. *id_p is its id; its other fields are "unknown".
 * Errors: INVALID_ARGUMENT beyond the limits above, NO_MEMORY. */
ulyx_status_t uli_graph_add(struct uli_topology *graph, enum uli_topo_kind kind,
    int32_t parent, int32_t *id_p);
ulyx_status_t uli_graph_add_core(struct uli_topology *graph, int32_t os_index,
    int32_t numa, int32_t package);
/* Adds a link, for both directions. A second link between the same two nodes
 * replaces the first if it is faster. a = b is ignored. */
ulyx_status_t uli_graph_add_link(
    struct uli_topology *graph, int32_t a, int32_t b, double bytes_per_s);

/* Finds the NVSwitch with that address (also ULI_TOPO_NO_PCI), or adds it. */
ulyx_status_t uli_graph_nvswitch(
    struct uli_topology *graph, uint64_t pci, int32_t *id_p);
/* The payload of one NVLink per direction in bytes per second, as NCCL assumes
 * it. capability: ten times the GPU's compute capability. */
double uli_graph_nvlink_rate(int64_t capability);

/* Numbers the nodes of each kind. To be called again after nodes were added. */
ulyx_status_t uli_graph_finish(struct uli_topology *graph);

/* Id of the node of that kind with that address, or -1. */
int32_t uli_graph_find_pci(
    const struct uli_topology *graph, enum uli_topo_kind kind, uint64_t pci);
/* Id of the nearest ancestor (or itself) of that kind, or -1. */
int32_t uli_graph_above(
    const struct uli_topology *graph, int32_t id, enum uli_topo_kind kind);

/* Reads "[domain:]bus:device.function" in hexadecimal digits. */
bool uli_graph_parse_pci(const char *text, uint64_t *pci_p);

/* The importers. `text` has bytes bytes and a zero after them. dump_path may
 * be NULL. text NULL: this machine. */
ulyx_status_t uli_hwloc_import(const char *text, size_t bytes, const char *name,
    const char *dump_path, struct uli_topology *graph);
/* Refuses files on which hwloc would end the process; errors name file and
 * line. */
ulyx_status_t uli_hwloc_screen(
    const char *text, size_t bytes, const char *name);
/* Rewrites hwloc's XML of version 3 as version 2; the caller frees *text_p.
 * Errors: INVALID_ARGUMENT (not well-formed), NO_MEMORY. */
ulyx_status_t uli_hwloc3_rewrite(const char *text, size_t bytes,
    const char *name, char **text_p, size_t *bytes_p);
ulyx_status_t uli_nccl_import(const char *text, size_t bytes, const char *name,
    struct uli_topology *graph);
/* Adds the NVLinks between GPUs of the graph that NVIDIA's management library
 * reports; none if the library is not installed. */
ulyx_status_t uli_nvml_import(struct uli_topology *graph);

#endif
