/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the ranks of a node are: GPU, NUMA node, NIC, and how near two places
 * are.
 */
#include "topology/graph.h"

#include <stdlib.h>

/* ---- NICs ---------------------------------------------------------------- */

/* Steps in the tree from a to b; decides between NICs of equal link class. */
static int32_t
topology_hops(const struct uli_topology *t, int32_t a, int32_t b)
{
    int32_t count = 0;
    for (int32_t at = a; at >= 0; at = t->nodes[at].parent, count++) {
        int32_t steps = 0;
        for (int32_t to = b; to >= 0; to = t->nodes[to].parent, steps++)
            if (to == at)
                return count + steps;
    }
    return INT32_MAX;
}

struct distance {
    enum uli_link_class class;
    int32_t hops;
};

static struct distance
distance_to_nic(
    const struct uli_topology *t, const struct uli_topo_node *node, int32_t nic)
{
    const struct uli_topo_node *to = uli_topology_node(t, ULI_TOPO_NIC, nic);
    return (struct distance){uli_topology_link(t, node, to).class,
        topology_hops(t, node->id, to->id)};
}

static bool
is_nearer(struct distance a, struct distance b)
{
    return a.class != b.class ? a.class < b.class : a.hops < b.hops;
}

static struct distance
nearest_distance(const struct uli_topology *t, const struct uli_topo_node *node)
{
    struct distance best = {ULI_LINK_CLASSES, INT32_MAX};
    for (int32_t i = 0; i < t->counts[ULI_TOPO_NIC]; i++) {
        struct distance distance = distance_to_nic(t, node, i);
        if (is_nearer(distance, best))
            best = distance;
    }
    return best;
}

int32_t
uli_topology_nearest_nic(const struct uli_topology *topology,
    const struct uli_topo_node *node, int32_t turn)
{
    struct distance best = nearest_distance(topology, node);
    int32_t nics = topology->counts[ULI_TOPO_NIC], count = 0;
    for (int32_t i = 0; i < nics; i++)
        count += !is_nearer(best, distance_to_nic(topology, node, i));
    if (count == 0)
        return ULI_TOPO_UNKNOWN;
    turn %= count;
    for (int32_t i = 0; i < nics; i++)
        if (!is_nearer(best, distance_to_nic(topology, node, i)) && turn-- == 0)
            return i;
    return ULI_TOPO_UNKNOWN;
}

/* ---- ranks --------------------------------------------------------------- */

/* Writes the indices of the NUMA nodes that have cores to homes_p[NUMA nodes];
 * returns their number. */
static int32_t
find_homes(const struct uli_topology *t, int32_t *homes_p)
{
    int32_t count = 0;
    for (int32_t i = 0; i < t->counts[ULI_TOPO_NUMA]; i++) {
        int32_t id = t->of_kind[ULI_TOPO_NUMA][i], core = 0;
        while (core < t->ncores && t->cores[core].numa != id)
            core++;
        if (core < t->ncores)
            homes_p[count++] = i;
    }
    return count;
}

/* The home of a rank: ranks are spread evenly over the homes, in order. */
static int32_t
home_of_rank(const struct uli_topology *t, const int32_t *homes, int32_t nhomes,
    int32_t rank, int32_t ranks)
{
    if (nhomes == 0)
        return t->counts[ULI_TOPO_NUMA] == 1 ? 0 : ULI_TOPO_UNKNOWN;
    return homes[(int64_t)rank * nhomes / ranks];
}

static const struct uli_topo_node *
topology_anchor(
    const struct uli_topology *t, const struct uli_rank_place *place)
{
    if (place->gpu >= 0)
        return uli_topology_node(t, ULI_TOPO_GPU, place->gpu);
    if (place->numa >= 0)
        return uli_topology_node(t, ULI_TOPO_NUMA, place->numa);
    return &t->nodes[0];
}

/* Chooses a rank's NIC. The rank's turn is the number of lower ranks that have
 * the same first NIC, and so the same NICs to choose from. */
static int32_t
choose_nic(const struct uli_topology *t, const struct uli_rank_place *places,
    const int32_t *first, int32_t rank)
{
    int32_t turn = 0;
    for (int32_t r = 0; r < rank; r++)
        turn += first[r] == first[rank];
    return uli_topology_nearest_nic(t, topology_anchor(t, &places[rank]), turn);
}

void
uli_topology_place_ranks(const struct uli_topology *topology, int32_t count,
    struct uli_rank_place *places_p)
{
    int32_t gpus = topology->counts[ULI_TOPO_GPU];
    int32_t *homes =
        malloc((size_t)(topology->counts[ULI_TOPO_NUMA] + 1) * sizeof(*homes));
    int32_t *first = malloc((size_t)(count + 1) * sizeof(*first));
    int32_t nhomes = homes ? find_homes(topology, homes) : 0;
    for (int32_t r = 0; r < count; r++) {
        struct uli_rank_place *place = &places_p[r];
        *place = (struct uli_rank_place){
            ULI_TOPO_UNKNOWN, ULI_TOPO_UNKNOWN, ULI_TOPO_UNKNOWN};
        if (gpus > 0) {
            place->gpu = r % gpus;
            place->numa = uli_topology_numa_of(topology,
                uli_topology_node(topology, ULI_TOPO_GPU, place->gpu));
        } else {
            place->numa = home_of_rank(topology, homes, nhomes, r, count);
        }
        if (first)
            first[r] = uli_topology_nearest_nic(
                topology, topology_anchor(topology, place), 0);
    }
    for (int32_t r = 0; first && r < count; r++)
        places_p[r].nic = choose_nic(topology, places_p, first, r);
    free(first);
    free(homes);
}

enum uli_link_class
uli_topology_place_link(const struct uli_topology *topology,
    const struct uli_rank_place *a, const struct uli_rank_place *b)
{
    if (a->gpu >= 0 && b->gpu >= 0)
        return uli_topology_link(topology, topology_anchor(topology, a),
            topology_anchor(topology, b))
            .class;
    if (a->numa < 0 || b->numa < 0)
        return ULI_LINK_UNKNOWN;
    if (a->numa == b->numa)
        return ULI_LINK_NUMA;
    return uli_topology_link(
        topology, topology_anchor(topology, a), topology_anchor(topology, b))
        .class;
}
