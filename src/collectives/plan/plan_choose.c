/* SPDX-License-Identifier: Apache-2.0
 *
 * Counts of a layout; see plan_choose.h.
 *
 *   token bytes     sum over sharded tensors of batch * heads * dim * size
 *   rows_r          tokens: bytes of the sequence side at r / token bytes
 *   reads           per tensor: heads that r holds and no other rank of its
 *                   node (own), and heads that r and other ranks of its node
 *                   hold (shared), times batch * dim * size, times the tensor's
 *                   rows / all rows (1 with one part)
 *   partials        as reads, in the type of partials, or of accumulators
 *                   for what a node shares
 *   gives           heads of which r is the lowest holder; on a PACKED side
 *                   the part of the tensor that r holds
 */
#include "collectives/plan/plan_choose.h"

#include <stdlib.h>
#include <string.h>
#include "base/dtype.h"
#include "base/size.h"
#include "base/status.h"
#include "collectives/kernels/copy.h"

static bool
is_sharded(const struct uli_shape *shape, int32_t t)
{
    return shape->parts[shape->tensors[t].part].kind == ULYX_PART_SHARDED;
}

/* Bytes of one head of one token, of all batches. */
static int64_t
head_bytes(const struct uli_shape *shape, int32_t t)
{
    return shape->batch * shape->tensors[t].dim * shape->tensors[t].elem_bytes;
}

/* Returns the sum of all rows. */
static int64_t
count_rows(const struct uli_layout *layout, struct uli_demand *x)
{
    const struct uli_shape *shape = uli_layout_shape(layout);
    int64_t token = 0, all = 0;
    for (int32_t t = 0; t < shape->ntensors; t++)
        if (is_sharded(shape, t))
            token += head_bytes(shape, t) * shape->tensors[t].heads;
    for (int32_t r = 0; token > 0 && r < x->nranks; r++) {
        int64_t bytes = 0;
        for (int32_t t = 0; t < shape->ntensors; t++)
            if (is_sharded(shape, t))
                bytes += head_bytes(shape, t) * shape->tensors[t].heads *
                         uli_layout_seq_rows(layout, shape->tensors[t].part, r);
        x->rows[r] = bytes / token;
        all += x->rows[r];
    }
    return all;
}

/* The counts of one tensor. holders[h]: number of ranks that hold head h, in a
 * node or in all. */
struct counter {
    const struct uli_layout *layout;
    struct uli_demand *x;
    int32_t *holders;
    int32_t tensor, node;
    int64_t head;                /* bytes of one head of one token */
    double partial, accumulator; /* bytes per byte of an element */
};

static void
add_holder(const struct counter *c, int32_t r)
{
    int64_t first, count;
    uli_layout_heads(c->layout, c->tensor, r, &first, &count);
    for (int64_t h = first; h < first + count; h++)
        c->holders[h]++;
}

/* Bytes that rank r holds per token: its part of a PACKED side, else all of its
 * heads. */
static int64_t
held_bytes(const struct counter *c, int32_t r, int64_t count)
{
    const struct uli_shape *shape = uli_layout_shape(c->layout);
    int64_t rows =
        shape->batch * shape->parts[shape->tensors[c->tensor].part].rows;
    if (!uli_layout_packed(c->layout) || rows == 0)
        return count * c->head;
    return (int64_t)((double)uli_layout_packed_rows(c->layout, c->tensor, r) /
                     (double)rows * (double)c->head);
}

static int64_t
bytes_scaled(int64_t bytes, double by)
{
    return (int64_t)((double)bytes * by);
}

static void
count_rank(const struct counter *c, int32_t r)
{
    struct uli_demand *x = c->x;
    int64_t first, count, shared = 0;
    uli_layout_heads(c->layout, c->tensor, r, &first, &count);
    for (int64_t h = first; h < first + count; h++)
        shared += c->holders[h] > 1;
    int64_t bytes = held_bytes(c, r, count);
    int64_t part = count ? bytes / count * shared : 0;
    x->reads.shared[r] += part;
    x->reads.own[r] += bytes - part;
    x->partials.shared[r] += bytes_scaled(part, c->partial);
    x->partials.own[r] += bytes_scaled(bytes - part, c->partial);
}

static void
count_node(const struct counter *c, int64_t heads)
{
    const struct uli_demand *x = c->x;
    memset(c->holders, 0, (size_t)heads * sizeof(*c->holders));
    for (int32_t i = x->first[c->node]; i < x->first[c->node + 1]; i++)
        add_holder(c, x->members[i]);
    for (int32_t i = x->first[c->node]; i < x->first[c->node + 1]; i++)
        count_rank(c, x->members[i]);
    for (int64_t h = 0; h < heads; h++)
        if (c->holders[h] > 1) {
            x->reads.node_shared[c->node] += c->head;
            x->partials.node_shared[c->node] +=
                bytes_scaled(c->head, c->accumulator);
        }
}

