/* SPDX-License-Identifier: Apache-2.0
 *
 * The recorded machines: the answers to all queries equal NAME.expected, text
 * for text. hwloc's files are read as version 2, in which they are recorded,
 * and as version 3.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "base/status.h"
#include "support/test.h"
#include "topology/graph.h"
#include "topology/topology.h"

enum { RANKS_MAX = 16 };

static void
print_counts(FILE *out, const struct uli_topology *t)
{
    fprintf(out,
        "packages %d, NUMA nodes %d, cores %d, GPUs %d, NICs %d, "
        "NVSwitches %d\n",
        uli_topology_count(t, ULI_TOPO_PACKAGE),
        uli_topology_count(t, ULI_TOPO_NUMA), uli_topology_cores(t),
        uli_topology_count(t, ULI_TOPO_GPU),
        uli_topology_count(t, ULI_TOPO_NIC),
        uli_topology_count(t, ULI_TOPO_NVSWITCH));
    fprintf(out, "crowded by %d ranks: %d, by %d: %d\n", uli_topology_cores(t),
        uli_topology_is_crowded(t, uli_topology_cores(t)),
        uli_topology_cores(t) + 1,
        uli_topology_is_crowded(t, uli_topology_cores(t) + 1));
}

static void
print_devices(FILE *out, const struct uli_topology *t, enum uli_topo_kind kind)
{
    for (int32_t i = 0; i < uli_topology_count(t, kind); i++) {
        const struct uli_topo_node *n = uli_topology_node(t, kind, i);
        int32_t cores[4096] = {0};
        int32_t count = uli_topology_cores_near(t, n, cores, 4096);
        char pci[32];
        fprintf(out, "%s %d: %s", uli_topo_kind_name(kind), i,
            uli_topo_pci_text(n->pci, pci, sizeof(pci)));
        if (n->name[0])
            fprintf(out, " %s", n->name);
        fprintf(out, ", NUMA %d, %.1f GB/s, cores near %d: %d to %d\n",
            uli_topology_numa_of(t, n), n->bytes_per_s / 1e9, count, cores[0],
            cores[count - 1]);
    }
}

static void
print_numa(FILE *out, const struct uli_topology *t)
{
    for (int32_t i = 0; i < uli_topology_count(t, ULI_TOPO_NUMA); i++) {
        const struct uli_topo_node *n = uli_topology_node(t, ULI_TOPO_NUMA, i);
        fprintf(out, "NUMA node %d: the system's %d, memory at %d, NICs", i,
            n->os_index, uli_topology_memory_near(t, i));
        for (int32_t turn = 0; turn < 3; turn++)
            fprintf(out, " %d", uli_topology_nearest_nic(t, n, turn));
        fprintf(out, "\n");
    }
}

/* Prints the distance of each device of one kind to each device of another
 * kind. */
static void
print_links(FILE *out, const struct uli_topology *t, enum uli_topo_kind from,
    enum uli_topo_kind to)
{
    for (int32_t i = 0; i < uli_topology_count(t, from); i++) {
        fprintf(out, "%s %d to %ss:", uli_topo_kind_name(from), i,
            uli_topo_kind_name(to));
        for (int32_t j = 0; j < uli_topology_count(t, to); j++) {
            struct uli_topo_link link = uli_topology_link(
                t, uli_topology_node(t, from, i), uli_topology_node(t, to, j));
            fprintf(out, " %s", uli_link_class_name(link.class));
            if (link.bytes_per_s > 0)
                fprintf(out, "(%.1f)", link.bytes_per_s / 1e9);
        }
        fprintf(out, "\n");
    }
}

static const struct uli_graph_core *
find_core(const struct uli_topology *t, int32_t os_index)
{
    for (int32_t i = 0; i < t->ncores; i++)
        if (t->cores[i].os_index == os_index)
            return &t->cores[i];
    return NULL;
}

