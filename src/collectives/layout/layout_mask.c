/* SPDX-License-Identifier: Apache-2.0
 *
 * Masks in closed form. Row i attends to keys [first_i, end_i). Both ends grow
 * by at most one per row (base/mask.h), the rows that attend to any key are
 * consecutive, and the tiles that a row touches have
 *     min(k_rows, ceil128(end_i)) - floor128(first_i)
 * keys. Each of the two terms grows by 128 from one tile to the next, so the
 * sum of the term over a range of rows is an arithmetic series over the tiles.
 */
#include "collectives/layout/layout_mask.h"

typedef uli_mask_wide wide;

static wide
wide_min(wide a, wide b)
{
    return a < b ? a : b;
}

static wide
wide_max(wide a, wide b)
{
    return a > b ? a : b;
}

struct uli_mask
uli_mask_of(const struct uli_shape *shape, int64_t q_rows, int64_t k_rows)
{
    struct uli_mask mask = {.q_rows = q_rows, .k_rows = k_rows};
    uli_mask_sides(shape->mask_kind, shape->mask_left, shape->mask_right,
        &mask.left, &mask.right);
    mask.off = uli_mask_off(shape->mask_align == ULYX_ALIGN_BOTTOM_RIGHT,
        shape->mask_diagonal, q_rows, k_rows);
    return mask;
}

/* The rows of [begin, end) that attend to a key. */
static struct uli_keys
seeing_rows(const struct uli_mask *mask, int64_t begin, int64_t end)
{
    struct uli_keys rows = {0, 0};
    int64_t first, last;
    if (mask->k_rows == 0)
        return rows;
    uli_mask_rows(mask, 0, mask->k_rows, &first, &last);
    first = uli_max(first, begin);
    last = uli_min(last, end);
    if (first < last)
        rows = (struct uli_keys){first, last};
    return rows;
}

struct uli_keys
uli_mask_seen(const struct uli_mask *mask, int64_t begin, int64_t end)
{
    struct uli_keys rows = seeing_rows(mask, begin, end);
    if (rows.first >= rows.end)
        return rows;
    return (struct uli_keys){
        uli_mask_begin(mask, rows.first), uli_mask_end(mask, rows.end - 1)};
}

/* ---- sums ---------------------------------------------------------------- */

/* Sum over 0 <= n < count of floor128(n). */
static uli_u128
sum_floors(wide count)
{
    uli_u128 n = count > 0 ? (uli_u128)count : 0;
    uli_u128 tiles = n / ULI_TILE_KEYS, rest = n % ULI_TILE_KEYS;
    if (tiles == 0)
        return 0;
    return ULI_TILE_KEYS * ULI_TILE_KEYS * (tiles * (tiles - 1) / 2) +
           ULI_TILE_KEYS * tiles * rest;
}

/* Sum over 1 <= n <= count of ceil128(n), which is floor128(n - 1) + 128. */
static uli_u128
sum_ceilings(wide count)
{
    uli_u128 n = count > 0 ? (uli_u128)count : 0;
    return sum_floors(count) + n * ULI_TILE_KEYS;
}

/* Sum over begin <= n < end of min(k_rows, ceil128(n)); begin >= 1. The keys of
 * the last tile end at k_rows. */
static uli_u128
sum_ends(int64_t k_rows, wide begin, wide end)
{
    wide whole = (wide)(k_rows / ULI_TILE_KEYS) * ULI_TILE_KEYS;
    wide tail = wide_max(begin, whole + 1);
    uli_u128 sum = sum_ceilings(wide_min(end - 1, whole)) -
                   sum_ceilings(wide_min(begin - 1, whole));
    if (end > tail)
        sum += (uli_u128)(end - tail) * (uli_u128)k_rows;
    return sum;
}

uli_u128
uli_mask_cost(const struct uli_mask *mask, int64_t rows)
{
    struct uli_keys seeing = seeing_rows(mask, 0, rows);
    wide first = seeing.first, end = seeing.end;
    if (first >= end)
        return 0;
    uli_u128 sum = (uli_u128)(end - first) * (uli_u128)mask->k_rows;
    if (mask->right != ULYX_UNBOUNDED) {
        wide shift = (wide)mask->off + mask->right + 1;
        sum = sum_ends(mask->k_rows, first + shift, end + shift);
    }
    if (mask->left != ULYX_UNBOUNDED) {
        wide shift = (wide)mask->off - mask->left;
        sum -= sum_floors(end + shift) - sum_floors(first + shift);
    }
    return sum;
}