/* Over all ranks, in rank order; also sets x->sums where a head has two
 * holders. */
static void
count_gives(const struct counter *c, int64_t heads)
{
    struct uli_demand *x = c->x;
    double held = 0;
    memset(c->holders, 0, (size_t)heads * sizeof(*c->holders));
    for (int32_t r = 0; r < x->nranks; r++) {
        int64_t first, count, lowest = 0;
        uli_layout_heads(c->layout, c->tensor, r, &first, &count);
        for (int64_t h = first; h < first + count; h++)
            lowest += c->holders[h] == 0;
        add_holder(c, r);
        held += (double)held_bytes(c, r, count);
        x->sums |= lowest < count && !uli_layout_packed(c->layout);
        if (!uli_layout_packed(c->layout))
            x->gives[r] += lowest * c->head;
    }
    double all = (double)heads * (double)c->head;
    x->sums |= held > 1.001 * all;
    for (int32_t r = 0; r < x->nranks && uli_layout_packed(c->layout); r++) {
        int64_t first, count;
        uli_layout_heads(c->layout, c->tensor, r, &first, &count);
        if (held > 0)
            x->gives[r] += bytes_scaled(held_bytes(c, r, count), all / held);
    }
}

/* Sets the tensor's sizes. A plan has a type of partials whether or not it has
 * partials. */
static void
take_tensor(struct counter *c, int64_t all_rows)
{
    const struct uli_shape *shape = uli_layout_shape(c->layout);
    const struct uli_shape_tensor *t = &shape->tensors[c->tensor];
    int64_t rows = shape->parts[t->part].rows;
    int64_t partial = uli_dtype_size(t->partial_dtype);
    c->head = head_bytes(shape, c->tensor);
    if (rows != all_rows)
        c->head = (int64_t)((double)c->head * (double)rows /
                            (double)uli_max(all_rows, 1));
    c->partial = partial ? (double)partial / (double)t->elem_bytes : 1;
    c->accumulator = (double)uli_sum_acc_bytes(t->dtype, t->partial_dtype) /
                     (double)t->elem_bytes;
    c->x->sums |= t->partial_dtype != t->dtype;
}

static ulyx_status_t
count_reads(
    const struct uli_layout *layout, int64_t all_rows, struct uli_demand *x)
{
    const struct uli_shape *shape = uli_layout_shape(layout);
    int64_t heads = 1;
    for (int32_t t = 0; t < shape->ntensors; t++)
        heads = uli_max(heads, shape->tensors[t].heads);
    struct counter c = {.layout = layout, .x = x};
    c.holders = malloc((size_t)heads * sizeof(*c.holders));
    if (!c.holders)
        return uli_error(
            ULYX_ERR_NO_MEMORY, "no memory to choose a plan's algorithm");
    for (c.tensor = 0; c.tensor < shape->ntensors; c.tensor++) {
        if (!is_sharded(shape, c.tensor))
            continue;
        take_tensor(&c, all_rows);
        count_gives(&c, shape->tensors[c.tensor].heads);
        for (c.node = 0; c.node < x->nodes; c.node++)
            count_node(&c, shape->tensors[c.tensor].heads);
    }
    free(c.holders);
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_plan_demand(const struct uli_layout *layout, int32_t nodes,
    const int32_t *node_of, struct uli_demand *demand_p)
{
    struct uli_demand x;
    ULI_TRY(uli_demand_create_empty(
        uli_layout_shape(layout)->nranks, nodes, node_of, &x));
    ulyx_status_t status = count_reads(layout, count_rows(layout, &x), &x);
    if (status != ULYX_SUCCESS) {
        uli_demand_destroy(&x);
        return status;
    }
    *demand_p = x;
    return ULYX_SUCCESS;
}

ulyx_status_t
uli_plan_choose(const struct uli_layout *layout, int32_t nodes,
    const int32_t *node_of, const struct uli_plan_preference *preference,
    const struct uli_planner *planner, struct uli_choice *choice_p)
{
    struct uli_demand demand;
    ULI_TRY(uli_plan_demand(layout, nodes, node_of, &demand));
    demand.one_machine = preference->one_machine;
    demand.directions = preference->directions;
    demand.flight_bytes = preference->bytes_in_flight;
    ulyx_status_t status =
        uli_choose(planner, &demand, preference->algo, choice_p);
    uli_demand_destroy(&demand);
    return status;
}
