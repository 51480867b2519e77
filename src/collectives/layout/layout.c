/* SPDX-License-Identifier: Apache-2.0
 *
 * The life of a layout: check, resolve defaults, reserve, fill, update. All its
 * memory is reserved at creation, in blocks that are freed with it; an update
 * fills the bank that is not in use.
 */
#include "collectives/layout/layout.h"

#include <inttypes.h>
#include <stdlib.h>
#include "collectives/layout/layout_balanced.h"

enum { DEFAULT_ROW_COST = 16, DEFAULT_ROW_ROUND = 64 };

struct uli_memory {
    struct uli_memory *next;
    max_align_t data[];
};

void *
uli_layout_reserve(struct uli_layout *layout, int64_t count, int64_t elem_bytes)
{
    int64_t bytes;
    if (!uli_size_mul_add(
            count, elem_bytes, (int64_t)sizeof(struct uli_memory), &bytes)) {
        layout->failure = uli_error(ULYX_ERR_OVERFLOW,
            "layout: a table of %" PRId64 " x %" PRId64 " bytes", count,
            elem_bytes);
        return NULL;
    }
    struct uli_memory *block = calloc(1, (size_t)bytes);
    if (!block) {
        layout->failure = uli_error(
            ULYX_ERR_NO_MEMORY, "layout: a table of %" PRId64 " bytes", bytes);
        return NULL;
    }
    block->next = layout->memory;
    layout->memory = block;
    layout->bytes += bytes;
    return block->data;
}

void
uli_layout_destroy(struct uli_layout *layout)
{
    if (!layout)
        return;
    while (layout->memory) {
        struct uli_memory *block = layout->memory;
        layout->memory = block->next;
        free(block);
    }
    free(layout);
}

/* ---- creation ------------------------------------------------------------ */

static ulyx_status_t
prepare_heads(struct uli_layout *layout)
{
    struct uli_shape *shape = &layout->shape;
    int64_t ranks = shape->nranks, *splits;
    ULI_TRY_RESERVE(layout, splits, ranks);
    ULI_TRY_RESERVE(layout, layout->head_begin, ranks + 1);
    for (int64_t r = 0; r < ranks; r++) {
        splits[r] = shape->head_splits
                        ? shape->head_splits[r]
                        : shape->heads / ranks + (r < shape->heads % ranks);
        layout->head_begin[r + 1] = layout->head_begin[r] + splits[r];
    }
    shape->head_splits = splits;
    return ULYX_SUCCESS;
}

/* Do two ranks share a head of the tensor? HEADS: where a rank's query heads
 * begin inside a group. PACKED: two ranks may attend to the keys of any row. */
static bool
tensor_shared(const struct uli_layout *layout, int32_t tensor)
{
    const struct uli_shape_tensor *t = &layout->shape.tensors[tensor];
    int64_t group = layout->shape.heads / t->heads;
    if (layout->packed)
        return t->ownership == ULYX_HEADS_KV;
    for (int32_t r = 1; r < layout->shape.nranks; r++)
        if (layout->head_begin[r] % group != 0)
            return true;
    return false;
}

static void
resolve_tensors(struct uli_layout *layout)
{
    for (int32_t i = 0; i < layout->shape.ntensors; i++) {
        struct uli_shape_tensor *t = &layout->shape.tensors[i];
        layout->shared[i] = tensor_shared(layout, i);
        if (t->partial_dtype)
            continue;
        bool narrow = t->dtype == ULYX_DTYPE_BF16 || t->dtype == ULYX_DTYPE_F16;
        t->partial_dtype =
            narrow && layout->shared[i] ? ULYX_DTYPE_F32 : t->dtype;
    }
}

/* Also for a BALANCED plan whose heads divide evenly (so that it is HEADS):
 * whether a table is accepted must not depend on the number of ranks. */
bool
uli_layout_takes_docs(const struct uli_layout *layout)
{
    return layout->has_docs_order ||
           layout->shape.work_split == ULYX_WORK_BALANCED;
}

static ulyx_status_t
prepare_docs(struct uli_layout *layout)
{
    if (!uli_layout_takes_docs(layout))
        return ULYX_SUCCESS;
    for (int b = 0; b < 2; b++)
        for (int axis = 0; axis < 2; axis++) {
            struct uli_tables *tables = &layout->bank[b];
            ULI_TRY_RESERVE(
                layout, tables->doc_begin[axis], layout->shape.max_docs);
            ULI_TRY_RESERVE(
                layout, tables->doc_length[axis], layout->shape.max_docs);
        }
    return ULYX_SUCCESS;
}

