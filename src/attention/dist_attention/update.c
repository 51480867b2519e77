/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents and rows: copies that distributed attention owns, in two banks, so
 * that the present documents and rows stay until new ones are accepted. Also
 * segments and the hash of the tables of PACKED plans. All of this is local.
 */
#include "attention/dist_attention/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/translate/translate.h"
#include "base/params/held.h"
#include "base/status.h"

/* ---- copies -------------------------------------------------------------- */

/* Room for one entry more than documents: a table without lengths has the
 * begins of all documents and then the end of the last one. */
static bool
dist_docs_reserve(struct uli_dist_docs *docs, int64_t max_docs)
{
    size_t bytes = ((size_t)max_docs + 1) * sizeof(int64_t);
    docs->begin = malloc(bytes);
    docs->length = malloc(bytes);
    return docs->begin && docs->length;
}

static ulyx_status_t
copy_table(const struct ulyx_dist_attention *dist, const char *name,
    const ulyx_docs_t *given, struct uli_dist_docs *docs)
{
    int64_t most = dist->params->p.max_docs;
    ULI_TRY(uli_docs_check(given, name));
    if (given->count > most)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "max_docs is %lld, %s needs %lld", (long long)most, name,
            (long long)given->count);
    size_t bytes = (size_t)given->count * (size_t)given->index_bytes;
    docs->table = *given;
    docs->table.begin = docs->begin;
    docs->table.length = given->length ? docs->length : NULL;
    memset(docs->begin, 0, (size_t)given->index_bytes);
    if (given->begin)
        memcpy(docs->begin, given->begin,
            bytes + (given->length ? 0 : (size_t)given->index_bytes));
    if (given->length)
        memcpy(docs->length, given->length, bytes);
    return ULYX_SUCCESS;
}

static ulyx_status_t
copy_tables(struct ulyx_dist_attention *dist, const ulyx_docs_t *docs_q,
    const ulyx_docs_t *docs_k, int32_t bank)
{
    dist->docs[bank][0].given = docs_q != NULL;
    dist->docs[bank][1].given = docs_k != NULL;
    if (docs_k && !docs_q)
        return uli_error(
            ULYX_ERR_INVALID_ARGUMENT, "docs_k is given without docs_q");
    if (docs_q)
        ULI_TRY(copy_table(dist, "docs_q", docs_q, &dist->docs[bank][0]));
    if (docs_k)
        ULI_TRY(copy_table(dist, "docs_k", docs_k, &dist->docs[bank][1]));
    return ULYX_SUCCESS;
}

/* Checks the present tables and rows as a forward of ulyx_attention with them
 * would. */
static ulyx_status_t
check_tables(const struct ulyx_dist_attention *dist)
{
    const ulyx_dist_attention_params_t *p = &dist->params->p;
    struct uli_attn_call call = {0};
    ulyx_attention_t problem = {.size = sizeof(problem),
        .segment_size = sizeof(ulyx_segment_t),
        .dtype = p->dtype,
        .mask = p->mask_kind,
        .align = p->mask_align,
        .window_left = p->mask_left,
        .window_right = p->mask_right,
        .diagonal = p->mask_diagonal,
        .batch = p->batch,
        .len_q = dist->rows[0],
        .len_k = dist->rows[1],
        .dim_qk = p->dim_qk,
        .dim_v = p->dim_v,
        .max_docs = uli_max(p->max_docs, p->batch),
        .docs_q = uli_dist_docs_of(dist, 0),
        .docs_k = uli_dist_docs_of(dist, 1)};
    return uli_attn_translate(
        &problem, ULYX_ATTENTION_PASS_FORWARD, NULL, true, &call);
}

/* ---- rows ---------------------------------------------------------------- */

/* Gives both banks the rows of creation. Only a part with a row_capacity that
 * was given splits at creation has room for splits: the splits of other parts
 * never change. */
