/* SPDX-License-Identifier: Apache-2.0
 *
 * Distances in the graph; see topology.h. Everything follows from the lowest
 * common ancestor of two nodes. If this ancestor is the machine itself, the two
 * nodes are far apart if the places of both are known; otherwise their distance
 * is unknown.
 */
#include "topology/graph.h"

#include <inttypes.h>
#include <stdio.h>

const char *
uli_topology_source(const struct uli_topology *topology)
{
    return topology->source;
}

int32_t
uli_topology_count(const struct uli_topology *topology, enum uli_topo_kind kind)
{
    return topology->counts[kind];
}

const struct uli_topo_node *
uli_topology_node(
    const struct uli_topology *topology, enum uli_topo_kind kind, int32_t index)
{
    if (index < 0 || index >= topology->counts[kind])
        return NULL;
    return &topology->nodes[topology->of_kind[kind][index]];
}

const struct uli_topo_node *
uli_topology_parent(
    const struct uli_topology *topology, const struct uli_topo_node *node)
{
    return node->parent < 0 ? NULL : &topology->nodes[node->parent];
}

int32_t
uli_topology_cores(const struct uli_topology *topology)
{
    return topology->ncores;
}

int32_t
uli_topology_core_os_index(const struct uli_topology *topology, int32_t i)
{
    return topology->cores[i].os_index;
}

const char *
uli_topo_kind_name(enum uli_topo_kind kind)
{
    static const char *const names[ULI_TOPO_KINDS] = {"machine", "package",
        "NUMA node", "PCI root", "PCI switch", "GPU", "NIC", "NVSwitch"};
    return names[kind];
}

const char *uli_link_class_name(enum uli_link_class class)
{
    static const char *const names[ULI_LINK_CLASSES] = {
        "self", "nvlink", "switch", "numa", "package", "system", "unknown"};
    return names[class];
}

const char *
uli_topo_pci_text(uint64_t pci, char *text_p, size_t bytes)
{
    if (pci == ULI_TOPO_NO_PCI)
        snprintf(text_p, bytes, "no PCI address");
    else
        snprintf(text_p, bytes, "%04" PRIx64 ":%02x:%02x.%x", pci >> 16,
            (unsigned)(pci >> 8 & 0xff), (unsigned)(pci >> 3 & 0x1f),
            (unsigned)(pci & 7));
    return text_p;
}

/* ---- pairs --------------------------------------------------------------- */

static int32_t
depth_of(const struct uli_topology *t, int32_t id)
{
    int32_t depth = 0;
    while (t->nodes[id].parent >= 0) {
        id = t->nodes[id].parent;
        depth++;
    }
    return depth;
}

static int32_t
common_ancestor(const struct uli_topology *t, int32_t a, int32_t b)
{
    int32_t depth_a = depth_of(t, a), depth_b = depth_of(t, b);
    for (; depth_a > depth_b; depth_a--)
        a = t->nodes[a].parent;
    for (; depth_b > depth_a; depth_b--)
        b = t->nodes[b].parent;
    while (a != b && a >= 0 && b >= 0) {
        a = t->nodes[a].parent;
        b = t->nodes[b].parent;
    }
    return a == b ? a : -1;
}

/* Is it known in which package or NUMA node the node is? */
static bool
is_placed(const struct uli_topology *t, int32_t id)
{
    return uli_graph_above(t, id, ULI_TOPO_NUMA) >= 0 ||
           uli_graph_above(t, id, ULI_TOPO_PACKAGE) >= 0;
}

static enum uli_link_class
tree_class(const struct uli_topology *t, int32_t a, int32_t b)
{
    int32_t ancestor = common_ancestor(t, a, b);
    if (a == b)
        return ULI_LINK_SELF;
    switch (ancestor < 0 ? ULI_TOPO_NVSWITCH : t->nodes[ancestor].kind) {
    case ULI_TOPO_PCI_SWITCH:
        return ULI_LINK_SWITCH;
    case ULI_TOPO_PCI_ROOT:
    case ULI_TOPO_NUMA:
        return ULI_LINK_NUMA;
    case ULI_TOPO_PACKAGE:
        return t->counts[ULI_TOPO_NUMA] == 1 ? ULI_LINK_NUMA : ULI_LINK_PACKAGE;
    case ULI_TOPO_MACHINE:
        if (t->counts[ULI_TOPO_NUMA] == 1)
            return ULI_LINK_NUMA;
        return is_placed(t, a) && is_placed(t, b) ? ULI_LINK_SYSTEM
                                                  : ULI_LINK_UNKNOWN;
    default:
        return ULI_LINK_UNKNOWN;
    }
}

/* Bytes per second by NVLink: by direct links, or through switches, where the
 * rates of all links to switches add up. 0 without NVLink. */
