/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of launchers.
 */
#include "bootstrap/launch/launcher.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/status.h"
#include "bootstrap/meet/meeting.h"

/* A row is taken if the variables named by `rank`, by `needs` and by one of
 * `sizes` are set; with `size_later` no size is needed. */
struct row {
    const char *name;
    const char *rank;
    const char *sizes[3]; /* the first that is set */
    const char *local_size;
    const char *local_rank;
    const char *nodes;  /* number of nodes */
    const char *job[3]; /* together they name job, step and restart */
    const char *needs;  /* must be set too; NULL: no further variable */
    bool size_later;    /* the size comes from the launcher's library */
};

static const struct row rows[] = {
    {.name = "ULYX_RANK",
        .rank = "ULYX_RANK",
        .sizes = {"ULYX_NRANKS"},
        .local_size = "ULYX_LOCAL_NRANKS",
        .job = {"ULYX_JOB"}},
    {.name = "torchrun",
        .rank = "RANK",
        .sizes = {"WORLD_SIZE"},
        .local_size = "LOCAL_WORLD_SIZE",
        .local_rank = "LOCAL_RANK",
        .nodes = "GROUP_WORLD_SIZE",
        .job = {"TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"}},
    {.name = "Open MPI",
        .rank = "OMPI_COMM_WORLD_RANK",
        .sizes = {"OMPI_COMM_WORLD_SIZE"},
        .local_size = "OMPI_COMM_WORLD_LOCAL_SIZE",
        .local_rank = "OMPI_COMM_WORLD_LOCAL_RANK",
        .job = {"PMIX_NAMESPACE"}},
    {.name = "PMIx",
        .rank = "PMIX_RANK",
        .sizes = {"SLURM_STEP_NUM_TASKS"},
        .nodes = "SLURM_STEP_NUM_NODES",
        .job = {"PMIX_NAMESPACE"},
        .needs = "PMIX_NAMESPACE",
        .size_later = true},
    {.name = "Flux",
        .rank = "FLUX_TASK_RANK",
        .sizes = {"FLUX_JOB_SIZE"},
        .local_rank = "FLUX_TASK_LOCAL_ID",
        .nodes = "FLUX_JOB_NNODES",
        .job = {"FLUX_JOB_ID"}},
    /* HPE's launcher. Its ranks are in PALS_ variables, its sizes in PMI_
     * variables. It has no store that PMI-1 could reach. */
    {.name = "PALS",
        .rank = "PALS_RANKID",
        .sizes = {"PMI_SIZE"},
        .local_size = "PMI_LOCAL_SIZE",
        .local_rank = "PALS_LOCAL_RANKID",
        .job = {"PALS_APID"}},
    {.name = "MVAPICH2",
        .rank = "MV2_COMM_WORLD_RANK",
        .sizes = {"MV2_COMM_WORLD_SIZE"},
        .local_size = "MV2_COMM_WORLD_LOCAL_SIZE",
        .local_rank = "MV2_COMM_WORLD_LOCAL_RANK",
        .nodes = "MV2_NUM_NODES_IN_JOB",
        .job = {"MPIRUN_ID"}},
    {.name = "PMI-1",
        .rank = "PMI_RANK",
        .sizes = {"PMI_SIZE"},
        .local_size = "MPI_LOCALNRANKS",
        .local_rank = "MPI_LOCALRANKID",
        .job = {"PMI_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID"}},
    /* A batch script has SLURM_PROCID and SLURM_NTASKS too, but no step: the
     * script itself is no rank of the job. */
    {.name = "Slurm",
        .rank = "SLURM_PROCID",
        .sizes = {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
        .local_rank = "SLURM_LOCALID",
        .nodes = "SLURM_STEP_NUM_NODES",
        .job = {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"},
        .needs = "SLURM_STEP_ID"},
};
enum { ROW_COUNT = sizeof(rows) / sizeof(rows[0]) };

static const char *
process_get(const void *context, const char *name)
{
    (void)context;
    return getenv(name);
}

const struct uli_env uli_env_process = {process_get, NULL};

/* An empty value counts as unset. */
const char *
uli_env_get(const struct uli_env *env, const char *name)
{
    const char *value = name ? env->get(env->context, name) : NULL;
    return value && *value ? value : NULL;
}

/* The values of the row ULYX_RANK are settings, which may come from a file. */
struct settings_env {
    char rank[16], nranks[16], local_nranks[16];
    const char *job;
    const struct uli_env *next;
};

static const char *
settings_get(const void *context, const char *name)
{
    const struct settings_env *own = context;
    if (strcmp(name, "ULYX_RANK") == 0)
        return own->rank;
    if (strcmp(name, "ULYX_NRANKS") == 0)
        return own->nranks;
    if (strcmp(name, "ULYX_LOCAL_NRANKS") == 0)
        return own->local_nranks;
    if (strcmp(name, "ULYX_JOB") == 0)
        return own->job;
    return own->next->get(own->next->context, name);
}

static void
number_text(int64_t value, int64_t unset, char *text_p, size_t bytes)
{
    *text_p = 0;
    if (value != unset)
        snprintf(text_p, bytes, "%lld", (long long)value);
}

/* ---- rows ---------------------------------------------------------------- */

static const char *
size_name(const struct row *row, const struct uli_env *env)
{
    for (int i = 0; i < 3; i++)
        if (uli_env_get(env, row->sizes[i]))
            return row->sizes[i];
    return NULL;
}

static bool
is_set(const struct row *row, const struct uli_env *env)
{
    return uli_env_get(env, row->rank) &&
           (row->size_later || size_name(row, env)) &&
           (!row->needs || uli_env_get(env, row->needs));
}

static bool
parse_number(const char *text, int64_t low, int64_t high, int32_t *value_p)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || value < low || value > high)
        return false;
    *value_p = (int32_t)value;
    return true;
}

