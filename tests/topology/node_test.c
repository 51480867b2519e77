/* SPDX-License-Identifier: Apache-2.0
 *
 * Identity of the node, cores and memory.
 */
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "support/test.h"
#include "topology/node.h"
#include "topology/node_cgroup.h"

static void
host_hash(const char *host_id, uint64_t hash_p[2])
{
    struct uli_settings settings;
    assert_status(uli_settings_load(&settings), ULYX_SUCCESS);
    snprintf(settings.host_id, sizeof(settings.host_id), "%s", host_id);
    assert_status(uli_node_hash(&settings, hash_p), ULYX_SUCCESS);
}

static void
hash_follows_the_override(void **state)
{
    (void)state;
    uint64_t machine[2], again[2], one[2], two[2];
    host_hash("", machine);
    host_hash("", again);
    host_hash("node1", one);
    host_hash("node2", two);
    assert_memory_equal(machine, again, sizeof(machine));
    assert_memory_not_equal(machine, one, sizeof(one));
    assert_memory_not_equal(one, two, sizeof(one));
    host_hash("node1", again);
    assert_memory_equal(one, again, sizeof(one));
    assert_true(one[0] != two[0] && one[1] != two[1]);
}

/* A process in a network namespace of its own counts as another node. */
static void
hash_follows_the_network_namespace(void **state)
{
    (void)state;
    uint64_t mine[2], other[2];
    int status = 0;
    host_hash("", mine);
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNET))
            _exit(77);
        host_hash("", other);
        _exit(memcmp(mine, other, sizeof(mine)) == 0);
    }
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        test_skip("no right to make a network namespace");
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void
put_file(const char *folder, const char *file, const char *text)
{
    char path[512];
    snprintf(path, sizeof(path), "%s/%s", folder, file);
    FILE *stream = fopen(path, "w");
    assert_non_null(stream);
    fputs(text, stream);
    fclose(stream);
}

static void
put_folder(const char *folder, const char *name, char path_p[256])
{
    assert_true(snprintf(path_p, 256, "%s/%s", folder, name) < 256);
    assert_int_equal(mkdir(path_p, 0700), 0);
}

/* The test makes cgroups of both versions below `root`, and a list that names
 * the groups of this process. */
static void
quotas_bound_the_cores(void **state)
{
    (void)state;
    char root[] = "/tmp/ulyx-cgroup-XXXXXX", list[256], command[300];
    char job[256], step[256], cpu[256], legacy[256];
    uint64_t group, other;
    assert_non_null(mkdtemp(root));
    snprintf(list, sizeof(list), "%s/list", root);
    struct uli_cgroups where = {list, root};
    put_file(root, "list", "0::/job/step\n");
    assert_int_equal(uli_cgroup_cores(&where, &group), INT32_MAX);
    assert_true(group == 0);
    put_folder(root, "job", job);
    put_folder(job, "step", step);
    put_file(step, "cpu.max", "max 100000\n");
    assert_int_equal(uli_cgroup_cores(&where, &group), INT32_MAX);
    /* the limit of a group above */
    put_file(job, "cpu.max", "350000 100000\n");
    assert_int_equal(uli_cgroup_cores(&where, &group), 3);
    assert_true(group != 0);
    put_file(step, "cpu.max", "50000 100000\n");
    assert_int_equal(uli_cgroup_cores(&where, &other), 1);
    assert_true(other != group);
    put_file(step, "cpu.max", "nonsense\n");
    assert_int_equal(uli_cgroup_cores(&where, &group), 3);
    put_folder(root, "cpu", cpu);
    put_folder(cpu, "old", legacy);
    put_file(root, "list", "4:memory:/old\n3:cpu,cpuacct:/old\n");
    put_file(legacy, "cpu.cfs_period_us", "100000\n");
    put_file(legacy, "cpu.cfs_quota_us", "-1\n");
    assert_int_equal(uli_cgroup_cores(&where, &group), INT32_MAX);
    put_file(legacy, "cpu.cfs_quota_us", "200000\n");
    assert_int_equal(uli_cgroup_cores(&where, &group), 2);
    snprintf(command, sizeof(command), "rm -r %s", root);
    assert_int_equal(system(command), 0);
}

static void
cores_follow_the_affinity(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    int32_t allowed = CPU_COUNT(&before) < uli_node_quota() ? CPU_COUNT(&before)
                                                            : uli_node_quota();
    assert_int_equal(uli_node_cores(), allowed);
    uint64_t all = uli_node_cores_hash();
    assert_true(all == uli_node_cores_hash());
    for (size_t core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &before))
            continue;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
        assert_int_equal(uli_node_cores(), 1);
        assert_true(
            (uli_node_cores_hash() == all) == (CPU_COUNT(&before) == 1));
        break;
    }
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
}

static void
memory_is_within_the_machine(void **state)
{
    (void)state;
    int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
    int64_t available = uli_node_memory_available();
    assert_true(available > 0);
    assert_true(available <= pages * page);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(hash_follows_the_override),
    cmocka_unit_test(hash_follows_the_network_namespace),
    cmocka_unit_test(quotas_bound_the_cores),
    cmocka_unit_test(cores_follow_the_affinity),
    cmocka_unit_test(memory_is_within_the_machine),
};

ULI_TEST_MAIN("Node", tests)
