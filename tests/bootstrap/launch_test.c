/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks under real launchers, where these are installed, and ranks started by
 * hand as in docs/USING.md. If this test itself runs under a launcher, the
 * launcher's variables are removed first.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "support/test.h"
#include "ulyx/ulyx.h"

enum { OUTPUT_BYTES = 16384 };

static const char *const foreign[] = {"PMI_RANK", "PMI_SIZE", "PMI_FD",
    "PMIX_RANK", "PMIX_NAMESPACE", "RANK", "WORLD_SIZE", "SLURM_PROCID",
    "SLURM_STEP_ID", "OMPI_COMM_WORLD_RANK", "FLUX_TASK_RANK", "PALS_RANKID",
    "MV2_COMM_WORLD_RANK", "MASTER_ADDR", "MASTER_PORT"};

static int
set_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        unsetenv(foreign[i]);
    unsetenv("ULYX_COMM_ID");
    setenv("ULYX_TIMEOUT", "30", 1);
    return 0;
}

/* Runs a shell command. Stores its output and returns its exit status. */
static int
run_shell(const char *command, char *output_p)
{
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t used = fread(output_p, 1, OUTPUT_BYTES - 1, pipe);
    output_p[used] = 0;
    int status = pclose(pipe);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static bool
program_installed(const char *program)
{
    char command[128], output[OUTPUT_BYTES];
    snprintf(command, sizeof(command), "command -v %s", program);
    return run_shell(command, output) == 0;
}

static bool
have_open_mpi(void)
{
    char output[OUTPUT_BYTES];
    return program_installed("mpirun") &&
           run_shell("mpirun --version", output) == 0 &&
           strstr(output, "Open MPI");
}

static void
assert_all_met(const char *command, int nranks, int meetings)
{
    char output[OUTPUT_BYTES], line[64];
    int status = run_shell(command, output);
    for (int rank = 0; rank < nranks; rank++) {
        snprintf(line, sizeof(line), "rank %d of %d met %d times\n", rank,
            nranks, meetings);
        if (status != 0 || !strstr(output, line))
            fail_msg("%s: ended with %d:\n%s", command, status, output);
    }
}

static const char with_open_mpi[] =
    /* libpmix leaks a few bytes per process; other tests find leaks of ours. */
    "export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0; "
    "mpirun --allow-run-as-root --oversubscribe -np 4 " LAUNCHED_RANK
    " 3 4 2>&1";

static void
open_mpi_ranks_meet_through_pmix(void **state)
{
    (void)state;
    char output[OUTPUT_BYTES];
    if (!have_open_mpi())
        test_skip("no mpirun of Open MPI here");
    setenv("ULYX_DEBUG", "INFO", 1);
    assert_all_met(with_open_mpi, 4, 3);
    run_shell(with_open_mpi, output);
    unsetenv("ULYX_DEBUG");
    if (!strstr(output, "from Open MPI, not from PMIx; meeting through the "
                        "launcher's key-value store"))
        test_skip("this mpirun has no PMIx that fits: %s", output);
}

/* Runs two ranks of mpi_rank, which must both print "ok". */
static void
run_mpi(const char *order, const char *options)
{
#ifdef MPI_RANK
    char command[1024], output[OUTPUT_BYTES];
    if (!have_open_mpi())
        test_skip("no mpirun of Open MPI here");
    snprintf(command, sizeof(command),
        "export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0; "
        "mpirun --allow-run-as-root --oversubscribe -np 2 %s %s %s 2>&1",
        options, MPI_RANK, order);
    int status = run_shell(command, output);
    const char *first = strstr(output, "ok\n");
    if (status != 0 || !first || !strstr(first + 3, "ok\n"))
        fail_msg("%s: ended with %d:\n%s", command, status, output);
#else
    (void)order, (void)options;
    test_skip("built without MPI");
#endif
}

static void
communicators_and_mpi_come_in_any_order(void **state)
{
    (void)state;
    static const char *const orders[] = {"cif", "icf", "ifc", "ccicfc", "cc"};
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++)
        run_mpi(orders[i], "");
}

