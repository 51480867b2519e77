/* SPDX-License-Identifier: Apache-2.0
 *
 * Results are compared within a bound that holds for any order of sums: p is
 * rounded to the dtype (half a unit in the last place each), the output is
 * rounded once more, and scores are exact products of which fp32 keeps 24
 * bits.
 */
#include "sm90_case.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "attention/element.h"
#include "cuda_runtime.h"
#include "ulyx/types.h"

/* A tensor [batch][rows][heads][columns] in device memory. */
struct laid {
    struct uli_gpu_attn_tensor tensor;
    struct uli_gpu_attn_piece pieces[SM90_PIECES_MAX];
    struct uli_gpu_attn_piece *device_pieces;
    unsigned char *memory[SM90_PIECES_MAX];
    int64_t bytes[SM90_PIECES_MAX];
    int count;
    uint64_t *flags; /* lie on the device */
    int64_t rows, heads, batch, columns, size;
};

struct run {
    const struct sm90_case *c;
    struct laid q, k, v, out, lse;
    double *values[3]; /* [b][h][s][columns] */
    struct uli_gpu_attn_args args;
    struct uli_sm90_params params;
    unsigned char *workspace, *tables;
    struct sm90_arrivals arrivals;
};

static void *
memory_allocate(int64_t bytes)
{
    void *p = NULL;
    if (cudaMalloc(&p, (size_t)bytes) != cudaSuccess)
        abort();
    memset(p, 0xff, (size_t)bytes);
    return p;
}

static unsigned char *
row_at(const struct laid *l, int64_t b, int64_t h, int64_t row)
{
    const struct uli_gpu_attn_tensor *t = &l->tensor;
    for (int n = 0; n < t->npieces; n++) {
        const struct uli_gpu_attn_piece *p = &l->pieces[n];
        if (row >= p->row_begin && row < p->row_begin + p->rows)
            return p->base + b * p->batch_stride + h * p->head_stride +
                   (row - p->row_begin) * p->row_stride;
    }
    return t->base + b * t->batch_stride + h * t->head_stride +
           row * t->row_stride;
}

/* Returns the rows of piece n: an equal share where the layout is EVENLY, else
 * a third of what is left. */
static int64_t
piece_rows(const struct sm90_case *c, int64_t n, int64_t left, int64_t all)
{
    if (c->layout == SM90_EVENLY)
        return all / c->pieces;
    return n + 1 < c->pieces ? (left + 2) / 3 : left;
}

static void
lay_pieces(struct laid *l, const struct sm90_case *c)
{
    int64_t at = 0, unit = l->columns * l->size + 16 + c->odd;
    bool apart = c->layout == SM90_APART;
    l->count = apart ? (int)c->pieces : 1;
    for (int64_t n = 0; n < c->pieces; n++) {
        struct uli_gpu_attn_piece *p = &l->pieces[n];
        int64_t rows = piece_rows(c, n, l->rows - at, l->rows);
        bool own = c->layout != SM90_CONTINUING;
        *p = (struct uli_gpu_attn_piece){.row_begin = at,
            .rows = rows,
            .head_stride = unit,
            .row_stride = unit * l->heads,
            .batch_stride = unit * l->heads * (own ? rows : l->rows)};
        int64_t bytes = unit * l->heads * l->batch * rows;
        if (n == 0 || apart) {
            l->bytes[n] =
                apart ? bytes + 64 : unit * l->heads * l->batch * l->rows;
            l->memory[n] = memory_allocate(l->bytes[n]);
        }
        p->base = apart ? l->memory[n]
                  : own ? l->memory[0] + at * unit * l->heads * l->batch
                        : l->memory[0] + at * unit * l->heads;
        p->flag = c->flags ? &l->flags[n] : NULL;
        p->flag_value = 3;
        at += rows;
    }
    memcpy(l->device_pieces, l->pieces, sizeof(l->pieces));
    l->tensor.pieces = l->device_pieces;
    l->tensor.npieces = (int32_t)c->pieces;
    l->tensor.flags = c->flags;
}

