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

/* A tensor of the call on one of its sides. */
struct argument {
    const struct call_side *at;
    int32_t t;
    const char *base;
};

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
    if (a->base == b->base && a->at->side == b->at->side &&
        plan_joined(plan, a, b))
        return false;
    struct uli_grid ga = grid_of(plan, a), gb = grid_of(plan, b);
    return uli_grid_overlap(&ga, (uintptr_t)a->base, &gb, (uintptr_t)b->base);
}

/* The first tensor of a side that overlaps dst[i], from number `first` on; -1:
 * none. */
static int32_t
find_overlap(const ulyx_plan_t *plan, const struct call_side *to, int32_t i,
    const struct call_side *at, int32_t first)
{
    const struct uli_exchange *exchange = &plan->exchange;
    const struct argument one = {to, i, exchange->dst[i]};
    for (int32_t j = first; j < exchange->ntensors; j++) {
        const struct argument other = {
            at, j, at->source ? exchange->src[j] : exchange->dst[j]};
        if (to->bytes[i] && at->bytes[j] &&
            one.base + to->bytes[i] > other.base &&
            other.base + at->bytes[j] > one.base &&
            plan_overlap(plan, &one, &other))
            return j;
    }
    return -1;
}

/* Is no hull of a destination met by another hull? Nearly always; and small
 * calls are counted in nanoseconds. */
static bool
hulls_are_apart(const struct uli_exchange *exchange,
    const struct call_side *from, const struct call_side *to)
{
    uintptr_t begin[2 * ULI_TENSORS], end[2 * ULI_TENSORS];
    int32_t n = exchange->ntensors;
    for (int32_t t = 0; t < n; t++) {
        begin[t] = (uintptr_t)exchange->dst[t];
        end[t] = begin[t] + (uintptr_t)to->bytes[t];
        begin[n + t] = (uintptr_t)exchange->src[t];
        end[n + t] = begin[n + t] + (uintptr_t)from->bytes[t];
    }
    for (int32_t i = 0; i < n; i++)
        for (int32_t j = i + 1; j < 2 * n; j++)
            if (end[i] > begin[j] && end[j] > begin[i])
                return false;
    return true;
}

static ulyx_status_t
check_overlap(const ulyx_plan_t *plan, const struct call_side *from,
    const struct call_side *to)
{
    if (hulls_are_apart(&plan->exchange, from, to))
        return ULYX_SUCCESS;
    for (int32_t i = 0; i < plan->exchange.ntensors; i++) {
        int32_t j = find_overlap(plan, to, i, from, 0);
        if (j >= 0)
            return uli_error(
                ULYX_ERR_INVALID_ARGUMENT, "dst[%d] overlaps src[%d]", i, j);
        j = find_overlap(plan, to, i, to, i + 1);
        if (j >= 0)
            return uli_error(
                ULYX_ERR_INVALID_ARGUMENT, "dst[%d] overlaps dst[%d]", i, j);
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
