/* SPDX-License-Identifier: Apache-2.0
 *
 * Identity of the node, cores and memory.
 */
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "support/test.h"
#include "topology/node.h"

static void
hash(const char *host_id, uint64_t hash_p[2])
{
    struct uli_settings settings;
    assert_status(uli_settings_load(&settings), ULYX_SUCCESS);
    snprintf(settings.host_id, sizeof(settings.host_id), "%s", host_id);
    uli_node_hash(&settings, hash_p);
}

static void
hash_follows_the_override(void **state)
{
    (void)state;
    uint64_t machine[2], again[2], one[2], two[2];
    hash("", machine);
    hash("", again);
    hash("node1", one);
    hash("node2", two);
    assert_memory_equal(machine, again, sizeof(machine));
    assert_memory_not_equal(machine, one, sizeof(one));
    assert_memory_not_equal(one, two, sizeof(one));
    hash("node1", again);
    assert_memory_equal(one, again, sizeof(one));
    assert_true(one[0] != two[0] && one[1] != two[1]);
}

/* A namespace of its own makes a process another node. */
static void
hash_follows_the_network_namespace(void **state)
{
    (void)state;
    uint64_t mine[2], other[2];
    int status = 0;
    hash("", mine);
    pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNET))
            _exit(77);
        hash("", other);
        _exit(memcmp(mine, other, sizeof(mine)) == 0);
    }
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        test_skip("no right to make a network namespace");
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void
cores_follow_the_affinity(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    assert_int_equal(uli_node_cores(), CPU_COUNT(&before));
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
    cmocka_unit_test(cores_follow_the_affinity),
    cmocka_unit_test(memory_is_within_the_machine),
};

ULI_TEST_MAIN("Node", tests)
