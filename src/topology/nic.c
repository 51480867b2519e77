/* SPDX-License-Identifier: Apache-2.0
 *
 * See nic.h.
 */
#include "topology/nic.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "topology/node.h"

enum { CORES_MAX = 1024 };

/* How many ranks before this one would be given the same first NIC. */
static int32_t
turn_of(const struct uli_topology *t, const struct uli_rank_place *places,
    int32_t rank, const struct uli_topo_node *anchor)
{
    int32_t nearest = uli_topology_nearest_nic(t, anchor, 0), turn = 0;
    for (int32_t r = 0; r < rank; r++) {
        const struct uli_topo_node *other =
            uli_topology_node(t, ULI_TOPO_NUMA, places[r].numa);
        turn += other && uli_topology_nearest_nic(t, other, 0) == nearest;
    }
    return turn;
}

void
uli_topology_place_rank(const struct uli_topology *topology, int32_t rank,
    int32_t count, const int32_t *cores, int32_t ncores,
    struct uli_rank_place *place_p)
{
    struct uli_rank_place *places = calloc((size_t)count, sizeof(*places));
    int32_t numa = uli_topology_numa_of_cores(topology, cores, ncores);
    *place_p = (struct uli_rank_place){
        ULI_TOPO_UNKNOWN, ULI_TOPO_UNKNOWN, ULI_TOPO_UNKNOWN};
    if (!places)
        return;
    uli_topology_place_ranks(topology, count, places);
    *place_p = places[rank];
    if (place_p->gpu < 0 && numa >= 0 && numa != place_p->numa) {
        const struct uli_topo_node *anchor =
            uli_topology_node(topology, ULI_TOPO_NUMA, numa);
        place_p->numa = numa;
        place_p->nic = uli_topology_nearest_nic(
            topology, anchor, turn_of(topology, places, rank, anchor));
    }
    free(places);
}

bool
uli_node_nic(const struct uli_settings *settings, int32_t rank, int32_t count,
    char name_p[ULI_TOPO_NAME], char *why_p, size_t why_bytes)
{
    const struct uli_topology *topology = uli_topology_shared(settings);
    struct uli_rank_place place;
    int32_t cores[CORES_MAX];
    snprintf(why_p, why_bytes, "no memory");
    if (!topology)
        return false;
    int32_t ncores = uli_node_core_list(cores, CORES_MAX);
    if (ncores > CORES_MAX)
        ncores = 0; /* bound to no NUMA node */
    uli_topology_place_rank(topology, rank, count, cores, ncores, &place);
    const struct uli_topo_node *nic =
        uli_topology_node(topology, ULI_TOPO_NIC, place.nic);
    bool found = nic && nic->name[0];
    if (found)
        snprintf(name_p, ULI_TOPO_NAME, "%s", nic->name);
    else
        snprintf(
            why_p, why_bytes, "no NIC in %s", uli_topology_source(topology));
    return found;
}
