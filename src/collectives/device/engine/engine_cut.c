/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts the moves of a destination into copy items that fill the slots of its
 * receive buffer, round by round. A move is cut along the outermost of batch,
 * row, head and element whose unit is at most a quarter of a chunk. So a slot
 * is at least three quarters full when the next one begins, unless a sum makes
 * a pair skip ahead.
 *
 *     unit[3] = element, unit[2] = dim elements, unit[1] = heads * unit[2],
 *     unit[0] = rows * unit[1]
 */
#include <stdlib.h>
#include <string.h>
#include "base/size.h"
#include "base/status.h"
#include "collectives/device/engine/engine_table.h"

enum { SHARE = 4 }; /* part of a chunk that a unit may take */

ulyx_status_t
uli_engine_walk_create(const struct uli_layout *layout, int64_t chunk_bytes,
    struct uli_engine_walk *walk_p)
{
    size_t n = (size_t)uli_layout_shape(layout)->nranks;
    struct uli_engine_walk walk = {.layout = layout,
        .chunk_bytes = chunk_bytes,
        .places = malloc((size_t)(uli_layout_scratch(layout) + 1) *
                         sizeof(struct uli_place)),
        .cursors = calloc(n, sizeof(struct uli_engine_cursor)),
        .at = calloc(n, sizeof(int64_t))};
    *walk_p = walk;
    if (walk.places && walk.cursors && walk.at)
        return ULYX_SUCCESS;
    uli_engine_walk_free(walk_p);
    return uli_error(
        ULYX_ERR_NO_MEMORY, "lists of an exchange by copy engines: no memory");
}

void
uli_engine_walk_free(struct uli_engine_walk *walk)
{
    free(walk->places);
    free(walk->cursors);
    free(walk->at);
    memset(walk, 0, sizeof(*walk));
}

/* ---- one move ------------------------------------------------------------ */

struct visit {
    struct uli_engine_walk *walk;
    uli_engine_copy_fn visit;
    void *context;
    int32_t dst;
};

static struct uli_engine_cursor *
cursor_of(const struct visit *v, const struct uli_move *move, int32_t s)
{
    int32_t rank = move->sources[s].rank;
    return rank == v->dst ? NULL : &v->walk->cursors[rank];
}

static bool
move_uses_buffer(const struct visit *v, const struct uli_move *move)
{
    for (int32_t s = 0; s < move->nsources; s++)
        if (cursor_of(v, move, s))
            return true;
    return false;
}

/* Moves all sources to the round of the source that is furthest; next: to the
 * round after that one. Returns the bytes for which every source has room. */
static int64_t
align_sources(const struct visit *v, const struct uli_move *move, bool next)
{
    int32_t round = 0;
    int64_t room = v->walk->chunk_bytes;
    for (int32_t s = 0; s < move->nsources; s++) {
        const struct uli_engine_cursor *cursor = cursor_of(v, move, s);
        if (cursor && cursor->round > round)
            round = cursor->round;
    }
    for (int32_t s = 0; s < move->nsources; s++) {
        struct uli_engine_cursor *cursor = cursor_of(v, move, s);
        if (!cursor)
            continue;
        if (cursor->round < round + next)
            cursor->at = 0;
        cursor->round = round + next;
        room = uli_min(room, v->walk->chunk_bytes - cursor->at);
    }
    return room;
}

static bool
visit_emit(const struct visit *v, struct uli_engine_copy_item *cut)
{
    const struct uli_move *move = cut->move;
    int64_t bytes = cut->count[0] * cut->count[1] * cut->count[2] *
                    cut->count[3] * cut->element_bytes;
    for (int32_t s = 0; s < move->nsources; s++) {
        struct uli_engine_cursor *cursor = cursor_of(v, move, s);
        if (!cursor)
            continue;
        cut->round = cursor->round;
        v->walk->at[move->sources[s].rank] = cursor->at;
        cursor->at += uli_round_up(bytes, ULI_GPU_SLOT_ALIGN);
        cursor->used = true;
    }
    return !v->visit || v->visit(v->context, cut);
}