/* Returns the link of two cores, which are given by the system's numbers. */
static enum uli_link_class
core_link(const struct uli_topology *topology, int32_t core_a, int32_t core_b)
{
    const struct uli_graph_core *a = find_core(topology, core_a);
    const struct uli_graph_core *b = find_core(topology, core_b);
    if (!a || !b)
        return ULI_LINK_UNKNOWN;
    if (a == b)
        return ULI_LINK_SELF;
    if (a->numa >= 0 && a->numa == b->numa)
        return ULI_LINK_NUMA;
    if (a->package >= 0 && a->package == b->package)
        return ULI_LINK_PACKAGE;
    if ((a->numa < 0 || b->numa < 0) && (a->package < 0 || b->package < 0))
        return ULI_LINK_UNKNOWN;
    return ULI_LINK_SYSTEM;
}

/* Prints the links of the first core to itself, to the second, to those at a
 * quarter and a half, and to the last. */
static void
print_cores(FILE *out, const struct uli_topology *t)
{
    int32_t n = uli_topology_cores(t);
    int32_t others[] = {0, 1, n / 4, n / 2, n - 1};
    int32_t first = uli_topology_core_os_index(t, 0);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        int32_t core = uli_topology_core_os_index(t, others[i]);
        int32_t pair[2] = {first, core};
        fprintf(out, "core %d to %d: %s, both at NUMA %d\n", first, core,
            uli_link_class_name(core_link(t, first, core)),
            uli_topology_numa_of_cores(t, pair, 2));
    }
}

/* Orders the other ranks by class, nearest first, and within a class as rank+1,
 * rank+2, ... modulo count. */
static void
order_peers(const struct uli_topology *topology,
    const struct uli_rank_place *places, int32_t count, int32_t rank,
    int32_t *order_p)
{
    int32_t at = 0;
    for (int class = 0; class < ULI_LINK_CLASSES; class ++)
        for (int32_t step = 1; step < count; step++) {
            int32_t peer = (rank + step) % count;
            if (uli_topology_place_link(topology, &places[rank],
                    &places[peer]) == (enum uli_link_class) class)
                order_p[at++] = peer;
        }
}

static void
print_ranks(FILE *out, const struct uli_topology *t, int32_t ranks)
{
    struct uli_rank_place places[RANKS_MAX];
    int32_t order[RANKS_MAX];
    uli_topology_place_ranks(t, ranks, places);
    for (int32_t r = 0; r < ranks; r++) {
        fprintf(out, "rank %d of %d: GPU %d, NIC %d, NUMA %d, peers", r, ranks,
            places[r].gpu, places[r].nic, places[r].numa);
        order_peers(t, places, ranks, r, order);
        for (int32_t i = 0; i + 1 < ranks; i++)
            fprintf(out, " %d(%s)", order[i],
                uli_link_class_name(
                    uli_topology_place_link(t, &places[r], &places[order[i]])));
        fprintf(out, "\n");
    }
}

static char *
topology_answers(const struct uli_topology *t)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    int32_t gpus = uli_topology_count(t, ULI_TOPO_GPU);
    print_counts(out, t);
    print_devices(out, t, ULI_TOPO_GPU);
    print_devices(out, t, ULI_TOPO_NIC);
    print_numa(out, t);
    print_links(out, t, ULI_TOPO_GPU, ULI_TOPO_GPU);
    print_links(out, t, ULI_TOPO_GPU, ULI_TOPO_NIC);
    print_cores(out, t);
    print_ranks(out, t, gpus > 0 ? gpus : 4);
    fclose(out);
    return text;
}

static char *
read_all(const char *path)
{
    char *text = calloc(1, 1 << 19);
    FILE *file = fopen(path, "re");
    if (file) {
        size_t count = fread(text, 1, (1 << 19) - 1, file);
        text[count] = 0;
        fclose(file);
    }
    return text;
}

/* Checks that the answers for the file at path equal NAME.expected. */
static void
check_answers(const char *path, const char *name)
{
    char expected_path[512];
    struct uli_topology *t = NULL;
    snprintf(expected_path, sizeof(expected_path), "%s/%s.expected",
        TEST_DATA_DIR, name);
    assert_status(uli_topology_read(path, &t), ULYX_SUCCESS);
    char *got = topology_answers(t), *expected = read_all(expected_path);
    bool same = strcmp(got, expected) == 0;
    if (!same)
        fprintf(stderr, "%s gives\n%s", name, got);
    free(got);
    free(expected);
    uli_topology_free(t);
    assert_true(same);
}