static void
laid_lay(struct laid *l, const struct sm90_case *c, int64_t rows, int64_t heads,
    int64_t columns, int64_t size)
{
    int64_t odd = size == 2 ? c->odd : 0;
    int64_t unit = columns * size + (size == 2 ? 16 : 0) + odd;
    l->rows = rows, l->heads = heads, l->batch = c->batch;
    l->columns = columns, l->size = size;
    l->tensor.align = odd % 16 ? 2 : 16;
    l->flags = memory_allocate(8 * SM90_PIECES_MAX);
    memset(l->flags, 0, 8 * SM90_PIECES_MAX);
    l->device_pieces = memory_allocate(sizeof(l->pieces));
    if (c->layout != SM90_STRIDED && size == 2) {
        lay_pieces(l, c);
        return;
    }
    l->tensor.head_stride = unit;
    l->tensor.row_stride = unit * heads;
    l->tensor.batch_stride = unit * heads * rows;
    l->bytes[0] = l->tensor.batch_stride * c->batch + 64;
    l->count = 1;
    l->memory[0] = memory_allocate(l->bytes[0]);
    l->tensor.base = l->memory[0] + odd;
}

static double
value_of(const struct run *r, int which, struct test_random *random, int64_t h,
    int64_t row, int64_t column)
{
    const struct sm90_case *c = r->c;
    if (!c->counting)
        return test_random_normal(random);
    if (which == 2)
        return column == 0 ? (double)(row / 128) : (double)(row % 128);
    /* The columns of key `row` are +-4 by the bits of its number, and those of
     * query i are twice those of key i. */
    (void)h;
    return (row >> (column % 12) & 1 ? 4 : -4) * (which ? 1 : 2);
}

static double
value_rounded(const struct sm90_case *c, double value)
{
    return c->f16 ? uli_float_of_f16(uli_f16_of_float((float)value))
                  : uli_float_of_bf16(uli_bf16_of_float((float)value));
}

/* Rows that are in no document keep the NaN with which memory was filled. */
static bool
in_gap(const struct sm90_case *c, bool keys, int64_t flat)
{
    const int64_t *begin = keys ? c->k_begin : c->q_begin;
    const int64_t *rows = keys ? c->k_rows : c->q_rows;
    for (int64_t n = 0; n < c->ndocs; n++)
        if (flat >= begin[n] && flat < begin[n] + rows[n])
            return false;
    return c->ndocs > 0;
}

static void
run_fill(struct run *r, int which, struct laid *l, struct test_random *random)
{
    double *to = r->values[which] =
        malloc((size_t)(l->batch * l->heads * l->rows * l->columns + 1) * 8);
    for (int64_t b = 0; b < l->batch; b++)
        for (int64_t h = 0; h < l->heads; h++)
            for (int64_t s = 0; s < l->rows; s++) {
                uint16_t *row = (uint16_t *)(void *)row_at(l, b, h, s);
                if (in_gap(r->c, which > 0, b * l->rows + s)) {
                    to += l->columns;
                    continue;
                }
                for (int64_t n = 0; n < l->columns; n++) {
                    double v = value_rounded(
                        r->c, value_of(r, which, random, h, s, n));
                    row[n] = r->c->f16 ? uli_f16_of_float((float)v)
                                       : uli_bf16_of_float((float)v);
                    *to++ = v;
                }
            }
}

static double
head_slope(const struct sm90_case *c, int64_t head)
{
    return c->flat_heads && head % 2 == 0 ? 0 : c->slope / (double)(head + 1);
}

static void
set_heads(struct run *r)
{
    const struct sm90_case *c = r->c;
    float *heads = memory_allocate(8 * c->heads_q);
    for (int64_t n = 0; n < c->heads_q; n++) {
        heads[n] = (float)head_slope(c, n);
        heads[c->heads_q + n] = (float)(c->sink + (double)n);
    }
    r->tables = (unsigned char *)heads;
    r->args.slopes = c->slope != 0 ? heads : NULL;
    r->args.sinks = c->has_sink ? heads + c->heads_q : NULL;
    r->args.max_logit = c->no_max ? NULL : memory_allocate(4 * c->heads_q);
}

static void
set_docs(struct run *r)
{
    const struct sm90_case *c = r->c;
    const int64_t *from[4] = {c->q_begin, c->q_rows, c->k_begin, c->k_rows};
    int64_t *to = memory_allocate(4 * 8 * SM90_DOCS_MAX);
    for (int n = 0; n < 4; n++)
        memcpy(to + n * SM90_DOCS_MAX, from[n], 8 * SM90_DOCS_MAX);
    r->args.has_docs = c->ndocs > 0;
    r->args.ndocs = c->ndocs;
    r->args.docs_q = (struct uli_gpu_attn_docs){to, to + SM90_DOCS_MAX, 8, 0};
    r->args.docs_k = (struct uli_gpu_attn_docs){
        to + 2 * SM90_DOCS_MAX, to + 3 * SM90_DOCS_MAX, 8, 0};
}

