/* SPDX-License-Identifier: Apache-2.0
 *
 * The fields of ulyx_dist_attention_params_t. A new field needs its place in
 * the header, a row here, and its use; and a row among the plan's fields if
 * plans take it too.
 */
#include "attention/dist_attention/dist_attention.h"
#include "base/mask.h"
#include "base/system/clock.h"
#include "collectives/plan/plan_fields.h"

#define FIELD(member, own)                                                     \
    ULI_FIELD(ulyx_dist_attention_params_t, member, struct uli_dist_params, own)
#define SHAPE(member) FIELD(member, shape.member)
#define OWN(member)   FIELD(member, p.member)

static const struct uli_field_array parts_array = {ULI_STRUCT_PART,
    offsetof(ulyx_dist_attention_params_t, nparts),
    offsetof(ulyx_dist_attention_params_t, part_size),
    offsetof(struct uli_dist_params, shape.nparts),
    sizeof(struct uli_shape_part), &uli_part_fields};

#define POINTER_CODES                                                          \
    ULYX_POINTER_ANY, ULYX_POINTER_WINDOW, .rule = "a ULYX_POINTER code"
static const struct uli_field rows[] = {
    {OWN(heads), 1, INT32_MAX},
    {OWN(kv_heads), ULI_AT_LEAST(0)},
    {OWN(seq_memory), POINTER_CODES},
    {OWN(head_memory), POINTER_CODES},
    {OWN(docs_q), ULI_ANY},
    {OWN(docs_k), ULI_ANY},
    {OWN(max_workspace_bytes), ULI_AT_LEAST(0)},
    {OWN(threads), ULI_AT_LEAST(0)},
    {OWN(max_docs), 0, INT32_MAX},
    {OWN(timeout_s), 0, ULI_TIMEOUT_MAX_S},
    {OWN(memory), ULYX_MEMORY_HOST, ULYX_MEMORY_CUDA,
        .rule = "a ULYX_MEMORY code"},

    /* Fields that no plan has are compared here. */
    {SHAPE(mask_kind), 0, ULI_MASKS - 1, .agreed = true},
    {SHAPE(mask_align), ULYX_ALIGN_BOTTOM_RIGHT, ULYX_ALIGN_TOP_LEFT,
        .agreed = true},
    {SHAPE(mask_diagonal), ULI_ANY, .agreed = true},
    {SHAPE(mask_left), ULI_AT_LEAST(0), .agreed = true},
    {SHAPE(mask_right), ULI_AT_LEAST(0), .agreed = true},
    {OWN(scale), ULI_AT_LEAST(0), .agreed = true},
    {OWN(softcap), ULI_AT_LEAST(0), .agreed = true},
    {OWN(param_dtype), ULI_ANY, .agreed = true},
    {OWN(save), ULYX_SAVE_DEFAULT, ULYX_SAVE_NONE, .rule = "a ULYX_SAVE code",
        .agreed = true},
    {OWN(head_groups), ULI_AT_LEAST(0), .agreed = true},
    {OWN(flags), 0,
        ULYX_DIST_ATTENTION_FULL | ULYX_DIST_ATTENTION_GRAD_EQUAL |
            ULYX_DIST_ATTENTION_LSE | ULYX_DIST_ATTENTION_FORWARD_ONLY,
        .agreed = true},
    {OWN(dim_v), ULI_ANY, .agreed = true},
    {OWN(kernel), ULI_ANY, .agreed = true},

    /* fields of plans, which check and compare them too */
    {SHAPE(batch), ULI_AT_LEAST(0)},
    {SHAPE(parts), 1, ULI_MAX_PARTS, .array = &parts_array},
    {SHAPE(work_split), ULI_ANY},
    {SHAPE(head_splits), ULI_ANY},
    {SHAPE(row_cost), ULI_ANY},
    {SHAPE(row_round), ULI_ANY},
    {SHAPE(max_rows), ULI_ANY},
    {SHAPE(max_kv_rows), ULI_ANY},
    {SHAPE(max_segments), ULI_ANY},
    {SHAPE(max_local_rows), ULI_ANY},
};
const struct uli_fields uli_dist_fields = ULI_FIELDS(rows);
