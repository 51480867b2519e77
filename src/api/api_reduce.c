/* SPDX-License-Identifier: Apache-2.0
 *
 * The public reductions of collective.h.
 */
#include "api/group.h"
#include "api/params.h"
#include "base/dtype.h"
#include "base/size.h"
#include "base/status.h"
#include "collectives/channel/collective.h"
#include "ulyx/collective.h"

/* A call; in a group it is queued until the end of the group. */
struct call {
    ulyx_comm_t *comm;
    struct uli_reduce_args args;
    struct uli_outcome outcome;
};

static ulyx_status_t
reduction_run(void *context)
{
    struct call *call = context;
    return uli_reduce(
        call->comm, &call->args, uli_outcome_recall(&call->outcome));
}

/* outcome: the status of checking the call's arguments. */
static ulyx_status_t
run_or_queue(struct call *call, ulyx_status_t outcome)
{
    call->outcome = uli_outcome_keep(outcome);
    return uli_group_run(call->comm, reduction_run, NULL, call, sizeof(*call));
}

/* Checks a call whose src has count units of `unit` bytes, and whose dst has
 * `times` * count units. name: the argument that gives the count. */
static ulyx_status_t
reduction_check(
    const struct call *call, const char *name, int64_t unit, int64_t times)
{
    const struct uli_reduce_args *args = &call->args;
    int64_t bytes;
    ULI_TRY(uli_api_stream(call->comm, args->stream));
    if (args->count < 0)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s is %lld, must not be negative", name, (long long)args->count);
    if (!uli_size_mul(args->count, unit, &bytes))
        return uli_error(ULYX_ERR_OVERFLOW,
            "%s is %lld: this many elements of %lld bytes do not fit 64 bits",
            name, (long long)args->count, (long long)unit);
    if (!uli_size_mul(bytes, times, &bytes))
        return uli_error(ULYX_ERR_OVERFLOW,
            "%s is %lld: the bytes of %lld ranks together do not fit 64 bits",
            name, (long long)args->count, (long long)times);
    if (args->count && args->src == args->dst && !args->src)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT, "%s is NULL",
            args->kind == ULI_BROADCAST ? "buffer" : "src");
    if (args->count && (!args->src || !args->dst))
        return uli_error(
            ULYX_ERR_INVALID_ARGUMENT, "%s is NULL", args->src ? "dst" : "src");
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_sum(const struct call *call)
{
    const struct uli_reduce_args *args = &call->args;
    if (args->dtype < ULYX_DTYPE_F64 || args->dtype > ULYX_DTYPE_F16)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "dtype is %d: sums exist of ULYX_DTYPE_F64, _F32, _BF16 and _F16",
            args->dtype);
    int64_t elem = uli_dtype_size(args->dtype);
    ULI_TRY(reduction_check(call, "count", elem, 1));
    if ((uintptr_t)args->src % (uintptr_t)elem ||
        (uintptr_t)args->dst % (uintptr_t)elem)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "src %p or dst %p is not aligned to its elements of %lld bytes",
            (const void *)args->src, (void *)args->dst, (long long)elem);
    int64_t bytes = args->count * elem;
    if (args->src != args->dst && args->src < args->dst + bytes &&
        args->dst < args->src + bytes)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "src and dst overlap in part: they must be equal or disjoint");
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_allreduce(ulyx_comm_t *comm, const void *src, void *dst, int64_t count,
    ulyx_dtype_t dtype, void *stream)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    struct call call = {
        comm, {ULI_ALLREDUCE, src, dst, count, dtype, 0, stream}, {0}};
    return run_or_queue(&call, check_sum(&call));
}

ulyx_status_t
ulyx_allgather(ulyx_comm_t *comm, const void *src, void *dst,
    int64_t message_bytes, void *stream)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    struct call call = {
        comm, {ULI_ALLGATHER, src, dst, message_bytes, 0, 0, stream}, {0}};
    return run_or_queue(
        &call, reduction_check(&call, "message_bytes", 1, comm->nranks));
}

ulyx_status_t
ulyx_broadcast(
    ulyx_comm_t *comm, void *buffer, int64_t bytes, int32_t root, void *stream)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_COMM, comm);
    struct call call = {
        comm, {ULI_BROADCAST, buffer, buffer, bytes, 0, root, stream}, {0}};
    ulyx_status_t outcome = reduction_check(&call, "bytes", 1, 1);
    if (outcome == ULYX_SUCCESS && (root < 0 || root >= comm->nranks))
        outcome = uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "root is %d, must be 0 to %d", root, comm->nranks - 1);
    return run_or_queue(&call, outcome);
}
