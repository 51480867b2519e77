/* SPDX-License-Identifier: Apache-2.0
 *
 * The standard error of all ranks is one full pipe that no process reads, as
 * under a launcher that has stopped: deadlines, deaths and their causes are
 * reported as usual.
 */
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>
#include "base/system/clock.h"
#include "comm/meet.h"
#include "support/ranks.h"
#include "support/test.h"

enum { RANKS = 4 };

struct scene {
    struct meet *meet;
    int stuck; /* the full pipe */
    bool dies; /* rank 3 dies, else it makes no call */
};

static int
leave_last(int rank, int nranks, void *context)
{
    struct scene *scene = context;
    ulyx_comm_t *comm;
    int64_t begin = uli_clock_ns();
    (void)nranks;
    dup2(scene->stuck, STDERR_FILENO);
    if (!ranks_expect(meet_comm(scene->meet, rank, 1, &comm) == ULYX_SUCCESS))
        return 1;
    if (rank == RANKS - 1 && scene->dies)
        raise(SIGKILL);
    if (rank == RANKS - 1)
        return meet_barrier(scene->meet, rank) ? 0 : 1;
    ulyx_status_t status = ulyx_comm_barrier(comm);
    bool right =
        status == (scene->dies ? ULYX_ERR_RANK_LOST : ULYX_ERR_TIMEOUT) &&
        strstr(ulyx_last_error(), "3");
    bool in_time = uli_clock_ns() - begin < INT64_C(8000000000);
    /* No rank leaves before all have their own cause. */
    bool met = scene->dies || meet_barrier(scene->meet, rank);
    right = ulyx_comm_destroy(comm) == ULYX_SUCCESS && right;
    dup2(STDOUT_FILENO, STDERR_FILENO); /* for what follows */
    return !ranks_expect(right) + !ranks_expect(in_time) + !ranks_expect(met);
}

static void
run_scene(bool dies)
{
    struct scene scene = {meet_new(RANKS), -1, dies};
    int ends[2];
    char filling[4096] = "";
    pid_t *pids = ranks_shared(RANKS * sizeof(*pids));
    assert_int_equal(pipe(ends), 0);
    fcntl(ends[1], F_SETFL, O_NONBLOCK);
    while (write(ends[1], filling, sizeof(filling)) > 0)
        ;
    fcntl(ends[1], F_SETFL, 0);
    scene.stuck = ends[1];
    assert_int_equal(ranks_run_processes_victim(
                         RANKS, leave_last, &scene, 30, RANKS - 1, pids),
        0);
    ranks_shared_free(pids, RANKS * sizeof(*pids));
    close(ends[0]);
    close(ends[1]);
    meet_free(scene.meet);
}

static void
timeout_is_reported_in_time(void **state)
{
    (void)state;
    run_scene(false);
}

static void
death_is_reported_in_time(void **state)
{
    (void)state;
    run_scene(true);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(timeout_is_reported_in_time),
    cmocka_unit_test(death_is_reported_in_time),
};

ULI_TEST_MAIN("LogStuck", tests)
