/* SPDX-License-Identifier: Apache-2.0
 *
 * Where every element must be after an operation: element by element, from the
 * plain layout (layout_oracle.h) and the rules of ulyx/reshuffle.h.
 */
#include <string.h>
#include "collectives/exchange/reshuffle_world.h"
#include "collectives/kernels/sum_oracle.h"
#include "support/pattern.h"

enum { POISON = 0xFF };

/* A cell is one (tensor, batch, row of the part, head). */
struct cell {
    int32_t tensor;
    int64_t batch, row, head;
};

static const struct uli_shape_part *
part_of(const struct world *w, int32_t t)
{
    return &w->c.shape.parts[w->c.shape.tensors[t].part];
}

/* Returns the byte offset of the cell's first element at a rank, or -1 if the
 * rank does not have the cell. */
static int64_t
cell_offset(const struct world *w, int32_t rank, enum uli_side side,
    const struct cell *cell)
{
    const int64_t *strides = w->strides[rank][cell->tensor][side];
    int32_t part = w->c.shape.tensors[cell->tensor].part;
    if (side == ULI_SIDE_SEQ) {
        int64_t local =
            w->oracle
                .local[part][rank * part_of(w, cell->tensor)->rows + cell->row];
        return local < 0 ? -1
                         : cell->batch * strides[0] + local * strides[1] +
                               cell->head * strides[2];
    }
    int64_t axis_row = w->oracle.first_row[part] + cell->row;
    int64_t place = oracle_place(
        &w->oracle, cell->tensor, rank, cell->head, cell->batch, axis_row);
    if (place < 0)
        return -1;
    if (uli_layout_packed(w->layout))
        return place * strides[1];
    return cell->batch * strides[0] + axis_row * strides[1] +
           place * strides[2];
}

static int
all_with(const struct world *w, enum uli_side side, const struct cell *cell,
    int32_t *ranks)
{
    int n = 0;
    for (int32_t r = 0; r < w->ranks->nranks; r++)
        if (cell_offset(w, r, side, cell) >= 0)
            ranks[n++] = r;
    return n;
}

/* Finds the ranks whose elements make up the cell at rank dst. */
static int
sources_of(const struct world *w, int op, int32_t dst, const struct cell *cell,
    int32_t *ranks)
{
    int32_t holders[ORACLE_MAX_RANKS];
    bool replicated = part_of(w, cell->tensor)->kind == ULYX_PART_REPLICATED;
    uint64_t flags = w->c.shape.tensors[cell->tensor].flags;
    int n = all_with(w, ULI_SIDE_HEAD, cell, holders);
    ranks[0] = dst;
    if (op == ULYX_SEQ_TO_HEAD)
        return replicated ? 1 : all_with(w, ULI_SIDE_SEQ, cell, ranks);
    if (op == ULYX_HEAD_TO_SEQ) {
        ranks[0] = holders[0];
        return n > 0;
    }
    if (op == ULYX_SEQ_TO_HEAD_ADJOINT) {
        if (replicated && !(flags & ULYX_TENSOR_FULL))
            return cell_offset(w, dst, ULI_SIDE_HEAD, cell) >= 0;
        return all_with(w, ULI_SIDE_HEAD, cell, ranks);
    }
    if (holders[0] != dst)
        return 0;
    if (replicated && (flags & ULYX_TENSOR_GRAD_EQUAL))
        return 1;
    return all_with(w, ULI_SIDE_SEQ, cell, ranks);
}

static void
write_source(struct world *w, int op, int32_t rank, const struct cell *cell,
    int64_t element, void *at)
{
    enum uli_side side = uli_plan_side(op, true);
    struct pattern pattern = {w->salt * 4 + op, rank, cell->tensor, cell->batch,
        cell->row, cell->head};
    pattern_write(&pattern, element, world_dtype(w, cell->tensor, side),
        world_elem_bytes(w, cell->tensor, side), at);
}

/* Returns the node of a rank in the communicator. A world without a
 * communicator (ranks on emulated devices) is one node. */
static int32_t
node_of(const struct world *w, int32_t rank)
{
    int32_t any = w->ranks->only < 0 ? 0 : w->ranks->only;
    const ulyx_comm_t *comm = w->ranks->comms[any];
    return comm ? comm->peers[rank].node : 0;
}

/* Adds up the element over n ranks: first each node's sum in rank order, then
 * these sums in node order. */
static double
sum_by_nodes(struct world *w, int op, const int32_t *ranks, int n,
    const struct cell *cell, int64_t element)
{
    int32_t partial = world_dtype(w, cell->tensor, uli_plan_side(op, true));
    int32_t dtype = world_dtype(w, cell->tensor, uli_plan_side(op, false));
    bool wide = dtype == ULYX_DTYPE_F64 || partial == ULYX_DTYPE_F64;
    unsigned char raw[4096];
    double sum = 0;
    bool first_node = true;
    for (int32_t node = 0; node < w->ranks->nranks; node++) {
        double part = 0;
        bool any = false;
        for (int i = 0; i < n; i++) {
            if (node_of(w, ranks[i]) != node)
                continue;
            write_source(w, op, ranks[i], cell, element, raw);
            double value = oracle_decode(partial, raw);
            part = any ? oracle_add(part, value, wide) : value;
            any = true;
        }
        if (!any)
            continue;
        sum = first_node ? part : oracle_add(sum, part, wide);
        first_node = false;
    }
    return sum;
}

