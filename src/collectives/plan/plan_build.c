/* SPDX-License-Identifier: Apache-2.0
 *
 * From the layout's moves to tables of boxes.
 *
 * There are two walks over the same moves. Measure, before the agreement, needs
 * no strides: it counts and allocates (with document tables, for the largest
 * that any update can give). Build, after the agreement and after every update,
 * fills the tables in; it only writes into existing memory, so it cannot fail.
 *
 * Both ends of a pair walk its moves in one order, and derive verbs and the
 * order of bytes in a stream from the same gathered strides. So they agree on
 * both without a flag, and the strides of a call at either end do not matter.
 */
#include <stdlib.h>
#include <string.h>
#include "base/dtype.h"
#include "base/size.h"
#include "base/status.h"
#include "collectives/exchange/exchange_schedule.h"
#include "collectives/plan/plan.h"
#include "comm/remote/remote.h"

static bool
plan_uses(const ulyx_plan_t *plan, int direction)
{
    return plan->directions >> direction & 1;
}

bool
uli_plan_carries(const ulyx_plan_t *plan, const struct uli_move *move)
{
    return plan->exchange.schedule->carries(&plan->exchange, move);
}

static bool
plan_parts(const ulyx_plan_t *plan, int32_t p)
{
    return plan->exchange.schedule->parts(&plan->exchange, p);
}

/* ---- measuring ----------------------------------------------------------- */

struct measure {
    ulyx_plan_t *plan;
    struct uli_plan_room *room;
    ulyx_direction_t direction;
};

/* Bytes of one source of a move. */
static int64_t
share_bytes(const struct measure *m, const struct uli_move *move)
{
    const struct uli_layout *layout = m->plan->layout;
    enum uli_side side = uli_plan_side(m->direction, true);
    return move->batches * move->rows * move->heads *
           uli_layout_shape(layout)->tensors[move->tensor].dim *
           uli_plan_elem_bytes(layout, move->tensor, side);
}

static void
add_volume(struct uli_volume *volume, const struct measure *m,
    const struct uli_move *move)
{
    int64_t bytes = uli_round_up(share_bytes(m, move), ULI_STREAM_ALIGN);
    *(move->kind == ULI_MOVE_SUM ? &volume->sums : &volume->copies) += bytes;
    volume->items++;
}

static bool
measure_in(void *context, const struct uli_move *move)
{
    struct measure *m = context;
    int32_t me = m->plan->comm->rank;
    if (uli_plan_carries(m->plan, move))
        return true;
    if (move->kind == ULI_MOVE_SUM) {
        m->room->sums++;
        m->room->sources += move->nsources;
    }
    if (move->kind == ULI_MOVE_ZERO)
        m->room->locals++;
    for (int32_t s = 0; s < move->nsources; s++)
        if (move->sources[s].rank != me)
            add_volume(&m->room->in[move->sources[s].rank], m, move);
        else if (move->kind == ULI_MOVE_COPY)
            m->room->locals++;
    return true;
}

static bool
measure_out(void *context, const struct uli_move *move)
{
    struct measure *m = context;
    if (!uli_plan_carries(m->plan, move))
        add_volume(&m->room->out[move->dst.rank], m, move);
    return true;
}

static void
measure_now(struct measure *m)
{
    const ulyx_plan_t *plan = m->plan;
    struct uli_plan_room *room = m->room;
    int32_t me = plan->comm->rank, nranks = plan->comm->nranks;
    room->locals = room->sums = room->sources = 0;
    memset(room->in, 0, (size_t)nranks * sizeof(*room->in));
    memset(room->out, 0, (size_t)nranks * sizeof(*room->out));
    for (int32_t t = 0; t < plan->exchange.ntensors; t++) {
        uli_layout_each_move(plan->layout, m->direction, t, me, -1,
            plan->scratch, measure_in, m);
        for (int32_t p = 0; p < nranks; p++)
            if (p != me)
                uli_layout_each_move(plan->layout, m->direction, t, p, me,
                    plan->scratch, measure_out, m);
    }
}

/* Items and room of the largest tables; bytes remain those of the present
 * tables. */