/* Cuts dimension `level` of the item, whose outer dimensions are one unit. */
static bool
cut_level(const struct visit *v, struct uli_engine_copy_item *cut, int level,
    int64_t extent, int64_t unit)
{
    for (int64_t done = 0; done < extent;) {
        int64_t room = align_sources(v, cut->move, false);
        int64_t count = uli_min(extent - done, room / unit);
        if (count == 0)
            count = uli_min(
                extent - done, align_sources(v, cut->move, true) / unit);
        cut->first[level] = done;
        cut->count[level] = count;
        if (!visit_emit(v, cut))
            return false;
        done += count;
    }
    return true;
}

static bool
visit_cut(const struct visit *v, struct uli_engine_copy_item *cut)
{
    int64_t extent[4], unit[4], outer = 1;
    int level = 3;
    memcpy(extent, cut->count, sizeof(extent));
    unit[3] = cut->element_bytes;
    for (int d = 2; d >= 0; d--) {
        unit[d] = unit[d + 1] * extent[d + 1];
        if (unit[d] <= v->walk->chunk_bytes / SHARE)
            level = d;
    }
    for (int d = 0; d < level; d++) {
        outer *= extent[d];
        cut->count[d] = 1;
    }
    for (int64_t i = 0; i < outer; i++) {
        int64_t rest = i;
        for (int d = level - 1; d >= 0; d--) {
            cut->first[d] = rest % extent[d];
            rest /= extent[d];
        }
        if (!cut_level(v, cut, level, extent[level], unit[level]))
            return false;
    }
    return true;
}

static bool
visit_move(void *context, const struct uli_move *move)
{
    const struct visit *v = context;
    const struct uli_layout *layout = v->walk->layout;
    enum uli_side from = uli_plan_side(v->walk->direction, true);
    struct uli_engine_copy_item cut = {.move = move,
        .count = {move->batches, move->rows, move->heads,
            uli_layout_shape(layout)->tensors[move->tensor].dim},
        .element_bytes = uli_plan_elem_bytes(layout, move->tensor, from),
        .round = -1,
        .at = v->walk->at};
    return move_uses_buffer(v, move) ? visit_cut(v, &cut) : visit_emit(v, &cut);
}

/* ---- all moves ----------------------------------------------------------- */

bool
uli_engine_each_copy(struct uli_engine_walk *walk, int32_t dst,
    uli_engine_copy_fn visit, void *context)
{
    const struct uli_shape *shape = uli_layout_shape(walk->layout);
    struct visit v = {walk, visit, context, dst};
    bool going = true;
    memset(walk->cursors, 0, (size_t)shape->nranks * sizeof(*walk->cursors));
    for (int32_t t = 0; t < shape->ntensors && going; t++)
        going = uli_layout_each_move(walk->layout, walk->direction, t, dst, -1,
            walk->places, visit_move, &v);
    return going;
}

int32_t
uli_engine_rounds(const struct uli_engine_walk *walk, int32_t src)
{
    const struct uli_engine_cursor *cursor = &walk->cursors[src];
    return cursor->used ? cursor->round + 1 : 0;
}

ulyx_status_t
uli_engine_measure(struct uli_engine_walk *walk, uint64_t directions,
    int64_t *slot_bytes_p, int32_t *slots_p)
{
    int32_t nranks = uli_layout_shape(walk->layout)->nranks, most = 0;
    int64_t fullest = 0;
    for (int o = 0; o < ULYX_DIRECTIONS; o++) {
        walk->direction = o;
        for (int32_t d = 0; d < nranks && directions >> o & 1; d++) {
            uli_engine_each_copy(walk, d, NULL, NULL);
            for (int32_t s = 0; s < nranks; s++) {
                most = uli_max(most, uli_engine_rounds(walk, s));
                fullest = uli_max(fullest, walk->cursors[s].at);
            }
        }
    }
    if (most >= ULI_ENGINE_ROUNDS_MAX)
        return uli_error(ULYX_ERR_UNSUPPORTED,
            "copy engines: %d rounds of %lld bytes, below %d: "
            "ULYX_ENGINE_CHUNK "
            "is too small",
            most, (long long)walk->chunk_bytes, ULI_ENGINE_ROUNDS_MAX);
    *slots_p = most < ULI_ENGINE_SLOTS ? most : ULI_ENGINE_SLOTS;
    *slot_bytes_p =
        most < 2 ? uli_round_up(fullest, ULI_GPU_LINE) : walk->chunk_bytes;
    return ULYX_SUCCESS;
}
