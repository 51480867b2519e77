/* SPDX-License-Identifier: Apache-2.0
 *
 * The cut of BALANCED: P - 1 boundaries in (head, batch, row) order, each at a
 * multiple of row_round within its batch item, so that the most expensive rank
 * is as cheap as the maxima allow.
 *
 * A run of rows is good when its rows, key rows, segments and cost are within
 * limits. Parts of a good run are good, so bisection finds the longest good run
 * from a point, and a cost limit fits P ranks if P longest runs one after
 * another reach the end. Bisection also finds the least such limit. Then each
 * boundary is placed at the point nearest to its share of the total cost,
 * between the first point from which the ranks after it can reach the end and
 * the last point that the rank before it can reach.
 *
 * (Runs of keys may merge as a run grows, so the number of segments can fall by
 * one. If a placement breaks a limit for this reason, the longest runs are
 * taken instead, each of which was tested itself.)
 *
 * Time per limit: ranks x log(points) x log(documents); some tens of limits.
 */
#include "collectives/layout/layout_balanced.h"

#include <inttypes.h>

struct search {
    const struct uli_layout *layout;
    const struct uli_tables *tables;
    int64_t blocks; /* per batch item; a point is item * blocks + block */
    int64_t points; /* number of points: the end */
    uli_u128 total, cost_limit;
    int64_t max_rows, max_kv_rows, max_segments;
};

/* Position of a point in (head, batch, row) order. */
static int64_t
search_position(const struct search *s, int64_t point)
{
    if (s->blocks == 0)
        return 0;
    return point / s->blocks * s->layout->axis_rows[0] +
           point % s->blocks * s->layout->shape.row_round;
}

static uli_u128
cost_at(const struct search *s, int64_t point)
{
    return uli_cost_before(s->layout, s->tables, search_position(s, point));
}

/* ---- good runs ----------------------------------------------------------- */

static bool
good_keys(const struct search *s, const struct uli_family_info *family,
    int64_t begin, int64_t end)
{
    if (family->most_rows <= s->max_kv_rows &&
        family->most_segments <= s->max_segments)
        return true; /* no run of max_rows can exceed the limits */
    struct uli_kv_use use =
        uli_kv_use_of(s->layout, s->tables, family->group, begin, end);
    return use.rows <= s->max_kv_rows && use.runs <= s->max_segments;
}

static bool
search_good(const struct search *s, int64_t from, int64_t to)
{
    int64_t begin = search_position(s, from), end = search_position(s, to);
    int64_t rows = s->layout->axis_rows[0];
    if (begin == end)
        return true;
    if (end - begin > s->max_rows ||
        (end - 1) / rows - begin / rows >= s->max_segments)
        return false;
    if (cost_at(s, to) - cost_at(s, from) > s->cost_limit)
        return false;
    for (int32_t f = 1; f < s->layout->nfamilies; f++)
        if (!good_keys(s, &s->layout->family[f], begin, end))
            return false;
    return true;
}

/* The last point that a good run from `from` reaches. */
static int64_t
search_reach(const struct search *s, int64_t from)
{
    int64_t low = from, high = s->points + 1;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (search_good(s, from, middle))
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The first point from which a good run reaches `to`. */
static int64_t
reach_back(const struct search *s, int64_t to)
{
    int64_t low = -1, high = to;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (search_good(s, middle, to))
            high = middle;
        else
            low = middle;
    }
    return high;
}

/* Can all ranks together reach the end? */
static bool
search_fits(const struct search *s)
{
    int64_t point = 0;
    for (int32_t r = 0; r < s->layout->shape.nranks && point < s->points; r++)
        point = search_reach(s, point);
    return point == s->points;
}

/* ---- refusals ------------------------------------------------------------ */

/* The least value of *limit_p, a limit of *s, with which the ranks fit. */
static int64_t
search_least(struct search *s, int64_t *limit_p, int64_t most)
{
    int64_t low = *limit_p, high = most;
    while (high - low > 1) {
        *limit_p = low + (high - low) / 2;
        if (search_fits(s))
            high = *limit_p;
        else
            low = *limit_p;
    }
    *limit_p = high;
    return high;
}

/* Names the maximum that is too small: all are lifted, then set again one by
 * one, rows first, until the ranks do not fit. */
