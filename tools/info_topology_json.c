/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx_info topology --json: the machine's NUMA nodes, GPUs and NICs, the place
 * of each rank, and the links from rank to rank and from each rank to its NIC.
 *
 *   numa_nodes[i]  {index, cores, memory_bytes}
 *   gpus[i]        {index, name, pci, numa, bytes_per_s}
 *   nics[i]        {index, name, net_name, pci, numa, bytes_per_s}
 *   ranks[r]       {rank, gpu, numa, memory, nic, nic_link}
 *   links          [[class of the link from rank r to rank s]...]
 *   bytes_per_s    [[rate of that link]...]
 *
 * What is not known, or not there, is null. Classes have the names of the text.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "info.h"
#include "topology/topology.h"

static json_t *
index_pack(int32_t index)
{
    return index == ULI_TOPO_UNKNOWN ? json_null() : json_integer(index);
}

static json_t *
rate_pack(double bytes_per_s)
{
    return bytes_per_s > 0 ? json_real(bytes_per_s) : json_null();
}

static json_t *
numa_pack(const struct uli_topology *t, const struct uli_topo_node *n)
{
    return json_pack("{s:i, s:i, s:o}", "index", (int)n->index, "cores",
        (int)uli_topology_cores_near(t, n, NULL, 0), "memory_bytes",
        n->memory_bytes < 0 ? json_null() : json_integer(n->memory_bytes));
}

/* Names may come from a file of another program: a name that is not UTF-8
 * becomes null. */
static json_t *
name_pack(const char *name)
{
    json_t *text = name[0] ? json_string(name) : NULL;

    return text ? text : json_null();
}

static json_t *
device_pack(const struct uli_topology *t, const struct uli_topo_node *n)
{
    char pci[32];
    bool known = n->pci != ULI_TOPO_NO_PCI;

    return json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "index", (int)n->index,
        "name", name_pack(n->name), "net_name", name_pack(n->net_name), "pci",
        name_pack(known ? uli_topo_pci_text(n->pci, pci, sizeof(pci)) : ""),
        "numa", index_pack(uli_topology_numa_of(t, n)), "bytes_per_s",
        rate_pack(n->bytes_per_s));
}

static json_t *
kind_pack_all(const struct uli_topology *t, enum uli_topo_kind kind)
{
    json_t *list = json_array();

    for (int32_t i = 0; i < uli_topology_count(t, kind); i++) {
        const struct uli_topo_node *n = uli_topology_node(t, kind, i);

        json_array_append_new(
            list, kind == ULI_TOPO_NUMA ? numa_pack(t, n) : device_pack(t, n));
    }
    return list;
}

/* The class of the link from a rank to its NIC: from the rank's GPU; without a
 * GPU, "numa" where rank and NIC are on one NUMA node. null: the rank has no
 * NIC, or the distance is not known. */
static json_t *
place_pack_nic_link(
    const struct uli_topology *t, const struct uli_rank_place *place)
{
    const struct uli_topo_node *gpu =
        uli_topology_node(t, ULI_TOPO_GPU, place->gpu);
    const struct uli_topo_node *nic =
        uli_topology_node(t, ULI_TOPO_NIC, place->nic);
    int32_t numa = nic ? uli_topology_numa_of(t, nic) : -1;

    if (!nic)
        return json_null();
    if (gpu)
        return json_string(
            uli_link_class_name(uli_topology_link(t, gpu, nic).class));
    return numa != ULI_TOPO_UNKNOWN && numa == place->numa
               ? json_string(uli_link_class_name(ULI_LINK_NUMA))
               : json_null();
}

static json_t *
place_pack(
    const struct uli_topology *t, const struct uli_rank_place *place, int rank)
{
    return json_pack("{s:i, s:o, s:o, s:o, s:o, s:o}", "rank", rank, "gpu",
        index_pack(place->gpu), "numa", index_pack(place->numa), "memory",
        index_pack(uli_topology_memory_near(t, place->numa)), "nic",
        index_pack(place->nic), "nic_link", place_pack_nic_link(t, place));
}

/* Appends row r to the matrix of classes and to the matrix of rates. Rates are
 * known only between GPUs. */
static void
links_append_rank(const struct uli_topology *t,
    const struct uli_rank_place *places, int32_t ranks, int32_t r,
    json_t *classes, json_t *rates)
{
    json_t *row = json_array(), *row_rates = json_array();
    const struct uli_topo_node *a =
        uli_topology_node(t, ULI_TOPO_GPU, places[r].gpu);

    for (int32_t s = 0; s < ranks; s++) {
        const struct uli_topo_node *b =
            uli_topology_node(t, ULI_TOPO_GPU, places[s].gpu);
        double rate =
            a && b && a != b ? uli_topology_link(t, a, b).bytes_per_s : 0;

        json_array_append_new(
            row, json_string(uli_link_class_name(
                     uli_topology_place_link(t, &places[r], &places[s]))));
        json_array_append_new(row_rates, rate_pack(rate));
    }
    json_array_append_new(classes, row);
    json_array_append_new(rates, row_rates);
}

int
info_topology_json(const struct uli_topology *t, int32_t ranks)
{
    struct uli_rank_place *places = calloc((size_t)ranks + 1, sizeof(*places));
    json_t *list = json_array(), *links = json_array(), *rates = json_array();
    json_t *root;

    if (places)
        uli_topology_place_ranks(t, ranks, places);
    for (int32_t r = 0; places && r < ranks; r++) {
        json_array_append_new(list, place_pack(t, &places[r], r));
        links_append_rank(t, places, ranks, r, links, rates);
    }
    root = json_pack(
        "{s:i, s:s, s:s, s:o, s:i, s:b, s:o, s:o, s:o, s:i, s:o, s:o, s:o}",
        "schema", 1, "kind", "topology", "version", info_version(), "source",
        name_pack(uli_topology_source(t)), "cores", (int)uli_topology_cores(t),
        "crowded", (int)uli_topology_is_crowded(t, ranks), "numa_nodes",
        kind_pack_all(t, ULI_TOPO_NUMA), "gpus", kind_pack_all(t, ULI_TOPO_GPU),
        "nics", kind_pack_all(t, ULI_TOPO_NIC), "nvswitches",
        (int)uli_topology_count(t, ULI_TOPO_NVSWITCH), "ranks", list, "links",
        links, "bytes_per_s", rates);
    if (!places) {
        json_decref(root);
        root = NULL;
    }
    free(places);
    return info_write_json(root);
}
