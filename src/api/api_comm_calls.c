/* SPDX-License-Identifier: Apache-2.0
 *
 * Public calls on an existing communicator: split, shrink, agree, barrier,
 * abort, destroy, queries, groups.
 */
#include <stdio.h>

#include "api/group.h"
#include "api/params.h"
#include "collectives/exchange/mover.h"
#include "collectives/exchange/ring_pool.h"
#include "comm/agreement/survivors.h"
#include "comm/comm.h"
#include "comm/record/dump.h"
#include "ulyx/comm.h"

struct offspring {
    ulyx_comm_t *comm;
    int32_t color, key;
    ulyx_comm_params_t params;
    char name[64];
    struct uli_outcome outcome; /* of checking a split's arguments; sent to the
                                 * peers */
    ulyx_comm_t **new_p;
};

/* The child has the flags of the communicator in addition to those given, and
 * its timeout and name where none is given (0, NULL). If `given` itself is
 * NULL, the child also has the communicator's memory kind and device. */
static ulyx_status_t
api_comm_calls_inherit(
    ulyx_comm_t *comm, const ulyx_comm_params_t *given, struct offspring *child)
{
    ULI_TRY(uli_struct_take_or_default(
        &uli_structs[ULI_STRUCT_COMM_PARAMS], given, &child->params));
    if (!given) {
        child->params.memory_kind = comm->memory_kind;
        child->params.device = comm->device;
    }
    if (child->params.timeout_s == 0)
        child->params.timeout_s = comm->timeout_s;
    child->params.flags |= comm->flags;
    if (child->params.memory_kind == ULYX_MEMORY_HOST)
        child->params.device = -1; /* ignored */
    ULI_TRY(uli_fields_check(&uli_comm_fields, &child->params));
    if (child->params.memory_kind != comm->memory_kind)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "memory_kind is %d, the communicator's is %d",
            child->params.memory_kind, comm->memory_kind);
    snprintf(child->name, sizeof(child->name), "%s",
        child->params.name ? child->params.name : comm->name);
    child->params.name = NULL;
    return ULYX_SUCCESS;
}

static ulyx_status_t
run_split(void *context)
{
    struct offspring *child = context;

    child->params.name = child->name;
    return uli_comm_split(child->comm, child->color, child->key,
        uli_outcome_recall(&child->outcome), &child->params, child->new_p);
}

static ulyx_status_t
run_shrink(void *context)
{
    struct offspring *child = context;

    child->params.name = child->name;
    return uli_comm_shrink(child->comm, &child->params, child->new_p);
}

static ulyx_status_t
offspring_make(struct offspring *child, ulyx_status_t (*run)(void *context))
{
    return uli_group_run(child->comm, run, NULL, child, sizeof(*child));
}

ulyx_status_t
ulyx_comm_split(ulyx_comm_t *comm, int32_t color, int32_t key,
    const ulyx_comm_params_t *params, ulyx_comm_t **new_p)
{
    struct offspring child = {
        .comm = comm, .color = color, .key = key, .new_p = new_p};

    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    child.outcome = uli_outcome_keep(
        new_p ? api_comm_calls_inherit(comm, params, &child)
              : uli_error(ULYX_ERR_INVALID_ARGUMENT, "new_p is NULL"));
    return offspring_make(&child, run_split);
}

ulyx_status_t
ulyx_comm_shrink(
    ulyx_comm_t *comm, const ulyx_comm_params_t *params, ulyx_comm_t **new_p)
{
    struct offspring child = {.comm = comm, .new_p = new_p};

    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    ULI_CHECK_POINTER(new_p);
    ULI_TRY(api_comm_calls_inherit(comm, params, &child));
    return offspring_make(&child, run_shrink);
}

struct agreement {
    ulyx_comm_t *comm;
    uint64_t mine;
    ulyx_agree_t how;
    struct uli_outcome outcome; /* of checking the arguments; sent to the
                                 * peers */
    uint64_t *value_p;
    int32_t *nranks_p;
};

static ulyx_status_t
run_agree(void *context)
{
    struct agreement *call = context;

    return uli_comm_agree(call->comm, call->mine, call->how,
        uli_outcome_recall(&call->outcome), call->value_p, call->nranks_p);
}

