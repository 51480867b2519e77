/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows that updates change. Everything is prepared with all parts at their
 * capacities, so that there is room for any update: s_r of each rank, its spans
 * and the moves only grow with a part's rows. That is not true of the rows of
 * PACKED runs, which never change.
 */
#include <assert.h>
#include <inttypes.h>
#include <string.h>
#include "collectives/layout/layout_private.h"

#define INVALID(...) uli_error(ULYX_ERR_INVALID_ARGUMENT, __VA_ARGS__)

void
uli_rows_place(struct uli_layout *layout)
{
    layout->naxes = 1;
    layout->axis_rows[0] = layout->axis_rows[1] = 0;
    for (int32_t i = 0; i < layout->shape.nparts; i++) {
        const struct uli_shape_part *part = &layout->shape.parts[i];
        layout->first_row[i] = layout->axis_rows[part->axis];
        layout->axis_rows[part->axis] += part->rows;
        layout->whole[i].rows = part->rows;
        if (part->axis == 1)
            layout->naxes = 2;
    }
}

static void
rows_get(const struct uli_layout *layout, struct uli_rows *rows_p)
{
    memset(rows_p, 0, sizeof(*rows_p));
    for (int32_t i = 0; i < layout->shape.nparts; i++) {
        rows_p->rows[i] = layout->shape.parts[i].rows;
        rows_p->splits[i] = layout->shape.parts[i].splits;
        rows_p->first_row[i] = layout->first_row[i];
    }
    memcpy(rows_p->axis_rows, layout->axis_rows, sizeof(rows_p->axis_rows));
}

void
uli_rows_set(struct uli_layout *layout, const struct uli_rows *rows)
{
    for (int32_t i = 0; i < layout->shape.nparts; i++) {
        struct uli_shape_part *part = &layout->shape.parts[i];
        part->rows = rows->rows[i];
        if (part->row_capacity)
            part->splits = rows->splits[i];
    }
    uli_rows_place(layout);
}

void
uli_rows_open(struct uli_layout *layout, struct uli_rows *present_p)
{
    struct uli_row_limits *limits = &layout->limits;
    struct uli_rows most;
    rows_get(layout, present_p);
    most = *present_p;
    for (int32_t i = 0; i < layout->shape.nparts; i++) {
        const struct uli_shape_part *part = &layout->shape.parts[i];
        limits->has_splits[i] = part->splits != NULL;
        if (!part->row_capacity)
            continue;
        limits->change = true;
        most.rows[i] = part->row_capacity;
        most.splits[i] = NULL;
    }
    uli_rows_set(layout, &most);
    rows_get(layout, &limits->most);
}

bool
uli_rows_refill(const struct uli_layout *layout, int32_t part)
{
    const struct uli_shape_part *p = &layout->shape.parts[part];
    return p->row_capacity && p->kind == ULYX_PART_SHARDED &&
           p->order != ULYX_TOKENS_ZIGZAG_DOCS;
}

/* ---- update -------------------------------------------------------------- */

static ulyx_status_t
check_rows(const struct uli_layout *layout, int32_t i, int64_t rows,
    const int64_t *splits)
{
    const struct uli_shape_part *part = &layout->shape.parts[i];
    int64_t most = layout->limits.most.rows[i];
    bool has_splits = splits != NULL;
    if (!part->row_capacity && rows != part->rows)
        return INVALID("rows[%d] is %" PRId64 ": the part has %" PRId64
                       " and no row_capacity",
            i, rows, part->rows);
    if (rows < 0 || rows > most)
        return INVALID("rows[%d] is %" PRId64 ", must be 0 to %" PRId64
                       ", its row_capacity",
            i, rows, most);
    if (!part->row_capacity)
        return ULYX_SUCCESS;
    if (has_splits != layout->limits.has_splits[i])
        return INVALID("splits[%d] is %s: creation gave the part %s", i,
            splits ? "given" : "NULL", splits ? "none" : "splits");
    return splits ? uli_part_splits_check(i, splits, layout->shape.nranks, rows)
                  : ULYX_SUCCESS;
}

ulyx_status_t
uli_layout_check_rows(const struct uli_layout *layout, const int64_t *rows,
    const int64_t *const *splits)
{
    if (!layout->limits.change)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "rows that change: no part has a row_capacity");
    for (int32_t i = 0; i < layout->shape.nparts; i++)
        ULI_TRY(check_rows(layout, i, rows[i], splits ? splits[i] : NULL));
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_layout_update_rows(struct uli_layout *layout, const int64_t *rows,
    const int64_t *const *splits, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k)
{
    struct uli_rows before, after;
    ULI_TRY(uli_layout_check_rows(layout, rows, splits));
    rows_get(layout, &before);
    after = before;
    for (int32_t i = 0; i < layout->shape.nparts; i++) {
        after.rows[i] = rows[i];
        after.splits[i] = splits ? splits[i] : NULL;
    }
    if (!uli_layout_takes_docs(layout))
        docs_q = docs_k = NULL; /* only the attention reads them */
    uli_rows_set(layout, &after);
    ulyx_status_t status = uli_layout_fill(layout, docs_q, docs_k);
    if (status != ULYX_SUCCESS)
        uli_rows_set(layout, &before);
    return status;
}

/* ---- most rows ----------------------------------------------------------- */

bool
uli_layout_rows_change(const struct uli_layout *layout)
{
    return layout->limits.change;
}

void
uli_layout_stretch(struct uli_layout *layout)
{
    struct uli_row_limits *limits = &layout->limits;
    if (!limits->change || layout->has_docs_order)
        return;
    rows_get(layout, &limits->kept);
    limits->stretched = true;
    uli_rows_set(layout, &limits->most);
    ulyx_status_t status = uli_layout_fill(layout, NULL, NULL);
    assert(status == ULYX_SUCCESS);
    (void)status;
}

ulyx_status_t
uli_layout_relax(struct uli_layout *layout, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k)
{
    struct uli_row_limits *limits = &layout->limits;
    if (!limits->stretched)
        return ULYX_SUCCESS;
    limits->stretched = false;
    uli_rows_set(layout, &limits->kept);
    if (!uli_layout_takes_docs(layout))
        docs_q = docs_k = NULL;
    return uli_layout_fill(layout, docs_q, docs_k);
}

bool
uli_layout_moves_anything(const struct uli_layout *layout)
{
    const struct uli_row_limits *limits = &layout->limits;
    if (!uli_layout_has_tables(layout))
        return false;
    for (int32_t i = 0; i < layout->shape.nparts; i++)
        if (layout->shape.parts[i].row_capacity && limits->has_splits[i])
            return true;
    return layout->has_docs_order || layout->packed;
}

int64_t
uli_layout_max_axis_rows(const struct uli_layout *layout, int32_t axis)
{
    return layout->limits.most.axis_rows[axis];
}

int64_t
uli_layout_max_first_row(const struct uli_layout *layout, int32_t part)
{
    return layout->limits.most.first_row[part];
}

int64_t
uli_layout_max_part_rows(const struct uli_layout *layout, int32_t part)
{
    return layout->limits.most.rows[part];
}