static ulyx_status_t
layout_prepare(struct uli_layout *layout)
{
    struct uli_shape *shape = &layout->shape;
    uli_rows_place(layout);
    if (shape->row_cost == 0)
        shape->row_cost = DEFAULT_ROW_COST;
    if (shape->row_round == 0)
        shape->row_round = DEFAULT_ROW_ROUND;
    layout->packed = shape->work_split == ULYX_WORK_BALANCED &&
                     shape->heads % shape->nranks != 0;
    layout->max_local_given = shape->max_local_rows > 0;
    for (int32_t i = 0; i < shape->nparts; i++)
        ULI_TRY(uli_orders_prepare(layout, i));
    if (layout->packed) {
        ULI_TRY(uli_families_prepare(layout));
        ULI_TRY(uli_cost_prepare(layout));
    } else {
        ULI_TRY(prepare_heads(layout));
    }
    resolve_tensors(layout);
    return prepare_docs(layout);
}

ulyx_status_t
uli_layout_fill(struct uli_layout *layout, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k)
{
    struct uli_tables *tables = layout->tables == &layout->bank[0]
                                    ? &layout->bank[1]
                                    : &layout->bank[0];
    ULI_TRY(uli_docs_load(layout, tables, 0, docs_q));
    if (!docs_k && layout->naxes == 1)
        uli_docs_share(tables);
    else
        ULI_TRY(uli_docs_load(layout, tables, 1, docs_k));
    ULI_TRY(uli_orders_update(layout, tables));
    if (layout->packed) {
        ULI_TRY(uli_cost_update(layout, tables));
        ULI_TRY(uli_balanced_cut(layout, tables));
        uli_families_update(layout, tables);
    }
    tables->hash = uli_docs_hash(layout, tables);
    __atomic_store_n(&layout->tables, tables, __ATOMIC_RELEASE);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_layout_create(const struct uli_shape *shape, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, struct uli_layout **layout_p)
{
    ulyx_status_t status;
    struct uli_rows present;
    ULI_TRY(uli_layout_check(shape));
    struct uli_layout *layout = calloc(1, sizeof(*layout));
    if (!layout)
        return uli_error(
            ULYX_ERR_NO_MEMORY, "layout: %zu bytes", sizeof(*layout));
    layout->bytes = sizeof(*layout);
    layout->shape = *shape;
    uli_rows_open(layout, &present);
    status = layout_prepare(layout);
    if (status != ULYX_SUCCESS)
        goto err_destroy;
    uli_rows_set(layout, &present);
    layout->tables = &layout->bank[1];
    if (!uli_layout_takes_docs(layout))
        docs_q = docs_k = NULL; /* for the attention only */
    status = uli_layout_fill(layout, docs_q, docs_k);
    if (status != ULYX_SUCCESS)
        goto err_destroy;
    *layout_p = layout;
    return ULYX_SUCCESS;

err_destroy:
    uli_layout_destroy(layout);
    return status;
}

ulyx_status_t
uli_layout_update(struct uli_layout *layout, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k)
{
    if (!uli_layout_takes_docs(layout) || layout->shape.max_docs == 0)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "the plan has no document tables: its order and work split do "
            "not depend on documents (give them to the attention), or max_docs "
            "is 0");
    return uli_layout_fill(layout, docs_q, docs_k);
}

/* ---- queries ------------------------------------------------------------- */

bool
uli_layout_has_tables(const struct uli_layout *layout)
{
    return layout->limits.change ||
           ((layout->has_docs_order || layout->packed) &&
               layout->shape.max_docs > 0);
}

uint64_t
uli_layout_table_hash(const struct uli_layout *layout)
{
    return uli_layout_has_tables(layout) ? uli_layout_tables(layout)->hash : 0;
}

const struct uli_shape *
uli_layout_shape(const struct uli_layout *layout)
{
    return &layout->shape;
}

int64_t
uli_layout_bytes(const struct uli_layout *layout)
{
    return layout->bytes;
}

int64_t
uli_layout_axis_rows(const struct uli_layout *layout, int32_t axis)
{
    return layout->axis_rows[axis];
}