static ulyx_status_t
take_rows(struct ulyx_dist_attention *dist)
{
    const struct uli_shape *shape = &dist->params->shape;
    size_t bytes = (size_t)dist->nranks * sizeof(int64_t);
    for (int32_t i = 0; i < shape->nparts; i++)
        for (int b = 0; b < 2; b++) {
            const struct uli_shape_part *part = &shape->parts[i];
            struct uli_dist_rows *rows = &dist->part_rows[b];
            rows->parts[i] = part->rows;
            if (!part->row_capacity || !part->splits)
                continue;
            rows->splits[i] = malloc(bytes);
            if (!rows->splits[i])
                return uli_error(ULYX_ERR_NO_MEMORY,
                    "dist attention: no memory for splits of %d ranks",
                    dist->nranks);
            memcpy(rows->splits[i], part->splits, bytes);
        }
    return ULYX_SUCCESS;
}

/* Copies checked rows and splits into the bank. rows = NULL: those of the other
 * bank. */
static void
copy_rows(struct ulyx_dist_attention *dist, const int64_t *rows,
    const int64_t *const *splits, int32_t bank)
{
    struct uli_dist_rows *to = &dist->part_rows[bank];
    const struct uli_dist_rows *present = &dist->part_rows[!bank];
    for (int32_t i = 0; i < dist->params->shape.nparts; i++) {
        const int64_t *from =
            rows ? splits ? splits[i] : NULL : present->splits[i];
        to->parts[i] = rows ? rows[i] : present->parts[i];
        if (to->splits[i])
            memcpy(to->splits[i], from, (size_t)dist->nranks * sizeof(*from));
    }
}

static int64_t
bank_rows(const struct ulyx_dist_attention *dist, int32_t bank, int axis)
{
    int64_t rows = 0;
    for (int32_t i = 0; i < dist->nparts[axis]; i++)
        rows += dist->part_rows[bank].parts[dist->part_of[axis][i]];
    return rows;
}

static void
dist_turn(struct ulyx_dist_attention *dist, int32_t bank)
{
    dist->bank = bank;
    for (int axis = 0; axis < 2; axis++)
        dist->rows[axis] = bank_rows(dist, bank, axis);
}

ulyx_status_t
uli_dist_take_docs(struct ulyx_dist_attention *dist)
{
    ulyx_dist_attention_params_t *p = &dist->params->p;
    if (!p->max_docs && p->docs_q)
        p->max_docs = p->docs_q->count;
    if (p->max_docs > INT32_MAX)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "max_docs is %lld, at most %d", (long long)p->max_docs, INT32_MAX);
    for (int i = 0; i < 4 && (p->max_docs || p->docs_q); i++)
        if (!dist_docs_reserve(&dist->docs[i / 2][i % 2], p->max_docs))
            return uli_error(ULYX_ERR_NO_MEMORY,
                "dist attention: no memory for %lld documents",
                (long long)p->max_docs);
    ULI_TRY(copy_tables(dist, p->docs_q, p->docs_k, 0));
    ULI_TRY(take_rows(dist));
    return check_tables(dist);
}

/* ---- what follows from tables -------------------------------------------- */

static void
take_segments(struct uli_head_group *group, int which, const ulyx_plan_t *plan,
    int32_t tensor)
{
    int32_t me = plan->comm->rank;
    int64_t stride = plan->info.strides[tensor][ULI_SIDE_HEAD][1];
    const struct uli_run *runs =
        uli_layout_runs(plan->layout, tensor, me, &group->nsegments[which]);
    for (int64_t i = 0; i < group->nsegments[which]; i++)
        group->segments[which][i] = (ulyx_segment_t){.head = runs[i].head,
            .batch = runs[i].batch,
            .row_begin = runs[i].row_begin,
            .row_end = runs[i].row_end,
            .offset = runs[i].offset * stride};
}

/* ---- the hash ------------------------------------------------------------ */

static uint64_t
hash_mix(uint64_t hash, int64_t value)
{
    hash = (hash ^ (uint64_t)value) * UINT64_C(0x9e3779b97f4a7c15);
    hash ^= hash >> 29;
    hash *= UINT64_C(0xbf58476d1ce4e5b9);
    return hash ^ (hash >> 32);
}

