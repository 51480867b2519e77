/* SPDX-License-Identifier: Apache-2.0
 *
 * Which cores and which memory a rank's threads get on recorded machines. They
 * are always among the rank's own, and threads and pages of this process are
 * placed there.
 */
#include "topology/bind.h"

#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "support/random.h"
#include "support/test.h"
#include "topology/node.h"

static struct uli_topology *
machine_load(const char *file)
{
    char path[512];
    struct uli_topology *topology = NULL;
    snprintf(path, sizeof(path), "%s/%s", TEST_DATA_DIR, file);
    assert_status(uli_topology_read(path, &topology), ULYX_SUCCESS);
    return topology;
}

static bool
binding_has(const struct uli_binding *binding, int32_t core)
{
    return binding->cores[core / 64] >> core % 64 & 1;
}

static int32_t
binding_count(const struct uli_binding *binding)
{
    int32_t total = 0;
    for (int32_t core = 0; core < ULI_BINDING_CORES; core++)
        total += binding_has(binding, core);
    return total;
}

/* Finds the binding of a rank that may use the cores [from, to). */
static struct uli_binding
binding_find(const struct uli_topology *t, const char *gpu, const char *nics,
    int32_t from, int32_t to)
{
    const struct uli_bind_preference preference = {gpu, nics};
    struct uli_binding binding;
    int32_t cores[1024];
    for (int32_t i = from; i < to; i++)
        cores[i - from] = i;
    memset(&binding, 0xa5, sizeof(binding));
    uli_binding_find(t, &preference, cores, to - from, &binding);
    assert_int_equal(binding_count(&binding), binding.ncores);
    return binding;
}

