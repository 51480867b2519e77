/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of tensors as rows of units: floats, to which 16-bit elements are
 * converted while rows are packed, once per tile; in paired kernels the bf16
 * themselves, two neighbouring columns per unit. Rows that are not in the call
 * become zeros. A row of any number of columns ends in zeros, which add nothing
 * to any product.
 */
#ifndef ULI_ATTENTION_ROWS_H
#define ULI_ATTENTION_ROWS_H

#include "attention/element.h"
#include "attention/kernels/gemm.h"
#include "attention/kernels/tile.h"
#include "attention/translate/view.h"

/* Cuts a thread's scratch into parts that start at whole cache lines; base NULL
 * only counts. */
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

/* Columns of a row with its zeros: units in fours, and whole steps of sums. */
INLINE int64_t
columns_filled(int64_t columns)
{
    int64_t step = DEPTH_STEP * 2 > 8 ? DEPTH_STEP * 2 : 8;
    return (columns + step - 1) / step * step;
}

/* Units of a row of `columns` elements with its zeros. */
INLINE int64_t
units_of(int64_t columns)
{
    return PAIRED ? columns_filled(columns) / 2 : columns_filled(columns);
}

/* Keys of a tile as units. */
#define TILE_UNITS (PAIRED ? ULI_TILE_KEYS / 2 : ULI_TILE_KEYS)

/* Columns of whole panels. */
INLINE int64_t
panels_width(int64_t columns)
{
    return (columns + PANEL - 1) / PANEL * PANEL;
}

INLINE int64_t
columns_padded(int64_t columns)
{
    return (columns + LANES - 1) / LANES * LANES;
}

/* The layout of rows of units: unit u of row n is at
 *   n * ld + u / PANEL * panel + u % PANEL.
 * With panel == PANEL rows lie one after another; with ld == PANEL
 * they lie in panels of PANEL columns. Units past the tensor's columns, up to
 * `width`, are 0. */
struct row_layout {
    int64_t ld, panel, width;
};

/* Rows one after another, as the left operand of a product. */
INLINE struct row_layout
layout_plain(int64_t ld, int64_t columns)
{
    return (struct row_layout){ld, PANEL, units_of(columns)};
}

/* Panels of `rows` rows each, as the right operand of a product. */
INLINE struct row_layout
layout_panels(int64_t rows, int64_t columns)
{
    return (struct row_layout){PANEL, rows * PANEL, columns_padded(columns)};
}

INLINE void
row_clear(float *to, const struct row_layout *layout)
{
    for (int64_t u = 0; u < layout->width; u += PANEL, to += layout->panel)
        memset(to, 0, (size_t)uli_min(PANEL, layout->width - u) * 4);
}

#if PAIRED
INLINE void
row_load(float *to, const struct row_layout *layout, const unsigned char *from,
    ulyx_dtype_t dtype, int64_t columns)
{
    memcpy(to, from, (size_t)columns * 2);
    memset((uint16_t *)(void *)to + columns, 0,
        (size_t)(layout->width * 2 - columns) * 2);
    (void)dtype;
}
#else
/* Converts elements [c, c + count) of a row to floats. */
INLINE void
elements_widen(float *to, const unsigned char *from, const ulyx_dtype_t dtype,
    int64_t c, int64_t count)
{
    const uint16_t *halves = (const uint16_t *)(const void *)from + c;
    int64_t n = 0;
    if (dtype == ULYX_DTYPE_F32)
        memcpy(to, from + c * 4, (size_t)count * 4);
    else if (dtype == ULYX_DTYPE_BF16)
        for (; n < count; n++)
            to[n] = uli_float_of_bf16(halves[n]);
    else {
#ifdef SIMD_F16
        for (; n + LANES <= count; n += LANES)
            v_store(to + n, SIMD_F16(halves + n));
#endif
        for (; n < count; n++)
            to[n] = uli_float_of_f16(halves[n]);
    }
}

/* Whole panels by loops of constant length, which become plain vector code. */
INLINE void
row_widen(float *to, const struct row_layout *layout, const unsigned char *from,
    const ulyx_dtype_t dtype, int64_t columns)
{
    int64_t c = 0;
    for (; c + PANEL <= columns; c += PANEL, to += layout->panel)
        elements_widen(to, from, dtype, c, PANEL);
    if (c < layout->width) {
        elements_widen(to, from, dtype, c, columns - c);
        memset(to + columns - c, 0, (size_t)(layout->width - columns) * 4);
    }
}

