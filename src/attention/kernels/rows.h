/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of tensors as rows of units: floats, or in paired kernels the bf16
 * themselves, two neighbouring columns a unit. Rows that are not in the call
 * become zeros. A row of any number of columns ends in zeros, which add nothing
 * to any product.
 */
#ifndef ULI_ATTENTION_ROWS_H
#define ULI_ATTENTION_ROWS_H

#include "attention/element.h"
#include "attention/kernels/gemm.h"
#include "attention/kernels/tile.h"
#include "attention/translate/view.h"

/* Cuts a thread's scratch into parts, each at a whole cache line; base NULL
 * counts only. */
struct carver {
    float *base;
    int64_t floats;
};

static float *
carver_take(struct carver *c, int64_t floats)
{
    float *part = c->base ? c->base + c->floats : NULL;
    c->floats += (floats + 15) / 16 * 16;
    return part;
}

/* Columns of a row and its zeros: units in fours, and whole steps of sums. */
INLINE int64_t
columns_filled(int64_t columns)
{
    int64_t step = DEPTH_STEP * 2 > 8 ? DEPTH_STEP * 2 : 8;
    return (columns + step - 1) / step * step;
}

/* Units of a row of `columns` elements and its zeros. */
INLINE int64_t
units_of(int64_t columns)
{
    return PAIRED ? columns_filled(columns) / 2 : columns_filled(columns);
}

INLINE int64_t
columns_padded(int64_t columns)
{
    return (columns + LANES - 1) / LANES * LANES;
}

INLINE void
load_row(
    float *to, const unsigned char *from, ulyx_dtype_t dtype, int64_t columns)
{
    int64_t zeros = columns_filled(columns) - columns;
#if PAIRED
    memcpy(to, from, (size_t)columns * 2);
    memset((uint16_t *)(void *)to + columns, 0, (size_t)zeros * 2);
    (void)dtype;
#else
    const uint16_t *halves = (const uint16_t *)(const void *)from;
    if (dtype == ULYX_DTYPE_F32)
        memcpy(to, from, (size_t)columns * 4);
    else if (dtype == ULYX_DTYPE_BF16)
        for (int64_t c = 0; c < columns; c++)
            to[c] = uli_float_of_bf16(halves[c]);
    else
        for (int64_t c = 0; c < columns; c++)
            to[c] = uli_float_of_f16(halves[c]);
    for (int64_t c = columns; c < columns + zeros; c++)
        to[c] = 0;
#endif
}

/* to[n][unit], n < rows, ld units apart, from a span's rows. */
INLINE void
load_span(float *to, int64_t ld, const struct uli_attn_span *span,
    ulyx_dtype_t dtype, int64_t columns)
{
    for (int64_t n = 0; n < span->rows; n++) {
        if (span->data)
            load_row(
                to + n * ld, span->data + n * span->stride, dtype, columns);
        else
            memset(to + n * ld, 0, (size_t)units_of(columns) * 4);
    }
}

/* Key rows [j, end) of a document into to[0..), then zeros up to `rows`. */
INLINE void
load_keys(struct uli_attn_call *call, enum uli_attn_tensor tensor, int64_t kv,
    const struct uli_attn_doc *doc, int64_t j, int64_t end, int64_t rows,
    float *to, int64_t ld)
{
    const struct uli_attn_view *view = &call->views[tensor];
    int64_t n = 0;
    for (; j + n < end;) {
        struct uli_attn_span span = uli_attn_k_span(call, tensor, kv,
            doc->k_batch, doc->k_begin + j + n, doc->k_begin + end);
        load_span(to + n * ld, ld, &span, view->dtype, view->columns);
        n += span.rows;
    }
    for (; n < rows; n++)
        memset(to + n * ld, 0, (size_t)units_of(view->columns) * 4);
}

/* Query rows [row, row + count) of a run into to[0..), zeros up to `rows`. */
INLINE void
load_queries(struct uli_attn_call *call, enum uli_attn_tensor tensor,
    const struct uli_attn_run *run, int64_t row, int64_t count, int64_t rows,
    float *to, int64_t ld)
{
    const struct uli_attn_view *view = &call->views[tensor];
    int64_t n = 0;
    for (; n < count;) {
        struct uli_attn_span span =
            uli_attn_q_span(call, tensor, run, row + n, row + count);
        load_span(to + n * ld, ld, &span, view->dtype, view->columns);
        n += span.rows;
    }
    for (; n < rows; n++)
        memset(to + n * ld, 0, (size_t)units_of(view->columns) * 4);
}

/* to[unit][n] <- from[n][unit]: panels of PANEL rows side by side, each
 * [units][PANEL]; rows is a multiple of PANEL. */
INLINE void
transpose_panels(
    float *to, const float *from, int64_t ld, int64_t rows, int64_t units)
{
    for (int64_t p = 0; p < rows; p += PANEL, to += units * PANEL)
        for (int64_t n = 0; n < PANEL; n += 4)
            for (int64_t u = 0; u < units; u += 4)
                for (int i = 0; i < 4; i++)
                    for (int k = 0; k < 4; k++)
                        to[(u + i) * PANEL + n + k] =
                            from[(p + n + k) * ld + u + i];
}

/* Rows 2n and 2n + 1 of bf16 into one row of units (low, high), not in place:
 * what a sum over rows takes in pairs. Columns past the row are zeros. */
INLINE void
interleave_rows(float *to, int64_t to_ld, const float *from, int64_t ld,
    int64_t rows, int64_t columns, int64_t width)
{
    for (int64_t n = 0; n < rows; n += 2) {
        uint32_t *units = (uint32_t *)(void *)(to + n / 2 * to_ld);
        const uint16_t *low = (const uint16_t *)(const void *)(from + n * ld);
        const uint16_t *high =
            (const uint16_t *)(const void *)(from + (n + 1) * ld);
        for (int64_t c = 0; c < columns; c++)
            units[c] = low[c] | (uint32_t)high[c] << 16;
        for (int64_t c = columns; c < width; c++)
            units[c] = 0;
    }
}

/* Zeros in columns [columns, width) of every row. */
INLINE void
clear_columns(
    float *to, int64_t ld, int64_t rows, int64_t columns, int64_t width)
{
    for (int64_t n = 0; n < rows && columns < width; n++)
        memset(to + n * ld + columns, 0, (size_t)(width - columns) * 4);
}

/* Units of bf16: a's value low, b's high. */
INLINE vf
v_pair(vf a, vf b)
{
#ifdef SIMD_PAIR
    return SIMD_PAIR(a, b);
#else
    (void)b;
    return a;
#endif
}

/* Floats to bf16, two a unit, to a place at or before their own. */
INLINE void
narrow_row(float *to, const float *from, int64_t count)
{
#ifdef SIMD_NARROW
    for (int64_t n = 0; n < count; n += LANES)
        SIMD_NARROW(to + n / 2, v_load(from + n));
#else
    (void)to;
    (void)from;
    (void)count;
#endif
}

#endif
