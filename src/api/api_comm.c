/* SPDX-License-Identifier: Apache-2.0
 *
 * Public calls on communicators: check, queue inside a group, call down.
 */
#include <stdio.h>
#include <stdlib.h>

#include "api/exit.h"
#include "api/group.h"
#include "api/params.h"
#include "bootstrap/bootstrap.h"
#include "comm/comm.h"
#include "device/device.h"
#include "ulyx/comm.h"

enum { MAX_RANKS = 1 << 20 };

/* Everything that a queued creation needs, whatever its bootstrap. */
struct creation {
    enum { BY_ID, BY_ALLGATHER, BY_ENV } by;
    ulyx_unique_id_t id;
    ulyx_allgather_fn allgather;
    void *allgather_context;
    int32_t nranks, rank;
    ulyx_comm_params_t params;
    struct uli_outcome outcome; /* of reading params; sent to the other ranks */
    char name[64];
    ulyx_comm_t **comm_p;
};

static ulyx_status_t
take_params(const ulyx_comm_params_t *given, ulyx_comm_params_t *own_p)
{
    ULI_TRY(uli_struct_take_or_default(
        &uli_structs[ULI_STRUCT_COMM_PARAMS], given, own_p));
    if (own_p->memory_kind == ULYX_MEMORY_HOST)
        own_p->device = -1; /* ignored */
    ULI_TRY(uli_fields_check(&uli_comm_fields, own_p));
    if (own_p->memory_kind != ULYX_MEMORY_HOST && !uli_device_kernels_built())
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "memory_kind is CUDA: this build was made without CUDA");
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_ranks(int32_t nranks, int32_t rank)
{
    if (nranks < 1 || nranks > MAX_RANKS)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "nranks is %d, allowed are 1 to %d", nranks, MAX_RANKS);
    if (rank < 0 || rank >= nranks)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "rank is %d, allowed are 0 to %d", rank, nranks - 1);
    return ULYX_SUCCESS;
}

static ulyx_status_t
open_bootstrap(const struct creation *c, const struct uli_settings *settings,
    uint32_t meeting, uli_deadline_t deadline,
    struct uli_bootstrap **bootstrap_p)
{
    switch (c->by) {
    case BY_ID:
        return uli_bootstrap_open_id(
            &c->id, c->nranks, c->rank, settings, deadline, bootstrap_p);
    case BY_ALLGATHER:
        return uli_bootstrap_open_callback(c->allgather, c->allgather_context,
            c->nranks, c->rank, bootstrap_p);
    default:
        return uli_bootstrap_open_env(settings, meeting, deadline, bootstrap_p);
    }
}

static ulyx_status_t
run_creation(void *context)
{
    struct creation *c = context;
    struct uli_bootstrap *bootstrap;
    struct uli_settings settings; /* on the stack: before the meeting an error
                                   * of malloc could not be reported to the
                                   * other ranks */
    uli_deadline_t deadline = 0;
    uint32_t meeting = c->by == BY_ENV ? uli_bootstrap_count_env() : 0;
    ulyx_status_t status;

    uli_exit_watch();
    if (c->name[0] != 0)
        c->params.name = c->name;
    status = uli_settings_load(&settings);
    if (status == ULYX_SUCCESS) {
        deadline = uli_deadline_in(
            uli_timeout_or(c->params.timeout_s, settings.timeout_s));
        status = open_bootstrap(c, &settings, meeting, deadline, &bootstrap);
    }
    ULI_TRY(status);
    if (c->outcome.status != ULYX_SUCCESS)
        status = uli_comm_refuse(
            bootstrap, uli_outcome_recall(&c->outcome), deadline);
    else
        status = uli_comm_create(bootstrap, bootstrap->nranks, bootstrap->rank,
            &c->params, deadline, c->comm_p);
    bootstrap->ops->close(bootstrap);
    return status;
}

static ulyx_status_t
creation_run(struct creation *c, const ulyx_comm_params_t *params)
{
    static const ulyx_comm_params_t defaults = ULYX_COMM_PARAMS_INIT;

    c->outcome = uli_outcome_keep(take_params(params, &c->params));
    if (c->outcome.status != ULYX_SUCCESS)
        c->params = defaults;
    /* A queued call may run after the caller's name is gone. */
    if (c->params.name)
        snprintf(c->name, sizeof(c->name), "%s", c->params.name);
    c->params.name = NULL;
    return uli_group_run(NULL, run_creation, NULL, c, sizeof(*c));
}

ulyx_status_t
ulyx_unique_id_create(ulyx_unique_id_t *id_p)
{
    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(id_p);
    return uli_unique_id_create(id_p);
}

ulyx_status_t
ulyx_unique_id_destroy(const ulyx_unique_id_t *id)
{
    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(id);
    return uli_unique_id_destroy(id);
}

ulyx_status_t
ulyx_unique_id_to_string(
    const ulyx_unique_id_t *id, char *text_p, size_t text_bytes)
{
    ULI_CHECK_POINTER(id);
    ULI_CHECK_POINTER(text_p);
    return uli_unique_id_to_string(id, text_p, text_bytes);
}

ulyx_status_t
ulyx_unique_id_from_string(const char *text, ulyx_unique_id_t *id_p)
{
    ULI_CHECK_POINTER(text);
    ULI_CHECK_POINTER(id_p);
    return uli_unique_id_from_string(text, id_p);
}

ulyx_status_t
ulyx_comm_create(const ulyx_unique_id_t *id, int32_t nranks, int32_t rank,
    const ulyx_comm_params_t *params, ulyx_comm_t **comm_p)
{
    struct creation c = {
        .by = BY_ID, .nranks = nranks, .rank = rank, .comm_p = comm_p};

    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(id);
    ULI_CHECK_POINTER(comm_p);
    ULI_TRY(check_ranks(nranks, rank));
    c.id = *id;
    return creation_run(&c, params);
}

ulyx_status_t
ulyx_comm_create_from_allgather(ulyx_allgather_fn allgather, void *context,
    int32_t nranks, int32_t rank, const ulyx_comm_params_t *params,
    ulyx_comm_t **comm_p)
{
    struct creation c = {.by = BY_ALLGATHER,
        .allgather = allgather,
        .allgather_context = context,
        .nranks = nranks,
        .rank = rank,
        .comm_p = comm_p};

    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(allgather);
    ULI_CHECK_POINTER(comm_p);
    ULI_TRY(check_ranks(nranks, rank));
    return creation_run(&c, params);
}

ulyx_status_t
ulyx_comm_create_from_env(
    const ulyx_comm_params_t *params, ulyx_comm_t **comm_p)
{
    struct creation c = {.by = BY_ENV, .comm_p = comm_p};

    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(comm_p);
    return creation_run(&c, params);
}

ulyx_status_t
ulyx_comm_create_local(
    int32_t nranks, const ulyx_comm_params_t *params, ulyx_comm_t **comms_p)
{
    ulyx_comm_params_t own;

    ULI_TRY(uli_api_enter());
    ULI_CHECK_POINTER(comms_p);
    ULI_TRY(check_ranks(nranks, 0));
    ULI_TRY(take_params(params, &own));
    return uli_comm_create_local(nranks, &own, comms_p);
}