static ulyx_status_t
search_refuse(struct search *s)
{
    const struct uli_shape *shape = &s->layout->shape;
    int64_t everything = search_position(s, s->points), needed;
    s->max_kv_rows = s->max_segments = INT64_MAX;
    if (!search_fits(s)) {
        needed = search_least(s, &s->max_rows, everything);
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "max_rows is %" PRId64 ", %d %s %" PRId64
            " with row_round %" PRId64,
            shape->max_rows, shape->nranks,
            shape->nranks == 1 ? "rank needs" : "ranks need", needed,
            shape->row_round);
    }
    s->max_kv_rows = shape->max_kv_rows;
    if (!search_fits(s)) {
        needed = search_least(s, &s->max_kv_rows, INT64_MAX);
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "max_kv_rows is %" PRId64 ", these documents need %" PRId64
            " with max_rows %" PRId64,
            shape->max_kv_rows, needed, shape->max_rows);
    }
    s->max_segments = shape->max_segments;
    needed = search_least(s, &s->max_segments, INT64_MAX);
    return uli_error(ULYX_ERR_INVALID_ARGUMENT,
        "max_segments is %" PRId64 ", these documents need %" PRId64
        " with max_rows %" PRId64 " and max_kv_rows %" PRId64,
        shape->max_segments, needed, shape->max_rows, shape->max_kv_rows);
}

/* ---- the cut ------------------------------------------------------------- */

/* The least cost limit that fits, to one part in two thousand. An upper end is
 * found by doubling the distance from the mean. */
static void
least_cost(struct search *s)
{
    uli_u128 ranks = (uli_u128)s->layout->shape.nranks;
    uli_u128 mean = (s->total + ranks - 1) / ranks;
    uli_u128 low = mean, step = mean / 256 + 1;
    s->cost_limit = mean;
    while (!search_fits(s)) {
        low = s->cost_limit;
        s->cost_limit = mean + step < s->total ? mean + step : s->total;
        step *= 2;
    }
    uli_u128 high = s->cost_limit;
    while (high - low > mean / 2048 + 1) {
        s->cost_limit = low + (high - low) / 2;
        if (search_fits(s))
            high = s->cost_limit;
        else
            low = s->cost_limit;
    }
    s->cost_limit = high;
}

/* The first point in [low, high] whose cost is nearest to the rank's share;
 * cost grows with points. */
static int64_t
search_nearest(const struct search *s, int32_t rank, int64_t low, int64_t high)
{
    uli_u128 ranks = (uli_u128)s->layout->shape.nranks;
    uli_u128 share = s->total / ranks * (uli_u128)rank +
                     s->total % ranks * (uli_u128)rank / ranks;
    int64_t begin = low;
    while (low < high) { /* the first point at or beyond the share */
        int64_t middle = low + (high - low) / 2;
        if (cost_at(s, middle) >= share)
            high = middle;
        else
            low = middle + 1;
    }
    uli_u128 above = cost_at(s, low);
    if (low == begin || above <= share)
        return low;
    return share - cost_at(s, low - 1) <= above - share ? low - 1 : low;
}

/* Places the boundaries near their shares. cut[r] first holds the least point
 * from which ranks r .. P-1 suffice. */
static bool
place_near_shares(const struct search *s, int64_t *cut)
{
    int32_t ranks = s->layout->shape.nranks;
    cut[ranks] = s->points;
    for (int32_t r = ranks - 1; r > 0; r--)
        cut[r] = reach_back(s, cut[r + 1]);
    cut[0] = 0;
    for (int32_t r = 1; r < ranks; r++) {
        int64_t low = uli_max(cut[r], cut[r - 1]);
        int64_t high = search_reach(s, cut[r - 1]);
        if (high < low)
            return false;
        cut[r] = search_nearest(s, r, low, high);
    }
    for (int32_t r = 0; r < ranks; r++)
        if (!search_good(s, cut[r], cut[r + 1]))
            return false;
    return true;
}

static void
place_longest(const struct search *s, int64_t *cut)
{
    int32_t ranks = s->layout->shape.nranks;
    cut[0] = 0;
    for (int32_t r = 1; r < ranks; r++)
        cut[r] = search_reach(s, cut[r - 1]);
    cut[ranks] = s->points;
}

ulyx_status_t
uli_balanced_cut(const struct uli_layout *layout, struct uli_tables *tables)
{
    const struct uli_shape *shape = &layout->shape;
    struct search s = {layout, tables, 0, 0, 0, 0, shape->max_rows,
        shape->max_kv_rows, shape->max_segments};
    s.blocks = uli_div_up(layout->axis_rows[0], shape->row_round);
    s.points = shape->heads * shape->batch * s.blocks;
    s.total = s.cost_limit = cost_at(&s, s.points);
    if (!search_fits(&s))
        return search_refuse(&s);
    least_cost(&s);
    if (!place_near_shares(&s, tables->cut))
        place_longest(&s, tables->cut);
    for (int32_t r = 0; r <= shape->nranks; r++)
        tables->cut[r] = search_position(&s, tables->cut[r]);
    return ULYX_SUCCESS;
}
