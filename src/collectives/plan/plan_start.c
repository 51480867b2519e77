/* SPDX-License-Identifier: Apache-2.0
 *
 * The start of a call: checks the caller's arguments and finds their places. A
 * refusal is posted to the peers, which then do not wait for this rank.
 *
 * Reads the plan and the caller's pointers only; allocates nothing, takes no
 * lock.
 */
#include "base/dtype.h"
#include "base/status.h"
#include "collectives/exchange/exchange_schedule.h"
#include "collectives/exchange/mover.h"

/* One side of the call: the sources or the destinations. */
struct call_side {
    enum uli_side side;
    bool source;
    const char *needs;    /* why its tensors must lie in windows, or NULL */
    const int64_t *bytes; /* [ntensors]: the call's own, or creation's */
};

static struct call_side
call_side_of(const ulyx_plan_t *plan, ulyx_direction_t direction, bool source)
{
    enum uli_side side = uli_plan_side(direction, source);
    int64_t row = (int64_t)plan->comm->rank * ULI_SIDES + side;
    return (struct call_side){side, source,
        plan->mover->needs_windows(plan, side),
        plan->call.given ? plan->call.bytes[source]
                         : plan->extents + row * ULI_TENSORS};
}

static const int64_t *
call_strides(const ulyx_plan_t *plan, const struct call_side *at, int32_t t)
{
    return plan->call.given ? plan->call.at[at->source][t]
                            : plan->info.strides[t][at->side];
}

/* Checks one pointer: present, aligned, inside a window where the mover needs
 * one. */
static ulyx_status_t
check_pointer(const ulyx_plan_t *plan, const struct call_side *at, int32_t t,
    const void *base, struct uli_address *at_p)
{
    const char *name = at->source ? "src" : "dst";
    int64_t bytes = at->bytes[t];
    const struct uli_shape_tensor *tensor =
        &uli_layout_shape(plan->layout)->tensors[t];
    /* a power of two, or 0 */
    int64_t align = uli_dtype_size(uli_plan_dtype(tensor, at->side));
    uint32_t last = at_p->window; /* of the call before; at first 0 */
    at_p->window = ULI_NO_WINDOW;
    at_p->offset = (int64_t)(uintptr_t)base;
    if (bytes == 0)
        return ULYX_SUCCESS;
    if (!base)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s[%d] is NULL, the tensor has %lld bytes there", name, t,
            (long long)bytes);
    if (align > 1 && ((uintptr_t)base & (uintptr_t)(align - 1)))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s[%d] is %p, not aligned to its elements of %lld bytes", name, t,
            base, (long long)align);
    if (!at->needs)
        return ULYX_SUCCESS;
    if (last > 0 && last != ULI_NO_WINDOW &&
        uli_window_at(plan->comm, base, bytes, last, &at_p->offset)) {
        at_p->window = last;
        return ULYX_SUCCESS;
    }
    if (uli_window_find(plan->comm, base, bytes, &at_p->window, &at_p->offset))
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "%s[%d] (%p, %lld bytes) is not inside a window attached to the "
        "communicator, as %s",
        name, t, base, (long long)bytes, at->needs);
}

/* ---- overlap ------------------------------------------------------------- */

/* A tensor of the call on one of its sides, and its hull. */
struct argument {
    const struct call_side *at;
    int32_t t;
    uintptr_t begin, end;
};

static struct argument
argument_of(const struct call_side *at, int32_t t, const void *base)
{
    uintptr_t begin = (uintptr_t)base;
    return (struct argument){at, t, begin, begin + (uintptr_t)at->bytes[t]};
}

static struct uli_grid
grid_of(const ulyx_plan_t *plan, const struct argument *a)
{
    struct uli_grid grid;
    uli_plan_grid(plan->layout, a->t, plan->comm->rank, a->at->side,
        call_strides(plan, a->at, a->t), &grid);
    return grid;
}

/* Two parts of one axis in one PACKED tensor: each has its own rows of the
 * tensor, and a grid cannot express that. */
static bool
plan_joined(const ulyx_plan_t *plan, const struct argument *one,
    const struct argument *other)
{
    const struct uli_shape *shape = uli_layout_shape(plan->layout);
    const struct uli_shape_tensor *a = &shape->tensors[one->t];
    const struct uli_shape_tensor *b = &shape->tensors[other->t];
    return uli_layout_packed(plan->layout) && one->at->side != ULI_SIDE_SEQ &&
           a->part != b->part &&
           shape->parts[a->part].axis == shape->parts[b->part].axis &&
           a->ownership == b->ownership && a->heads == b->heads &&
           call_strides(plan, one->at, one->t)[1] ==
               call_strides(plan, other->at, other->t)[1];
}

