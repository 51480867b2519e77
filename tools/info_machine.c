/* SPDX-License-Identifier: Apache-2.0
 *
 * The links of a machine; see info_machine.h.
 */
#include "info_machine.h"

static void
take_rate(
    struct uli_model *model, enum uli_model_class class, double bytes_per_s)
{
    struct uli_model_link *link = &model->links[class];
    if (bytes_per_s <= 0)
        return;
    link->npoints = 1;
    link->s_per_byte[0] = 1 / bytes_per_s;
    link->source = ULI_SOURCE_TOPOLOGY;
}

/* The link between the first two GPUs; false where there are no two. */
static bool
gpu_link(const struct uli_topology *topology, struct uli_topo_link *link_p)
{
    const struct uli_topo_node *first =
        uli_topology_node(topology, ULI_TOPO_GPU, 0);
    const struct uli_topo_node *second =
        uli_topology_node(topology, ULI_TOPO_GPU, 1);
    if (!first || !second)
        return false;
    *link_p = uli_topology_link(topology, first, second);
    return true;
}

enum uli_model_class
info_machine_local(const struct uli_topology *topology)
{
    struct uli_topo_link link;
    if (gpu_link(topology, &link))
        return link.class == ULI_LINK_NVLINK ? ULI_MODEL_NVLINK
                                             : ULI_MODEL_PCIE;
    return uli_topology_count(topology, ULI_TOPO_NUMA) > 1 ? ULI_MODEL_FAR
                                                           : ULI_MODEL_NEAR;
}

void
info_machine_rates(const struct uli_topology *topology, struct uli_model *model)
{
    const struct uli_topo_node *nic =
        uli_topology_node(topology, ULI_TOPO_NIC, 0);
    struct uli_topo_link link;
    if (gpu_link(topology, &link))
        take_rate(model, info_machine_local(topology), link.bytes_per_s);
    if (nic) {
        take_rate(model, ULI_MODEL_NIC, nic->bytes_per_s);
        take_rate(model, ULI_MODEL_SPINE, nic->bytes_per_s);
        model->nics = uli_topology_count(topology, ULI_TOPO_NIC);
    }
}
