/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks of one node spin. They know whether more ranks than cores share their
 * cores, by the affinity of each rank, and yield between two looks then.
 * Launchers that bind give each rank a core.
 */
#include <sched.h>
#include <unistd.h>
#include "comm/meet.h"
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 2 };

struct scene {
    struct meet *meet;
    int cores[RANKS]; /* the core of rank r; -1: not bound */
    bool share;
};

static int
spin_rank(int rank, int nranks, void *context)
{
    const struct scene *scene = context;
    ulyx_comm_t *comm = NULL;
    (void)nranks;
    if (scene->cores[rank] >= 0) {
        cpu_set_t set;
        CPU_ZERO(&set);
        CPU_SET((size_t)scene->cores[rank], &set);
        if (!ranks_expect(sched_setaffinity(0, sizeof(set), &set) == 0))
            return 1;
    }
    if (!ranks_expect(meet_comm(scene->meet, rank, 20, &comm) == 0))
        return 1;
    bool good = ranks_expect(comm->spin_ns > 0) &&
                ranks_expect(comm->shares_cores == scene->share);
    uli_comm_destroy(comm);
    return good ? 0 : 1;
}

static void
spin_check(int first, int second, bool share)
{
    struct scene scene = {meet_new(RANKS), {first, second}, share};
    assert_int_equal(ranks_run_processes(RANKS, spin_rank, &scene, 60), 0);
    meet_free(scene.meet);
}

/* Two cores that this process may use. */
static void
find_cores(int cores_p[2])
{
    cpu_set_t set;
    int found = 0;
    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    for (int core = 0; core < CPU_SETSIZE && found < 2; core++)
        if (CPU_ISSET((size_t)core, &set))
            cores_p[found++] = core;
    if (found < 2)
        test_skip("one core only");
}

static void
ranks_with_a_core_each_keep_it(void **state)
{
    (void)state;
    int cores[2];
    find_cores(cores);
    spin_check(cores[0], cores[1], false);
    spin_check(-1, -1, false);
}

static void
ranks_that_share_a_core_yield_it(void **state)
{
    (void)state;
    int cores[2];
    find_cores(cores);
    spin_check(cores[0], cores[0], true);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(ranks_with_a_core_each_keep_it),
    cmocka_unit_test(ranks_that_share_a_core_yield_it),
};

ULI_TEST_MAIN("Spin", tests)