/* Of two tensors whose hulls meet. */
static bool
plan_overlap(
    const ulyx_plan_t *plan, const struct argument *a, const struct argument *b)
{
    if (a->begin == a->end || b->begin == b->end)
        return false;
    if (a->begin == b->begin && a->at->side == b->at->side &&
        plan_joined(plan, a, b))
        return false;
    struct uli_grid ga = grid_of(plan, a), gb = grid_of(plan, b);
    return uli_grid_overlap(&ga, a->begin, &gb, b->begin);
}

/* Cheap when the hulls are apart, as they nearly always are. */
static inline bool
arguments_overlap(
    const ulyx_plan_t *plan, const struct argument *a, const struct argument *b)
{
    return a->end > b->begin && b->end > a->begin && plan_overlap(plan, a, b);
}

/* Of the tensors that the exchange has taken. */
static ulyx_status_t
check_overlap(const ulyx_plan_t *plan, const struct call_side *from,
    const struct call_side *to)
{
    const struct uli_exchange *exchange = &plan->exchange;
    struct argument src[ULI_TENSORS], dst[ULI_TENSORS];
    for (int32_t t = 0; t < exchange->ntensors; t++) {
        src[t] = argument_of(from, t, exchange->src[t]);
        dst[t] = argument_of(to, t, exchange->dst[t]);
    }
    for (int32_t i = 0; i < exchange->ntensors; i++) {
        for (int32_t j = 0; j < exchange->ntensors; j++)
            if (arguments_overlap(plan, &dst[i], &src[j]))
                return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                    "dst[%d] overlaps src[%d]", i, j);
        for (int32_t j = i + 1; j < exchange->ntensors; j++)
            if (arguments_overlap(plan, &dst[i], &dst[j]))
                return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                    "dst[%d] overlaps dst[%d]", i, j);
    }
    return ULYX_SUCCESS;
}

/* ---- the call ------------------------------------------------------------ */

static ulyx_status_t
check_direction(const ulyx_plan_t *plan, ulyx_direction_t direction)
{
    if (direction < 0 || direction >= ULYX_DIRECTIONS)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "direction is %d, must be 0 to %d", direction, ULYX_DIRECTIONS - 1);
    if (!(plan->directions >> direction & 1))
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "%s is not among the directions of this plan",
            uli_direction_name(direction));
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_strides(ulyx_plan_t *plan, const struct uli_plan_call *call)
{
    ULI_TRY(uli_plan_take_strides(plan, call));
    if (!plan->call.given || plan->mover->takes_strides)
        return ULYX_SUCCESS;
    plan->call.given = false;
    return uli_error(ULYX_ERR_UNSUPPORTED,
        "strides are not those of creation: tensors of plans by %s keep theirs",
        plan->mover->name);
}

ulyx_status_t
uli_plan_check_call(ulyx_plan_t *plan, const struct uli_plan_call *call)
{
    struct uli_exchange *exchange = &plan->exchange;
    ULI_TRY(check_direction(plan, call->direction));
    ULI_TRY(exchange->schedule->check(exchange));
    if (!call->src || !call->dst)
        return uli_error(
            ULYX_ERR_INVALID_ARGUMENT, "%s is NULL", call->src ? "dst" : "src");
    ULI_TRY(check_strides(plan, call));
    const struct call_side from = call_side_of(plan, call->direction, true);
    const struct call_side to = call_side_of(plan, call->direction, false);
    for (int32_t t = 0; t < exchange->ntensors; t++) {
        ULI_TRY(
            check_pointer(plan, &from, t, call->src[t], &exchange->src_at[t]));
        ULI_TRY(
            check_pointer(plan, &to, t, call->dst[t], &exchange->dst_at[t]));
        /* sources are only read */
        exchange->src[t] = (char *)(uintptr_t)call->src[t];
        exchange->dst[t] = call->dst[t];
    }
    return check_overlap(plan, &from, &to);
}

ulyx_status_t
uli_plan_execute(ulyx_plan_t *plan, const struct uli_plan_call *call,
    ulyx_request_t **request_p)
{
    *request_p = NULL;
    return plan->mover->start(plan, call, request_p);
}

ulyx_status_t
uli_plan_start(ulyx_plan_t *plan, const struct uli_plan_call *call,
    ulyx_request_t **request_p)
{
    if (plan->mover->by_stream)
        return uli_plan_refuse(plan, ULYX_ERR_UNSUPPORTED,
            "start is for host memory only: execute returns once the call is "
            "in its stream");
    return plan->mover->start(plan, call, request_p);
}

ulyx_status_t
uli_plan_refuse_call(ulyx_plan_t *plan, const struct uli_plan_call *call,
    ulyx_status_t status, const char *text)
{
    return plan->mover->refuse_call
               ? plan->mover->refuse_call(plan, call, status, text)
               : plan->mover->refuse(plan, status, text);
}

ulyx_status_t
uli_plan_refuse(ulyx_plan_t *plan, ulyx_status_t status, const char *text)
{
    return plan->mover->refuse(plan, uli_error(status, "%s", text), text);
}