INLINE void
row_load(float *to, const struct row_layout *layout, const unsigned char *from,
    ulyx_dtype_t dtype, int64_t columns)
{
    if (dtype == ULYX_DTYPE_F32)
        row_widen(to, layout, from, ULYX_DTYPE_F32, columns);
    else if (dtype == ULYX_DTYPE_BF16)
        row_widen(to, layout, from, ULYX_DTYPE_BF16, columns);
    else
        row_widen(to, layout, from, ULYX_DTYPE_F16, columns);
}
#endif

/* The CPU fetches ahead within a row, but not across the step to the head's
 * next row. */
#define PREFETCH_BYTES 1536

INLINE void
row_prefetch(const unsigned char *row, int64_t bytes)
{
    for (int64_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(row + at);
}

/* Packs a span's rows, from row `first` of `to` on. */
INLINE void
load_span(float *to, const struct row_layout *layout, int64_t first,
    const struct uli_attn_span *span, const struct uli_attn_view *view)
{
    int64_t ahead = PREFETCH_BYTES / view->row_bytes + 1;
    to += first * layout->ld;
    for (int64_t n = 0; n < span->rows; n++, to += layout->ld) {
        if (span->data && n + ahead < span->rows)
            row_prefetch(
                span->data + (n + ahead) * span->stride, view->row_bytes);
        if (span->data)
            row_load(to, layout, span->data + n * span->stride, view->dtype,
                view->columns);
        else
            row_clear(to, layout);
    }
}

/* Packs key rows [j, end) of a document, then zeros up to row `all`. */
INLINE void
load_keys(struct uli_attn_call *call, enum uli_attn_tensor tensor, int64_t kv,
    const struct uli_attn_doc *doc, int64_t j, int64_t end, int64_t all,
    float *to, struct row_layout layout)
{
    int64_t n = 0;
    for (; j + n < end;) {
        struct uli_attn_span span = uli_attn_k_span(call, tensor, kv,
            doc->k_batch, doc->k_begin + j + n, doc->k_begin + end);
        load_span(to, &layout, n, &span, &call->views[tensor]);
        n += span.rows;
    }
    for (; n < all; n++)
        row_clear(to + n * layout.ld, &layout);
}

/* Packs query rows [row, row + count) of a run, then zeros up to row `all`. */
INLINE void
load_queries(struct uli_attn_call *call, enum uli_attn_tensor tensor,
    const struct uli_attn_run *run, int64_t row, int64_t count, int64_t all,
    float *to, struct row_layout layout)
{
    int64_t n = 0;
    for (; n < count;) {
        struct uli_attn_span span =
            uli_attn_q_span(call, tensor, run, row + n, row + count);
        load_span(to, &layout, n, &span, &call->views[tensor]);
        n += span.rows;
    }
    for (; n < all; n++)
        row_clear(to + n * layout.ld, &layout);
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

/* Packs plain rows in panels whose units go along rows: a float each, or in
 * paired kernels rows 2n (low) and 2n + 1 (high) as the pairs of row n. Not in
 * place.
 */
INLINE void
pack_panels(float *to, struct row_layout panels, const float *from, int64_t ld,
    int64_t rows, int64_t columns)
{
#if PAIRED
    for (int64_t n = 0; n < rows; n += 2, to += PANEL) {
        const uint16_t *low = (const uint16_t *)(const void *)(from + n * ld);
        const uint16_t *high =
            (const uint16_t *)(const void *)(from + (n + 1) * ld);
        float *panel = to;
        for (int64_t c = 0; c < panels.width; c += PANEL) {
            uint32_t *units = (uint32_t *)(void *)panel;
            int64_t count = uli_min(PANEL, panels.width - c);
            int64_t given = uli_min(count, columns - c);
            for (int64_t i = 0; i < given; i++)
                units[i] = low[c + i] | (uint32_t)high[c + i] << 16;
            for (int64_t i = given; i < count; i++)
                units[i] = 0;
            panel += panels.panel;
        }
    }
#else
    for (int64_t n = 0; n < rows; n++)
        row_load(to + n * PANEL, &panels,
            (const unsigned char *)(from + n * ld), ULYX_DTYPE_F32, columns);
#endif
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

/* Rounds floats to bf16, two per unit; `to` may be `from` or before it. */
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
