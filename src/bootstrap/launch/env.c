/* SPDX-License-Identifier: Apache-2.0
 *
 * Creation from the launcher's environment: rank and size (launcher.c), then
 * the first meeting point that applies, in the order of the table below.
 */
#include "bootstrap/launch/env.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "base/status.h"
#include "bootstrap/meet/root.h"
#include "bootstrap/launch/pmi1.h"
#include "bootstrap/launch/pmix.h"
#include "bootstrap/meet/unique_id.h"

#define SHARE_BYTES 640

void
uli_env_secret(const struct uli_env_meeting *env, const char *kind,
    const char *text, unsigned char *secret_p)
{
    char all[2 * ULI_SETTING_TEXT + 512];
    snprintf(all, sizeof(all), "%s\n%s\n%s\n%s:%s\n%u", kind, text,
        env->launch.job, env->launch.master, env->launch.master_port,
        env->meeting);
    uli_secret_from_text(all, secret_p);
}

/* ---- ULYX_COMM_ID -------------------------------------------------------- */

static bool
has_id(const struct uli_env_meeting *env)
{
    return env->settings->comm_id[0] != 0;
}

static ulyx_status_t
open_by_id(
    const struct uli_env_meeting *env, struct uli_bootstrap **bootstrap_p)
{
    ulyx_unique_id_t id;
    ULI_TRY(uli_unique_id_from_string(env->settings->comm_id, &id));
    return uli_bootstrap_open_id(&id, env->launch.nranks, env->launch.rank,
        env->settings, env->deadline, bootstrap_p);
}

/* ---- the launcher's store ------------------------------------------------ */

static bool
has_store(const struct uli_env_meeting *env)
{
    return env->launch.pmix || env->launch.pmi_fd >= 0;
}

static ulyx_status_t
meeting_share(const struct uli_env_meeting *env, char *text, size_t bytes)
{
    char key[48];
    snprintf(key, sizeof(key), "ulyx-meeting-%u", env->meeting);
    if (!env->launch.pmix && env->launch.pmi_chosen &&
        uli_pmi1_mpi_initialized())
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "rank %d of %d (%s): MPI was initialised first and may use PMI-2 "
            "with Slurm, which ulyx does not support: create the communicator "
            "before MPI_Init, set ULYX_COMM_ID or use srun --mpi=pmix",
            env->launch.rank, env->launch.nranks, env->launch.launcher);
    if (!env->launch.pmix)
        return uli_pmi1_share(env->launch.pmi_fd, env->launch.rank, key, text,
            bytes, env->deadline);
    return uli_pmix_share(
        env->pmix, env->launch.rank, key, text, bytes, env->deadline);
}

static ulyx_status_t
join_shared(const struct uli_env_meeting *env, char *text,
    struct uli_root *root, struct uli_bootstrap **bootstrap_p)
{
    ulyx_unique_id_t id;
    struct uli_endpoint place;
    int fd;
    ULI_TRY(meeting_share(env, text, SHARE_BYTES));
    ULI_TRY(uli_unique_id_from_string(text, &id));
    ULI_TRY(uli_unique_id_decode(&id, &place));
    strcpy(place.who, "rank 0, who stored this address");
    ULI_TRY(uli_dial(&place, 0, env->deadline, &fd));
    return uli_bootstrap_open_star(fd, root, env->launch.nranks,
        env->launch.rank, env->settings->ports, env->deadline, bootstrap_p);
}

/* Rank 0 serves a new id and stores it, then joins like the others. */
static ulyx_status_t
open_by_store(
    const struct uli_env_meeting *env, struct uli_bootstrap **bootstrap_p)
{
    ulyx_unique_id_t id;
    struct uli_root *root;
    char text[SHARE_BYTES] = "";
    if (env->launch.rank != 0)
        return join_shared(env, text, NULL, bootstrap_p);
    ULI_TRY(
        uli_unique_id_serve(env->settings, env->deadline, NULL, &id, &root));
    ulyx_status_t status = uli_unique_id_to_string(&id, text, sizeof(text));
    if (!status)
        status = join_shared(env, text, root, bootstrap_p);
    if (status)
        uli_root_stop(root, 0);
    return status;
}

/* ---- one node, a file, MASTER_ADDR --------------------------------------- */

static bool
on_one_node(const struct uli_env_meeting *env)
{
    bool named = env->launch.job[0] || env->launch.master_port[0];
    return env->launch.one_node && named;
}

static bool
has_folder(const struct uli_env_meeting *env)
{
    return env->settings->rendezvous_dir[0] != 0;
}

