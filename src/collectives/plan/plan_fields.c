/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of a plan's fields.
 */
#include "collectives/plan/plan_fields.h"

#include "base/mask.h"
#include "base/system/clock.h"
#include "collectives/layout/layout.h"
#include "collectives/plan/plan.h"

enum { MAX_ELEM_BYTES = 4096, MAX_SLOT_BYTES = 1 << 20 };

/* ---- parts --------------------------------------------------------------- */

#define PART(member)                                                           \
    ULI_FIELD(ulyx_part_t, member, struct uli_shape_part, member)
static const struct uli_field part_rows[] = {
    {PART(axis), 0, 1, .agreed = true},
    {PART(kind), ULYX_PART_SHARDED, ULYX_PART_REPLICATED, .agreed = true},
    {PART(order), ULYX_TOKENS_CONTIGUOUS, ULYX_TOKENS_ZIGZAG_DOCS,
        .agreed = true},
    {PART(rows), ULI_AT_LEAST(0), .agreed = true},
    {PART(splits), ULI_ANY, .agreed = true},
    {PART(row_capacity), ULI_AT_LEAST(0), .agreed = true},
};
const struct uli_fields uli_part_fields = ULI_FIELDS(part_rows);

static const struct uli_field_array parts_array = {ULI_STRUCT_PART,
    offsetof(ulyx_plan_params_t, nparts),
    offsetof(ulyx_plan_params_t, part_size), offsetof(struct uli_shape, nparts),
    sizeof(struct uli_shape_part), &uli_part_fields};

/* ---- tensors ------------------------------------------------------------- */

#define TENSOR(member)                                                         \
    ULI_FIELD(ulyx_tensor_t, member, struct uli_shape_tensor, member)
static const struct uli_field tensor_rows[] = {
    {TENSOR(part), ULI_AT_LEAST(0), .agreed = true},
    {TENSOR(dtype), ULYX_DTYPE_BYTES, ULYX_DTYPE_F8_E5M2,
        .rule = "a ULYX_DTYPE code", .agreed = true},
    {TENSOR(elem_bytes), 1, MAX_ELEM_BYTES, .agreed = true},
    {TENSOR(heads), ULI_AT_LEAST(1), .agreed = true},
    {TENSOR(dim), ULI_AT_LEAST(1), .agreed = true},
    {TENSOR(ownership), ULYX_HEADS_QUERY, ULYX_HEADS_KV, .agreed = true},
    {TENSOR(partial_dtype), ULI_ANY, .agreed = true},
    {TENSOR(flags), 0, ULYX_TENSOR_FULL | ULYX_TENSOR_GRAD_EQUAL,
        .agreed = true},
};
static const struct uli_fields tensor_fields = ULI_FIELDS(tensor_rows);

static const struct uli_field_array tensors_array = {ULI_STRUCT_TENSOR,
    offsetof(ulyx_plan_params_t, ntensors),
    offsetof(ulyx_plan_params_t, tensor_size),
    offsetof(struct uli_shape, ntensors), sizeof(struct uli_shape_tensor),
    &tensor_fields};

/* ---- the shape ----------------------------------------------------------- */

#define SHAPE(member)                                                          \
    ULI_FIELD(ulyx_plan_params_t, member, struct uli_shape, member)
static const struct uli_field shape_rows[] = {
    {ULI_FIELD_OWN(struct uli_shape, nranks), ULI_AT_LEAST(1)},
    {SHAPE(batch), ULI_AT_LEAST(0), .agreed = true},
    {SHAPE(heads), ULI_AT_LEAST(1), .agreed = true},
    {SHAPE(parts), 1, ULI_MAX_PARTS, .agreed = true, .array = &parts_array},
    {SHAPE(tensors), 1, ULI_TENSORS, .agreed = true, .array = &tensors_array},
    {SHAPE(work_split), ULYX_WORK_HEADS, ULYX_WORK_BALANCED, .agreed = true},
    {SHAPE(head_splits), ULI_ANY, .agreed = true},
    {SHAPE(mask_kind), 0, ULI_MASKS - 1, .agreed = true},
    {SHAPE(mask_align), ULYX_ALIGN_BOTTOM_RIGHT, ULYX_ALIGN_TOP_LEFT,
        .agreed = true},
    {SHAPE(mask_diagonal), ULI_ANY, .agreed = true},
    {SHAPE(mask_left), ULI_AT_LEAST(0), .agreed = true},
    {SHAPE(mask_right), ULI_AT_LEAST(0), .agreed = true},
    {SHAPE(row_cost), ULI_AT_LEAST(0), .agreed = true},
    {SHAPE(row_round), ULI_AT_LEAST(0), .agreed = true},
    {SHAPE(max_rows), ULI_AT_LEAST(0), .agreed = true},
    {SHAPE(max_kv_rows), ULI_AT_LEAST(0), .agreed = true},
    {SHAPE(max_segments), ULI_AT_LEAST(0), .agreed = true},
    {SHAPE(max_local_rows), ULI_AT_LEAST(0), .agreed = true},
    {SHAPE(max_docs), ULI_AT_LEAST(0), .agreed = true},
    {ULI_FIELD_OWN(struct uli_shape, key_heads), ULI_AT_LEAST(0),
        .agreed = true},
};
const struct uli_fields uli_shape_fields = ULI_FIELDS(shape_rows);

/* ---- the rest ------------------------------------------------------------ */

#define PLAN(member)                                                           \
    ULI_FIELD(ulyx_plan_params_t, member, struct uli_plan_params, member)
#define POINTER_CODES                                                          \
    ULYX_POINTER_ANY, ULYX_POINTER_WINDOW, .rule = "a ULYX_POINTER code"
static const struct uli_field plan_rows[] = {
    {PLAN(seq_memory), POINTER_CODES},
    {PLAN(head_memory), POINTER_CODES},
    {PLAN(docs_q), ULI_ANY},
    {PLAN(docs_k), ULI_ANY},
    {PLAN(flags), 0, ULYX_PLAN_PROGRESS_THREAD | ULYX_PLAN_COPY_ENGINE},
    {PLAN(directions), 0, -1}, /* checked against the tensors in plan.c */
    {PLAN(algo), ULI_ANY},
    {PLAN(slot_bytes), INT64_MIN, MAX_SLOT_BYTES},
    {PLAN(bytes_in_flight), ULI_AT_LEAST(0)},
    {PLAN(max_sms), ULI_AT_LEAST(0)},
    {PLAN(timeout_s), 0, ULI_TIMEOUT_MAX_S},
};
const struct uli_fields uli_plan_fields = ULI_FIELDS(plan_rows);