/* Parts of version 3 beside the objects that version 2 lacks. */
#define BESIDE_3                                                               \
    "<info name=\"Backend\" value=\"Linux\"/>\n"                               \
    "<info name=\"OSName\" value=\"a &amp; b\"><nested/></info>\n"             \
    "<memtier nr=\"0\"><info name=\"MemoryTier\" value=\"HBM\"/></memtier>\n"  \
    "<pci_locality domain=\"0x0\" bus_min=\"0x0\" bus_max=\"0x2\" "            \
    "cpuset=\"0x1\"/>\n"

/* Rewrites a machine of version 2 as version 3 writes it: the kinds of OS
 * devices are sets, and an OpenFabrics device is a network device too. */
static void
write_version_3(const char *text, FILE *out)
{
    static const struct {
        const char *old, *new;
    } rows[] = {{"<topology version=\"2.0\"", "<topology version=\"3.0\""},
        {"osdev_type=\"0\"", "osdev_type=\"1\""},
        {"osdev_type=\"1\"", "osdev_type=\"12\""},
        {"osdev_type=\"2\"", "osdev_type=\"16\""},
        {"osdev_type=\"3\"", "osdev_type=\"48\""},
        {"osdev_type=\"5\"", "osdev_type=\"8\""},
        {"</topology>", BESIDE_3 "</topology>"}};
    enum { ROWS = sizeof(rows) / sizeof(rows[0]) };

    while (*text) {
        size_t row = 0;
        while (row < ROWS &&
               strncmp(text, rows[row].old, strlen(rows[row].old)) != 0)
            row++;
        if (row < ROWS) {
            fputs(rows[row].new, out);
            text += strlen(rows[row].old);
        } else {
            putc(*text++, out);
        }
    }
}

static void
check_machine_of_version_3(const char *path, const char *name)
{
    char folder[] = "/tmp/ulyx-machine-XXXXXX", path_3[64];
    char *text = read_all(path);
    assert_non_null(mkdtemp(folder));
    snprintf(path_3, sizeof(path_3), "%s/machine.xml", folder);
    FILE *out = fopen(path_3, "we");
    assert_non_null(out);
    write_version_3(text, out);
    assert_int_equal(fclose(out), 0);
    free(text);
    check_answers(path_3, name);
    unlink(path_3);
    rmdir(folder);
}

static void
check_machine(const char *name)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s.xml", TEST_DATA_DIR, name);
    check_answers(path, name);
    if (!strstr(name, ".nccl"))
        check_machine_of_version_3(path, name);
}

#define MACHINE(function, name)                                                \
    static void function(void **state)                                         \
    {                                                                          \
        (void)state;                                                           \
        check_machine(name);                                                   \
    }

MACHINE(dgx_h100, "dgx-h100")
MACHINE(dgx_h100_nccl, "dgx-h100.nccl")
MACHINE(hgx_h100_pcie_nics, "hgx-h100-pcie-nics")
MACHINE(gb200_nvl, "gb200-nvl")
MACHINE(gb200_nvl_nccl, "gb200-nvl.nccl")
MACHINE(dual_socket, "dual-socket")
MACHINE(memoryless_numa, "memoryless-numa")
MACHINE(shared_memory, "shared-memory")
MACHINE(flat_vm, "flat-vm")
MACHINE(vm_unknown_numa, "vm-unknown-numa")
MACHINE(vm_nccl, "vm.nccl")
MACHINE(two_nic, "two-nic")

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(dgx_h100),
    cmocka_unit_test(dgx_h100_nccl),
    cmocka_unit_test(hgx_h100_pcie_nics),
    cmocka_unit_test(gb200_nvl),
    cmocka_unit_test(gb200_nvl_nccl),
    cmocka_unit_test(dual_socket),
    cmocka_unit_test(memoryless_numa),
    cmocka_unit_test(shared_memory),
    cmocka_unit_test(flat_vm),
    cmocka_unit_test(vm_unknown_numa),
    cmocka_unit_test(vm_nccl),
    cmocka_unit_test(two_nic),
};

ULI_TEST_MAIN("Machines", tests)
