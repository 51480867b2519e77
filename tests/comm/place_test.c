/* SPDX-License-Identifier: Apache-2.0
 *
 * On a machine that is described as two NUMA nodes, with a GPU, a NIC and only
 * the last core of this process in the second: the library's threads run near
 * the device of their rank, its memory prefers the nearest node, and the
 * caller's thread is not moved.
 */
#include "comm/place.h"

#include <dirent.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "collectives/exchange/request.h"
#include "comm/device/gpu_scene.h"
#include "comm/remote/nodes_scene.h"
#include "comm/service/service.h"
#include "support/test.h"

static cpu_set_t mine;
static int last; /* core */
static char path[] = "/tmp/ulyx-place-test-XXXXXX";

/* Prints a set of 1024 cores in hexadecimal digits, as NCCL writes it. */
static void
print_set(FILE *file, bool second)
{
    for (int word = 31; word >= 0; word--) {
        unsigned bits = 0;
        for (int bit = 0; bit < 32; bit++) {
            int core = 32 * word + bit;
            bool inside = CPU_ISSET((size_t)core, &mine);
            bits |= inside && (core == last) == second ? 1U << bit : 0;
        }
        fprintf(file, "%08x%s", bits, word ? "," : "");
    }
}

/* Device 0 of the tests' driver is in the first node; device 1 and the device
 * that the tests' network names are in the second. */
static void
describe_machine(void)
{
    if (sched_getaffinity(0, sizeof(mine), &mine) || CPU_COUNT(&mine) < 2)
        return;
    last = CPU_SETSIZE - 1;
    while (!CPU_ISSET((size_t)last, &mine))
        last--;
    int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!file)
        abort();
    fprintf(file, "<system version=\"1\">\n");
    for (int node = 0; node < 2; node++) {
        fprintf(file, "<cpu numaid=\"%d\" affinity=\"", node);
        print_set(file, node == 1);
        fprintf(file,
            "\" arch=\"x86_64\">\n<pci busid=\"0000:%02x:00.0\" "
            "class=\"0x030200\" link_speed=\"32.0 GT/s PCIe\" "
            "link_width=\"16\"><gpu dev=\"%d\" sm=\"90\"/></pci>\n"
            "<nic><net name=\"%s\" dev=\"%d\" speed=\"100000\"/></nic>\n"
            "</cpu>\n",
            node + 1, node, node ? "threads1" : "other0", node);
    }
    fprintf(file, "</system>\n");
    fclose(file);
    setenv("ULYX_TOPO_FILE", path, 1);
}

static void
need_two_cores(void)
{
    if (CPU_COUNT(&mine) < 2)
        test_skip("one core: there is no other to be bound to");
}

/* ---- threads of this process --------------------------------------------- */

static bool
is_named(long task, const char *name)
{
    char file[64], text[32] = "";
    snprintf(file, sizeof(file), "/proc/self/task/%ld/comm", task);
    FILE *comm = fopen(file, "re");
    if (!comm)
        return false;
    char *got = fgets(text, sizeof(text), comm);
    fclose(comm);
    return got && strncmp(text, name, strlen(name)) == 0 &&
           text[strlen(name)] == '\n';
}

/* Number of threads of that name, and the cores of the last one found. A thread
 * names itself after its start, so the search repeats until there are as many
 * as expected. */
static int
threads_named(const char *name, int expected, cpu_set_t *set_p)
{
    int count = 0;
    for (int look = 0; look < 1000 && count < expected; look++) {
        DIR *folder = opendir("/proc/self/task");
        assert_non_null(folder);
        count = 0;
        for (struct dirent *entry; (entry = readdir(folder));) {
            long task = strtol(entry->d_name, NULL, 10);
            if (task > 0 && is_named(task, name) &&
                sched_getaffinity((pid_t)task, sizeof(*set_p), set_p) == 0)
                count++;
        }
        closedir(folder);
        if (count < expected)
            usleep(10000);
    }
    return count;
}

static void
expect_cores(const char *name, int expected, const cpu_set_t *wanted)
{
    cpu_set_t set, now;
    assert_int_equal(threads_named(name, expected, &set), expected);
    assert_true(CPU_EQUAL(&set, wanted));
    assert_int_equal(sched_getaffinity(0, sizeof(now), &now), 0);
    assert_true(CPU_EQUAL(&now, &mine));
}

static cpu_set_t
last_core(void)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)last, &set);
    return set;
}

static cpu_set_t
other_cores(void)
{
    cpu_set_t set = mine;
    CPU_CLR((size_t)last, &set);
    return set;
}

/* Whether memory prefers the wanted node. Skips where policies cannot be
 * read. */
static bool
page_prefers(const void *address, unsigned long wanted)
{
    unsigned long nodes[16] = {0};
    int mode = -1;
    if (syscall(SYS_get_mempolicy, &mode, nodes, 1025UL, address, MPOL_F_ADDR))
        test_skip("the kernel reports no memory policy");
    return mode == MPOL_PREFERRED && nodes[0] == wanted;
}

/* ---- devices ------------------------------------------------------------- */