static double
nvlink_rate(const struct uli_topology *t, int32_t a, int32_t b)
{
    double direct = 0, to_switches[2] = {0, 0};
    for (int32_t i = 0; i < t->nlinks; i++) {
        const struct uli_graph_link *link = &t->links[i];
        if ((link->a == a && link->b == b) || (link->a == b && link->b == a))
            direct += link->bytes_per_s;
        bool first = t->nodes[link->a].kind == ULI_TOPO_NVSWITCH;
        bool second = t->nodes[link->b].kind == ULI_TOPO_NVSWITCH;
        int32_t gpu = first ? link->b : link->a;
        if (first != second && (gpu == a || gpu == b))
            to_switches[gpu == b] += link->bytes_per_s;
    }
    double switched =
        to_switches[0] < to_switches[1] ? to_switches[0] : to_switches[1];
    return direct > switched ? direct : switched;
}

/* The slowest known rate on the way from id up to ancestor, whose own rate does
 * not count. The rate of a NIC does not count either, because it is that of the
 * network. */
static double
path_rate(const struct uli_topology *t, int32_t id, int32_t ancestor)
{
    double rate = 0;
    for (; id >= 0 && id != ancestor; id = t->nodes[id].parent) {
        double step = t->nodes[id].bytes_per_s;
        if (t->nodes[id].kind != ULI_TOPO_NIC && step > 0 &&
            (rate == 0 || step < rate))
            rate = step;
    }
    return rate;
}

static double
link_is_slower(double a, double b)
{
    if (a == 0 || b == 0)
        return a + b;
    return a < b ? a : b;
}

struct uli_topo_link
uli_topology_link(const struct uli_topology *t, const struct uli_topo_node *a,
    const struct uli_topo_node *b)
{
    struct uli_topo_link link = {tree_class(t, a->id, b->id), 0, 0};
    double nvlink = nvlink_rate(t, a->id, b->id);
    int32_t ancestor = common_ancestor(t, a->id, b->id);
    if (link.class == ULI_LINK_SELF)
        return link;
    if (nvlink > 0)
        return (struct uli_topo_link){ULI_LINK_NVLINK, nvlink, 0};
    link.bytes_per_s = link_is_slower(
        path_rate(t, a->id, ancestor), path_rate(t, b->id, ancestor));
    return link;
}

/* ---- NUMA nodes and cores ------------------------------------------------ */

static const struct uli_graph_core *
find_core(const struct uli_topology *t, int32_t os_index)
{
    for (int32_t i = 0; i < t->ncores; i++)
        if (t->cores[i].os_index == os_index)
            return &t->cores[i];
    return NULL;
}

int32_t
uli_topology_numa_of(
    const struct uli_topology *topology, const struct uli_topo_node *node)
{
    int32_t id = uli_graph_above(topology, node->id, ULI_TOPO_NUMA);
    if (id >= 0)
        return topology->nodes[id].index;
    return topology->counts[ULI_TOPO_NUMA] == 1 ? 0 : ULI_TOPO_UNKNOWN;
}

int32_t
uli_topology_memory_near(const struct uli_topology *topology, int32_t numa)
{
    const struct uli_topo_node *node =
        uli_topology_node(topology, ULI_TOPO_NUMA, numa);
    int32_t best = ULI_TOPO_UNKNOWN;
    enum uli_link_class best_class = ULI_LINK_CLASSES;
    for (int32_t i = 0; node && i < topology->counts[ULI_TOPO_NUMA]; i++) {
        const struct uli_topo_node *other =
            uli_topology_node(topology, ULI_TOPO_NUMA, i);
        enum uli_link_class class = tree_class(topology, node->id, other->id);
        if (other->memory_bytes != 0 && class < best_class) {
            best = i;
            best_class = class;
        }
    }
    return best;
}

int32_t
uli_topology_numa_of_cores(
    const struct uli_topology *topology, const int32_t *cores, int32_t count)
{
    int32_t numa = -1;
    for (int32_t i = 0; i < count; i++) {
        const struct uli_graph_core *core = find_core(topology, cores[i]);
        if (!core || core->numa < 0 || (i > 0 && core->numa != numa))
            return ULI_TOPO_UNKNOWN;
        numa = core->numa;
    }
    return numa < 0 ? ULI_TOPO_UNKNOWN : topology->nodes[numa].index;
}

int32_t
uli_topology_cores_near(const struct uli_topology *topology,
    const struct uli_topo_node *node, int32_t *cores_p, int32_t capacity)
{
    int32_t numa = uli_graph_above(topology, node->id, ULI_TOPO_NUMA);
    int32_t package = uli_graph_above(topology, node->id, ULI_TOPO_PACKAGE);
    int32_t count = 0;
    for (int32_t i = 0; i < topology->ncores; i++) {
        const struct uli_graph_core *core = &topology->cores[i];
        if ((numa >= 0 && core->numa != numa) ||
            (numa < 0 && package >= 0 && core->package != package))
            continue;
        if (count < capacity)
            cores_p[count] = core->os_index;
        count++;
    }
    return count;
}

bool
uli_topology_is_crowded(const struct uli_topology *topology, int32_t ranks)
{
    return ranks > topology->ncores;
}