/* Whether each batch item is one document, as it is without a table. */
static bool
docs_are_items(const ulyx_docs_t *docs, int64_t batch, int64_t rows)
{
    bool items = docs->count == batch;
    for (int64_t n = 0; n < docs->count && items; n++) {
        int64_t begin, length;
        uli_docs_entry(docs, n, &begin, &length);
        items = begin == n * rows && length == rows;
    }
    return items;
}

static uint64_t
hash_rows(const struct ulyx_dist_attention *dist, int32_t bank, uint64_t hash)
{
    const struct uli_dist_rows *rows = &dist->part_rows[bank];
    for (int32_t i = 0; i < dist->params->shape.nparts; i++) {
        hash = hash_mix(hash, rows->parts[i]);
        for (int32_t r = 0; rows->splits[i] && r < dist->nranks; r++)
            hash = hash_mix(hash, rows->splits[i][r]);
    }
    return hash;
}

/* A hash of the documents and rows of a bank; never 0. The hash is of the
 * documents themselves, so it does not depend on the form of the table (index
 * size, with lengths or without, NULL where each batch item is one document).
 * Tables need not have been checked. */
static uint64_t
hash_docs(const struct ulyx_dist_attention *dist, int32_t bank)
{
    const struct uli_dist_docs *docs = dist->docs[bank];
    uint64_t hash = hash_rows(dist, bank, UINT64_C(0x646f6373));
    for (int axis = 0; axis < 2; axis++) {
        const ulyx_docs_t *table = &docs[axis && docs[1].given].table;
        int64_t batch = dist->params->p.batch;
        if (!docs[0].given ||
            docs_are_items(table, batch, bank_rows(dist, bank, axis))) {
            hash = hash_mix(hash, -1);
            continue;
        }
        hash = hash_mix(hash, table->count);
        for (int64_t n = 0; n < table->count; n++) {
            int64_t begin, length;
            uli_docs_entry(table, n, &begin, &length);
            hash = hash_mix(hash_mix(hash, begin), length);
        }
    }
    return hash ? hash : 1;
}

/* Peers compare the hash in every call of every plan, also of a plan whose
 * layout does not depend on documents: the attention that a rank computes
 * between two exchanges depends on the documents. */
static void
give_hash(struct ulyx_dist_attention *dist, uint64_t hash)
{
    dist->tables = hash;
    for (int32_t g = 0; g < dist->ngroups; g++)
        for (int kind = 0; kind < ULI_PLAN_SETS; kind++) {
            struct uli_plan_set *set = &dist->groups[g].plan_sets[kind];
            for (int32_t i = 0; i < set->nplans; i++)
                uli_plan_use_hash(set->plans[i], hash);
        }
}

void
uli_dist_take_tables(struct ulyx_dist_attention *dist)
{
    for (int32_t g = 0; g < dist->ngroups; g++) {
        struct uli_head_group *group = &dist->groups[g];
        const struct uli_head_sizes *sizes = &group->sizes;
        const ulyx_plan_t *plan = group->plan_sets[ULI_PLAN_SET_IN].plans[0];
        int64_t each = group->q_heads / group->kv_heads;
        for (int64_t i = 0; i < sizes->q_heads && !sizes->packed; i++)
            group->kv_map[i] = (sizes->q_first + i) / each - sizes->kv_first;
        if (sizes->packed) {
            take_segments(group, 0, plan, 0);
            take_segments(group, 1, plan, dist->nparts[0]);
        }
    }
    const struct uli_layout *layout = uli_dist_first_plan(dist)->layout;
    give_hash(dist, hash_docs(dist, dist->bank));
    for (int32_t i = 0; i < dist->params->shape.nparts; i++)
        dist->seq_rows[i] = uli_layout_seq_rows(layout, i, dist->rank);
    uli_dist_place_saved(dist);
}

/* ---- update -------------------------------------------------------------- */

