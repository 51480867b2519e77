/* SPDX-License-Identifier: Apache-2.0
 *
 * The public queries of a plan: local, never block.
 */
#include "api/params.h"
#include "base/status.h"
#include "collectives/plan/plan.h"
#include "ulyx/reshuffle.h"

/* ---- checks -------------------------------------------------------------- */

static ulyx_status_t
check_index(const char *name, int64_t value, int64_t count)
{
    if (value >= 0 && value < count)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_INVALID_ARGUMENT, "%s is %lld, must be 0 to %lld",
        name, (long long)value, (long long)count - 1);
}

static const struct uli_shape *
shape_of(const ulyx_plan_t *plan)
{
    return uli_layout_shape(plan->layout);
}

static ulyx_status_t
check_rank(const ulyx_plan_t *plan, int32_t rank)
{
    return check_index("rank", rank, plan->comm->nranks);
}

static ulyx_status_t
check_tensor(const ulyx_plan_t *plan, int32_t tensor)
{
    return check_index("tensor", tensor, shape_of(plan)->ntensors);
}

static ulyx_status_t
check_capacity(int64_t capacity, int64_t count, const void *array)
{
    if (capacity < count)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "capacity is %lld, needed are %lld", (long long)capacity,
            (long long)count);
    if (count > 0 && !array)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "the array for %lld results is NULL", (long long)count);
    return ULYX_SUCCESS;
}

/* ---- the sequence side --------------------------------------------------- */

ulyx_status_t
ulyx_plan_get_seq_rows(
    const ulyx_plan_t *plan, int32_t part, int32_t rank, int64_t *rows_p)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_PLAN, plan);
    ULI_CHECK_POINTER(rows_p);
    ULI_TRY(check_index("part", part, shape_of(plan)->nparts));
    ULI_TRY(check_rank(plan, rank));
    *rows_p = uli_layout_seq_rows(plan->layout, part, rank);
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_plan_get_positions(const ulyx_plan_t *plan, int32_t part, int32_t rank,
    int64_t capacity, int64_t *positions_p)
{
    int64_t count, rows;
    ULI_TRY(ulyx_plan_get_seq_rows(plan, part, rank, &rows));
    ULI_TRY(check_capacity(capacity, rows, positions_p));
    const struct uli_row_span *spans =
        uli_layout_row_spans(plan->layout, part, rank, &count);
    for (int64_t i = 0; i < count; i++)
        for (int64_t j = 0; j < spans[i].rows; j++)
            positions_p[spans[i].local + j] = spans[i].row + j;
    return ULYX_SUCCESS;
}

/* ---- the head side ------------------------------------------------------- */

ulyx_status_t
ulyx_plan_get_heads(const ulyx_plan_t *plan, int32_t tensor, int32_t rank,
    int64_t *first_p, int64_t *count_p)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_PLAN, plan);
    ULI_CHECK_POINTER(first_p);
    ULI_CHECK_POINTER(count_p);
    ULI_TRY(check_tensor(plan, tensor));
    ULI_TRY(check_rank(plan, rank));
    uli_layout_heads(plan->layout, tensor, rank, first_p, count_p);
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_plan_get_packed_rows(const ulyx_plan_t *plan, int32_t tensor, int32_t rank,
    int32_t *packed_p, int64_t *rows_p)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_PLAN, plan);
    ULI_CHECK_POINTER(packed_p);
    ULI_CHECK_POINTER(rows_p);
    ULI_TRY(check_tensor(plan, tensor));
    ULI_TRY(check_rank(plan, rank));
    *packed_p = uli_layout_packed(plan->layout);
    *rows_p =
        *packed_p ? uli_layout_packed_rows(plan->layout, tensor, rank) : 0;
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_plan_get_segments(const ulyx_plan_t *plan, int32_t tensor, int32_t rank,
    int64_t capacity, size_t segment_size, ulyx_segment_t *segments_p,
    int64_t *count_p)
{
    const struct uli_struct *kind = &uli_structs[ULI_STRUCT_SEGMENT];
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_PLAN, plan);
    ULI_CHECK_POINTER(count_p);
    ULI_TRY(check_tensor(plan, tensor));
    ULI_TRY(check_rank(plan, rank));
    if (!uli_layout_packed(plan->layout))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "the head side of this plan is not packed: it has no segments");
    ULI_TRY(uli_struct_element_size(kind, segment_size, "segments_p"));
    const struct uli_run *runs =
        uli_layout_runs(plan->layout, tensor, rank, count_p);
    int64_t stride = plan->ranks[rank].strides[tensor][ULI_SIDE_HEAD][1];
    if (capacity == 0 && !segments_p)
        return ULYX_SUCCESS; /* only the count is requested */
    ULI_TRY(check_capacity(capacity, *count_p, segments_p));
    for (int64_t i = 0; i < *count_p; i++) {
        const ulyx_segment_t segment = {.head = runs[i].head,
            .batch = runs[i].batch,
            .row_begin = runs[i].row_begin,
            .row_end = runs[i].row_end,
            .offset = runs[i].offset * stride};
        uli_struct_give_element(kind, &segment, segments_p, segment_size, i);
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_plan_get_kv_map(const ulyx_plan_t *plan, int32_t q_tensor,
    int32_t kv_tensor, int64_t capacity, int64_t *map_p, int64_t *count_p)
{
    int64_t q_first, kv_first, kv_count;
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_PLAN, plan);
    ULI_CHECK_POINTER(count_p);
    ULI_TRY(check_index("q_tensor", q_tensor, shape_of(plan)->ntensors));
    ULI_TRY(check_index("kv_tensor", kv_tensor, shape_of(plan)->ntensors));
    const struct uli_shape_tensor *q = &shape_of(plan)->tensors[q_tensor];
    const struct uli_shape_tensor *kv = &shape_of(plan)->tensors[kv_tensor];
    if (q->ownership != ULYX_HEADS_QUERY || kv->ownership != ULYX_HEADS_KV)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "tensors %d and %d must be a HEADS_QUERY and a HEADS_KV tensor",
            q_tensor, kv_tensor);
    int32_t me = plan->comm->rank;
    uli_layout_heads(plan->layout, q_tensor, me, &q_first, count_p);
    uli_layout_heads(plan->layout, kv_tensor, me, &kv_first, &kv_count);
    if (capacity == 0 && !map_p)
        return ULYX_SUCCESS; /* only the count is requested */
    ULI_TRY(check_capacity(capacity, *count_p, map_p));
    int64_t group = q->heads / kv->heads;
    for (int64_t i = 0; i < *count_p; i++)
        map_p[i] = (q_first + i) / group - kv_first;
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_plan_get_partial_dtype(
    const ulyx_plan_t *plan, int32_t tensor, ulyx_dtype_t *dtype_p)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_PLAN, plan);
    ULI_CHECK_POINTER(dtype_p);
    ULI_TRY(check_tensor(plan, tensor));
    *dtype_p = shape_of(plan)->tensors[tensor].partial_dtype;
    return ULYX_SUCCESS;
}

