/* SPDX-License-Identifier: Apache-2.0
 *
 * The NIC that a rank sends by.
 */
#ifndef ULI_TOPOLOGY_NIC_H
#define ULI_TOPOLOGY_NIC_H

#include "topology/topology.h"

/* The place of local rank `rank` of `count`: as uli_topology_place_ranks has
 * it, but where the cores given (the system's numbers; those that the rank may
 * run on) all lie in one NUMA node and there is no GPU, the rank is there. */
void uli_topology_place_rank(const struct uli_topology *topology, int32_t rank,
    int32_t count, const int32_t *cores, int32_t ncores,
    struct uli_rank_place *place_p);

/* The name of the nearest NIC of that rank in this process ("mlx5_0"), ranks
 * with the same choice taking theirs in turn. The first call loads the
 * machine's description (milliseconds; ULYX_TOPO_FILE's where that is set).
 * False, with the reason in why_p, where the description has none: then the
 * network chooses. */
bool uli_node_nic(const struct uli_settings *settings, int32_t rank,
    int32_t count, char name_p[ULI_TOPO_NAME], char *why_p, size_t why_bytes);

#endif
