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

/* This rank's bytes and strides in the call: the call's own, or else
 * creation's. */
static int64_t
call_extent(const ulyx_plan_t *plan, enum uli_side side, bool source, int32_t t)
{
    int64_t row = (int64_t)plan->comm->rank * ULI_SIDES + side;
    return plan->call.given ? plan->call.bytes[source][t]
                            : plan->extents[row * ULI_TENSORS + t];
}

static const int64_t *
call_strides(
    const ulyx_plan_t *plan, enum uli_side side, bool source, int32_t t)
{
    return plan->call.given ? plan->call.at[source][t]
                            : plan->info.strides[t][side];
}

/* Checks one pointer: present, aligned, inside a window where the mover needs
 * one. */
static ulyx_status_t
check_pointer(ulyx_plan_t *plan, bool source, int32_t t, enum uli_side side,
    const void *pointer, struct uli_address *at_p)
{
    const char *name = source ? "src" : "dst";
    int64_t bytes = call_extent(plan, side, source, t);
    const struct uli_shape_tensor *tensor =
        &uli_layout_shape(plan->layout)->tensors[t];
    int64_t align = uli_dtype_size(uli_plan_dtype(tensor, side));
    uint32_t last = at_p->window; /* of the call before; at first 0 */
    at_p->window = ULI_NO_WINDOW;
    at_p->offset = (int64_t)(uintptr_t)pointer;
    if (bytes == 0)
        return ULYX_SUCCESS;
    if (!pointer)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s[%d] is NULL, the tensor has %lld bytes there", name, t,
            (long long)bytes);
    if (align > 1 && (uintptr_t)pointer % (uintptr_t)align)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s[%d] is %p, not aligned to its elements of %lld bytes", name, t,
            pointer, (long long)align);
    const char *why = plan->mover->needs_windows(plan, side);
    if (!why)
        return ULYX_SUCCESS;
    if (last > 0 && last != ULI_NO_WINDOW &&
        uli_window_at(plan->comm, pointer, bytes, last, &at_p->offset)) {
        at_p->window = last;
        return ULYX_SUCCESS;
    }
    if (uli_window_find(
            plan->comm, pointer, bytes, &at_p->window, &at_p->offset))
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "%s[%d] (%p, %lld bytes) is not inside a window attached to the "
        "communicator, as %s",
        name, t, pointer, (long long)bytes, why);
}

/* ---- overlap ------------------------------------------------------------- */

/* A tensor of the call on one of its sides. */
struct argument {
    const char *base;
    int32_t t;
    enum uli_side side;
    bool source;
    int64_t bytes;
};

static struct argument
argument_of(const ulyx_plan_t *plan, const struct uli_plan_call *call,
    int32_t t, bool source)
{
    enum uli_side side = uli_plan_side(call->direction, source);
    const char *base = source ? call->src[t] : call->dst[t];
    return (struct argument){
        base, t, side, source, call_extent(plan, side, source, t)};
}

static struct uli_grid
grid_of(const ulyx_plan_t *plan, const struct argument *a)
{
    struct uli_grid grid;
    uli_plan_grid(plan->layout, a->t, plan->comm->rank, a->side,
        call_strides(plan, a->side, a->source, a->t), &grid);
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
    return uli_layout_packed(plan->layout) && one->side != ULI_SIDE_SEQ &&
           a->part != b->part &&
           shape->parts[a->part].axis == shape->parts[b->part].axis &&
           a->ownership == b->ownership && a->heads == b->heads &&
           call_strides(plan, one->side, one->source, one->t)[1] ==
               call_strides(plan, other->side, other->source, other->t)[1];
}

/* Cheap when the hulls are apart, as they nearly always are. */
static bool
plan_overlap(
    const ulyx_plan_t *plan, const struct argument *a, const struct argument *b)
{
    if (!a->bytes || !b->bytes || a->base + a->bytes <= b->base ||
        b->base + b->bytes <= a->base)
        return false;
    if (a->base == b->base && a->side == b->side && plan_joined(plan, a, b))
        return false;
    struct uli_grid ga = grid_of(plan, a), gb = grid_of(plan, b);
    return uli_grid_overlap(&ga, (uintptr_t)a->base, &gb, (uintptr_t)b->base);
}

static ulyx_status_t
check_overlap(const ulyx_plan_t *plan, const struct uli_plan_call *call)
{
    int32_t count = plan->exchange.ntensors;
    struct argument src[ULI_TENSORS], dst[ULI_TENSORS];
    for (int32_t i = 0; i < count; i++) {
        src[i] = argument_of(plan, call, i, true);
        dst[i] = argument_of(plan, call, i, false);
    }
    for (int32_t i = 0; i < count; i++) {
        for (int32_t j = 0; j < count; j++) {
            if (plan_overlap(plan, &dst[i], &src[j]))
                return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                    "dst[%d] overlaps src[%d]", i, j);
            if (j > i && plan_overlap(plan, &dst[i], &dst[j]))
                return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                    "dst[%d] overlaps dst[%d]", i, j);
        }
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
    enum uli_side from = uli_plan_side(call->direction, true);
    enum uli_side to = uli_plan_side(call->direction, false);
    for (int32_t t = 0; t < exchange->ntensors; t++) {
        ULI_TRY(check_pointer(
            plan, true, t, from, call->src[t], &exchange->src_at[t]));
        ULI_TRY(check_pointer(
            plan, false, t, to, call->dst[t], &exchange->dst_at[t]));
        /* sources are only read */
        exchange->src[t] = (char *)(uintptr_t)call->src[t];
        exchange->dst[t] = call->dst[t];
    }
    return check_overlap(plan, call);
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
