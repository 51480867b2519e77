/* SPDX-License-Identifier: Apache-2.0
 *
 * The values that are read from each launcher's environment, by table.
 */
#include "bootstrap/launch/launcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "bootstrap/fixture_env.h"
#include "support/test.h"

struct expected {
    /* NULL: the environment is refused, with `text` in the error */
    const char *launcher;
    int32_t rank, nranks;
    bool one_node;
    const char *job;
    bool pmix;
    int pmi_fd;
    /* text of the error, or of the note about what was overruled */
    const char *text;
};

#define TORCHRUN                                                               \
    "RANK=5", "WORLD_SIZE=8", "LOCAL_RANK=1", "LOCAL_WORLD_SIZE=4",            \
        "GROUP_RANK=1", "GROUP_WORLD_SIZE=2", "TORCHELASTIC_RUN_ID=abc",       \
        "TORCHELASTIC_RESTART_COUNT=2", "MASTER_ADDR=node0",                   \
        "MASTER_PORT=29500"
#define OPENMPI                                                                \
    "OMPI_COMM_WORLD_RANK=3", "OMPI_COMM_WORLD_SIZE=4",                        \
        "OMPI_COMM_WORLD_LOCAL_RANK=3", "OMPI_COMM_WORLD_LOCAL_SIZE=4",        \
        "PMIX_RANK=3", "PMIX_NAMESPACE=3221356545",                            \
        "PMIX_SERVER_URI41=1.0;tcp4://127.0.0.1:1"
#define HYDRA                                                                  \
    "PMI_RANK=1", "PMI_SIZE=2", "PMI_FD=9", "MPI_LOCALRANKID=1",               \
        "MPI_LOCALNRANKS=2"
#define SRUN                                                                   \
    "SLURM_JOB_ID=77", "SLURM_STEP_ID=0", "SLURM_PROCID=6", "SLURM_NTASKS=16", \
        "SLURM_STEP_NUM_TASKS=8", "SLURM_STEP_NUM_NODES=2", "SLURM_LOCALID=2"

#define FLUX                                                                   \
    "FLUX_TASK_RANK=3", "FLUX_JOB_SIZE=4", "FLUX_JOB_NNODES=1",                \
        "FLUX_TASK_LOCAL_ID=3", "FLUX_JOB_ID=f2aZ"
#define PALS                                                                   \
    "PALS_RANKID=5", "PALS_LOCAL_RANKID=1", "PALS_NODEID=1",                   \
        "PALS_APID=ab-cd", "PMI_RANK=5", "PMI_SIZE=8", "PMI_LOCAL_RANK=1",     \
        "PMI_LOCAL_SIZE=4"
#define MVAPICH2                                                               \
    "MV2_COMM_WORLD_RANK=1", "MV2_COMM_WORLD_SIZE=4",                          \
        "MV2_COMM_WORLD_LOCAL_RANK=1", "MV2_COMM_WORLD_LOCAL_SIZE=4",          \
        "MV2_NUM_NODES_IN_JOB=1", "MPIRUN_ID=991"

