/* SPDX-License-Identifier: Apache-2.0
 *
 * The public calls of collective.h.
 */
#include <stdlib.h>
#include <string.h>
#include "api/group.h"
#include "api/params.h"
#include "base/size.h"
#include "base/status.h"
#include "collectives/channel/collective.h"
#include "ulyx/collective.h"

/* A call. In a group it is queued with copies of the caller's arrays. */
struct call {
    ulyx_comm_t *comm;
    struct uli_alltoall_args args;
    struct uli_outcome outcome;
    int64_t *held; /* [4 * nranks] copies of the arrays, or NULL */
};

static ulyx_status_t
collective_run(void *context)
{
    struct call *call = context;
    ulyx_status_t status = uli_alltoall(
        call->comm, &call->args, uli_outcome_recall(&call->outcome));
    free(call->held);
    return status;
}

static void
free_held(void *context)
{
    free(((struct call *)context)->held);
}

/* The caller's arrays may be gone at the end of the group. */
static ulyx_status_t
call_hold(struct call *call)
{
    size_t nranks = (size_t)call->comm->nranks;
    const int64_t **arrays[] = {&call->args.src_bytes, &call->args.src_offsets,
        &call->args.dst_bytes, &call->args.dst_offsets};
    call->held = calloc(4 * nranks, sizeof(int64_t));
    if (!call->held)
        return uli_error(ULYX_ERR_NO_MEMORY, "no memory for a queued call");
    for (size_t i = 0; i < 4 && call->outcome.status == ULYX_SUCCESS; i++) {
        size_t count = call->args.even ? 1 : nranks;
        if (!*arrays[i])
            continue;
        memcpy(call->held + i * nranks, *arrays[i], count * sizeof(int64_t));
        *arrays[i] = call->held + i * nranks;
    }
    return ULYX_SUCCESS;
}

/* outcome: the status of checking the call's arguments. */
static ulyx_status_t
run_or_queue(struct call *call, ulyx_status_t outcome)
{
    call->outcome = uli_outcome_keep(outcome);
    if (uli_group_active())
        ULI_TRY(call_hold(call));
    return uli_group_run(
        call->comm, collective_run, free_held, call, sizeof(*call));
}

/* ---- even ---------------------------------------------------------------- */

static ulyx_status_t
check_even(const ulyx_comm_t *comm, const struct uli_alltoall_args *args)
{
    int64_t message_bytes = args->src_bytes[0], total;
    ULI_TRY(uli_api_stream(comm, args->stream));
    if (message_bytes < 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "message_bytes is %lld, must not be negative",
            (long long)message_bytes);
    if (!uli_size_mul(message_bytes, comm->nranks, &total))
        return uli_error(ULYX_ERR_OVERFLOW,
            "message_bytes is %lld: the bytes for %d ranks together do not fit "
            "64 bits",
            (long long)message_bytes, comm->nranks);
    if (total && (!args->src || !args->dst))
        return uli_error(
            ULYX_ERR_INVALID_ARGUMENT, "%s is NULL", args->src ? "dst" : "src");
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_alltoall(ulyx_comm_t *comm, const void *src, void *dst,
    int64_t message_bytes, void *stream)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    struct call call = {.comm = comm,
        .args = {.src = src,
            .dst = dst,
            .even = true,
            .src_bytes = &message_bytes,
            .stream = stream}};
    return run_or_queue(&call, check_even(comm, &call.args));
}

/* ---- uneven -------------------------------------------------------------- */

static ulyx_status_t
check_messages(const char *name, int32_t nranks, const void *base,
    const int64_t *bytes, const int64_t *offsets)
{
    int64_t end;
    for (int32_t p = 0; p < nranks; p++) {
        if (bytes[p] < 0 || offsets[p] < 0)
            return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                "%s message %d: %lld bytes at offset %lld, neither may be "
                "negative",
                name, p, (long long)bytes[p], (long long)offsets[p]);
        if (!uli_size_add(bytes[p], offsets[p], &end))
            return uli_error(ULYX_ERR_OVERFLOW,
                "%s message %d: %lld bytes at offset %lld do not fit 64 bits",
                name, p, (long long)bytes[p], (long long)offsets[p]);
        if (bytes[p] && !base)
            return uli_error(ULYX_ERR_INVALID_ARGUMENT, "%s is NULL", name);
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_uneven(const ulyx_comm_t *comm, const struct uli_alltoall_args *args)
{
    ULI_TRY(uli_api_stream(comm, args->stream));
    ULI_CHECK_POINTER(args->src_bytes);
    ULI_CHECK_POINTER(args->src_offsets);
    ULI_CHECK_POINTER(args->dst_bytes);
    ULI_CHECK_POINTER(args->dst_offsets);
    ULI_TRY(check_messages(
        "src", comm->nranks, args->src, args->src_bytes, args->src_offsets));
    return check_messages(
        "dst", comm->nranks, args->dst, args->dst_bytes, args->dst_offsets);
}

ulyx_status_t
ulyx_alltoallv(ulyx_comm_t *comm, const void *src, const int64_t src_bytes[],
    const int64_t src_offsets[], void *dst, const int64_t dst_bytes[],
    const int64_t dst_offsets[], void *stream)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    struct call call = {.comm = comm,
        .args = {src, dst, false, src_bytes, src_offsets, dst_bytes,
            dst_offsets, stream}};
    return run_or_queue(&call, check_uneven(comm, &call.args));
}