/* On a DGX, cores 0-55 and 112-167 are NUMA node 0, and the others node 1. */
static void
devices_give_the_cores_and_memory_of_their_node(void **state)
{
    static const struct {
        const char *file, *gpu, *nics;
        int32_t from, to, ncores, core, memory;
        const char *text;
    } rows[] = {
        {"dgx-h100.xml", "0000:1b:00.0", NULL, 0, 224, 112, 0, 0,
            "near GPU 0000:1b:00.0, at NUMA node 0: threads on 112 cores, 0 to "
            "167; memory at NUMA node 0"},
        {"dgx-h100.nccl.xml", "0000:df:00.0", NULL, 0, 224, 112, 223, 1,
            "at NUMA node 1: threads on 112 cores, 56 to 223"},
        {"dgx-h100.xml", "0000:df:00.0", "mlx5_0:1", 50, 60, 4, 56, 1,
            "threads on 4 cores, 56 to 59"},
        {"dgx-h100.xml", "0000:df:00.0", NULL, 3, 4, 0, -1, 1,
            "the rank may use no core there: threads not bound; memory at "
            "NUMA node 1"},
        {"dgx-h100.xml", NULL, "mlx5_77:1,mlx5_6:1", 0, 224, 112, 56, 1,
            "near NIC mlx5_6"},
        {"gb200-nvl.xml", "0018:01:00.0", NULL, 0, 144, 72, 72, 1, "node 1"},
        {"memoryless-numa.xml", NULL, "mlx5_1:1", 0, 16, 8, 15, 0,
            "near NIC mlx5_1, at NUMA node 1: threads on 8 cores, 8 to 15; "
            "memory at NUMA node 0"},
        {"dual-socket.xml", NULL, NULL, 8, 16, 8, 8, 1, "near its cores"},
        {"dual-socket.xml", NULL, NULL, 9, 10, 1, 9, 1, "1 core, 9 to 9"},
        {"dual-socket.xml", NULL, NULL, 7, 9, 0, -1, -1,
            "not bound: its cores are of several NUMA nodes"},
        {"vm-unknown-numa.xml", "0001:00:00.0", NULL, 0, 8, 0, -1, -1,
            "not bound: the NUMA node of GPU 0001:00:00.0 is not known"},
        {"dgx-h100.xml", "0000:1c:00.0", NULL, 0, 8, 0, -1, -1,
            "not bound: GPU 0000:1c:00.0 is not in the machine's description"},
        {"dgx-h100.xml", "no address", NULL, 0, 8, 0, -1, -1, "not bound"},
        {"dgx-h100.xml", NULL, "all", 0, 8, 0, -1, -1, "NIC all is not in"},
        {"flat-vm.xml", NULL, "eth0", 0, 2, 0, -1, -1, "no two NUMA nodes"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct uli_topology *t = machine_load(rows[i].file);
        struct uli_binding b = binding_find(
            t, rows[i].gpu, rows[i].nics, rows[i].from, rows[i].to);
        assert_int_equal(b.ncores, rows[i].ncores);
        assert_int_equal(b.memory, rows[i].memory);
        if (rows[i].core >= 0)
            assert_true(binding_has(&b, rows[i].core));
        if (!strstr(b.text, rows[i].text))
            fail_msg("\"%s\" has no \"%s\"", b.text, rows[i].text);
        uli_topology_free(t);
    }
}

/* Random cores of a rank, random devices: the result is cores of the rank and,
 * where there is a device, all of those that are near the device. */
static void
no_other_core_than_the_ranks_own(void **state)
{
    static const char *const files[] = {"dgx-h100.xml", "gb200-nvl.xml",
        "dual-socket.xml", "memoryless-numa.xml", "hgx-h100-pcie-nics.xml"};
    struct test_random random = {test_seed(61)};
    (void)state;
    for (int64_t draw = 0; draw < test_draws(100); draw++) {
        struct uli_topology *t = machine_load(files[draw % 5]);
        int32_t cores[1024], near[1024], n = 0, total = uli_topology_cores(t);
        int32_t nics = uli_topology_count(t, ULI_TOPO_NIC);
        const struct uli_topo_node *nic = uli_topology_node(
            t, ULI_TOPO_NIC, (int32_t)test_random_in(&random, 0, nics - 1));
        const struct uli_bind_preference preference = {NULL, nic->name};
        struct uli_binding b;
        for (int32_t core = 0; core < total; core++)
            if (test_random_in(&random, 0, 2) == 0)
                cores[n++] = core;
        uli_binding_find(t, &preference, cores, n, &b);
        int32_t nnear = uli_topology_cores_near(t, nic, near, 1024), both = 0;
        for (int32_t i = 0; i < n; i++)
            for (int32_t k = 0; k < nnear; k++)
                both += cores[i] == near[k] && binding_has(&b, cores[i]);
        int32_t wanted = 0;
        for (int32_t i = 0; i < n; i++)
            for (int32_t k = 0; k < nnear; k++)
                wanted += cores[i] == near[k];
        assert_int_equal(both, wanted);
        assert_int_equal(binding_count(&b), wanted);
        uli_topology_free(t);
    }
}

static void
threads_that_serve_two_ranks_have_the_cores_of_both(void **state)
{
    struct uli_topology *t = machine_load("dual-socket.xml");
    struct uli_binding all = binding_find(t, NULL, NULL, 0, 3);
    struct uli_binding more = binding_find(t, NULL, NULL, 10, 12);
    struct uli_binding none = binding_find(t, NULL, NULL, 0, 32);
    (void)state;
    assert_int_equal(none.ncores, 0);
    uli_binding_add(&all, &none);
    assert_int_equal(all.ncores, 3);
    uli_binding_add(&all, &more);
    uli_binding_add(&all, &more);
    assert_int_equal(all.ncores, 5);
    assert_true(
        binding_has(&all, 0) && binding_has(&all, 11) && !binding_has(&all, 9));
    uli_topology_free(t);
}

/* ---- this process -------------------------------------------------------- */

static void *
report_cores(void *mask_p)
{
    pthread_barrier_t *barrier = ((void **)mask_p)[1];
    pthread_barrier_wait(barrier);
    sched_getaffinity(0, sizeof(cpu_set_t), ((void **)mask_p)[0]);
    return NULL;
}

static void
a_thread_runs_on_its_cores_and_the_caller_does_not_move(void **state)
{
    struct uli_binding binding;
    cpu_set_t before, after, its;
    pthread_barrier_t barrier;
    pthread_t thread;
    void *both[] = {&its, &barrier};
    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    memset(&binding, 0, sizeof(binding));
    int32_t core = CPU_SETSIZE - 1;
    while (!CPU_ISSET((size_t)core, &before))
        core--;
    binding.cores[core / 64] = UINT64_C(1) << core % 64;
    pthread_barrier_init(&barrier, NULL, 2);
    for (binding.ncores = 0; binding.ncores < 2; binding.ncores++) {
        assert_int_equal(pthread_create(&thread, NULL, report_cores, both), 0);
        uli_bind_thread(&binding, thread);
        pthread_barrier_wait(&barrier);
        pthread_join(thread, NULL);
        assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
        assert_true(CPU_EQUAL(&before, &after));
        if (binding.ncores == 0)
            assert_true(CPU_EQUAL(&its, &before));
        else
            assert_true(CPU_COUNT(&its) == 1 && CPU_ISSET((size_t)core, &its));
    }
    pthread_barrier_destroy(&barrier);
}

/* Returns the memory policy of a page, or of this thread where address is
 * NULL. */
static int
pages_policy(void *address, unsigned long nodes_p[16])
{
    int mode = -1;
    memset(nodes_p, 0, 16 * sizeof(*nodes_p));
    if (syscall(SYS_get_mempolicy, &mode, nodes_p, 1025UL, address,
            address ? MPOL_F_ADDR : 0))
        test_skip("the kernel reports no memory policy");
    return mode;
}

/* Node 0 exists everywhere, node 1023 hardly anywhere: that changes nothing. */
static void
pages_prefer_their_node(void **state)
{
    struct uli_binding binding = {.memory = ULI_TOPO_UNKNOWN};
    struct uli_bind_scope scope;
    unsigned long nodes[16];
    int64_t bytes = 1 << 20;
    char *pages = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    (void)state;
    assert_true(pages != MAP_FAILED);
    memset(pages, 7, 4096);
    int before = pages_policy(pages, nodes), own = pages_policy(NULL, nodes);
    uli_bind_memory(&binding, pages, bytes);
    uli_bind_begin(&binding, &scope);
    assert_false(scope.active);
    uli_bind_end(&scope);
    assert_int_equal(pages_policy(pages, nodes), before);
    binding.memory = 1023;
    uli_bind_memory(&binding, pages, bytes);
    assert_int_equal(pages_policy(pages, nodes), before);
    binding.memory = 0;
    uli_bind_memory(&binding, pages, bytes);
    int now = pages_policy(pages + bytes - 4096, nodes);
    if (now == before)
        test_skip("the kernel does not permit a memory policy");
    assert_int_equal(now, MPOL_PREFERRED);
    assert_int_equal(nodes[0], 1);
    assert_int_equal(pages[4095], 7);
    uli_bind_begin(&binding, &scope);
    assert_int_equal(pages_policy(NULL, nodes), MPOL_PREFERRED);
    uli_bind_end(&scope);
    assert_int_equal(pages_policy(NULL, nodes), own);
    munmap(pages, (size_t)bytes);
}

/* The setting, and the descriptions that a process keeps. */
static void
machines_are_read_once_and_off_binds_nothing(void **state)
{
    struct uli_settings settings;
    struct uli_binding binding;
    const struct uli_bind_preference preference = {"0000:1b:00.0", NULL};
    (void)state;
    memset(&settings, 0, sizeof(settings));
    snprintf(settings.topo_file, sizeof(settings.topo_file), "%s/dgx-h100.xml",
        TEST_DATA_DIR);
    const struct uli_topology *t = uli_topology_shared(&settings);
    assert_non_null(t);
    assert_ptr_equal(uli_topology_shared(&settings), t);
    uli_binding_make(&settings, &preference, &binding);
    assert_int_equal(binding.memory, 0);
    assert_true(binding.ncores <= uli_node_cores());
    strcpy(settings.bind, "off");
    uli_binding_make(&settings, &preference, &binding);
    assert_int_equal(binding.ncores, 0);
    assert_int_equal(binding.memory, ULI_TOPO_UNKNOWN);
    assert_string_equal(binding.text, "not bound: ULYX_BIND=off");
    strcpy(settings.bind, "auto");
    snprintf(settings.topo_file, sizeof(settings.topo_file),
        "%s/dual-socket.xml", TEST_DATA_DIR);
    assert_ptr_not_equal(uli_topology_shared(&settings), t);
    strcpy(settings.topo_file, "/nonexistent/machine.xml");
    uli_binding_make(&settings, &preference, &binding);
    assert_string_equal(binding.text, "not bound: no two NUMA nodes");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(devices_give_the_cores_and_memory_of_their_node),
    cmocka_unit_test(no_other_core_than_the_ranks_own),
    cmocka_unit_test(threads_that_serve_two_ranks_have_the_cores_of_both),
    cmocka_unit_test(a_thread_runs_on_its_cores_and_the_caller_does_not_move),
    cmocka_unit_test(pages_prefer_their_node),
    cmocka_unit_test(machines_are_read_once_and_off_binds_nothing),
};

ULI_TEST_MAIN("Bind", tests)