static void
service_and_memory_are_near_the_device(void **state)
{
    (void)state;
    need_two_cores();
    const int32_t devices[][2] = {{1, 1}, {0, 0}, {0, 1}};
    cpu_set_t wanted[] = {last_core(), other_cores(), mine};
    for (int i = 0; i < 3; i++) {
        ulyx_comm_t *comms[2];
        assert_status(gpu_threads(2, devices[i], 30, comms), ULYX_SUCCESS);
        expect_cores("ulyx-service", 1, &wanted[i]);
        assert_int_equal(comms[0]->binding.memory, devices[i][0]);
        for (int r = 0; r < 2; r++)
            assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
    }
}

static void
setting_off_binds_nothing(void **state)
{
    const int32_t devices[] = {1, 1};
    ulyx_comm_t *comms[2];
    (void)state;
    need_two_cores();
    setenv("ULYX_BIND", "off", 1);
    ulyx_status_t status = gpu_threads(2, devices, 30, comms);
    unsetenv("ULYX_BIND");
    assert_status(status, ULYX_SUCCESS);
    expect_cores("ulyx-service", 1, &mine);
    assert_string_equal(comms[0]->binding.text, "not bound: ULYX_BIND=off");
    for (int r = 0; r < 2; r++)
        assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
}

static void
core_setting_of_the_service_goes_first(void **state)
{
    const int32_t devices[] = {0, 0};
    cpu_set_t wanted;
    ulyx_comm_t *comms[2];
    char number[16];
    (void)state;
    need_two_cores();
    wanted = last_core();
    snprintf(number, sizeof(number), "%d", last);
    setenv("ULYX_SERVICE_CORE", number, 1);
    ulyx_status_t status = gpu_threads(2, devices, 30, comms);
    unsetenv("ULYX_SERVICE_CORE");
    assert_status(status, ULYX_SUCCESS);
    expect_cores("ulyx-service", 1, &wanted);
    for (int r = 0; r < 2; r++)
        assert_status(ulyx_comm_destroy(comms[r]), ULYX_SUCCESS);
}

/* ---- the host ------------------------------------------------------------ */

/* The first name in the network's list is no NIC of the machine, the second is
 * in the second node. That node has no memory, unless the real machine has
 * two. */
static void
network_threads_are_near_the_nic(void **state)
{
    ulyx_comm_t *comms[2];
    cpu_set_t wanted;
    (void)state;
    need_two_cores();
    wanted = last_core();
    scene_open(2, 1, 30, comms);
    expect_cores("ulyx-net", 2, &wanted);
    for (int r = 0; r < 2; r++) {
        assert_int_equal(comms[r]->binding.ncores, 1);
        assert_int_equal(comms[r]->binding.memory, 1);
        assert_non_null(strstr(comms[r]->binding.text, "near NIC threads1"));
    }
    assert_status(uli_request_thread_hold(&comms[0]->binding), ULYX_SUCCESS);
    expect_cores("ulyx-progress", 1, &wanted);
    uli_request_thread_release();
    scene_close(2, comms);
}

/* A rank whose cores are in one node has its segment and its arenas there; a
 * rank with cores in both is not bound. */
static void
memory_follows_the_ranks_cores(void **state)
{
    cpu_set_t first;
    ulyx_comm_t *comm;
    struct uli_arena_block block;
    (void)state;
    need_two_cores();
    first = other_cores();
    assert_status(ulyx_comm_create_local(1, NULL, &comm), ULYX_SUCCESS);
    assert_non_null(strstr(comm->binding.text, "of several NUMA nodes"));
    assert_false(page_prefers(comm->segment.address, 1));
    assert_status(ulyx_comm_destroy(comm), ULYX_SUCCESS);
    assert_int_equal(sched_setaffinity(0, sizeof(first), &first), 0);
    ulyx_status_t status = ulyx_comm_create_local(1, NULL, &comm);
    if (status == ULYX_SUCCESS)
        status = uli_arena_alloc(comm, 8 << 20, &block);
    assert_int_equal(sched_setaffinity(0, sizeof(mine), &mine), 0);
    assert_status(status, ULYX_SUCCESS);
    assert_int_equal(comm->binding.ncores, CPU_COUNT(&first));
    assert_int_equal(comm->binding.memory, 0);
    assert_true(page_prefers(comm->segment.address, 1));
    assert_true(page_prefers(block.address, 1));
    uli_arena_free(comm, &block);
    assert_status(ulyx_comm_destroy(comm), ULYX_SUCCESS);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup_teardown(
        service_and_memory_are_near_the_device, gpu_open, gpu_close),
    cmocka_unit_test_setup_teardown(
        setting_off_binds_nothing, gpu_open, gpu_close),
    cmocka_unit_test_setup_teardown(
        core_setting_of_the_service_goes_first, gpu_open, gpu_close),
    cmocka_unit_test(network_threads_are_near_the_nic),
    cmocka_unit_test(memory_follows_the_ranks_cores),
};

/* Describes the machine before the selected tests and removes the file after
 * them. */
int
main(int argc, char **argv)
{
    describe_machine();
    int result =
        test_main(argc, argv, "Place", tests, sizeof(tests) / sizeof(tests[0]));
    unlink(path);
    return result;
}