static const struct {
    const char *name;
    struct fixture_env env;
    struct expected expected;
} cases[] = {
    {"nothing", {{NULL}},
        {NULL, 0, 0, false, "", false, -1,
            "looked for ULYX_RANK and ULYX_NRANKS; RANK and WORLD_SIZE; "
            "OMPI_COMM_WORLD_RANK and"}},
    {"torchrun on two nodes", {{TORCHRUN, NULL}},
        {"torchrun", 5, 8, false, "torchrun/abc/2/", false, -1, ""}},
    {"torchrun on one node",
        {{"RANK=1", "WORLD_SIZE=2", "LOCAL_WORLD_SIZE=2",
            "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1", NULL}},
        {"torchrun", 1, 2, true, "", false, -1, ""}},
    {"torchrun within srun", {{SRUN, TORCHRUN, NULL}},
        {"torchrun", 5, 8, false, "torchrun/abc/2/", false, -1, "Slurm"}},
    {"mpirun of Open MPI", {{OPENMPI, NULL}},
        {"Open MPI", 3, 4, true, "Open MPI/3221356545//", true, -1, "PMIx"}},
    {"mpirun in a Slurm job", {{SRUN, OPENMPI, NULL}},
        {"Open MPI", 3, 4, true, "Open MPI/3221356545//", true, -1,
            "PMIx, Slurm"}},
    {"torchrun within mpirun keeps to itself", {{OPENMPI, TORCHRUN, NULL}},
        {"torchrun", 5, 8, false, "torchrun/abc/2/", false, -1,
            "Open MPI, PMIx"}},
    {"srun --mpi=pmix",
        {{SRUN, "PMIX_RANK=6", "PMIX_NAMESPACE=slurm.pmix.77.0",
            "PMIX_SERVER_URI2=x", NULL}},
        {"PMIx", 6, 8, false, "PMIx/slurm.pmix.77.0//", true, -1, "Slurm"}},
    {"a PMIx launcher that gives no size",
        {{"PMIX_RANK=2", "PMIX_NAMESPACE=prte-1", "PMIX_SERVER_URI4=x", NULL}},
        {"PMIx", 2, 0, false, "PMIx/prte-1//", true, -1, ""}},
    {"Hydra", {{HYDRA, NULL}}, {"PMI-1", 1, 2, true, "", false, 9, ""}},
    {"Hydra on two nodes",
        {{"PMI_RANK=1", "PMI_SIZE=4", "PMI_FD=5", "MPI_LOCALNRANKS=2", NULL}},
        {"PMI-1", 1, 4, false, "", false, 5, ""}},
    {"srun --mpi=pmi2, whose server speaks PMI-1 too",
        {{SRUN, "PMI_RANK=6", "PMI_SIZE=8", "PMI_FD=4", NULL}},
        {"PMI-1", 6, 8, false, "PMI-1//77/0", false, 4, "Slurm"}},
    {"Slurm", {{SRUN, NULL}},
        {"Slurm", 6, 8, false, "Slurm/77/0/", false, -1, ""}},
    {"Slurm, one node, restarted",
        {{"SLURM_JOB_ID=1", "SLURM_STEP_ID=3", "SLURM_PROCID=0",
            "SLURM_NTASKS=4", "SLURM_STEP_NUM_NODES=1", "SLURM_RESTART_COUNT=5",
            NULL}},
        {"Slurm", 0, 4, true, "Slurm/1/3/5", false, -1, ""}},
    {"a batch script is no rank",
        {{"SLURM_JOB_ID=1", "SLURM_PROCID=0", "SLURM_NTASKS=4", NULL}},
        {NULL, 0, 0, false, "", false, -1, "no launcher recognised"}},
    {"half of torchrun is none", {{"RANK=0", NULL}},
        {NULL, 0, 0, false, "", false, -1, "no launcher recognised"}},
    {"a rank of an unknown number", {{"RANK=1", NULL}},
        {NULL, 0, 0, false, "", false, -1,
            "RANK=1 (torchrun) means that there are other ranks, but "
            "WORLD_SIZE is not set"}},
    {"PALS without sizes", {{"PALS_RANKID=2", NULL}},
        {NULL, 0, 0, false, "", false, -1, "but PMI_SIZE is not set"}},
    {"PMIx without a namespace", {{"PMIX_RANK=2", NULL}},
        {NULL, 0, 0, false, "", false, -1, "but PMIX_NAMESPACE is not set"}},
    {"Flux with its PMI-1", {{FLUX, "PMI_RANK=3", "PMI_SIZE=4", "PMI_FD=7"}},
        {"Flux", 3, 4, true, "Flux/f2aZ//", false, 7, "PMI-1"}},
    {"Flux on two nodes, without PMI",
        {{"FLUX_TASK_RANK=1", "FLUX_JOB_SIZE=4", "FLUX_JOB_NNODES=2",
            "FLUX_JOB_ID=f2", NULL}},
        {"Flux", 1, 4, false, "Flux/f2//", false, -1, ""}},
    {"PALS", {{PALS, NULL}},
        {"PALS", 5, 8, false, "PALS/ab-cd//", false, -1, "PMI-1"}},
    {"srun of a Cray", {{SRUN, PALS, NULL}},
        {"PALS", 5, 8, false, "PALS/ab-cd//", false, -1, "PMI-1, Slurm"}},
    {"mpirun_rsh of MVAPICH2", {{MVAPICH2, NULL}},
        {"MVAPICH2", 1, 4, true, "MVAPICH2/991//", false, -1, ""}},
    {"an empty value is none", {{"RANK=", "WORLD_SIZE=4", HYDRA, NULL}},
        {"PMI-1", 1, 2, true, "", false, 9, ""}},
    {"a rank beyond the size", {{"RANK=4", "WORLD_SIZE=4", NULL}},
        {NULL, 0, 0, false, "", false, -1,
            "RANK=\"4\" and WORLD_SIZE=\"4\" (torchrun) are not a rank"}},
    {"a rank that is no number", {{"RANK=one", "WORLD_SIZE=4", NULL}},
        {NULL, 0, 0, false, "", false, -1, "RANK=\"one\""}},
    {"a rank of PMIx that is no number",
        {{"PMIX_RANK=one", "PMIX_NAMESPACE=a", NULL}},
        {NULL, 0, 0, false, "", false, -1,
            "PMIX_RANK=\"one\" (PMIx) is not a rank"}},
    {"a negative rank", {{"RANK=-1", "WORLD_SIZE=4", NULL}},
        {NULL, 0, 0, false, "", false, -1, "RANK=\"-1\""}},
    {"a size that overflows",
        {{"RANK=1", "WORLD_SIZE=99999999999999999999", NULL}},
        {NULL, 0, 0, false, "", false, -1, "WORLD_SIZE=\"9999"}},
    {"a size of none", {{"RANK=0", "WORLD_SIZE=0", NULL}},
        {NULL, 0, 0, false, "", false, -1, "WORLD_SIZE=\"0\""}},
};

