/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws the cases of random distributed attentions.
 */
#include <stdio.h>
#include <string.h>
#include "attention/dist_attention/dist_world.h"
#include "base/mask.h"

static int64_t
random_pick(struct test_random *random, const int64_t *values, int count)
{
    return values[test_random_in(random, 0, count - 1)];
}
#define PICK(random, ...)                                                      \
    random_pick(random, (const int64_t[]){__VA_ARGS__},                        \
        (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

static bool
random_chance(struct test_random *random, int percent)
{
    return test_random_in(random, 1, 100) <= percent;
}

bool
case_cross(const struct dist_case *c)
{
    for (int i = 0; i < c->p.nparts; i++)
        if (c->parts[i].axis == 1)
            return true;
    return false;
}

int64_t
case_rows(const struct dist_case *c, int axis)
{
    int64_t rows = 0;
    int own = case_cross(c) ? axis : 0;
    for (int i = 0; i < c->p.nparts; i++)
        rows += c->parts[i].axis == own ? c->parts[i].rows : 0;
    return rows;
}

void
case_plain(struct dist_case *c, int32_t nranks, int64_t rows, int64_t heads,
    int64_t kv_heads, int64_t dim)
{
    memset(c, 0, sizeof(*c));
    c->nranks = nranks;
    c->p = (ulyx_dist_attention_params_t)ULYX_DIST_ATTENTION_PARAMS_INIT;
    c->p.dtype = ULYX_DTYPE_F32;
    c->p.heads = heads;
    c->p.kv_heads = kv_heads;
    c->p.dim_qk = dim;
    c->p.threads = 1;
    c->p.nparts = 1;
    c->parts[0] = (ulyx_part_t)ULYX_PART_INIT;
    c->parts[0].rows = rows;
    c->p.mask_kind = ULYX_MASK_CAUSAL;
    c->seed = 1;
}

/* ---- parts --------------------------------------------------------------- */

static void
rows_deal(
    struct test_random *random, int64_t total, int32_t nranks, int64_t *out_p)
{
    memset(out_p, 0, (size_t)nranks * sizeof(*out_p));
    while (total > 0) {
        int64_t some = test_random_in(random, 1, total);
        out_p[test_random_in(random, 0, nranks - 1)] += some;
        total -= some;
    }
}

static void
draw_part(struct dist_case *c, struct test_random *random, int32_t axis,
    bool replicated, bool by_docs)
{
    int i = c->p.nparts++;
    ulyx_part_t *part = &c->parts[i];
    *part = (ulyx_part_t)ULYX_PART_INIT;
    part->axis = axis;
    part->kind = replicated ? ULYX_PART_REPLICATED : ULYX_PART_SHARDED;
    part->rows = PICK(random, 0, 1, 7, 33, 64, 100, 130, 150);
    if (replicated)
        return;
    part->order =
        (int32_t)PICK(random, ULYX_TOKENS_CONTIGUOUS, ULYX_TOKENS_ZIGZAG);
    if (by_docs && c->p.batch == 1 && random_chance(random, 40))
        part->order = ULYX_TOKENS_ZIGZAG_DOCS;
    if (part->order == ULYX_TOKENS_ZIGZAG_DOCS)
        c->p.max_local_rows = part->rows;
    c->has_splits[i] =
        part->order != ULYX_TOKENS_ZIGZAG_DOCS && random_chance(random, 40);
    rows_deal(random, part->rows, c->nranks, c->splits[i]);
}

static void
draw_parts(struct dist_case *c, struct test_random *random)
{
    int kind = (int)test_random_in(random, 0, 5);
    if (kind <= 2) {
        draw_part(c, random, 0, false, true);
    } else if (kind == 3) { /* joint attention */
        int count = (int)test_random_in(random, 2, 4);
        for (int i = 0; i < count; i++)
            draw_part(c, random, 0, i % 2, false);
    } else { /* cross attention */
        draw_part(c, random, 0, random_chance(random, 20), false);
        draw_part(c, random, 1, random_chance(random, 50), false);
        if (random_chance(random, 30))
            draw_part(c, random, 1, random_chance(random, 50), false);
    }
}

/* ---- documents: the same count on both axes, within batch items ---------- */

static void
draw_docs(struct dist_case *c, struct test_random *random)
{
    int64_t each = test_random_in(random, 1, CASE_DOCS / c->p.batch);
    c->has_docs = true;
    c->ndocs = each * c->p.batch;
    for (int axis = 0; axis < 2; axis++) {
        int64_t rows = case_rows(c, axis), n = 0;
        for (int64_t b = 0; b < c->p.batch; b++) {
            int64_t at = 0;
            for (int64_t i = 0; i < each; i++, n++) {
                int64_t left = rows - at;
                int64_t gap = random_chance(random, 20) && left > 2 ? 2 : 0;
                int64_t most = left - gap;
                int64_t length =
                    i == each - 1 && random_chance(random, 70)
                        ? most
                        : test_random_in(random, 0, (most + 1) / 2);
                c->docs[axis][0][n] = b * rows + at + gap;
                c->docs[axis][1][n] = length;
                at += gap + length;
            }
        }
    }
}

/* ---- the rest ------------------------------------------------------------ */

static void
draw_mask(struct dist_case *c, struct test_random *random)
{
    c->p.mask_kind = (int32_t)test_random_in(random, 0, ULI_MASKS - 1);
    c->p.mask_align = (int32_t)test_random_in(random, 0, 1);
    c->p.mask_diagonal =
        random_chance(random, 30) ? PICK(random, -5, -1, 1, 9) : 0;
    if (c->p.mask_kind == ULYX_MASK_WINDOW) {
        c->p.mask_left = PICK(random, 0, 3, 40, ULYX_UNBOUNDED);
        c->p.mask_right = PICK(random, 0, 2, 20, ULYX_UNBOUNDED);
    }
    c->sinks = random_chance(random, 30);
    c->slopes = random_chance(random, 30);
    c->p.softcap = random_chance(random, 20) ? 5 : 0;
    c->p.scale = random_chance(random, 20) ? 0.3 : 0;
}

static void
draw_split(struct dist_case *c, struct test_random *random)
{
    c->p.work_split = random_chance(random, 45);
    c->p.row_round = c->p.work_split ? PICK(random, 1, 8, 0) : 0;
    c->p.head_groups = random_chance(random, 50) ? 0 : (int32_t)c->p.kv_heads;
    if (random_chance(random, 30))
        c->p.head_groups = 2;
    if (!c->p.work_split && c->p.head_groups < 2 && random_chance(random, 25)) {
        c->has_head_splits = true;
        rows_deal(random, c->p.heads, c->nranks, c->head_splits);
    }
    c->p.save = (int32_t)test_random_in(random, 0, 2);
    c->p.flags = ULYX_DIST_ATTENTION_LSE;
    if (random_chance(random, 40))
        c->p.flags |= ULYX_DIST_ATTENTION_FULL;
    /* Summed copies of 16 bits are rounded, but delta is not made of the
     * rounded sums. Where gradients cancel, this error would be too large to
     * compare. */
    if (random_chance(random, 60) || c->p.dtype > ULYX_DTYPE_F32)
        c->p.flags |= ULYX_DIST_ATTENTION_GRAD_EQUAL;
}

void
case_draw(struct dist_case *c, struct test_random *random)
{
    case_plain(c, (int32_t)test_random_in(random, 1, CASE_RANKS), 0, 1, 1, 8);
    c->seed = test_random_next(random);
    c->p.nparts = 0;
    c->p.batch = random_chance(random, 70) ? 1 : 2;
    c->p.kv_heads = test_random_in(random, 1, 4);
    c->p.heads = c->p.kv_heads * test_random_in(random, 1, 4);
    c->p.dim_qk = PICK(random, 8, 16, 24, 32, 1, 2, 3, 13, 27, 40);
    c->p.dim_v =
        random_chance(random, 60) ? 0 : PICK(random, 8, 16, 32, 1, 5, 39);
    c->p.dtype = (int32_t)PICK(random, ULYX_DTYPE_F64, ULYX_DTYPE_F32,
        ULYX_DTYPE_F32, ULYX_DTYPE_BF16, ULYX_DTYPE_F16);
    c->p.param_dtype = (int32_t)PICK(random, 0, ULYX_DTYPE_F32, ULYX_DTYPE_F64);
    draw_parts(c, random);
    if (random_chance(random, 40))
        draw_docs(c, random);
    draw_mask(c, random);
    draw_split(c, random);
    c->window = random_chance(random, 40);
    c->strided = random_chance(random, 40);
    c->dlse = random_chance(random, 50);
    c->call_docs = c->has_docs && (c->seed & 1);
    c->changes_rows = !c->p.work_split && (c->seed & 6) == 6;
    c->call_strides = c->seed >> 3 & 1;
}

void
case_single(const struct dist_case *c, struct dist_case *single_p)
{
    *single_p = *c;
    single_p->nranks = 1;
    memset(single_p->has_splits, 0, sizeof(single_p->has_splits));
    single_p->has_head_splits = false;
    for (int i = 0; i < c->p.nparts; i++)
        single_p->parts[i].order = ULYX_TOKENS_CONTIGUOUS;
    single_p->p.head_groups = 0;
    single_p->ceiling = false;
    single_p->p.max_workspace_bytes = 0;
    single_p->p.save = ULYX_SAVE_HEADS;
    single_p->p.work_split = ULYX_WORK_HEADS;
    single_p->strided = single_p->window = single_p->call_strides = false;
}

void
case_params(const struct dist_case *c, struct case_given *given_p)
{
    given_p->p = c->p;
    for (int axis = 0; axis < 2; axis++) {
        given_p->docs[axis] = (ulyx_docs_t)ULYX_DOCS_INIT;
        given_p->docs[axis].count = c->ndocs;
        given_p->docs[axis].begin = c->docs[axis][0];
        given_p->docs[axis].length = c->docs[axis][1];
    }
    if (c->has_docs) {
        given_p->p.docs_q = &given_p->docs[0];
        given_p->p.docs_k = case_cross(c) ? &given_p->docs[1] : NULL;
        given_p->p.max_docs = CASE_DOCS;
    }
    for (int i = 0; i < c->p.nparts; i++) {
        given_p->parts[i] = c->parts[i];
        given_p->parts[i].splits = c->has_splits[i] ? c->splits[i] : NULL;
    }
    given_p->p.parts = given_p->parts;
    given_p->p.head_splits = c->has_head_splits ? c->head_splits : NULL;
}

void
case_print(const struct dist_case *c)
{
    fprintf(stderr,
        "case: %d ranks, batch %lld, heads %lld/%lld, dims %lld/%lld, dtype "
        "%d, mask %d (%lld, %lld) align %d diagonal %lld, split %d, groups %d, "
        "save %d, flags 0x%llx, ceiling %d%s%s%s%s%s%s%s%s\n",
        c->nranks, (long long)c->p.batch, (long long)c->p.heads,
        (long long)c->p.kv_heads, (long long)c->p.dim_qk, (long long)c->p.dim_v,
        c->p.dtype, c->p.mask_kind, (long long)c->p.mask_left,
        (long long)c->p.mask_right, c->p.mask_align,
        (long long)c->p.mask_diagonal, c->p.work_split, c->p.head_groups,
        c->p.save, (unsigned long long)c->p.flags,
        c->ceiling ? c->ceiling_eighths : -1, c->sinks ? ", sinks" : "",
        c->slopes ? ", slopes" : "", c->window ? ", window" : "",
        c->strided ? ", strided" : "",
        c->has_head_splits ? ", head splits" : "",
        c->call_docs ? ", documents of calls" : "",
        c->changes_rows ? ", changed rows" : "",
        c->call_strides ? ", strides of calls" : "");
    for (int i = 0; i < c->p.nparts; i++)
        fprintf(stderr, "  part %d: axis %d kind %d order %d rows %lld%s\n", i,
            c->parts[i].axis, c->parts[i].kind, c->parts[i].order,
            (long long)c->parts[i].rows, c->has_splits[i] ? " splits" : "");
    for (int64_t n = 0; c->has_docs && n < c->ndocs; n++)
        fprintf(stderr, "  document %lld: %lld + %lld, keys %lld + %lld\n",
            (long long)n, (long long)c->docs[0][0][n],
            (long long)c->docs[0][1][n], (long long)c->docs[1][0][n],
            (long long)c->docs[1][1][n]);
}