static void
set_args(struct run *r)
{
    const struct sm90_case *c = r->c;
    struct uli_gpu_attn_args *a = &r->args;
    struct uli_gpu_attn_sizes sizes;
    double scale = 1 / sqrt((double)c->dim_qk);
    bool transformed = c->softcap > 0 || c->slope != 0;
    a->dtype = c->f16 ? ULYX_DTYPE_F16 : ULYX_DTYPE_BF16;
    a->batch = c->batch, a->len_q = c->len_q, a->len_k = c->len_k;
    a->heads_q = c->heads_q, a->heads_kv = c->heads_kv;
    a->dim_qk = (int32_t)c->dim_qk, a->dim_v = (int32_t)c->dim_v;
    a->scale = (float)scale;
    a->exact = (transformed ? 1 : scale) * 1.4426950408889634;
    a->factor = (float)a->exact;
    a->cap = (float)c->softcap;
    a->cap_inverse = c->softcap > 0 ? (float)(1 / c->softcap) : 0;
    a->left = c->left, a->right = c->right, a->diagonal = c->diagonal;
    a->bottom_right = !c->top_left;
    a->head_group = c->heads_q < 2 ? 1 : 2;
    /* The seed decides whether there is a list of tiles, and whether it has one
     * section or several. */
    a->unlisted = c->ndocs == 0 && c->seed % 2;
    a->section_rows = c->seed % 3 ? 0 : 200;
    a->tile_rows = c->portable ? c->portable->tile_rows : c->family->tile_rows;
    a->tile_keys = c->portable ? c->portable->tile_keys : c->family->tile_keys;
    a->timeout_ns = 1000000000;
    set_heads(r);
    set_docs(r);
    a->q = r->q.tensor, a->k = r->k.tensor, a->v = r->v.tensor;
    a->out = r->out.tensor, a->lse = r->lse.tensor;
    if (c->no_lse) /* as a call's translation leaves what is not given */
        a->lse = (struct uli_gpu_attn_tensor){.align = 16};
    if (!uli_gpu_attn_sizes(c->batch, c->batch * c->len_q, c->heads_q, c->ndocs,
            -1, a->tile_rows, &sizes))
        abort();
    r->workspace = memory_allocate(sizes.bytes);
    uli_gpu_attn_place(a, &sizes, r->workspace);
}

/* ---- the definition ---- */
struct doc {
    int64_t q_begin, q_rows, k_begin, k_rows, off;
};

static bool
doc_of(const struct sm90_case *c, int64_t b, int64_t i, struct doc *doc_p)
{
    int64_t flat = b * c->len_q + i;
    struct doc d = {b * c->len_q, c->len_q, b * c->len_k, c->len_k, 0};
    bool found = c->ndocs == 0;
    for (int64_t n = 0; n < c->ndocs; n++)
        if (flat >= c->q_begin[n] && flat < c->q_begin[n] + c->q_rows[n]) {
            d = (struct doc){
                c->q_begin[n], c->q_rows[n], c->k_begin[n], c->k_rows[n], 0};
            found = true;
        }
    d.off = c->diagonal + (c->top_left ? 0 : d.k_rows - d.q_rows);
    *doc_p = d;
    return found;
}

static double
run_score(const struct run *r, int64_t b, int64_t h, int64_t i, int64_t key,
    double distance)
{
    const struct sm90_case *c = r->c;
    int64_t kv = h * c->heads_kv / c->heads_q;
    const double *q =
        r->values[0] + ((b * c->heads_q + h) * c->len_q + i) * c->dim_qk;
    const double *k =
        r->values[1] +
        ((key / c->len_k * c->heads_kv + kv) * c->len_k + key % c->len_k) *
            c->dim_qk;
    double s = 0;
    for (int64_t n = 0; n < c->dim_qk; n++)
        s += q[n] * k[n];
    s /= sqrt((double)c->dim_qk);
    if (c->softcap > 0)
        s = c->softcap * tanh(s / c->softcap);
    return s - (double)(float)head_slope(c, h) * distance;
}

/* Computes p of row i for each key of its document; returns lse. */
static double
run_softmax(const struct run *r, int64_t b, int64_t h, int64_t i,
    const struct doc *d, double *p, double *max_p)
{
    const struct sm90_case *c = r->c;
    double max = -INFINITY, sum = 0;
    int64_t n = b * c->len_q + i - d->q_begin;
    for (int64_t j = 0; j < d->k_rows; j++) {
        bool seen = (c->left == INT64_MAX || j >= n + d->off - c->left) &&
                    (c->right == INT64_MAX || j <= n + d->off + c->right);
        p[j] = seen ? run_score(r, b, h, i, d->k_begin + j,
                          fabs((double)(n + d->off - j)))
                    : -INFINITY;
        max = fmax(max, p[j]);
    }
    *max_p = max;
    double sink =
        c->has_sink ? (double)(float)(c->sink + (double)h) : -INFINITY;
    double top = fmax(max, sink);
    if (top == -INFINITY)
        return -INFINITY;
    for (int64_t j = 0; j < d->k_rows; j++)
        sum += p[j] = exp(p[j] - top);
    sum += exp(sink - top);
    for (int64_t j = 0; j < d->k_rows; j++)
        p[j] /= sum;
    return top + log(sum);
}