static void
room_for_updates(struct measure *m)
{
    const ulyx_plan_t *plan = m->plan;
    struct uli_plan_room *room = m->room;
    int32_t me = plan->comm->rank, nranks = plan->comm->nranks;
    room->locals = room->sums = room->sources = 0;
    for (int32_t p = 0; p < nranks; p++)
        room->in[p].items = room->out[p].items = 0;
    for (int32_t t = 0; t < plan->exchange.ntensors; t++) {
        int64_t all =
            uli_layout_max_moves(plan->layout, m->direction, t, me, -1);
        room->locals += all;
        room->sums += all;
        for (int32_t p = 0; p < nranks; p++) {
            int64_t in =
                uli_layout_max_moves(plan->layout, m->direction, t, me, p);
            room->sources += in;
            room->in[p].items += in;
            room->out[p].items +=
                uli_layout_max_moves(plan->layout, m->direction, t, p, me);
        }
    }
}

/* ---- memory -------------------------------------------------------------- */

/* Allocates zeros and counts them in table_bytes; never NULL for count 0. */
static bool
plan_new_array(ulyx_plan_t *plan, void *array_p, int64_t count, size_t bytes)
{
    void *array = calloc((size_t)count + !count, bytes);
    memcpy(array_p, &array, sizeof(array));
    plan->table_bytes += count * (int64_t)bytes;
    return array != NULL;
}

static bool
get_items(ulyx_plan_t *plan, struct uli_items *items, int64_t capacity)
{
    items->capacity = capacity;
    return plan_new_array(plan, &items->at, capacity, sizeof(*items->at));
}

static bool
get_pool(ulyx_plan_t *plan, struct uli_sum_pool *pool, int64_t count)
{
    return plan_new_array(plan, &pool->group, count, sizeof(*pool->group)) &&
           plan_new_array(
               plan, &pool->src_offset, count, sizeof(*pool->src_offset)) &&
           plan_new_array(
               plan, &pool->src_stride, count, sizeof(*pool->src_stride)) &&
           plan_new_array(plan, &pool->sources, count, sizeof(*pool->sources));
}

static bool
get_work(ulyx_plan_t *plan, int direction)
{
    const struct uli_plan_room *room = &plan->room[direction];
    struct uli_work *work = &plan->work[direction];
    int32_t nranks = plan->comm->nranks;
    if (!plan_new_array(plan, &work->pairs, nranks, sizeof(*work->pairs)) ||
        !plan_new_array(plan, &plan->laid[direction], nranks,
            sizeof(*plan->laid[direction])) ||
        !plan_new_array(plan, &work->sums, room->sums, sizeof(*work->sums)) ||
        !plan_new_array(
            plan, &work->locals, room->locals, sizeof(*work->locals)) ||
        !get_pool(plan, &plan->pools[direction], room->sources))
        return false;
    for (int32_t p = 0; p < nranks; p++)
        if (!get_items(plan, &work->pairs[p].in, room->in[p].items) ||
            !get_items(plan, &work->pairs[p].out, room->out[p].items))
            return false;
    return true;
}

static bool
get_sum_scratch(ulyx_plan_t *plan)
{
    struct uli_exchange *exchange = &plan->exchange;
    int32_t nranks = plan->comm->nranks;
    return plan_new_array(
               plan, &exchange->sum_offsets, nranks, sizeof(int64_t)) &&
           plan_new_array(plan, &exchange->sum_bases, nranks, sizeof(void *));
}

static ulyx_status_t
tables_status(const ulyx_plan_t *plan, bool good)
{
    return good ? ULYX_SUCCESS
                : uli_error(ULYX_ERR_NO_MEMORY,
                      "no memory for a plan's tables (%lld bytes so far)",
                      (long long)plan->table_bytes);
}

ulyx_status_t
uli_plan_measure(ulyx_plan_t *plan)
{
    int32_t nranks = plan->comm->nranks;
    bool tables = uli_layout_has_tables(plan->layout);
    bool good =
        plan_new_array(plan, &plan->scratch, uli_layout_scratch(plan->layout),
            sizeof(*plan->scratch)) &&
        plan_new_array(plan, &plan->by_node, nranks, sizeof(*plan->by_node));
    for (int direction = 0; good && direction < ULYX_DIRECTIONS; direction++) {
        struct uli_plan_room *room = &plan->room[direction];
        struct measure m = {plan, room, direction};
        if (!plan_uses(plan, direction))
            continue;
        good = plan_new_array(plan, &room->in, nranks, sizeof(*room->in)) &&
               plan_new_array(plan, &room->out, nranks, sizeof(*room->out));
        if (!good)
            break;
        measure_now(&m);
        if (tables)
            room_for_updates(&m);
    }
    return tables_status(plan, good);
}

