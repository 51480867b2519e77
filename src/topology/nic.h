/* SPDX-License-Identifier: Apache-2.0
 *
 * The NIC with which a rank sends.
 */
#ifndef ULI_TOPOLOGY_NIC_H
#define ULI_TOPOLOGY_NIC_H

#include "topology/topology.h"

/* The place of local rank `rank` of `count`, as uli_topology_place_ranks gives
 * it. But if there is no GPU, and the given cores, on which the rank may run
 * (the system's numbers), are all in one NUMA node, the rank is placed in that
 * node. */
void uli_topology_place_rank(const struct uli_topology *topology, int32_t rank,
    int32_t count, const int32_t *cores, int32_t ncores,
    struct uli_rank_place *place_p);

/* The name ("mlx5_0") of the nearest NIC of that rank, which runs in this
 * process; ranks with the same nearest NICs use them in turn. The first call
 * loads the machine's description (in milliseconds; that of ULYX_TOPO_FILE if
 * it is set). False, with the reason in why_p, if the description has no NIC:
 * the network library then chooses. */
bool uli_node_nic(const struct uli_settings *settings, int32_t rank,
    int32_t count, char name_p[ULI_TOPO_NAME], char *why_p, size_t why_bytes);

#endif
