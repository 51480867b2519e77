/* SPDX-License-Identifier: Apache-2.0
 *
 * The arguments of a layout: each field by its row of plan_fields.c, then the
 * relations between fields. The first error found is reported. No size that
 * passes here can make a later product overflow: rows, elements and bytes of
 * every tensor, and (head, batch, row) positions, are checked to fit 63 bits.
 */
#include <inttypes.h>
#include <stdio.h>
#include "base/dtype.h"
#include "base/text.h"
#include "collectives/layout/layout_private.h"
#include "collectives/plan/plan_fields.h"

#define INVALID(...) uli_error(ULYX_ERR_INVALID_ARGUMENT, __VA_ARGS__)

/* ---- parts --------------------------------------------------------------- */

ulyx_status_t
uli_splits_check(const char *name, const int64_t *splits, int32_t nranks,
    int64_t expected, const char *expected_name)
{
    int64_t sum = 0;
    for (int32_t r = 0; r < nranks; r++) {
        if (splits[r] < 0)
            return INVALID("%s[%d] is %" PRId64 ", must not be negative", name,
                r, splits[r]);
        sum = uli_sat_add(sum, splits[r]);
    }
    if (sum != expected)
        return INVALID("%s add up to %" PRId64 ", %s is %" PRId64, name, sum,
            expected_name, expected);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_part_splits_check(
    int32_t part, const int64_t *splits, int32_t nranks, int64_t rows)
{
    char name[32], rows_name[32];
    snprintf(name, sizeof(name), "parts[%d].splits", part);
    snprintf(rows_name, sizeof(rows_name), "parts[%d].rows", part);
    return uli_splits_check(name, splits, nranks, rows, rows_name);
}

static ulyx_status_t
check_capacity(const struct uli_shape *shape, int32_t i)
{
    const struct uli_shape_part *part = &shape->parts[i];
    if (!part->row_capacity)
        return ULYX_SUCCESS;
    if (part->rows > part->row_capacity)
        return INVALID("parts[%d].rows is %" PRId64
                       ", its row_capacity %" PRId64,
            i, part->rows, part->row_capacity);
    if (shape->work_split == ULYX_WORK_BALANCED &&
        shape->heads % shape->nranks != 0)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "parts[%d].row_capacity with work_split BALANCED of %" PRId64
            " head%s over %d ranks: rows of balanced runs never change",
            i, shape->heads, uli_plural(shape->heads), shape->nranks);
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_replicated(int32_t i, const struct uli_shape_part *part)
{
    if (part->splits)
        return INVALID("parts[%d] is replicated and has splits", i);
    if (part->order != ULYX_TOKENS_CONTIGUOUS)
        return INVALID(
            "parts[%d] is replicated and has order %d", i, part->order);
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_part(const struct uli_shape *shape, int32_t i)
{
    const struct uli_shape_part *part = &shape->parts[i];
    ULI_TRY(check_capacity(shape, i));
    if (part->kind == ULYX_PART_REPLICATED)
        return check_replicated(i, part);
    if (part->order == ULYX_TOKENS_ZIGZAG_DOCS) {
        if (part->splits)
            return INVALID("parts[%d] has splits and order zigzag per "
                           "document",
                i);
        if (shape->batch != 1)
            return INVALID("parts[%d] has order zigzag per document, which "
                           "needs batch 1, and batch is %" PRId64,
                i, shape->batch);
    }
    if (part->splits)
        return uli_part_splits_check(
            i, part->splits, shape->nranks, part->rows);
    return ULYX_SUCCESS;
}

/* The most rows that a part ever has: sizes are checked for these. */
static int64_t
most_rows(const struct uli_shape_part *part)
{
    return part->row_capacity ? part->row_capacity : part->rows;
}

static ulyx_status_t
check_parts(const struct uli_shape *shape)
{
    int32_t of_axis[2] = {0, 0};
    int64_t rows[2] = {0, 0};
    for (int32_t i = 0; i < shape->nparts; i++) {
        ULI_TRY(check_part(shape, i));
        int32_t axis = shape->parts[i].axis;
        of_axis[axis]++;
        if (!uli_size_add(rows[axis], most_rows(&shape->parts[i]), &rows[axis]))
            return uli_error(
                ULYX_ERR_OVERFLOW, "rows of axis %d do not fit 63 bits", axis);
    }
    for (int axis = 0; axis < 2; axis++)
        if (of_axis[axis] > ULI_MAX_PARTS / 2)
            return INVALID("axis %d has %d parts, at most %d", axis,
                of_axis[axis], ULI_MAX_PARTS / 2);
    if (of_axis[0] == 0)
        return INVALID("no part has axis 0");
    for (int axis = 0; axis < 2; axis++) {
        int64_t product;
        if (!uli_size_mul(rows[axis], shape->batch, &product) ||
            !uli_size_mul(product, shape->heads, &product))
            return uli_error(ULYX_ERR_OVERFLOW,
                "batch %" PRId64 " x rows %" PRId64 " of axis %d x heads "
                "%" PRId64 " do not fit 63 bits",
                shape->batch, rows[axis], axis, shape->heads);
    }
    return ULYX_SUCCESS;
}

/* ---- tensors ------------------------------------------------------------- */

static bool
has_sums(int32_t dtype)
{
    return dtype == ULYX_DTYPE_F64 || dtype == ULYX_DTYPE_F32 ||
           dtype == ULYX_DTYPE_BF16 || dtype == ULYX_DTYPE_F16;
}

static ulyx_status_t
check_dtypes(int32_t i, const struct uli_shape_tensor *t)
{
    if (t->dtype != ULYX_DTYPE_BYTES &&
        t->elem_bytes != uli_dtype_size(t->dtype))
        return INVALID("tensors[%d].elem_bytes is %" PRId64
                       ", of dtype %d it is %" PRId64,
            i, t->elem_bytes, t->dtype, uli_dtype_size(t->dtype));
    if (t->partial_dtype == 0 || t->partial_dtype == t->dtype)
        return ULYX_SUCCESS;
    if (t->partial_dtype != ULYX_DTYPE_F32 &&
        t->partial_dtype != ULYX_DTYPE_F64)
        return INVALID("tensors[%d].partial_dtype is %d, must be F32, F64 or "
                       "dtype %d",
            i, t->partial_dtype, t->dtype);
    if (!has_sums(t->dtype))
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "tensors[%d].partial_dtype is %d: dtype %d has no sums", i,
            t->partial_dtype, t->dtype);
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_ownership(const struct uli_shape *shape, int32_t i)
{
    const struct uli_shape_tensor *t = &shape->tensors[i];
    if (t->ownership == ULYX_HEADS_QUERY && t->heads != shape->heads)
        return INVALID("tensors[%d] is HEADS_QUERY with heads %" PRId64
                       ", the plan has %" PRId64,
            i, t->heads, shape->heads);
    if (t->ownership == ULYX_HEADS_KV && shape->heads % t->heads != 0)
        return INVALID("tensors[%d] is HEADS_KV: heads %" PRId64
                       " of the plan are not a multiple of its %" PRId64,
            i, shape->heads, t->heads);
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_flags(const struct uli_shape *shape, int32_t i)
{
    const struct uli_shape_tensor *t = &shape->tensors[i];
    if (t->flags && shape->parts[t->part].kind != ULYX_PART_REPLICATED)
        return INVALID("tensors[%d].flags is 0x%" PRIx64
                       ", of replicated parts only, and part %d is sharded",
            i, t->flags, t->part);
    return ULYX_SUCCESS;
}

/* Checks the bytes of all rows and heads, in the wider of the two dtypes. */
static ulyx_status_t
check_bytes(const struct uli_shape *shape, int32_t i)
{
    const struct uli_shape_tensor *t = &shape->tensors[i];
    int64_t wide = uli_dtype_size(t->partial_dtype), rows = 0, product;
    if (t->partial_dtype == 0 && uli_dtype_size(t->dtype) == 2)
        wide = uli_dtype_size(ULYX_DTYPE_F32);
    wide = uli_max(wide, t->elem_bytes);
    for (int32_t p = 0; p < shape->nparts; p++)
        if (shape->parts[p].axis == shape->parts[t->part].axis)
            rows += most_rows(&shape->parts[p]);
    if (uli_size_mul(rows, shape->batch, &product) &&
        uli_size_mul(product, t->heads, &product) &&
        uli_size_mul(product, t->dim, &product) &&
        uli_size_mul(product, wide, &product))
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_OVERFLOW,
        "tensors[%d]: batch %" PRId64 " x rows %" PRId64 " x heads %" PRId64
        " x dim %" PRId64 " x %" PRId64 " bytes do not fit 63 bits",
        i, shape->batch, rows, t->heads, t->dim, wide);
}

static ulyx_status_t
check_tensor(const struct uli_shape *shape, int32_t i)
{
    const struct uli_shape_tensor *t = &shape->tensors[i];
    if (t->part >= shape->nparts)
        return INVALID(
            "tensors[%d].part is %d, nparts is %d", i, t->part, shape->nparts);
    ULI_TRY(check_dtypes(i, t));
    ULI_TRY(check_ownership(shape, i));
    ULI_TRY(check_flags(shape, i));
    return check_bytes(shape, i);
}

/* ---- work split ---------------------------------------------------------- */

static bool
has_two_axes(const struct uli_shape *shape)
{
    for (int32_t i = 0; i < shape->nparts; i++)
        if (shape->parts[i].axis == 1)
            return true;
    return false;
}

/* Runs of rows follow the queries' axis; their keys are on the other axis. */
static ulyx_status_t
check_balanced(const struct uli_shape *shape)
{
    if (shape->head_splits)
        return INVALID("head_splits are given and work_split is BALANCED");
    if (!has_two_axes(shape))
        return ULYX_SUCCESS;
    for (int32_t i = 0; i < shape->ntensors; i++) {
        const struct uli_shape_tensor *t = &shape->tensors[i];
        int32_t axis = shape->parts[t->part].axis;
        if ((t->ownership == ULYX_HEADS_KV) != (axis == 1))
            return INVALID(
                "tensors[%d] is %s on axis %d: BALANCED has HEADS_QUERY "
                "tensors on axis 0 and HEADS_KV on axis 1",
                i, t->ownership == ULYX_HEADS_KV ? "HEADS_KV" : "HEADS_QUERY",
                axis);
    }
    return ULYX_SUCCESS;
}

static ulyx_status_t
check_work(const struct uli_shape *shape)
{
    if (shape->key_heads && shape->heads % shape->key_heads)
        return INVALID("key_heads is %" PRId64 ", heads (%" PRId64
                       ") is no multiple of it",
            shape->key_heads, shape->heads);
    if (shape->work_split == ULYX_WORK_BALANCED)
        return check_balanced(shape);
    if (shape->head_splits)
        return uli_splits_check("head_splits", shape->head_splits,
            shape->nranks, shape->heads, "heads");
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_layout_check(const struct uli_shape *shape)
{
    ULI_TRY(uli_fields_check(&uli_shape_fields, shape));
    ULI_TRY(check_parts(shape));
    for (int32_t i = 0; i < shape->ntensors; i++)
        ULI_TRY(check_tensor(shape, i));
    return check_work(shape);
}