int64_t
uli_layout_first_row(const struct uli_layout *layout, int32_t part)
{
    return layout->first_row[part];
}

int64_t
uli_layout_seq_rows(const struct uli_layout *layout, int32_t part, int32_t rank)
{
    const struct uli_shape_part *p = &layout->shape.parts[part];
    if (p->kind == ULYX_PART_REPLICATED)
        return p->rows;
    return uli_layout_tables(layout)->spans[part].rows[rank];
}

int64_t
uli_layout_max_seq_rows(
    const struct uli_layout *layout, int32_t part, int32_t rank)
{
    const struct uli_shape_part *p = &layout->shape.parts[part];
    if (p->kind == ULYX_PART_SHARDED && p->order == ULYX_TOKENS_ZIGZAG_DOCS)
        return uli_min(
            layout->limits.most.rows[part], layout->shape.max_local_rows);
    if (uli_rows_refill(layout, part))
        return layout->limits.seq_rows[part][rank];
    if (p->row_capacity)
        return p->row_capacity; /* replicated */
    return uli_layout_seq_rows(layout, part, rank);
}

const struct uli_row_span *
uli_layout_row_spans(const struct uli_layout *layout, int32_t part,
    int32_t rank, int64_t *count_p)
{
    const struct uli_shape_part *p = &layout->shape.parts[part];
    if (p->kind == ULYX_PART_REPLICATED) {
        *count_p = p->rows > 0;
        return &layout->whole[part];
    }
    const struct uli_row_spans *spans = &uli_layout_tables(layout)->spans[part];
    *count_p = spans->start[rank + 1] - spans->start[rank];
    return &spans->span[spans->start[rank]];
}

bool
uli_layout_packed(const struct uli_layout *layout)
{
    return layout->packed;
}

/* ---- directions ---------------------------------------------------------- */

static bool
has_sums(int32_t dtype)
{
    return dtype == ULYX_DTYPE_F64 || dtype == ULYX_DTYPE_F32 ||
           dtype == ULYX_DTYPE_BF16 || dtype == ULYX_DTYPE_F16;
}

/* Does the direction add several sources of this tensor? */
static bool
needs_sums(
    const struct uli_layout *layout, ulyx_direction_t direction, int32_t tensor)
{
    const struct uli_shape_tensor *t = &layout->shape.tensors[tensor];
    bool sharded = layout->shape.parts[t->part].kind == ULYX_PART_SHARDED;
    if (direction == ULYX_SEQ_TO_HEAD_ADJOINT)
        return layout->shared[tensor] &&
               (sharded || (t->flags & ULYX_TENSOR_FULL));
    if (direction == ULYX_HEAD_TO_SEQ_ADJOINT)
        return !sharded && !(t->flags & ULYX_TENSOR_GRAD_EQUAL) &&
               layout->shape.nranks > 1;
    return false;
}

/* The first tensor for which the direction does not exist; -1: none. */
static int32_t
tensor_without(const struct uli_layout *layout, ulyx_direction_t direction)
{
    for (int32_t i = 0; i < layout->shape.ntensors; i++)
        if (needs_sums(layout, direction, i) &&
            !has_sums(layout->shape.tensors[i].dtype))
            return i;
    return -1;
}

const char *
uli_direction_name(ulyx_direction_t direction)
{
    static const char *const names[ULYX_DIRECTIONS] = {"seq_to_head",
        "head_to_seq", "seq_to_head_adjoint", "head_to_seq_adjoint"};
    return direction >= 0 && direction < ULYX_DIRECTIONS
               ? names[direction]
               : "an unknown direction";
}

bool
uli_layout_direction_exists(
    const struct uli_layout *layout, ulyx_direction_t direction)
{
    return tensor_without(layout, direction) < 0;
}

ulyx_status_t
uli_layout_direction_check(
    const struct uli_layout *layout, ulyx_direction_t direction)
{
    if (direction < 0 || direction >= ULYX_DIRECTIONS)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "direction is %d, must be 0 to 3", direction);
    int32_t tensor = tensor_without(layout, direction);
    if (tensor < 0)
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_UNSUPPORTED,
        "%s adds several ranks' parts of tensors[%d], and its dtype %d has no "
        "sums",
        uli_direction_name(direction), tensor,
        layout->shape.tensors[tensor].dtype);
}