static ulyx_status_t
read_rank(
    const struct row *row, const struct uli_env *env, struct uli_launch *launch)
{
    const char *size = size_name(row, env);
    const char *size_text = size ? uli_env_get(env, size) : "";
    const char *rank_text = uli_env_get(env, row->rank);
    bool good =
        !size || parse_number(size_text, 1, ULI_NRANKS_MAX, &launch->nranks);
    int64_t most = size ? launch->nranks : ULI_NRANKS_MAX;
    if (good && parse_number(rank_text, 0, most - 1, &launch->rank))
        return ULYX_SUCCESS;
    if (!size)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s=\"%s\" (%s) is not a rank", row->rank, rank_text, row->name);
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "%s=\"%s\" and %s=\"%s\" (%s) are not a rank and a number of ranks",
        row->rank, rank_text, size, size_text, row->name);
}

static bool
row_is_one_node(
    const struct row *row, const struct uli_env *env, int32_t nranks)
{
    const char *local = uli_env_get(env, row->local_size);
    const char *nodes = uli_env_get(env, row->nodes);
    int32_t value;
    if (local && nranks)
        return parse_number(local, 1, ULI_NRANKS_MAX, &value) &&
               value == nranks;
    return nodes && strcmp(nodes, "1") == 0;
}

static void
read_local(
    const struct row *row, const struct uli_env *env, struct uli_launch *launch)
{
    const char *rank = uli_env_get(env, row->local_rank);
    const char *size = uli_env_get(env, row->local_size);
    launch->local_rank = -1;
    if (!size || !parse_number(size, 1, ULI_NRANKS_MAX, &launch->local_nranks))
        launch->local_nranks = launch->one_node ? launch->nranks : 0;
    int64_t end = launch->local_nranks ? launch->local_nranks : ULI_NRANKS_MAX;
    if (rank)
        parse_number(rank, 0, end - 1, &launch->local_rank);
}

/* "torchrun/run/restart"; empty when the launcher names no job. */
static void
name_job(
    const struct row *row, const struct uli_env *env, char *job_p, size_t bytes)
{
    size_t used = (size_t)snprintf(job_p, bytes, "%s", row->name);
    bool named = false;
    for (int i = 0; i < 3 && used < bytes; i++) {
        const char *part = uli_env_get(env, row->job[i]);
        named |= part != NULL;
        used += (size_t)snprintf(
            job_p + used, bytes - used, "/%s", part ? part : "");
    }
    if (!named)
        *job_p = 0;
}

static bool
has_pmix(const struct uli_env *env)
{
    static const char *const uris[] = {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4",
        "PMIX_SERVER_URI3", "PMIX_SERVER_URI21", "PMIX_SERVER_URI2"};
    for (size_t i = 0; i < sizeof(uris) / sizeof(uris[0]); i++)
        if (uli_env_get(env, uris[i]))
            return uli_env_get(env, "PMIX_NAMESPACE") != NULL;
    return false;
}

/* Finds the store of the launcher that was taken. The store of an outer
 * launcher, which may exist too, is not used, because an outer launcher may
 * give the ranks other numbers. */
static void
find_store(
    const struct row *row, const struct uli_env *env, struct uli_launch *launch)
{
    const char *fd = uli_env_get(env, "PMI_FD");
    const char *rank = uli_env_get(env, row->rank);
    const char *pmix_rank = uli_env_get(env, "PMIX_RANK");
    const char *pmi_rank = uli_env_get(env, "PMI_RANK");
    int32_t number;
    launch->pmi_fd = -1;
    if (strcmp(row->name, "torchrun") == 0 ||
        strcmp(row->name, "ULYX_RANK") == 0)
        return;
    launch->pmix = has_pmix(env) && pmix_rank && strcmp(pmix_rank, rank) == 0;
    if (!fd || !pmi_rank || strcmp(pmi_rank, rank) != 0 ||
        !parse_number(fd, 0, INT32_MAX, &number))
        return;
    launch->pmi_fd = number;
    /* Slurm's server lets each process choose PMI-1 or PMI-2. Hydra, which may
     * run in a step of Slurm, does not, and sets MPI_LOCALNRANKS. */
    launch->pmi_chosen = uli_env_get(env, "SLURM_STEP_ID") &&
                         !uli_env_get(env, "MPI_LOCALNRANKS");
}