/* ---- sizes and texts ----------------------------------------------------- */

/* Checks the arguments. *side_p: what the direction has as its src (`side` is
 * SRC) or dst (DST): sequence side, head side, or the partials of
 * SEQ_TO_HEAD_ADJOINT. */
static ulyx_status_t
find_side(const ulyx_plan_t *plan, int32_t tensor, ulyx_direction_t direction,
    ulyx_side_t side, enum uli_side *side_p)
{
    ULI_TRY(check_tensor(plan, tensor));
    ULI_TRY(check_index("direction", direction, ULYX_DIRECTIONS));
    ULI_TRY(check_index("side", side, ULYX_SIDE_SRC + 1));
    *side_p = uli_plan_side(direction, side == ULYX_SIDE_SRC);
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_plan_get_extent(const ulyx_plan_t *plan, int32_t tensor,
    ulyx_direction_t direction, ulyx_side_t side, int64_t *bytes_p)
{
    struct uli_grid grid;
    enum uli_side where;
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_PLAN, plan);
    ULI_CHECK_POINTER(bytes_p);
    ULI_TRY(find_side(plan, tensor, direction, side, &where));
    uli_plan_grid(plan->layout, tensor, plan->comm->rank, where,
        plan->info.strides[tensor][where], &grid);
    *bytes_p = uli_grid_extent(&grid);
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_plan_get_max_extent(const ulyx_plan_t *plan, int32_t tensor,
    ulyx_direction_t direction, ulyx_side_t side, int64_t *bytes_p)
{
    enum uli_side where;
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_PLAN, plan);
    ULI_CHECK_POINTER(bytes_p);
    ULI_TRY(find_side(plan, tensor, direction, side, &where));
    *bytes_p = uli_plan_max_extent(plan, tensor, where);
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_plan_get_traffic(const ulyx_plan_t *plan, ulyx_direction_t direction,
    ulyx_traffic_t *traffic_p)
{
    ulyx_traffic_t traffic = ULYX_TRAFFIC_INIT;
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_PLAN, plan);
    ULI_CHECK_POINTER(traffic_p);
    ULI_TRY(check_index("direction", direction, ULYX_DIRECTIONS));
    if (!(plan->directions >> direction & 1))
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "%s is not among the directions of this plan",
            uli_direction_name(direction));
    ULI_TRY(uli_plan_traffic(plan, direction, &traffic));
    return uli_struct_give(
        &uli_structs[ULI_STRUCT_TRAFFIC], &traffic, traffic_p);
}

ulyx_status_t
ulyx_plan_get_memory(const ulyx_plan_t *plan, int64_t *bytes_p)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_PLAN, plan);
    ULI_CHECK_POINTER(bytes_p);
    *bytes_p = uli_plan_bytes(plan);
    return ULYX_SUCCESS;
}

ulyx_status_t
ulyx_plan_describe(const ulyx_plan_t *plan, char *text_p, size_t text_bytes)
{
    ULI_TRY(uli_api_enter());
    ULI_ENTER(ULI_HANDLE_PLAN, plan);
    ULI_CHECK_POINTER(text_p);
    if (text_bytes < 4)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "text_bytes is %zu, must be at least 4", text_bytes);
    uli_plan_describe(plan, text_p, text_bytes);
    return ULYX_SUCCESS;
}
