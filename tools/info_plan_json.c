/* SPDX-License-Identifier: Apache-2.0
 *
 * ulyx_info plan --json: what each rank holds on both sides of a plan, and the
 * bytes that each pair of ranks exchanges. The plan of any one rank is enough:
 * its layout describes all ranks.
 *
 *   tensors[t]            {name, heads, dim, element_bytes, ownership
 *                          "query" or "kv"}
 *   holdings[r]           {rank, rows, spans [[row, rows]...],
 *                          tensors[t] {first, count, segments}}
 *       segments [[head, row, rows]...]: only where the head side is packed,
 *       and only of the first batch item; row counts from the begin of the
 *       whole sequence
 *   directions[d]         {direction, received_bytes, pairs}
 *       pairs[to][from]: bytes of all tensors; pairs[r][r] stays on rank r
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "collectives/plan/plan.h"
#include "info.h"
#include "info_predict.h"

struct tally {
    const struct uli_layout *layout;
    ulyx_direction_t direction;
    int64_t *from; /* [nranks] bytes from each rank to one destination */
};

static bool
tally_add_move(void *context, const struct uli_move *move)
{
    struct tally *tally = context;
    int64_t bytes = move->batches * move->rows * move->heads *
                    uli_layout_shape(tally->layout)->tensors[move->tensor].dim *
                    uli_plan_elem_bytes(tally->layout, move->tensor,
                        uli_plan_side(tally->direction, true));

    for (int32_t s = 0; s < move->nsources; s++)
        tally->from[move->sources[s].rank] += bytes;
    return true;
}

/* Row `to` of the matrix. *received_p: the sum of the row without the bytes
 * that stay on rank `to`. */
static json_t *
tally_pack_row(struct tally *tally, struct uli_place *scratch, int32_t to,
    json_int_t *received_p)
{
    const struct uli_shape *shape = uli_layout_shape(tally->layout);
    json_t *row = json_array();

    *received_p = 0;
    for (int32_t r = 0; r < shape->nranks; r++)
        tally->from[r] = 0;
    for (int32_t t = 0; t < shape->ntensors; t++)
        uli_layout_each_move(tally->layout, tally->direction, t, to, -1,
            scratch, tally_add_move, tally);
    for (int32_t r = 0; r < shape->nranks; r++) {
        *received_p += r == to ? 0 : tally->from[r];
        json_array_append_new(row, json_integer(tally->from[r]));
    }
    return row;
}

static json_t *
tally_pack_direction(struct tally *tally, struct uli_place *scratch)
{
    json_t *received = json_array(), *pairs = json_array();
    int32_t nranks = uli_layout_shape(tally->layout)->nranks;

    for (int32_t to = 0; to < nranks; to++) {
        json_int_t bytes;

        json_array_append_new(
            pairs, tally_pack_row(tally, scratch, to, &bytes));
        json_array_append_new(received, json_integer(bytes));
    }
    return json_pack("{s:s, s:o, s:o}", "direction",
        info_operation_name(tally->direction), "received_bytes", received,
        "pairs", pairs);
}

static json_t *
layout_pack_directions(const struct uli_layout *layout)
{
    struct tally tally = {.layout = layout};
    struct uli_place *scratch =
        calloc((size_t)uli_layout_scratch(layout) + 1, sizeof(*scratch));
    json_t *directions = json_array();

    tally.from =
        calloc((size_t)uli_layout_shape(layout)->nranks, sizeof(*tally.from));
    for (int d = 0; d < ULYX_DIRECTIONS && scratch && tally.from; d++) {
        tally.direction = (ulyx_direction_t)d;
        if (uli_layout_direction_exists(layout, tally.direction))
            json_array_append_new(
                directions, tally_pack_direction(&tally, scratch));
    }
    if (!scratch || !tally.from) {
        json_decref(directions);
        directions = NULL; /* info_write_json reports the lack of memory */
    }
    free(tally.from);
    free(scratch);
    return directions;
}

static json_t *
shape_pack_tensors(const struct uli_shape *shape)
{
    static const char *const names[] = {"q", "k", "v"};
    json_t *tensors = json_array();

    for (int32_t t = 0; t < shape->ntensors; t++) {
        const struct uli_shape_tensor *tensor = &shape->tensors[t];

        json_array_append_new(tensors,
            json_pack("{s:s, s:I, s:I, s:I, s:s}", "name", names[t], "heads",
                (json_int_t)tensor->heads, "dim", (json_int_t)tensor->dim,
                "element_bytes", (json_int_t)tensor->elem_bytes, "ownership",
                tensor->ownership == ULYX_HEADS_KV ? "kv" : "query"));
    }
    return tensors;
}

static json_t *
layout_pack_segments(
    const struct uli_layout *layout, int32_t tensor, int32_t rank)
{
    int64_t count;
    const struct uli_run *runs = uli_layout_runs(layout, tensor, rank, &count);
    json_t *segments = json_array();

    for (int64_t i = 0; i < count; i++)
        if (runs[i].batch == 0)
            json_array_append_new(segments,
                json_pack("[I, I, I]", (json_int_t)runs[i].head,
                    (json_int_t)runs[i].row_begin,
                    (json_int_t)(runs[i].row_end - runs[i].row_begin)));
    return segments;
}

static json_t *
layout_pack_holding(const struct uli_layout *layout, int32_t rank)
{
    const struct uli_shape *shape = uli_layout_shape(layout);
    int64_t nspans, first, count;
    const struct uli_row_span *spans =
        uli_layout_row_spans(layout, 0, rank, &nspans);
    json_t *runs = json_array(), *tensors = json_array();

    for (int64_t i = 0; i < nspans; i++)
        json_array_append_new(
            runs, json_pack("[I, I]", (json_int_t)spans[i].row,
                      (json_int_t)spans[i].rows));
    for (int32_t t = 0; t < shape->ntensors; t++) {
        json_t *tensor;

        uli_layout_heads(layout, t, rank, &first, &count);
        tensor = json_pack("{s:I, s:I}", "first", (json_int_t)first, "count",
            (json_int_t)count);
        if (uli_layout_packed(layout))
            json_object_set_new(
                tensor, "segments", layout_pack_segments(layout, t, rank));
        json_array_append_new(tensors, tensor);
    }
    return json_pack("{s:i, s:I, s:o, s:o}", "rank", (int)rank, "rows",
        (json_int_t)uli_layout_seq_rows(layout, 0, rank), "spans", runs,
        "tensors", tensors);
}

int
info_plan_json(const ulyx_plan_t *plan, const char *order, const char *work)
{
    const struct uli_layout *layout = plan->layout;
    const struct uli_shape *shape = uli_layout_shape(layout);
    json_t *root, *holdings = json_array();
    char text[1024] = "";

    ulyx_plan_describe(plan, text, sizeof(text));
    for (int32_t r = 0; r < shape->nranks; r++)
        json_array_append_new(holdings, layout_pack_holding(layout, r));
    root = json_pack("{s:i, s:s, s:s, s:i, s:I, s:I, s:s, s:s, s:b, s:s, s:o, "
                     "s:o, s:o}",
        "schema", 1, "kind", "plan", "version", info_version(), "ranks",
        (int)shape->nranks, "seq", (json_int_t)shape->parts[0].rows, "batch",
        (json_int_t)shape->batch, "order", order, "work", work, "packed",
        (int)uli_layout_packed(layout), "describe", text, "tensors",
        shape_pack_tensors(shape), "holdings", holdings, "directions",
        layout_pack_directions(layout));
    return info_write_json(root);
}