static ulyx_status_t
agreement_check(ulyx_agree_t how, const uint64_t *value_p)
{
    ULI_CHECK_POINTER(value_p);
    if (how < ULYX_AGREE_AND || how > ULYX_AGREE_MAX)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "how is %d, not one of ulyx_agree_t", how);
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_comm_agree(ulyx_comm_t *comm, uint64_t mine, ulyx_agree_t how,
    uint64_t *value_p, int32_t *nranks_p)
{
    struct agreement call = {.comm = comm,
        .mine = mine,
        .how = how,
        .value_p = value_p,
        .nranks_p = nranks_p};

    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    call.outcome = uli_outcome_keep(agreement_check(how, value_p));
    return uli_group_run(comm, run_agree, NULL, &call, sizeof(call));
}

static ulyx_status_t
run_barrier(void *context)
{
    return uli_comm_barrier(*(ulyx_comm_t **)context);
}

ulyx_status_t
ulyx_comm_barrier(ulyx_comm_t *comm)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    return uli_group_run(comm, run_barrier, NULL, &comm, sizeof(comm));
}

ulyx_status_t
ulyx_comm_abort(ulyx_comm_t *comm)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    uli_comm_abort(comm);
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_comm_destroy(ulyx_comm_t *comm)
{
    ULI_TRY(uli_api_enter());
    if (!comm)
        return ULYX_SUCCESS;
    if (uli_group_holds(comm))
        return uli_error(ULYX_ERR_BUSY,
            "a call on the communicator is queued in a group: end the group "
            "before destroy");
    ULI_TRY(uli_handle_close(ULI_HANDLE_COMM, comm, "comm"));
    return uli_handle_closed(comm, uli_comm_destroy(comm));
}

ulyx_status_t
ulyx_comm_get_rank(const ulyx_comm_t *comm, int32_t *rank_p)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    ULI_CHECK_POINTER(rank_p);
    *rank_p = comm->rank;
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_comm_get_nranks(const ulyx_comm_t *comm, int32_t *nranks_p)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    ULI_CHECK_POINTER(nranks_p);
    *nranks_p = comm->nranks;
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_comm_get_async_error(const ulyx_comm_t *comm, ulyx_status_t *status_p)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    ULI_CHECK_POINTER(status_p);
    /* The look may record a peer's poison, which is no change that a caller can
     * see. */
    *status_p = uli_comm_look((ulyx_comm_t *)comm);
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_comm_get_dead_ranks(const ulyx_comm_t *comm, int32_t capacity,
    int32_t *ranks_p, int32_t *count_p)
{
    int32_t count = 0;

    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    ULI_CHECK_POINTER(count_p);
    if (capacity < 0 || (capacity > 0 && !ranks_p))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "capacity is %d and ranks_p is %s", capacity,
            !ranks_p ? "NULL" : "given");
    uli_comm_check((ulyx_comm_t *)comm);
    for (int32_t p = 0; p < comm->nranks; p++) {
        if (atomic_load(&comm->peers[p].dead) == 0)
            continue;
        if (count < capacity)
            ranks_p[count] = p;
        count++;
    }
    *count_p = count;
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_comm_get_memory(const ulyx_comm_t *comm, int64_t *bytes_p)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    ULI_CHECK_POINTER(bytes_p);
    /* The call takes the communicator's lock, but changes nothing. */
    *bytes_p = uli_comm_bytes((ulyx_comm_t *)comm);
    return ULYX_SUCCESS;
}

/* In this order: retired states of plans and unused ring sets hold blocks of
 * arenas, and an arena can be freed only when none of its blocks is in use. */
ulyx_status_t
ulyx_comm_trim(ulyx_comm_t *comm)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    ULI_TRY(uli_comm_check(comm));
    uli_retired_sweep(comm);
    uli_ring_pool_trim(comm);
    return uli_arena_trim(comm);
}

ulyx_status_t
ulyx_comm_dump(ulyx_comm_t *comm, const char *path)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    if (!path)
        path = comm->settings.dump_file;
    if (path[0] == 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "no file to dump to: path is %s and ULYX_DUMP_FILE is not set",
            path == comm->settings.dump_file ? "NULL" : "empty");
    return uli_dump_write(path);
}

ulyx_status_t
ulyx_group_start(void)
{
    ULI_TRY(uli_api_enter());
    return uli_group_start();
}

ulyx_status_t
ulyx_group_end(void)
{
    ULI_TRY(uli_api_enter());
    return uli_group_end();
}
