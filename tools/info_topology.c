/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx_info topology: the machine as a tree, with what is not known and why,
 * and where the ranks of a node are placed.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/settings.h"
#include "base/text.h"
#include "info.h"
#include "info_options.h"
#include "topology/bind.h"
#include "topology/topology.h"
#include "ulyx/ulyx.h"

enum { RANKS_MAX = 1024 };

static int
cores_compare(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

    return (x > y) - (x < y);
}

static void
print_cores(const struct uli_topology *t, const struct uli_topo_node *n)
{
    int32_t capacity = uli_topology_cores(t);
    int32_t *cores = malloc((size_t)(capacity + 1) * sizeof(*cores));
    int32_t count = cores ? uli_topology_cores_near(t, n, cores, capacity) : 0;

    if (count > 0)
        qsort(cores, (size_t)count, sizeof(*cores), cores_compare);
    printf(", cores");
    for (int32_t i = 0; i < count; i++) {
        int32_t end = i;

        while (end + 1 < count && cores[end + 1] == cores[end] + 1)
            end++;
        printf(end > i ? " %d-%d" : " %d", cores[i], cores[end]);
        i = end;
    }
    if (count == 0)
        printf(" none");
    free(cores);
}

static void
print_node(const struct uli_topology *t, const struct uli_topo_node *n)
{
    char pci[32];

    printf("%s %d", uli_topo_kind_name(n->kind), n->index);
    if (n->pci != ULI_TOPO_NO_PCI)
        printf(" %s", uli_topo_pci_text(n->pci, pci, sizeof(pci)));
    if (n->name[0])
        printf(" %s", n->name);
    if (n->net_name[0] && strcmp(n->net_name, n->name))
        printf(" (%s)", n->net_name);
    if (n->kind == ULI_TOPO_NUMA) {
        print_cores(t, n);
        if (n->memory_bytes > 0)
            printf(", %.1f GiB", (double)n->memory_bytes / 0x1p30);
        else
            printf(n->memory_bytes == 0 ? ", no memory" : ", memory unknown");
    }
    if (n->kind == ULI_TOPO_GPU || n->kind == ULI_TOPO_NIC) {
        if (n->bytes_per_s > 0)
            printf(", %.1f GB/s", n->bytes_per_s / 1e9);
        else
            printf(", rate unknown");
        if (uli_topology_numa_of(t, n) == ULI_TOPO_UNKNOWN)
            printf(", NUMA node unknown: the system does not report it");
    }
    printf("\n");
}

/* Is a GPU or a NIC below the node? Other PCI roots and switches are not
 * printed. */
static bool
has_device(const struct uli_topology *t, const struct uli_topo_node *n)
{
    for (int kind = ULI_TOPO_GPU; kind <= ULI_TOPO_NIC; kind++)
        for (int32_t i = 0; i < uli_topology_count(t, kind); i++) {
            const struct uli_topo_node *at = uli_topology_node(t, kind, i);

            while (at && at != n)
                at = uli_topology_parent(t, at);
            if (at == n)
                return true;
        }
    return false;
}

static void
print_below(
    const struct uli_topology *t, const struct uli_topo_node *n, int depth)
{
    for (int kind = ULI_TOPO_PACKAGE; kind <= ULI_TOPO_NIC; kind++)
        for (int32_t i = 0; i < uli_topology_count(t, kind); i++) {
            const struct uli_topo_node *child = uli_topology_node(t, kind, i);
            bool is_path =
                kind == ULI_TOPO_PCI_ROOT || kind == ULI_TOPO_PCI_SWITCH;

            if (uli_topology_parent(t, child) != n ||
                (is_path && !has_device(t, child)))
                continue;
            printf("%*s", 2 * depth, "");
            print_node(t, child);
            print_below(t, child, depth + 1);
        }
}

static void
print_matrix(const struct uli_topology *t, enum uli_topo_kind from,
    enum uli_topo_kind to)
{
    for (int32_t i = 0; i < uli_topology_count(t, from); i++) {
        printf("  %s %d to %ss:", uli_topo_kind_name(from), i,
            uli_topo_kind_name(to));
        for (int32_t j = 0; j < uli_topology_count(t, to); j++)
            printf(" %s",
                uli_link_class_name(uli_topology_link(t,
                    uli_topology_node(t, from, i), uli_topology_node(t, to, j))
                                        .class));
        printf("\n");
    }
}

