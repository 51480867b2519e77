/* SPDX-License-Identifier: Apache-2.0
 *
 * NVLinks as NVIDIA's management library reports them; a stand-in (fake_nvml.c)
 * takes its place. Links to the same far end add up, links that are down do not
 * count, and GPUs that the library does not report keep their PCI distance.
 * Neither an old library nor one that does not work is an error.
 */
#include <dlfcn.h>
#include <stdio.h>
#include "support/test.h"
#include "topology/graph.h"

static struct uli_topo_link
link_of(const struct uli_topology *t, int32_t a, int32_t b)
{
    return uli_topology_link(t, uli_topology_node(t, ULI_TOPO_GPU, a),
        uli_topology_node(t, ULI_TOPO_GPU, b));
}

/* Returns the machine of the stand-in, with the links that the library at
 * `path` reports. */
static struct uli_topology *
import_from(const char *path)
{
    struct uli_topology *t = NULL;
    /* from now on the importer finds this library by its name */
    void *fake = dlopen(path, RTLD_NOW);
    assert_non_null(fake);
    assert_status(uli_topology_read(TEST_DATA_DIR "/two-nic.xml", &t), 0);
    assert_int_equal(link_of(t, 0, 1).class, ULI_LINK_NUMA);
    assert_status(uli_nvml_import(t), 0);
    assert_status(uli_graph_finish(t), 0);
    dlclose(fake);
    return t;
}

static void
links_are_added(void **state)
{
    static const char *const paths[] = {FAKE_WHOLE, FAKE_OLD};
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct uli_topology *t = import_from(paths[i]);
        assert_int_equal(link_of(t, 0, 1).class, ULI_LINK_NVLINK);
        assert_true(link_of(t, 0, 1).bytes_per_s == 2 * 20.0e9);
        assert_int_equal(link_of(t, 0, 2).class, ULI_LINK_SYSTEM);
        assert_int_equal(link_of(t, 2, 3).class, ULI_LINK_NUMA);
        assert_int_equal(uli_topology_count(t, ULI_TOPO_NVSWITCH), 1);
        assert_true(
            uli_topology_node(t, ULI_TOPO_NVSWITCH, 0)->pci == 0x05 << 8);
        uli_topology_free(t);
    }
}

/* The library without its driver: distances by PCI, and no error. */
static void
without_a_driver_nothing_is_added(void **state)
{
    (void)state;
    struct uli_topology *t = import_from(FAKE_BROKEN);
    assert_int_equal(link_of(t, 0, 1).class, ULI_LINK_NUMA);
    assert_int_equal(uli_topology_count(t, ULI_TOPO_NVSWITCH), 0);
    uli_topology_free(t);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(links_are_added),
    cmocka_unit_test(without_a_driver_nothing_is_added),
};

ULI_TEST_MAIN("Nvml", tests)
