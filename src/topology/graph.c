/* SPDX-License-Identifier: Apache-2.0
 *
 * Builds and numbers a graph; see graph.h. Machines have tens of devices, so
 * plain arrays and linear searches are fast enough.
 */
#include "topology/graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"

/* Makes room for one more item of `size` bytes in *array_p. */
static ulyx_status_t
graph_grow(void *array_p, int32_t count, int32_t *capacity_p, size_t size,
    int32_t limit)
{
    void **array = array_p;
    if (count < *capacity_p)
        return ULYX_SUCCESS;
    if (count >= limit)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "a machine with more than %" PRId32 " objects of one kind", limit);
    int32_t capacity = count < 16 ? 16 : 2 * count;
    void *larger = realloc(*array, (size_t)capacity * size);
    if (!larger)
        return uli_error(ULYX_ERR_NO_MEMORY, "topology: no memory");
    *array = larger;
    *capacity_p = capacity;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_graph_add(struct uli_topology *graph, enum uli_topo_kind kind,
    int32_t parent, int32_t *id_p)
{
    ULI_TRY(graph_grow(&graph->nodes, graph->nnodes, &graph->nodes_capacity,
        sizeof(*graph->nodes), ULI_GRAPH_NODES_MAX));
    struct uli_topo_node *node = &graph->nodes[graph->nnodes];
    memset(node, 0, sizeof(*node));
    node->kind = kind;
    node->id = graph->nnodes;
    node->parent = parent;
    node->os_index = ULI_TOPO_UNKNOWN;
    node->pci = ULI_TOPO_NO_PCI;
    node->memory_bytes = -1;
    *id_p = graph->nnodes++;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_graph_add_core(
    struct uli_topology *graph, int32_t os_index, int32_t numa, int32_t package)
{
    ULI_TRY(graph_grow(&graph->cores, graph->ncores, &graph->cores_capacity,
        sizeof(*graph->cores), ULI_GRAPH_CORES_MAX));
    graph->cores[graph->ncores++] =
        (struct uli_graph_core){os_index, numa, package};
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_graph_add_link(
    struct uli_topology *graph, int32_t a, int32_t b, double bytes_per_s)
{
    if (a == b)
        return ULYX_SUCCESS;
    for (int32_t i = 0; i < graph->nlinks; i++) {
        struct uli_graph_link *link = &graph->links[i];
        bool same =
            (link->a == a && link->b == b) || (link->a == b && link->b == a);
        if (same && bytes_per_s > link->bytes_per_s)
            link->bytes_per_s = bytes_per_s;
        if (same)
            return ULYX_SUCCESS;
    }
    ULI_TRY(graph_grow(&graph->links, graph->nlinks, &graph->links_capacity,
        sizeof(*graph->links), ULI_GRAPH_LINKS_MAX));
    graph->links[graph->nlinks++] = (struct uli_graph_link){a, b, bytes_per_s};
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_graph_nvswitch(struct uli_topology *graph, uint64_t pci, int32_t *id_p)
{
    for (int32_t id = 0; id < graph->nnodes; id++)
        if (graph->nodes[id].kind == ULI_TOPO_NVSWITCH &&
            graph->nodes[id].pci == pci) {
            *id_p = id;
            return ULYX_SUCCESS;
        }
    ULI_TRY(uli_graph_add(graph, ULI_TOPO_NVSWITCH, -1, id_p));
    graph->nodes[*id_p].pci = pci;
    return ULYX_SUCCESS;
}

double
uli_graph_nvlink_rate(int64_t capability)
{
    if (capability >= 100)
        return 40.1e9;
    if (capability >= 90)
        return 20.6e9;
    return capability >= 80 ? 20.0e9 : 18.0e9;
}

struct uli_topology *
uli_graph_create(void)
{
    struct uli_topology *graph = calloc(1, sizeof(*graph));
    int32_t machine;
    if (graph && uli_graph_add(graph, ULI_TOPO_MACHINE, -1, &machine)) {
        free(graph);
        return NULL;
    }
    return graph;
}

void
uli_topology_free(struct uli_topology *graph)
{
    if (!graph)
        return;
    for (int kind = 0; kind < ULI_TOPO_KINDS; kind++)
        free(graph->of_kind[kind]);
    free(graph->nodes);
    free(graph->cores);
    free(graph->links);
    free(graph);
}

/* ---- numbering ----------------------------------------------------------- */

static bool
comes_before(const struct uli_topo_node *a, const struct uli_topo_node *b)
{
    if (a->pci != b->pci)
        return a->pci < b->pci;
    return a->id < b->id;
}

/* Insertion sort: importers find devices nearly in order. */
static void
topology_insert(
    const struct uli_topology *graph, int32_t *ids, int32_t count, int32_t id)
{
    int32_t at = count;
    while (
        at > 0 && comes_before(&graph->nodes[id], &graph->nodes[ids[at - 1]])) {
        ids[at] = ids[at - 1];
        at--;
    }
    ids[at] = id;
}

ulyx_status_t
uli_graph_finish(struct uli_topology *graph)
{
    memset(graph->counts, 0, sizeof(graph->counts));
    for (int kind = 0; kind < ULI_TOPO_KINDS; kind++) {
        free(graph->of_kind[kind]);
        graph->of_kind[kind] =
            malloc((size_t)graph->nnodes * sizeof(*graph->of_kind[kind]));
        if (!graph->of_kind[kind])
            return uli_error(ULYX_ERR_NO_MEMORY, "topology: no memory");
    }
    for (int32_t id = 0; id < graph->nnodes; id++) {
        enum uli_topo_kind kind = graph->nodes[id].kind;
        topology_insert(graph, graph->of_kind[kind], graph->counts[kind]++, id);
    }
    for (int kind = 0; kind < ULI_TOPO_KINDS; kind++)
        for (int32_t i = 0; i < graph->counts[kind]; i++)
            graph->nodes[graph->of_kind[kind][i]].index = i;
    return ULYX_SUCCESS;
}

/* ---- look-up ------------------------------------------------------------- */

int32_t
uli_graph_find_pci(
    const struct uli_topology *graph, enum uli_topo_kind kind, uint64_t pci)
{
    for (int32_t id = 0; pci != ULI_TOPO_NO_PCI && id < graph->nnodes; id++)
        if (graph->nodes[id].kind == kind && graph->nodes[id].pci == pci)
            return id;
    return -1;
}

int32_t
uli_graph_above(
    const struct uli_topology *graph, int32_t id, enum uli_topo_kind kind)
{
    while (id >= 0 && graph->nodes[id].kind != kind)
        id = graph->nodes[id].parent;
    return id;
}

bool
uli_graph_parse_pci(const char *text, uint64_t *pci_p)
{
    unsigned domain = 0, bus, device, function;
    int end = 0;
    if (strlen(text) > 23)
        return false;
    if (sscanf(text, "%8x:%2x:%2x.%1x%n", &domain, &bus, &device, &function,
            &end) != 4 ||
        text[end]) {
        domain = 0;
        end = 0;
        if (sscanf(text, "%2x:%2x.%1x%n", &bus, &device, &function, &end) !=
                3 ||
            text[end])
            return false;
    }
    if (device > 31 || function > 7)
        return false;
    *pci_p = (uint64_t)domain << 16 | bus << 8 | device << 3 | function;
    return true;
}