ulyx_status_t
uli_plan_allocate_work(ulyx_plan_t *plan)
{
    bool good = true, sums = false;
    for (int direction = 0; good && direction < ULYX_DIRECTIONS; direction++) {
        if (!plan_uses(plan, direction))
            continue;
        sums |= plan->room[direction].sums > 0;
        good = get_work(plan, direction);
    }
    if (good && sums)
        good = get_sum_scratch(plan);
    return tables_status(plan, good);
}

void
uli_plan_remeasure(ulyx_plan_t *plan)
{
    for (int direction = 0; direction < ULYX_DIRECTIONS; direction++) {
        struct measure m = {plan, &plan->room[direction], direction};
        if (plan_uses(plan, direction))
            measure_now(&m);
    }
}

static void
free_pool(struct uli_sum_pool *pool)
{
    free(pool->group);
    free(pool->src_offset);
    free(pool->src_stride);
    free(pool->sources);
}

void
uli_plan_free_tables(ulyx_plan_t *plan)
{
    for (int direction = 0; direction < ULYX_DIRECTIONS; direction++) {
        struct uli_work *work = &plan->work[direction];
        for (int32_t p = 0; work->pairs && p < plan->comm->nranks; p++) {
            free(work->pairs[p].in.at);
            free(work->pairs[p].out.at);
        }
        free(work->pairs);
        free(work->sums);
        free(work->locals);
        free(plan->laid[direction]);
        free(plan->room[direction].in);
        free(plan->room[direction].out);
        free_pool(&plan->pools[direction]);
    }
    free(plan->scratch);
    free(plan->by_node);
    free(plan->exchange.sum_offsets);
    free(plan->exchange.sum_bases);
}

/* ---- what follows from the volumes --------------------------------------- */

bool
uli_plan_slot(const ulyx_plan_t *plan, ulyx_direction_t direction, int32_t p)
{
    const struct uli_volume *in = &plan->room[direction].in[p];
    const struct uli_volume *out = &plan->room[direction].out[p];
    return plan->slot_limit > 0 && in->copies + in->sums <= plan->slot_limit &&
           out->copies + out->sums <= plan->slot_limit;
}

bool
uli_plan_may_stream(const ulyx_plan_t *plan, int32_t p, int64_t *bytes_p)
{
    bool anything = uli_layout_moves_anything(plan->layout);
    int64_t most = 0;
    for (int direction = 0; !plan_parts(plan, p) && direction < ULYX_DIRECTIONS;
         direction++) {
        if (!plan_uses(plan, direction) ||
            (!anything && uli_plan_slot(plan, direction, p)))
            continue;
        const struct uli_volume *in = &plan->room[direction].in[p];
        bool to_seq = uli_plan_side(direction, false) == ULI_SIDE_SEQ;
        bool stored =
            plan->info.memory[to_seq ? 0 : 1] == ULYX_POINTER_WINDOW &&
            !uli_comm_is_remote(plan->comm, p);
        bool copies = !stored && in->copies > 0;
        if (copies || in->sums > 0)
            most = uli_max(most, in->sums + (copies ? in->copies : 0));
        /* An update may move anything between any two ranks. */
        if (anything && (!stored || plan->room[direction].sums > 0))
            most = INT64_MAX;
    }
    *bytes_p = most;
    return most > 0;
}

bool
uli_plan_may_send(const ulyx_plan_t *plan, int32_t p, int64_t *bytes_p)
{
    bool anything = uli_layout_moves_anything(plan->layout);
    *bytes_p = 0;
    for (int direction = 0; !plan_parts(plan, p) && direction < ULYX_DIRECTIONS;
         direction++) {
        if (!plan_uses(plan, direction) ||
            (!anything && uli_plan_slot(plan, direction, p)))
            continue;
        const struct uli_volume *out = &plan->room[direction].out[p];
        *bytes_p =
            anything ? INT64_MAX : uli_max(*bytes_p, out->sums + out->copies);
    }
    return *bytes_p > 0;
}

bool
uli_plan_shares(const ulyx_plan_t *plan, int32_t p)
{
    if (p == plan->comm->rank || plan_parts(plan, p))
        return false;
    if (uli_layout_has_tables(plan->layout))
        return true;
    for (int direction = 0; direction < ULYX_DIRECTIONS; direction++)
        if (plan->room[direction].in && (plan->room[direction].in[p].items ||
                                            plan->room[direction].out[p].items))
            return true;
    return false;
}