static ulyx_status_t
update_plan(
    const struct ulyx_dist_attention *dist, ulyx_plan_t *plan, void *stream)
{
    const ulyx_docs_t *q = uli_dist_docs_of(dist, 0);
    const ulyx_docs_t *k = uli_dist_docs_of(dist, 1);
    const struct uli_dist_rows *rows = &dist->part_rows[dist->bank];
    if (uli_layout_rows_change(plan->layout))
        return uli_plan_update_rows(plan, rows->parts,
            (const int64_t *const *)rows->splits, q, k, stream);
    return uli_layout_has_tables(plan->layout)
               ? uli_plan_update(plan, q, k, stream)
               : ULYX_SUCCESS;
}

/* Updates the plans, up to the first plan that refuses. *done_p: the number of
 * plans that have the new tables. */
static ulyx_status_t
update_plans(struct ulyx_dist_attention *dist, void *stream, int64_t most,
    int64_t *done_p)
{
    *done_p = 0;
    for (int32_t g = 0; g < dist->ngroups; g++)
        for (int kind = 0; kind < ULI_PLAN_SETS; kind++)
            for (int32_t i = 0; i < dist->groups[g].plan_sets[kind].nplans;
                 i++) {
                ulyx_plan_t *plan = dist->groups[g].plan_sets[kind].plans[i];
                if (*done_p == most)
                    return ULYX_SUCCESS;
                ULI_TRY(update_plan(dist, plan, stream));
                ++*done_p;
            }
    return ULYX_SUCCESS;
}

static ulyx_status_t
try_tables(struct ulyx_dist_attention *dist, void *stream, int64_t *done_p)
{
    *done_p = 0;
    ULI_TRY(check_tables(dist));
    return update_plans(dist, stream, INT64_MAX, done_p);
}

/* Copies the change into the bank that is not in use. */
static ulyx_status_t
copy_change(
    struct ulyx_dist_attention *dist, const struct uli_dist_change *change)
{
    int32_t bank = !dist->bank;
    const ulyx_plan_t *plan = uli_dist_first_plan(dist);
    const ulyx_docs_t *q = change->docs_q, *k = change->docs_k;
    if (change->keep_docs)
        q = uli_dist_docs_of(dist, 0), k = uli_dist_docs_of(dist, 1);
    if (!dist->docs[0][0].begin && q)
        return uli_error(ULYX_ERR_INVALID_ARGUMENT,
            "max_docs is 0, docs_q needs %lld: set max_docs of "
            "ulyx_dist_attention_params_t at creation",
            (long long)q->count);
    if (change->splits && !change->rows)
        return uli_error(
            ULYX_ERR_INVALID_ARGUMENT, "splits is given without rows");
    if (change->rows)
        ULI_TRY(
            uli_layout_check_rows(plan->layout, change->rows, change->splits));
    copy_rows(dist, change->rows, change->splits, bank);
    return copy_tables(dist, q, k, bank);
}

ulyx_status_t
uli_dist_replace(
    struct ulyx_dist_attention *dist, const struct uli_dist_change *change)
{
    char text[256];
    int64_t done, again;
    ULI_TRY(copy_change(dist, change));
    if (hash_docs(dist, !dist->bank) == dist->tables)
        return ULYX_SUCCESS;
    dist_turn(dist, !dist->bank);
    ulyx_status_t status = try_tables(dist, change->stream, &done);
    if (status == ULYX_SUCCESS) {
        uli_dist_take_tables(dist);
        return dist->memory->retable(dist, change->stream);
    }
    snprintf(text, sizeof(text), "%s", uli_error_text());
    dist_turn(dist, !dist->bank);
    /* cannot fail: the plans had these tables before */
    update_plans(dist, change->stream, done, &again);
    return uli_error_pass(status, text);
}

ulyx_status_t
uli_dist_update(
    ulyx_dist_attention_t *dist, const struct uli_dist_change *change)
{
    bool idle = false;
    if (!atomic_compare_exchange_strong(&dist->busy, &idle, true))
        return uli_error(
            ULYX_ERR_BUSY, "a call of distributed attention is in flight");
    ulyx_status_t status = uli_dist_replace(dist, change);
    atomic_store(&dist->busy, false);
    return status;
}