static bool
has_master(const struct uli_env_meeting *env)
{
    return env->launch.master[0] && env->settings->port > 0;
}

static const struct way {
    const char *name;
    bool (*applies)(const struct uli_env_meeting *env);
    ulyx_status_t (*open)(
        const struct uli_env_meeting *env, struct uli_bootstrap **bootstrap_p);
} ways[] = {
    {"ULYX_COMM_ID", has_id, open_by_id},
    {"the launcher's key-value store", has_store, open_by_store},
    {"an abstract socket of this node", on_one_node,
        uli_bootstrap_open_abstract},
    {"a file in ULYX_RENDEZVOUS_DIR", has_folder, uli_bootstrap_open_file},
    {"MASTER_ADDR:ULYX_PORT", has_master, uli_bootstrap_open_master},
};
enum { WAY_COUNT = sizeof(ways) / sizeof(ways[0]) };

static ulyx_status_t
no_way(const struct uli_env_meeting *env)
{
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "rank %d of %d (%s) has no meeting point: set ULYX_COMM_ID, or "
        "ULYX_JOB and ULYX_LOCAL_NRANKS where all ranks are on one node, or "
        "ULYX_RENDEZVOUS_DIR, or MASTER_ADDR with ULYX_PORT and ULYX_SECRET "
        "(the launcher offers no key-value store%s)",
        env->launch.rank, env->launch.nranks, env->launch.launcher,
        env->launch.one_node ? " and no name of the job"
                             : " and does not say that all ranks are on one "
                               "node");
}

/* ---- entry --------------------------------------------------------------- */

/* The allgather of a single rank. */
static int
copy_own(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    memcpy(all, mine, bytes);
    return 0;
}

/* A PMIx that cannot be used counts as absent, on every rank, because all ranks
 * have the same library and server. PMIx is opened only where it is needed: not
 * with an id, and not for a single rank. */
static ulyx_status_t
env_open_pmix(struct uli_env_meeting *env)
{
    struct uli_launch *launch = &env->launch;
    bool needed = !launch->nranks || (launch->nranks > 1 && !has_id(env));
    launch->pmix = launch->pmix && needed;
    if (!launch->pmix)
        return ULYX_SUCCESS;
    launch->pmix = uli_pmix_open(&env->pmix) == ULYX_SUCCESS;
    if (!launch->pmix || launch->nranks)
        return ULYX_SUCCESS;
    return uli_pmix_size(env->pmix, &launch->rank, &launch->nranks);
}

static void
log_taken(const struct uli_launch *launch, const char *way)
{
    ULI_INFO(ULI_LOG_INIT, launch->rank,
        "bootstrap: rank %d of %d from %s%s%s; meeting through %s",
        launch->rank, launch->nranks, launch->launcher,
        launch->overruled[0] ? ", not from " : "", launch->overruled, way);
}

static ulyx_status_t
open_one(const struct uli_env_meeting *env, struct uli_bootstrap **bootstrap_p)
{
    if (env->launch.nranks < 1)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s gives rank %d but no number of ranks", env->launch.launcher,
            env->launch.rank);
    if (env->launch.nranks == 1) {
        log_taken(&env->launch, "nothing, it is alone");
        return uli_bootstrap_open_callback(copy_own, NULL, 1, 0, bootstrap_p);
    }
    for (int i = 0; i < WAY_COUNT; i++) {
        if (!ways[i].applies(env))
            continue;
        log_taken(&env->launch, ways[i].name);
        return ways[i].open(env, bootstrap_p);
    }
    return no_way(env);
}

ulyx_status_t
uli_bootstrap_open_from(const struct uli_settings *settings,
    const struct uli_env *environment, uint32_t meeting,
    uli_deadline_t deadline, struct uli_bootstrap **bootstrap_p)
{
    struct uli_env_meeting env = {
        .settings = settings, .meeting = meeting, .deadline = deadline};
    ULI_TRY(uli_auth_init());
    ULI_TRY(uli_launcher_find(settings, environment, &env.launch));
    ULI_TRY(env_open_pmix(&env));
    return open_one(&env, bootstrap_p);
}

uint32_t
uli_bootstrap_count_env(void)
{
    static atomic_uint meetings;
    return atomic_fetch_add(&meetings, 1);
}

ulyx_status_t
uli_bootstrap_open_env(const struct uli_settings *settings, uint32_t meeting,
    uli_deadline_t deadline, struct uli_bootstrap **bootstrap_p)
{
    return uli_bootstrap_open_from(
        settings, &uli_env_process, meeting, deadline, bootstrap_p);
}
