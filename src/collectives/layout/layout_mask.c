/* SPDX-License-Identifier: Apache-2.0
 *
 * Masks in closed form. Row i sees keys [first_i, end_i) with
 *     first_i = max(0, t_i - left)   end_i = min(k_len, t_i + right + 1)
 * and t_i = i + off, so both ends climb by at most one a row, rows that see
 * anything are consecutive, and the tiles that a row touches have
 *     min(k_len, ceil128(end_i)) - floor128(first_i)
 * keys. The sums of the two terms over a range of rows are arithmetic series
 * of tiles. Row positions stay at INT64_MAX where i + off would pass it: the
 * rows from there on are all alike.
 */
#include "collectives/layout/layout_mask.h"

typedef __int128 wide;

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
uli_mask_of(const struct uli_shape *shape, int64_t q_len, int64_t k_len)
{
    struct uli_mask mask = {q_len, k_len, 0, -1, -1};
    if (shape->mask_kind == ULYX_MASK_NONE)
        return mask;
    if (shape->mask_align == ULYX_ALIGN_BOTTOM_RIGHT)
        mask.off = k_len - q_len;
    mask.off = uli_sat_add(mask.off, shape->mask_diagonal);
    if (shape->mask_kind == ULYX_MASK_CAUSAL) {
        mask.right = 0;
        return mask;
    }
    if (shape->mask_left != ULYX_UNBOUNDED)
        mask.left = shape->mask_left;
    if (shape->mask_right != ULYX_UNBOUNDED)
        mask.right = shape->mask_right;
    return mask;
}

/* Rows of [begin, end) that see a key. The upper end is where the window has
 * left the last key, unless no position can be that far. */
static struct uli_keys
seeing_rows(const struct uli_mask *mask, int64_t begin, int64_t end)
{
    struct uli_keys rows = {0, 0};
    wide from = begin, to = end;
    if (mask->k_len == 0)
        return rows;
    if (mask->right >= 0)
        from = wide_max(from, -(wide)mask->off - mask->right);
    if (mask->left >= 0 && (wide)mask->k_len + mask->left <= INT64_MAX)
        to = wide_min(to, (wide)mask->k_len + mask->left - mask->off);
    if (from < to) {
        rows.first = (int64_t)from;
        rows.end = (int64_t)to;
    }
    return rows;
}

/* Keys of a row that sees some. */
static struct uli_keys
row_keys(const struct uli_mask *mask, int64_t row)
{
    struct uli_keys keys = {0, mask->k_len};
    int64_t at = uli_sat_add(row, mask->off);
    if (mask->left >= 0)
        keys.first = uli_max(0, uli_sat_sub(at, mask->left));
    if (mask->right >= 0)
        keys.end =
            uli_min(mask->k_len, uli_sat_add(uli_sat_add(at, mask->right), 1));
    return keys;
}

struct uli_keys
uli_mask_seen(const struct uli_mask *mask, int64_t begin, int64_t end)
{
    struct uli_keys rows = seeing_rows(mask, begin, end);
    if (rows.first >= rows.end)
        return rows;
    struct uli_keys first = row_keys(mask, rows.first);
    first.end = row_keys(mask, rows.end - 1).end;
    return first;
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

/* Sum over begin <= n < end of min(k_len, ceil128(n)); begin >= 1. The last
 * tile's keys end at k_len. */
static uli_u128
sum_ends(int64_t k_len, wide begin, wide end)
{
    wide whole = (wide)(k_len / ULI_TILE_KEYS) * ULI_TILE_KEYS;
    wide tail = wide_max(begin, whole + 1);
    uli_u128 sum = sum_ceilings(wide_min(end - 1, whole)) -
                   sum_ceilings(wide_min(begin - 1, whole));
    if (end > tail)
        sum += (uli_u128)(end - tail) * (uli_u128)k_len;
    return sum;
}

/* Rows [0, rows) whose position i + off does not pass INT64_MAX. */
static uli_u128
cost_of_exact(const struct uli_mask *mask, int64_t rows)
{
    struct uli_keys seeing = seeing_rows(mask, 0, rows);
    wide first = seeing.first, end = seeing.end;
    if (first >= end)
        return 0;
    uli_u128 sum = (uli_u128)(end - first) * (uli_u128)mask->k_len;
    if (mask->right >= 0) {
        wide shift = (wide)mask->off + mask->right + 1;
        sum = sum_ends(mask->k_len, first + shift, end + shift);
    }
    if (mask->left >= 0) {
        wide shift = (wide)mask->off - mask->left;
        sum -= sum_floors(end + shift) - sum_floors(first + shift);
    }
    return sum;
}

uli_u128
uli_mask_cost(const struct uli_mask *mask, int64_t rows)
{
    int64_t exact = rows;
    if (mask->off > 0)
        exact = uli_min(rows, INT64_MAX - mask->off);
    uli_u128 sum = cost_of_exact(mask, exact);
    if (exact == rows || seeing_rows(mask, exact, rows).end == 0)
        return sum;
    /* The rows from there on are all alike and see the last key. */
    int64_t first = row_keys(mask, exact).first;
    first -= first % ULI_TILE_KEYS;
    return sum + (uli_u128)(rows - exact) * (uli_u128)(mask->k_len - first);
}