static void
write_expected(struct world *w, int op, const int32_t *ranks, int n,
    const struct cell *cell, int64_t element, unsigned char *at)
{
    enum uli_side from = uli_plan_side(op, true), to = uli_plan_side(op, false);
    int32_t partial = world_dtype(w, cell->tensor, from);
    int32_t dtype = world_dtype(w, cell->tensor, to);
    if (n == 0) {
        memset(at, 0, (size_t)world_elem_bytes(w, cell->tensor, to));
        return;
    }
    if (n == 1 && partial == dtype) {
        write_source(w, op, ranks[0], cell, element, at);
        return;
    }
    oracle_encode(dtype, sum_by_nodes(w, op, ranks, n, cell, element), at);
}

static void
fill_cell(struct world *w, int op, int32_t rank, const struct cell *cell)
{
    enum uli_side from = uli_plan_side(op, true), to = uli_plan_side(op, false);
    int64_t dim = w->c.shape.tensors[cell->tensor].dim;
    struct image *src = &w->src[op][rank][cell->tensor];
    struct image *dst = &w->dst[op][rank][cell->tensor];
    int64_t at = cell_offset(w, rank, from, cell);
    int64_t bytes = world_elem_bytes(w, cell->tensor, from);
    int32_t ranks[ORACLE_MAX_RANKS];
    for (int64_t e = 0; at >= 0 && e < dim; e++)
        write_source(
            w, op, rank, cell, e, src->expected + src->at + at + e * bytes);
    at = cell_offset(w, rank, to, cell);
    if (at < 0)
        return;
    bytes = world_elem_bytes(w, cell->tensor, to);
    int n = sources_of(w, op, rank, cell, ranks);
    for (int64_t e = 0; e < dim; e++)
        write_expected(
            w, op, ranks, n, cell, e, dst->expected + dst->at + at + e * bytes);
}

void
world_fill(struct world *w)
{
    for (int op = 0; op < ULYX_DIRECTIONS; op++)
        for (int32_t r = 0; r < w->ranks->nranks; r++)
            for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
                struct image *src = &w->src[op][r][t];
                struct image *dst = &w->dst[op][r][t];
                memset(src->expected, POISON, (size_t)src->bytes);
                memset(dst->expected, POISON, (size_t)dst->bytes);
                memset(dst->base, POISON, (size_t)dst->bytes);
                struct cell cell = {t, 0, 0, 0};
                if (!(w->directions >> op & 1))
                    continue;
                for (; cell.batch < w->c.shape.batch; cell.batch++)
                    for (cell.row = 0; cell.row < part_of(w, t)->rows;
                         cell.row++)
                        for (cell.head = 0;
                             cell.head < w->c.shape.tensors[t].heads;
                             cell.head++)
                            fill_cell(w, op, r, &cell);
                memcpy(src->base, src->expected, (size_t)src->bytes);
            }
}

/* ---- bytes between nodes ------------------------------------------------- */

/* Returns the bytes of one element that a node with `givers` sources sends to
 * one rank. */
static int64_t
share_bytes(const struct world *w, int op, int32_t tensor, int givers)
{
    int32_t partial = world_dtype(w, tensor, uli_plan_side(op, true));
    int32_t dtype = world_dtype(w, tensor, uli_plan_side(op, false));
    if (givers > 1)
        return dtype == ULYX_DTYPE_F64 || partial == ULYX_DTYPE_F64 ? 8 : 4;
    return world_elem_bytes(w, tensor, uli_plan_side(op, true));
}

/* Counts the bytes of a cell between nodes. A node receives each copied cell
 * once, from its source. Of a sum, a node receives one share per source node
 * for each of its ranks that needs the sum. */
static void
count_cell(const struct world *w, int op, const struct cell *cell,
    struct world_wire *wire)
{
    bool sent[ORACLE_MAX_RANKS][ORACLE_MAX_RANKS] = {{false}};
    enum uli_side to = uli_plan_side(op, false);
    int64_t dim = w->c.shape.tensors[cell->tensor].dim;
    bool alike = part_of(w, cell->tensor)->kind == ULYX_PART_REPLICATED &&
                 to == ULI_SIDE_SEQ;
    for (int32_t dst = 0; dst < w->ranks->nranks; dst++) {
        int32_t ranks[ORACLE_MAX_RANKS], node = node_of(w, dst);
        int givers[ORACLE_MAX_RANKS] = {0};
        if (cell_offset(w, dst, to, cell) < 0)
            continue;
        int n = sources_of(w, op, dst, cell, ranks);
        for (int i = 0; i < n; i++)
            givers[node_of(w, ranks[i])]++;
        for (int32_t from = 0; from < w->ranks->nranks; from++) {
            if (from == node || !givers[from])
                continue;
            wire->direct +=
                givers[from] * dim * share_bytes(w, op, cell->tensor, 1);
            bool *seen = &sent[from][n == 1 || alike ? node : dst];
            if (!*seen)
                wire->once +=
                    dim * share_bytes(w, op, cell->tensor, givers[from]);
            *seen = true;
        }
    }
}

struct world_wire
world_wire(const struct world *w, int op)
{
    struct world_wire wire = {0, 0};
    for (int32_t t = 0; t < w->c.shape.ntensors; t++) {
        struct cell cell = {t, 0, 0, 0};
        for (; cell.batch < w->c.shape.batch; cell.batch++)
            for (cell.row = 0; cell.row < part_of(w, t)->rows; cell.row++)
                for (cell.head = 0; cell.head < w->c.shape.tensors[t].heads;
                     cell.head++)
                    count_cell(w, op, &cell, &wire);
    }
    return wire;
}
