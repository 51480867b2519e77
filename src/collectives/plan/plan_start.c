/* SPDX-License-Identifier: Apache-2.0
 *
 * Start of a call: check what the caller gave, say where it lies. A refusal
 * is posted to the peers, who then do not wait for this rank.
 *
 * Reads the plan and the caller's pointers only; allocates nothing, takes no
 * lock.
 */
#include "base/dtype.h"
#include "base/status.h"
#include "collectives/exchange/exchange_schedule.h"
#include "collectives/exchange/mover.h"

static int64_t
plan_extent(const ulyx_plan_t *plan, enum uli_side side, int32_t tensor)
{
    int64_t row = (int64_t)plan->comm->rank * ULI_SIDES + side;
    return plan->extents[row * ULI_TENSORS + tensor];
}

/* One pointer: present, aligned, inside a window where the mover wants one. */
static ulyx_status_t
check_pointer(ulyx_plan_t *plan, const char *name, int32_t t,
    enum uli_side side, const void *pointer, struct uli_address *at_p)
{
    int64_t bytes = plan_extent(plan, side, t);
    const struct uli_shape_tensor *tensor =
        &uli_layout_shape(plan->layout)->tensors[t];
    int64_t align = uli_dtype_size(uli_plan_dtype(tensor, side));
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
    const char *why = plan->mover->wants_windows(plan, side);
    if (!why)
        return ULYX_SUCCESS;
    if (uli_window_find(
            plan->comm, pointer, bytes, &at_p->window, &at_p->offset))
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "%s[%d] (%p, %lld bytes) is not inside a window attached to the "
        "communicator, as %s",
        name, t, pointer, (long long)bytes, why);
}

/* ---- overlap ------------------------------------------------------------- */

static void
grid_of(const ulyx_plan_t *plan, int32_t t, enum uli_side side,
    struct uli_grid *grid_p)
{
    uli_plan_grid(plan->layout, t, plan->comm->rank, side,
        plan->info.strides[t][side], grid_p);
}

/* Parts of one axis in one PACKED tensor: each has rows of its own there, which
 * no grid can say. */
static bool
plan_joined(const ulyx_plan_t *plan, int32_t ta, int32_t tb, enum uli_side side)
{
    const struct uli_shape *shape = uli_layout_shape(plan->layout);
    const struct uli_shape_tensor *a = &shape->tensors[ta];
    const struct uli_shape_tensor *b = &shape->tensors[tb];
    return uli_layout_packed(plan->layout) && side != ULI_SIDE_SEQ &&
           a->part != b->part &&
           shape->parts[a->part].axis == shape->parts[b->part].axis &&
           a->ownership == b->ownership && a->heads == b->heads &&
           plan->info.strides[ta][side][1] == plan->info.strides[tb][side][1];
}

/* Cheap when the hulls are apart, which is nearly always. */
static bool
plan_overlap(const ulyx_plan_t *plan, const char *a, int32_t ta,
    enum uli_side sa, const char *b, int32_t tb, enum uli_side sb)
{
    int64_t a_bytes = plan_extent(plan, sa, ta),
            b_bytes = plan_extent(plan, sb, tb);
    struct uli_grid ga, gb;
    if (!a_bytes || !b_bytes || a + a_bytes <= b || b + b_bytes <= a)
        return false;
    if (a == b && sa == sb && plan_joined(plan, ta, tb, sa))
        return false;
    grid_of(plan, ta, sa, &ga);
    grid_of(plan, tb, sb, &gb);
    return uli_grid_overlap(&ga, (uintptr_t)a, &gb, (uintptr_t)b);
}

static ulyx_status_t
check_overlap(ulyx_plan_t *plan, enum uli_side from, enum uli_side to)
{
    struct uli_exchange *exchange = &plan->exchange;
    for (int32_t i = 0; i < exchange->ntensors; i++) {
        for (int32_t j = 0; j < exchange->ntensors; j++) {
            if (plan_overlap(
                    plan, exchange->dst[i], i, to, exchange->src[j], j, from))
                return uli_error(ULYX_ERR_INVALID_ARGUMENT,
                    "dst[%d] overlaps src[%d]", i, j);
            if (j > i && plan_overlap(plan, exchange->dst[i], i, to,
                             exchange->dst[j], j, to))
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

ulyx_status_t
uli_plan_check_call(ulyx_plan_t *plan, ulyx_direction_t direction,
    const void *const src[], void *const dst[])
{
    struct uli_exchange *exchange = &plan->exchange;
    ULI_TRY(check_direction(plan, direction));
    ULI_TRY(exchange->schedule->check(exchange));
    if (!src || !dst)
        return uli_error(
            ULYX_ERR_INVALID_ARGUMENT, "%s is NULL", src ? "dst" : "src");
    enum uli_side from = uli_plan_side(direction, true);
    enum uli_side to = uli_plan_side(direction, false);
    for (int32_t t = 0; t < exchange->ntensors; t++) {
        ULI_TRY(
            check_pointer(plan, "src", t, from, src[t], &exchange->src_at[t]));
        ULI_TRY(
            check_pointer(plan, "dst", t, to, dst[t], &exchange->dst_at[t]));
        /* Sources are only read. */
        exchange->src[t] = (char *)(uintptr_t)src[t];
        exchange->dst[t] = dst[t];
    }
    return check_overlap(plan, from, to);
}

ulyx_status_t
uli_plan_execute(ulyx_plan_t *plan, ulyx_direction_t direction,
    const void *const src[], void *const dst[], void *stream,
    ulyx_request_t **request_p)
{
    *request_p = NULL;
    return plan->mover->start(plan, direction, src, dst, stream, 0, request_p);
}

ulyx_status_t
uli_plan_start(ulyx_plan_t *plan, ulyx_direction_t direction,
    const void *const src[], void *const dst[], double timeout_s,
    ulyx_request_t **request_p)
{
    if (plan->mover->by_stream)
        return uli_plan_refuse(plan, ULYX_ERR_UNSUPPORTED,
            "start is for host memory only: execute returns once the call is "
            "in its stream");
    return plan->mover->start(
        plan, direction, src, dst, NULL, timeout_s, request_p);
}

ulyx_status_t
uli_plan_refuse_on(ulyx_plan_t *plan, ulyx_status_t status, const char *text)
{
    return plan->mover->refuse(plan, status, text);
}

ulyx_status_t
uli_plan_refuse(ulyx_plan_t *plan, ulyx_status_t status, const char *text)
{
    return uli_plan_refuse_on(plan, uli_error(status, "%s", text), text);
}
