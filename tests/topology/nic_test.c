/* SPDX-License-Identifier: Apache-2.0
 *
 * The NIC of each rank on recorded machines, and the NIC of a rank that is
 * bound to cores.
 */
#include "topology/nic.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include "support/test.h"
#include "topology/node.h"

static struct uli_settings
machine_settings(const char *file)
{
    struct uli_settings settings;
    memset(&settings, 0, sizeof(settings));
    snprintf(settings.topo_file, sizeof(settings.topo_file), "%s/%s",
        TEST_DATA_DIR, file);
    return settings;
}

/* The cores of this process, 0 and 1 at least on most machines, are in the
 * first NUMA node of the recorded machines. So ranks are placed as if bound to
 * that node, unless the machine has GPUs. */
static void
every_rank_has_its_nic(void **state)
{
    static const struct {
        const char *file;
        int32_t ranks;
        const char *names[8];
    } rows[] = {{"dgx-h100.xml", 8,
                    {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_4", "mlx5_5",
                        "mlx5_6", "mlx5_7"}},
        {"hgx-h100-pcie-nics.xml", 8,
            {"mlx5_0", "mlx5_0", "mlx5_1", "mlx5_1", "mlx5_2", "mlx5_2",
                "mlx5_3", "mlx5_3"}},
        {"gb200-nvl.xml", 4, {"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}},
        {"two-nic.xml", 4, {"mlx5_0", "mlx5_1", "mlx5_0", "mlx5_1"}},
        {"flat-vm.xml", 2, {"eth0", "eth0"}}};
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct uli_settings settings = machine_settings(rows[i].file);
        for (int32_t r = 0; r < rows[i].ranks; r++) {
            char name[ULI_TOPO_NAME] = "", why[256];
            assert_true(uli_node_nic(
                &settings, r, rows[i].ranks, name, why, sizeof(why)));
            assert_string_equal(name, rows[i].names[r]);
        }
    }
}

/* A rank whose cores are in another NUMA node than its block of ranks gets the
 * NIC of its cores' node. */
static void
bound_ranks_take_the_nic_of_their_cores(void **state)
{
    struct uli_settings settings = machine_settings("memoryless-numa.xml");
    struct uli_topology *topology;
    struct uli_rank_place place;
    const int32_t far[] = {8, 9}, both[] = {0, 8};
    (void)state;
    assert_status(uli_topology_load(&settings, &topology), ULYX_SUCCESS);
    uli_topology_place_rank(topology, 0, 2, far, 2, &place);
    assert_int_equal(place.numa, 1);
    assert_int_equal(place.nic, 0);
    uli_topology_place_rank(topology, 0, 2, both, 2, &place);
    assert_int_equal(place.numa, 0);
    uli_topology_place_rank(topology, 1, 2, NULL, 0, &place);
    assert_int_equal(place.numa, 1);
    uli_topology_free(topology);
    /* where there are GPUs, they decide */
    settings = machine_settings("dgx-h100.xml");
    assert_status(uli_topology_load(&settings, &topology), ULYX_SUCCESS);
    const int32_t first[] = {0, 1};
    uli_topology_place_rank(topology, 7, 8, first, 2, &place);
    assert_int_equal(place.nic, 7);
    uli_topology_free(topology);
}

static void
no_nic_is_reported(void **state)
{
    struct uli_settings settings = machine_settings("nonexistent.xml");
    char name[ULI_TOPO_NAME] = "as before", why[256] = "";
    (void)state;
    assert_false(uli_node_nic(&settings, 0, 1, name, why, sizeof(why)));
    assert_string_equal(name, "as before");
    assert_non_null(strstr(why, "no NIC in"));
}

static void
cores_are_those_of_the_affinity(void **state)
{
    int32_t cores[1024];
    cpu_set_t before, one;
    (void)state;
    assert_int_equal(uli_node_core_list(cores, 1024), uli_node_cores());
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)cores[uli_node_cores() - 1], &one);
    int32_t last = cores[uli_node_cores() - 1];
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    cores[1] = -7;
    assert_int_equal(uli_node_core_list(cores, 1), 1);
    assert_int_equal(cores[0], last);
    assert_int_equal(cores[1], -7);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_rank_has_its_nic),
    cmocka_unit_test(bound_ranks_take_the_nic_of_their_cores),
    cmocka_unit_test(no_nic_is_reported),
    cmocka_unit_test(cores_are_those_of_the_affinity),
};

ULI_TEST_MAIN("Nic", tests)