static void
print_index(const char *name, int32_t index)
{
    if (index == ULI_TOPO_UNKNOWN)
        printf(", %s unknown", name);
    else
        printf(", %s %d", name, index);
}

/* Prints where the communicator of a rank at this place would put its own
 * threads and memory, if the rank may use all cores. */
static void
print_binding(const struct uli_topology *t, const struct uli_rank_place *place)
{
    const struct uli_topo_node *gpu =
        uli_topology_node(t, ULI_TOPO_GPU, place->gpu);
    const struct uli_topo_node *nic =
        uli_topology_node(t, ULI_TOPO_NIC, place->nic);
    int32_t count = uli_topology_cores(t);
    int32_t *cores = malloc((size_t)(count + 1) * sizeof(*cores));
    struct uli_bind_preference preference = {NULL, NULL};
    struct uli_binding binding;
    char pci[32];

    for (int32_t i = 0; cores && i < count; i++)
        cores[i] = uli_topology_core_os_index(t, i);
    if (gpu)
        preference.gpu = uli_topo_pci_text(gpu->pci, pci, sizeof(pci));
    else if (nic)
        preference.nics = nic->name;
    uli_binding_find(t, &preference, cores, cores ? count : 0, &binding);
    printf("    helpers%s: %s\n", !gpu && nic ? " (several nodes)" : "",
        binding.text);
    free(cores);
}

static void
print_ranks(const struct uli_topology *t, int32_t ranks)
{
    struct uli_rank_place *places = calloc((size_t)ranks, sizeof(*places));

    if (!places)
        return;
    uli_topology_place_ranks(t, ranks, places);
    printf("%d rank%s on this node%s\n", ranks, uli_plural(ranks),
        uli_topology_is_crowded(t, ranks) ? ", more than cores: waits do not "
                                            "spin"
                                          : "");
    for (int32_t r = 0; r < ranks; r++) {
        printf("  rank %d", r);
        if (places[r].gpu >= 0)
            print_index("GPU", places[r].gpu);
        print_index("NUMA node", places[r].numa);
        print_index(
            "memory at NUMA node", uli_topology_memory_near(t, places[r].numa));
        if (uli_topology_count(t, ULI_TOPO_NIC) > 0)
            print_index("NIC", places[r].nic);
        printf("\n");
        print_binding(t, &places[r]);
    }
    free(places);
}

static void
print_all(const struct uli_topology *t, int32_t ranks)
{
    printf("machine, from %s\n  %d cores, %d NUMA nodes, %d GPUs, %d NICs\n",
        uli_topology_source(t), uli_topology_cores(t),
        uli_topology_count(t, ULI_TOPO_NUMA),
        uli_topology_count(t, ULI_TOPO_GPU),
        uli_topology_count(t, ULI_TOPO_NIC));
    print_below(t, uli_topology_node(t, ULI_TOPO_MACHINE, 0), 1);
    for (int32_t i = 0; i < uli_topology_count(t, ULI_TOPO_NVSWITCH); i++) {
        printf("  ");
        print_node(t, uli_topology_node(t, ULI_TOPO_NVSWITCH, i));
    }
    print_matrix(t, ULI_TOPO_GPU, ULI_TOPO_GPU);
    print_matrix(t, ULI_TOPO_GPU, ULI_TOPO_NIC);
    if (ranks > 0)
        print_ranks(t, ranks);
}

int
info_topology(int argc, char **argv)
{
    struct uli_settings settings;
    struct uli_topology *t = NULL;
    int64_t ranks = 0;
    bool json = false;
    const struct info_option options[] = {
        {"--ranks", INFO_NUMBER, &ranks, 1, RANKS_MAX,
            "places N ranks on this node and shows where"},
        {"--json", INFO_FLAG, &json, 0, 0, "one line of JSON"}};
    const struct info_command command = {"topology",
        "Shows this machine, or the machine that ULYX_TOPO_FILE describes: "
        "its\n"
        "parts, how they are connected, and what is not known.\n",
        options, sizeof(options) / sizeof(options[0])};
    int code = info_options_read(&command, argc, argv);

    if (code >= 0)
        return code;
    if (uli_settings_load(&settings) != ULYX_SUCCESS ||
        uli_topology_load(&settings, &t) != ULYX_SUCCESS) {
        fprintf(stderr, "ulyx_info: %s\n", ulyx_last_error());
        return 1;
    }
    if (json)
        code = info_topology_json(t, (int32_t)ranks);
    else
        print_all(t, (int32_t)ranks);
    uli_topology_free(t);
    return json ? code : 0;
}
