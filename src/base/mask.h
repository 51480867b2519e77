/* SPDX-License-Identifier: Apache-2.0
 *
 * Which keys a query row sees. Layouts, host kernels and device kernels all use
 * this translation of masks.
 *
 * Every kind of mask is a window. Row i of a document sees its keys
 *     i + off - left .. i + off + right
 * where off is the key on the diagonal of row 0, and either side may be
 * unbounded. Rows and keys count from the beginning of their document. The sums
 * are exact for all values, except that off saturates at 64 bits.
 *
 * Both ends grow with the row, by at most 1 per row until they reach an end of
 * the keys. Layouts, work lists and kernels rely on that: rows that see
 * anything are adjacent, and so are the keys that adjacent rows see.
 */
#ifndef ULI_BASE_MASK_H
#define ULI_BASE_MASK_H

#include <stdbool.h>
#include <stdint.h>
#include "ulyx/types.h"

#ifdef __CUDACC__
#define MASK_FN static inline __host__ __device__
#else
#define MASK_FN static inline
#endif

/* Kinds of masks: the codes ULYX_MASK_... are 0 to ULI_MASKS - 1. Fields are
 * checked against this number, and tests draw a kind below it. */
enum { ULI_MASKS = ULYX_MASK_WINDOW + 1 };

/* The mask of one document. */
struct uli_mask {
    int64_t left, right; /* ULYX_UNBOUNDED: no limit on that side */
    int64_t off;
    int64_t q_rows, k_rows; /* of the document */
};

__extension__ typedef __int128 uli_mask_wide;

MASK_FN int64_t
uli_mask_held(uli_mask_wide value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : (int64_t)value;
}

/* left and right of a kind of mask; given_left and given_right are used for
 * WINDOW only. */
MASK_FN void
uli_mask_sides(ulyx_mask_kind_t kind, int64_t given_left, int64_t given_right,
    int64_t *left_p, int64_t *right_p)
{
    *left_p = kind == ULYX_MASK_WINDOW ? given_left : ULYX_UNBOUNDED;
    *right_p = kind == ULYX_MASK_WINDOW   ? given_right
               : kind == ULYX_MASK_CAUSAL ? 0
                                          : ULYX_UNBOUNDED;
}

/* off of a document. */
MASK_FN int64_t
uli_mask_off(
    bool bottom_right, int64_t diagonal, int64_t q_rows, int64_t k_rows)
{
    uli_mask_wide shift = bottom_right ? k_rows - q_rows : 0;
    return uli_mask_held(shift + diagonal, INT64_MIN, INT64_MAX);
}

/* First key that row i sees, and one past the last; equal where it sees none.
 * 0 <= i. */
MASK_FN int64_t
uli_mask_begin(const struct uli_mask *mask, int64_t i)
{
    if (mask->left == ULYX_UNBOUNDED)
        return 0;
    return uli_mask_held(
        (uli_mask_wide)i + mask->off - mask->left, 0, mask->k_rows);
}

MASK_FN int64_t
uli_mask_end(const struct uli_mask *mask, int64_t i)
{
    int64_t end = mask->k_rows;
    if (mask->right != ULYX_UNBOUNDED)
        end = uli_mask_held(
            (uli_mask_wide)i + 1 + mask->off + mask->right, 0, mask->k_rows);
    int64_t begin = uli_mask_begin(mask, i);
    return end > begin ? end : begin;
}

/* Rows [*first_p, *end_p) include all rows that see a key of [k0, k1). If k0 <
 * k1, any other rows among them see no key at all. */
MASK_FN void
uli_mask_rows(const struct uli_mask *mask, int64_t k0, int64_t k1,
    int64_t *first_p, int64_t *end_p)
{
    int64_t first = 0, end = mask->q_rows;
    if (mask->right != ULYX_UNBOUNDED)
        first = uli_mask_held(
            (uli_mask_wide)k0 - mask->right - mask->off, 0, mask->q_rows);
    if (mask->left != ULYX_UNBOUNDED)
        end = uli_mask_held(
            (uli_mask_wide)k1 + mask->left - mask->off, 0, mask->q_rows);
    *first_p = first;
    *end_p = end > first ? end : first;
}

#undef MASK_FN
#endif
