/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks under real launchers, where they are installed, and started by hand as
 * docs/USING.md says. The launcher's own variables, if this test runs under
 * one, are removed first.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "support/test.h"

enum { OUTPUT_BYTES = 16384 };

static const char *const foreign[] = {"PMI_RANK", "PMI_SIZE", "PMI_FD",
    "PMIX_RANK", "PMIX_NAMESPACE", "RANK", "WORLD_SIZE", "SLURM_PROCID",
    "SLURM_STEP_ID", "OMPI_COMM_WORLD_RANK", "MASTER_ADDR", "MASTER_PORT"};

static int
set_up(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        unsetenv(foreign[i]);
    setenv("ULYX_TIMEOUT", "30", 1);
    return 0;
}

/* Runs a shell command; its output, and its exit status. */
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
installed(const char *program)
{
    char command[128], output[OUTPUT_BYTES];
    snprintf(command, sizeof(command), "command -v %s", program);
    return run_shell(command, output) == 0;
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
    /* libpmix leaks a few bytes a process; leaks of ours show elsewhere. */
    "export ASAN_OPTIONS=$ASAN_OPTIONS:detect_leaks=0; "
    "mpirun --allow-run-as-root --oversubscribe -np 4 " LAUNCHED_RANK
    " 3 4 2>&1";

static void
open_mpi_ranks_meet_through_pmix(void **state)
{
    (void)state;
    char output[OUTPUT_BYTES];
    if (!installed("mpirun") || run_shell("mpirun --version", output) != 0 ||
        !strstr(output, "Open MPI"))
        test_skip("no mpirun of Open MPI here");
    setenv("ULYX_DEBUG", "INFO", 1);
    assert_all_met(with_open_mpi, 4, 3);
    run_shell(with_open_mpi, output);
    unsetenv("ULYX_DEBUG");
    if (!strstr(output, "from Open MPI, not from PMIx; meeting through the "
                        "launcher's key-value store"))
        test_skip("this mpirun has no PMIx that fits: %s", output);
}

static void
hydra_ranks_meet_through_pmi1(void **state)
{
    (void)state;
    const char *hydra = getenv("ULYX_TEST_HYDRA");
    char command[1024];
    if (!hydra && installed("mpiexec.hydra"))
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
    cmocka_unit_test_setup(hydra_ranks_meet_through_pmi1, set_up),
    cmocka_unit_test_setup(ranks_started_by_hand_meet_on_one_node, set_up),
    cmocka_unit_test_setup(ranks_started_by_hand_meet_through_a_folder, set_up),
    cmocka_unit_test_setup(torchrun_environment_meets_on_one_node, set_up),
    cmocka_unit_test_setup(no_launcher_is_named, set_up),
};
ULI_TEST_MAIN("Launch", tests)