/* Rank 0 waits for the other rank in a fence of PMIx. At the end of
 * MPI_Finalize the other rank leaves PMIx before it comes to that fence. */
static void
ranks_that_left_mpi_late_are_waited_for(void **state)
{
    (void)state;
    run_mpi("iFc", "");
}

static void
meeting_by_an_id_leaves_pmix_alone(void **state)
{
    (void)state;
    ulyx_unique_id_t id;
    char text[600];
    assert_int_equal(ulyx_unique_id_create(&id), ULYX_SUCCESS);
    assert_int_equal(
        ulyx_unique_id_to_string(&id, text, sizeof(text)), ULYX_SUCCESS);
    setenv("ULYX_COMM_ID", text, 1);
    run_mpi("ncnif", "-x ULYX_COMM_ID");
    unsetenv("ULYX_COMM_ID");
    assert_int_equal(ulyx_unique_id_destroy(&id), ULYX_SUCCESS);
}

static void
hydra_ranks_meet_through_pmi1(void **state)
{
    (void)state;
    const char *hydra = getenv("ULYX_TEST_HYDRA");
    char command[1024];
    if (!hydra && program_installed("mpiexec.hydra"))
        hydra = "mpiexec.hydra";
    if (!hydra)
        test_skip("no mpiexec.hydra here (ULYX_TEST_HYDRA names one)");
    snprintf(
        command, sizeof(command), "%s -n 4 %s 3 4 2>&1", hydra, LAUNCHED_RANK);
    assert_all_met(command, 4, 3);
}

static void
ranks_started_by_hand_meet_on_one_node(void **state)
{
    (void)state;
    assert_all_met("for r in 0 1 2 3; do ULYX_RANK=$r ULYX_NRANKS=4 "
                   "ULYX_LOCAL_NRANKS=4 ULYX_JOB=$$ " LAUNCHED_RANK
                   " 5 4 & done 2>&1; wait",
        4, 5);
}

static void
ranks_started_by_hand_meet_through_a_folder(void **state)
{
    (void)state;
    assert_all_met(
        "d=$(mktemp -d); for r in 0 1 2; do ULYX_RANK=$r ULYX_NRANKS=3 "
        "ULYX_RENDEZVOUS_DIR=$d " LAUNCHED_RANK
        " 2 3 & done 2>&1; wait; rmdir $d",
        3, 2);
}

static void
torchrun_environment_meets_on_one_node(void **state)
{
    (void)state;
    assert_all_met(
        "for r in 0 1 2; do RANK=$r WORLD_SIZE=3 "
        "LOCAL_WORLD_SIZE=3 MASTER_ADDR=127.0.0.1 MASTER_PORT=$$ "
        "TORCHELASTIC_RESTART_COUNT=1 TORCHELASTIC_RUN_ID=none " LAUNCHED_RANK
        " 2 3 & done 2>&1; wait",
        3, 2);
}

static void
no_launcher_is_named(void **state)
{
    (void)state;
    char output[OUTPUT_BYTES];
    assert_int_equal(run_shell(LAUNCHED_RANK " 2>/dev/null", output), 1);
    assert_non_null(strstr(output,
        "ULYX_ERR_INVALID_ARGUMENT: no launcher recognised; looked for "
        "ULYX_RANK and ULYX_NRANKS; "));
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test_setup(open_mpi_ranks_meet_through_pmix, set_up),
    cmocka_unit_test_setup(communicators_and_mpi_come_in_any_order, set_up),
    cmocka_unit_test_setup(ranks_that_left_mpi_late_are_waited_for, set_up),
    cmocka_unit_test_setup(meeting_by_an_id_leaves_pmix_alone, set_up),
    cmocka_unit_test_setup(hydra_ranks_meet_through_pmi1, set_up),
    cmocka_unit_test_setup(ranks_started_by_hand_meet_on_one_node, set_up),
    cmocka_unit_test_setup(ranks_started_by_hand_meet_through_a_folder, set_up),
    cmocka_unit_test_setup(torchrun_environment_meets_on_one_node, set_up),
    cmocka_unit_test_setup(no_launcher_is_named, set_up),
};
ULI_TEST_MAIN("Launch", tests)
