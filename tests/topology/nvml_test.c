/* SPDX-License-Identifier: Apache-2.0
 *
 * NVLinks from the management library, which a stand-in (fake_nvml.c) plays:
 * links to one far end add up, links that are down do not count, GPUs that
 * the library does not name keep their PCI distance.
 */
#include <dlfcn.h>
#include <stdio.h>
#include "support/test.h"
#include "topology/graph.h"

static void
links_are_added(void **state)
{
    (void)state;
    struct uli_topology *t = NULL;
    void *fake = dlopen(FAKE_NVML, RTLD_NOW); /* found by name from now on */
    assert_non_null(fake);
    assert_status(uli_topology_read(TEST_DATA_DIR "/two-nic.xml", &t), 0);
    const struct uli_topo_node *gpus[4];
    for (int i = 0; i < 4; i++)
        gpus[i] = uli_topology_node(t, ULI_TOPO_GPU, i);
    assert_int_equal(
        uli_topology_link(t, gpus[0], gpus[1]).class, ULI_LINK_NUMA);
    assert_status(uli_nvml_import(t), 0);
    assert_status(uli_graph_finish(t), 0);
    for (int i = 0; i < 4; i++)
        gpus[i] = uli_topology_node(t, ULI_TOPO_GPU, i);
    struct uli_topo_link link = uli_topology_link(t, gpus[0], gpus[1]);
    assert_int_equal(link.class, ULI_LINK_NVLINK);
    assert_true(link.bytes_per_s == 2 * 20.0e9);
    assert_int_equal(
        uli_topology_link(t, gpus[0], gpus[2]).class, ULI_LINK_SYSTEM);
    assert_int_equal(
        uli_topology_link(t, gpus[2], gpus[3]).class, ULI_LINK_NUMA);
    assert_int_equal(uli_topology_count(t, ULI_TOPO_NVSWITCH), 1);
    assert_true(uli_topology_node(t, ULI_TOPO_NVSWITCH, 0)->pci == 0x05 << 8);
    uli_topology_free(t);
    dlclose(fake);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(links_are_added),
};

ULI_TEST_MAIN("Nvml", tests)