static void
load_settings(struct uli_settings *settings)
{
    assert_status(uli_settings_load_files(NULL, NULL, settings), 0);
}

static void
launcher_check(const char *name, const struct uli_settings *settings,
    const struct fixture_env *fixture, const struct expected *expected)
{
    struct uli_launch launch;
    const struct uli_env env = fixture_env(fixture);
    ulyx_status_t status = uli_launcher_find(settings, &env, &launch);
    if (!expected->launcher) {
        if (status != ULYX_ERR_INVALID_ARGUMENT ||
            !strstr(ulyx_last_error(), expected->text))
            fail_msg("%s: status %d, \"%s\"", name, status, ulyx_last_error());
        return;
    }
    if (status)
        fail_msg("%s: %s", name, ulyx_last_error());
    if (strcmp(launch.launcher, expected->launcher) != 0 ||
        launch.rank != expected->rank || launch.nranks != expected->nranks ||
        launch.one_node != expected->one_node ||
        strcmp(launch.job, expected->job) != 0 ||
        launch.pmix != expected->pmix || launch.pmi_fd != expected->pmi_fd ||
        strcmp(launch.overruled, expected->text) != 0)
        fail_msg("%s: %s rank %d of %d, one node %d, job \"%s\", pmix %d, "
                 "pmi %d, overruled \"%s\"",
            name, launch.launcher, launch.rank, launch.nranks, launch.one_node,
            launch.job, launch.pmix, launch.pmi_fd, launch.overruled);
}

static void
launchers_are_read_as_in_the_table(void **state)
{
    (void)state;
    struct uli_settings settings;
    load_settings(&settings);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        launcher_check(
            cases[i].name, &settings, &cases[i].env, &cases[i].expected);
}

static void
settings_of_ulyx_come_first(void **state)
{
    (void)state;
    struct uli_settings settings;
    const struct fixture_env env = {{TORCHRUN, NULL}};
    struct expected expected = {
        "ULYX_RANK", 2, 3, true, "ULYX_RANK/mine//", false, -1, "torchrun"};
    load_settings(&settings);
    settings.rank = 2;
    settings.nranks = 3;
    settings.local_nranks = 3;
    strcpy(settings.job, "mine");
    launcher_check("own", &settings, &env, &expected);
    settings.local_nranks = 2;
    expected.one_node = false;
    launcher_check("own, two nodes", &settings, &env, &expected);
}

static void
half_of_the_settings_of_ulyx_is_refused(void **state)
{
    (void)state;
    struct uli_settings settings;
    const struct fixture_env env = {{TORCHRUN, NULL}};
    const struct expected no_size = {
        .text = "ULYX_RANK is set and ULYX_NRANKS is not"};
    const struct expected no_rank = {
        .text = "ULYX_NRANKS is set and ULYX_RANK is not"};
    load_settings(&settings);
    settings.rank = 0;
    launcher_check("no size", &settings, &env, &no_size);
    settings.rank = -1;
    settings.nranks = 4;
    launcher_check("no rank", &settings, &env, &no_rank);
}

static void
master_address_and_port_are_read(void **state)
{
    (void)state;
    struct uli_settings settings;
    struct uli_launch launch;
    const struct fixture_env fixture = {{TORCHRUN, NULL}};
    const struct uli_env env = fixture_env(&fixture);
    load_settings(&settings);
    assert_status(uli_launcher_find(&settings, &env, &launch), 0);
    assert_string_equal(launch.master, "node0");
    assert_string_equal(launch.master_port, "29500");
}

/* ---- within the node, and launchers within launchers --------------------- */