static void
result_compare(
    struct sm90_result *result, double got, double want, double bound)
{
    double error = fabs(got - want) / bound;
    if (!(error <= 1) && got != want) {
        result->bad++;
        error = isnan(error) ? INFINITY : error;
    }
    if (got != want && error > result->worst)
        result->worst = error;
}

static void
compare_row(const struct run *r, struct sm90_result *result, int64_t b,
    int64_t h, int64_t i, double *p, double *top)
{
    const struct sm90_case *c = r->c;
    struct doc d;
    double half = c->f16 ? 0x1p-11 : 0x1p-8, lse = -INFINITY, max = -INFINITY;
    int64_t keys = 0, kv = h * c->heads_kv / c->heads_q;
    if (doc_of(c, b, i, &d)) {
        lse = run_softmax(r, b, h, i, &d, p, &max);
        keys = max == -INFINITY ? 0 : d.k_rows;
    } else if (c->has_sink) {
        lse = (double)(float)(c->sink + (double)h);
    }
    int64_t row = (b * c->heads_q + h) * c->len_q + i;
    for (int64_t n = 0; n < c->dim_v; n++) {
        double sum = 0, size = 0;
        for (int64_t j = 0; j < keys; j++) {
            int64_t key = d.k_begin + j;
            double v =
                p[j] *
                r->values[2][((key / c->len_k * c->heads_kv + kv) * c->len_k +
                                 key % c->len_k) *
                                 c->dim_v +
                             n];
            sum += v, size += fabs(v);
        }
        result_compare(result, result->out[row * c->dim_v + n], sum,
            half * (fabs(sum) + size) + 1e-6);
    }
    if (!c->no_lse)
        result_compare(result, result->lse[row], lse, 1e-5 * (1 + fabs(lse)));
    *top = fmax(*top, max);
}

static void
compare_all(const struct run *r, struct sm90_result *result)
{
    const struct sm90_case *c = r->c;
    double *p = malloc((size_t)(c->len_k + 1) * 8);
    for (int64_t h = 0; h < c->heads_q; h++) {
        double top = -INFINITY;
        for (int64_t b = 0; b < c->batch; b++)
            for (int64_t i = 0; i < c->len_q; i++)
                compare_row(r, result, b, h, i, p, &top);
        if (!c->no_max)
            result_compare(
                result, result->max_logit[h], top, 1e-5 * (1 + fabs(top)));
    }
    free(p);
}

/* ---- the run ---- */
static void
run_gather(struct run *r, struct sm90_result *result)
{
    const struct sm90_case *c = r->c;
    int64_t rows = c->batch * c->heads_q * c->len_q, at = 0;
    result->out = malloc((size_t)(rows * c->dim_v + 1) * 4);
    result->lse = malloc((size_t)(rows + 1) * 4);
    result->max_logit = malloc((size_t)(c->heads_q + 1) * 4);
    if (!c->no_max)
        memcpy(result->max_logit, r->args.max_logit, (size_t)c->heads_q * 4);
    for (int64_t b = 0; b < c->batch; b++)
        for (int64_t h = 0; h < c->heads_q; h++)
            for (int64_t i = 0; i < c->len_q; i++, at++) {
                uint16_t *row = (uint16_t *)(void *)row_at(&r->out, b, h, i);
                float *lse = (float *)(void *)row_at(&r->lse, b, h, i);
                result->lse[at] = *lse;
                for (int64_t n = 0; n < c->dim_v; n++)
                    result->out[at * c->dim_v + n] =
                        c->f16 ? uli_float_of_f16(row[n])
                               : uli_float_of_bf16(row[n]);
                memset(row, 0xff, (size_t)c->dim_v * 2);
                if (!c->no_lse)
                    memset(lse, 0xff, 4);
            }
    const struct laid *outputs[2] = {&r->out, &r->lse};
    for (int t = 0; t < 2; t++)
        for (int n = 0; n < outputs[t]->count; n++)
            for (int64_t x = 0; x < outputs[t]->bytes[n]; x++)
                result->bad += outputs[t]->memory[n][x] != 0xff;
    for (int64_t n = 0; n < (c->flags ? c->pieces : 0); n++)
        result->bad += r->out.flags[n] != 3;
}