/* Refuses a launcher of one rank within a launcher of several ranks, for
 * example RANK=0 and WORLD_SIZE=1 left in a shell under srun. ULYX_RANK is
 * exempt: the message advises to set it. */
static ulyx_status_t
check_alone(const struct row *row, const struct uli_env *env,
    const struct row *outer_row, const struct uli_launch *launch)
{
    struct uli_launch outer = {.nranks = 0};
    if (launch->nranks != 1 || row == rows)
        return ULYX_SUCCESS;
    ULI_TRY(read_rank(outer_row, env, &outer));
    if (outer.nranks <= 1 && outer.rank == 0)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "by %s this is the only rank (%s=%s, %s=%s), and by %s it is rank %d "
        "of several (%s=%s): unset %s and %s to be one of several, or set "
        "ULYX_RANK=0 and ULYX_NRANKS=1 to be alone",
        row->name, row->rank, uli_env_get(env, row->rank), size_name(row, env),
        uli_env_get(env, size_name(row, env)), outer_row->name, outer.rank,
        outer_row->rank, uli_env_get(env, outer_row->rank), row->rank,
        size_name(row, env));
}

/* Notes the launchers after `row`, which `row` overrules, and checks each. */
static ulyx_status_t
note_overruled(
    const struct row *row, const struct uli_env *env, struct uli_launch *launch)
{
    for (const struct row *other = row + 1; other < rows + ROW_COUNT; other++) {
        size_t used = strlen(launch->overruled);
        if (!is_set(other, env))
            continue;
        ULI_TRY(check_alone(row, env, other, launch));
        snprintf(launch->overruled + used, sizeof(launch->overruled) - used,
            "%s%s", used ? ", " : "", other->name);
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
row_take(const struct row *row, const struct uli_env *env,
    struct uli_launch *launch_p)
{
    struct uli_launch launch = {.launcher = row->name};
    const char *master = uli_env_get(env, "MASTER_ADDR");
    const char *port = uli_env_get(env, "MASTER_PORT");
    ULI_TRY(read_rank(row, env, &launch));
    launch.one_node = row_is_one_node(row, env, launch.nranks);
    read_local(row, env, &launch);
    name_job(row, env, launch.job, sizeof(launch.job));
    find_store(row, env, &launch);
    snprintf(launch.master, sizeof(launch.master), "%s", master ? master : "");
    snprintf(
        launch.master_port, sizeof(launch.master_port), "%s", port ? port : "");
    ULI_TRY(note_overruled(row, env, &launch));
    *launch_p = launch;
    return ULYX_SUCCESS;
}

void
uli_launcher_list(char *text_p, size_t bytes)
{
    size_t used = 0;
    *text_p = 0;
    for (int i = 0; i < ROW_COUNT && used < bytes; i++)
        used += (size_t)snprintf(text_p + used, bytes - used, "%s%s and %s",
            i ? "; " : "", rows[i].rank, rows[i].sizes[0]);
}

/* For a process to which no row applies: refuses if a row's rank is above 0,
 * because there must then be other ranks. */
static ulyx_status_t
check_halves(const struct uli_env *env)
{
    for (const struct row *row = rows; row < rows + ROW_COUNT; row++) {
        const char *text = uli_env_get(env, row->rank);
        bool sized = row->size_later || size_name(row, env);
        const char *missing = sized ? row->needs : row->sizes[0];
        int32_t rank;
        if (!text || !parse_number(text, 1, ULI_NRANKS_MAX, &rank))
            continue;
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s=%s (%s) means that there are other ranks, but %s is not set: "
            "set %s, or ULYX_RANK and ULYX_NRANKS",
            row->rank, text, row->name, missing, missing);
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_launcher_query(const struct uli_settings *settings,
    const struct uli_env *env, struct uli_launch *launch_p)
{
    struct settings_env own = {.job = settings->job, .next = env};
    const struct uli_env merged = {settings_get, &own};
    number_text(settings->rank, -1, own.rank, sizeof(own.rank));
    number_text(settings->nranks, 0, own.nranks, sizeof(own.nranks));
    number_text(
        settings->local_nranks, 0, own.local_nranks, sizeof(own.local_nranks));
    if (!*own.rank != !*own.nranks)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s is set and %s is not: set both, or neither",
            *own.rank ? "ULYX_RANK" : "ULYX_NRANKS",
            *own.rank ? "ULYX_NRANKS" : "ULYX_RANK");
    for (int i = 0; i < ROW_COUNT; i++)
        if (is_set(&rows[i], &merged))
            return row_take(&rows[i], &merged, launch_p);
    ULI_TRY(check_halves(&merged));
    *launch_p = (struct uli_launch){.local_rank = -1, .pmi_fd = -1};
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_launcher_find(const struct uli_settings *settings,
    const struct uli_env *env, struct uli_launch *launch_p)
{
    struct uli_launch launch;
    char list[512];
    ULI_TRY(uli_launcher_query(settings, env, &launch));
    if (launch.launcher) {
        *launch_p = launch;
        return ULYX_SUCCESS;
    }
    uli_launcher_list(list, sizeof(list));
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "no launcher recognised; looked for %s", list);
}