static void
local_ranks_are_read(void **state)
{
    (void)state;
    static const struct {
        struct fixture_env env;
        int32_t rank, nranks;
    } local[] = {
        {{{TORCHRUN, NULL}}, 1, 4},
        {{{OPENMPI, NULL}}, 3, 4},
        {{{HYDRA, NULL}}, 1, 2},
        {{{SRUN, NULL}}, 2, 0},
        {{{FLUX, NULL}}, 3, 4},
        {{{PALS, NULL}}, 1, 4},
        {{{MVAPICH2, NULL}}, 1, 4},
        {{{"PMIX_RANK=2", "PMIX_NAMESPACE=a", NULL}}, -1, 0},
        {{{"RANK=1", "WORLD_SIZE=2", NULL}}, -1, 0},
        {{{"RANK=1", "WORLD_SIZE=2", "LOCAL_RANK=7", "LOCAL_WORLD_SIZE=2",
             NULL}},
            -1, 2},
    };
    struct uli_settings settings;
    load_settings(&settings);
    for (size_t i = 0; i < sizeof(local) / sizeof(local[0]); i++) {
        const struct uli_env env = fixture_env(&local[i].env);
        struct uli_launch launch;
        assert_status(uli_launcher_query(&settings, &env, &launch), 0);
        if (launch.local_rank != local[i].rank ||
            launch.local_nranks != local[i].nranks)
            fail_msg("%s: local rank %d of %d", launch.launcher,
                launch.local_rank, launch.local_nranks);
    }
}

static void
no_launcher_is_no_error(void **state)
{
    (void)state;
    struct uli_settings settings;
    struct uli_launch launch;
    const struct fixture_env batch = {
        {"SLURM_JOB_ID=1", "SLURM_PROCID=0", "SLURM_NTASKS=4", NULL}};
    const struct uli_env env = fixture_env(&batch);
    load_settings(&settings);
    assert_status(uli_launcher_query(&settings, &env, &launch), 0);
    assert_null(launch.launcher);
    assert_true(launch.nranks == 0 && launch.local_rank == -1);
}

/* srun started four tasks, and by torchrun's variables each would be a whole
 * job of one rank. */
static void
one_rank_within_several_is_refused(void **state)
{
    (void)state;
    static const struct {
        struct fixture_env env;
        const char *text; /* NULL: accepted */
    } nested[] = {
        {{{SRUN, "RANK=0", "WORLD_SIZE=1", NULL}},
            "by torchrun this is the only rank (RANK=0, WORLD_SIZE=1), and by "
            "Slurm it is rank 6 of several (SLURM_PROCID=6): unset RANK and "
            "WORLD_SIZE to be one of several, or set ULYX_RANK=0"},
        {{{FLUX, "OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=1", NULL}},
            "by Open MPI this is the only rank"},
        {{{"PMIX_RANK=2", "PMIX_NAMESPACE=a", "RANK=0", "WORLD_SIZE=1", NULL}},
            "by PMIx it is rank 2 of several"},
        {{{"SLURM_JOB_ID=1", "SLURM_STEP_ID=0", "SLURM_PROCID=0",
             "SLURM_STEP_NUM_TASKS=1", "RANK=0", "WORLD_SIZE=1", NULL}},
            NULL},
        {{{"PMIX_RANK=0", "PMIX_NAMESPACE=a", "OMPI_COMM_WORLD_RANK=0",
             "OMPI_COMM_WORLD_SIZE=1", NULL}},
            NULL},
    };
    struct uli_settings settings;
    struct uli_launch launch;
    load_settings(&settings);
    for (size_t i = 0; i < sizeof(nested) / sizeof(nested[0]); i++) {
        const struct uli_env env = fixture_env(&nested[i].env);
        const char *text = nested[i].text;
        assert_status(uli_launcher_find(&settings, &env, &launch),
            text ? ULYX_ERR_INVALID_ARGUMENT : ULYX_SUCCESS);
        if (text && !strstr(ulyx_last_error(), text))
            fail_msg("\"%s\" is not in \"%s\"", text, ulyx_last_error());
    }
    settings.rank = 0;
    settings.nranks = 1;
    const struct uli_env env = fixture_env(&nested[0].env);
    assert_status(uli_launcher_find(&settings, &env, &launch), ULYX_SUCCESS);
    assert_int_equal(launch.nranks, 1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(launchers_are_read_as_in_the_table),
    cmocka_unit_test(settings_of_ulyx_come_first),
    cmocka_unit_test(half_of_the_settings_of_ulyx_is_refused),
    cmocka_unit_test(master_address_and_port_are_read),
    cmocka_unit_test(local_ranks_are_read),
    cmocka_unit_test(no_launcher_is_no_error),
    cmocka_unit_test(one_rank_within_several_is_refused),
};
ULI_TEST_MAIN("Launcher", tests)