/* Moves the pieces elsewhere. The kernel that sets their flags writes them
 * back. */
static void
run_withhold(struct run *r)
{
    struct laid *tensors[3] = {&r->v, &r->q, &r->k};
    for (int t = 0; t < 3; t++)
        for (int64_t n = 0; n < r->c->pieces; n++) {
            const struct uli_gpu_attn_piece *p = &tensors[t]->pieces[n];
            int64_t bytes = p->rows * p->row_stride;
            struct sm90_arrival a = {.to = p->base,
                .batch = r->c->batch,
                .stride = p->batch_stride,
                .bytes = bytes,
                .flag = p->flag};
            if (r->c->missing && r->c->missing % 3 == t)
                a.flag = r->lse.flags; /* any word that no kernel reads */
            unsigned char *copy =
                memory_allocate(a.stride * a.batch + bytes + 16);
            for (int64_t b = 0; b < a.batch; b++) {
                memcpy(
                    copy + b * a.stride, p->base + b * a.stride, (size_t)bytes);
                memset(p->base + b * a.stride, 0xff, (size_t)bytes);
            }
            a.from = copy;
            r->arrivals.of[t][n] = a;
        }
}

/* Writes the pieces from a stream beside the stream of the kernel. */
static bool
run_arrived(struct run *r)
{
    cudaStream_t stream;
    bool good = cudaStreamCreate(&stream) == cudaSuccess &&
                sm90_arrive(&r->arrivals, r->c->pieces, 3, stream) == 0;
    return cudaStreamSynchronize(stream) == cudaSuccess && good;
}

static struct uli_gpu_attn_piece
piece_at(const void *pieces, int64_t n)
{
    return ((const struct uli_gpu_attn_piece *)pieces)[n];
}

static struct uli_sm90_source
source_of(const struct laid *l)
{
    return (struct uli_sm90_source){&l->tensor,
        l->tensor.npieces ? piece_at : NULL, l->pieces, l->rows, l->heads,
        l->batch, l->columns};
}

/* Enqueues prepare and the pass. Returns whether both were accepted. */
static bool
run_launch(struct run *r)
{
    const struct sm90_case *c = r->c;
    const struct uli_sm90_source sources[3] = {
        source_of(&r->q), source_of(&r->k), source_of(&r->v)};
    int32_t blocks;
    if (c->portable)
        return c->portable->prepare(&blocks) == 0 &&
               uli_gpu_attn_prepare_launch(&r->args, NULL) == 0 &&
               c->portable->launch(&r->args, c->blocks, NULL) == 0;
    return !uli_sm90_refuses(&r->args, sources) &&
           uli_sm90_params_init(&r->args, sources, c->family, &r->params) ==
               0 &&
           c->family->prepare(&blocks) == 0 &&
           uli_gpu_attn_prepare_launch(&r->args, NULL) == 0 &&
           c->family->launch(&r->params, c->blocks, NULL) == 0;
}

struct sm90_result
sm90_case_run(const struct sm90_case *c)
{
    struct run r = {.c = c};
    struct sm90_result result = {0};
    struct test_random random = {c->seed};
    laid_lay(&r.q, c, c->len_q, c->heads_q, c->dim_qk, 2);
    laid_lay(&r.k, c, c->len_k, c->heads_kv, c->dim_qk, 2);
    laid_lay(&r.v, c, c->len_k, c->heads_kv, c->dim_v, 2);
    laid_lay(&r.out, c, c->len_q, c->heads_q, c->dim_v, 2);
    laid_lay(&r.lse, c, c->len_q, c->heads_q, 1, 4);
    run_fill(&r, 0, &r.q, &random);
    run_fill(&r, 1, &r.k, &random);
    run_fill(&r, 2, &r.v, &random);
    set_args(&r);
    if (c->flags)
        run_withhold(&r);
    bool good = run_launch(&r);
    result.bad = !good;
    if (good && c->flags && !c->late)
        good = run_arrived(&r);
    if (cudaDeviceSynchronize() != cudaSuccess)
        result.bad++;
    result.failed = r.args.state->failed;
    run_gather(&r, &result);
    if (good)
        compare_all(&r, &result);
    for (int n = 0; n < 3; n++)
        free(r.values[n]);
    return result;
}

void
sm90_result_free(struct sm90_result *result)
{
    free(result->out);
    free(result->lse);
    free(result->max_logit);
}
