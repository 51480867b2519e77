/* SPDX-License-Identifier: Apache-2.0
 *
 * The data of random distributed attentions, their oracle, and the comparison
 * with it.
 */
#include "attention/dist_attention/dist_world.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/element.h"
#include "comm/meet.h"
#include "support/ranks.h"
#include "support/test.h"

enum { LIMIT_S = 50 };

static const char *const names[WORLD_TENSORS] = {
    "q", "k", "v", "dout", "dlse", "out", "lse", "dq", "dk", "dv", "d_sink"};

static int
axis_of(int tensor)
{
    return tensor == WORLD_K || tensor == WORLD_V || tensor == WORLD_DK ||
           tensor == WORLD_DV;
}

bool
world_replicated(const struct dist_case *c, int axis, int64_t row)
{
    int own = case_cross(c) ? axis : 0;
    for (int i = 0; i < c->p.nparts; i++) {
        if (c->parts[i].axis != own)
            continue;
        if (row < c->parts[i].rows)
            return c->parts[i].kind == ULYX_PART_REPLICATED;
        row -= c->parts[i].rows;
    }
    return false;
}

/* ---- memory -------------------------------------------------------------- */

static void
count_elements(struct world *w)
{
    const ulyx_dist_attention_params_t *p = &w->c->p;
    int64_t dim_v = p->dim_v ? p->dim_v : p->dim_qk;
    int64_t q = p->batch * case_rows(w->c, 0) * p->heads;
    int64_t k = p->batch * case_rows(w->c, 1) * p->kv_heads;
    const int64_t counts[WORLD_TENSORS] = {q * p->dim_qk, k * p->dim_qk,
        k * dim_v, q * dim_v, q, q * dim_v, q, q * p->dim_qk, k * p->dim_qk,
        k * dim_v, p->heads};
    memcpy(w->count, counts, sizeof(counts));
}

static double *
values_carve(char **at, int64_t count)
{
    double *begin = (double *)*at;
    *at += (size_t)(count + 1) * sizeof(double);
    return begin;
}

static void
world_allocate(struct world *w, const struct dist_case *c)
{
    memset(w, 0, sizeof(*w));
    w->c = c;
    count_elements(w);
    size_t doubles = 0;
    for (int t = 0; t < WORLD_TENSORS; t++)
        doubles += (size_t)(w->count[t] + 1) * (size_t)(c->nranks + 3);
    w->memory_bytes = (doubles + (size_t)c->p.heads * 4 + 90) * sizeof(double);
    w->memory = ranks_shared(w->memory_bytes);
    char *at = w->memory;
    for (int t = 0; t < WORLD_TENSORS; t++) {
        w->input[t] = values_carve(&at, w->count[t]);
        w->sum[t] = values_carve(&at, w->count[t]);
        for (int r = 0; r < c->nranks; r++)
            w->result[r][t] = values_carve(&at, w->count[t]);
    }
    /* Results of dout and dlse are not needed; the ranks' copies of dout and
     * dlse lie there. */
    for (int r = 0; r < c->nranks; r++)
        for (int t = 0; t < 2; t++)
            w->rank_grad[r][t] = w->result[r][WORLD_DOUT + t];
    w->sinks = values_carve(&at, c->p.heads);
    w->slopes = values_carve(&at, c->p.heads);
    w->scores = (void *)values_carve(&at, 2 * CASE_RANKS);
    w->own_keys = (void *)values_carve(&at, CASE_RANKS);
    w->groups = (void *)values_carve(&at, CASE_RANKS);
    w->ceilings = (void *)values_carve(&at, CASE_RANKS);
    w->meet = meet_new(c->nranks);
}

void
world_free(struct world *w)
{
    meet_free(w->meet);
    ranks_shared_free(w->memory, w->memory_bytes);
}

/* ---- data ---------------------------------------------------------------- */

static double
value_rounded(double value, ulyx_dtype_t dtype)
{
    unsigned char at[8];
    uli_element_store(at, dtype, 0, value);
    return uli_element_load(at, dtype, 0);
}

static void
values_fill(double *values, int64_t count, struct test_random *random,
    ulyx_dtype_t dtype)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = value_rounded(test_random_normal(random), dtype);
}

/* Copies of replicated rows differ unless GRAD_EQUAL is set; only their sum
 * matters. */
static void
fill_grad(struct world *w, int tensor, struct test_random *random)
{
    const struct dist_case *c = w->c;
    int64_t rows = case_rows(c, 0), count = w->count[tensor];
    int64_t row_elements = 1; /* dlse is [b, heads, S] */
    ulyx_dtype_t dtype =
        c->p.dtype == ULYX_DTYPE_F64 ? ULYX_DTYPE_F64 : ULYX_DTYPE_F32;
    if (tensor == WORLD_DOUT) {
        row_elements = rows ? count / (rows * c->p.batch) : 0;
        dtype = c->p.dtype;
    }
    values_fill(w->input[tensor], count, random, dtype);
    for (int64_t i = 0; i < count; i++) {
        bool sums = world_replicated(c, 0, i / row_elements % rows) &&
                    !(c->p.flags & ULYX_DIST_ATTENTION_GRAD_EQUAL);
        double total = 0;
        for (int r = 0; r < c->nranks; r++) {
            double value = w->input[tensor][i];
            if (sums && r)
                value = value_rounded(test_random_normal(random), dtype);
            w->rank_grad[r][tensor - WORLD_DOUT][i] = value;
            total += value;
        }
        if (sums)
            w->input[tensor][i] = value_rounded(total, dtype);
    }
}

void
world_init(struct world *w, const struct dist_case *c)
{
    struct test_random random = {c->seed};
    world_allocate(w, c);
    for (int t = WORLD_Q; t <= WORLD_V; t++)
        values_fill(w->input[t], w->count[t], &random, c->p.dtype);
    fill_grad(w, WORLD_DOUT, &random);
    values_fill(w->sinks, c->p.heads, &random, ULYX_DTYPE_F32);
    for (int64_t h = 0; h < c->p.heads; h++)
        w->slopes[h] = (float)(0.3 / (double)(h + 1));
    if (c->dlse)
        fill_grad(w, WORLD_DLSE, &random);
}

void
world_like(
    struct world *w, const struct dist_case *c, const struct world *original)
{
    world_allocate(w, c);
    for (int t = WORLD_Q; t <= WORLD_DLSE; t++)
        memcpy(w->input[t], original->input[t],
            (size_t)w->count[t] * sizeof(double));
    for (int r = 0; r < c->nranks; r++)
        for (int t = 0; t < 2; t++)
            memcpy(w->rank_grad[r][t], original->input[WORLD_DOUT + t],
                (size_t)w->count[WORLD_DOUT + t] * sizeof(double));
    memcpy(w->sinks, original->sinks, (size_t)c->p.heads * sizeof(double));
    memcpy(w->slopes, original->slopes, (size_t)c->p.heads * sizeof(double));
}

/* ---- running ------------------------------------------------------------- */

/* Adds up over ranks; of what all ranks must have alike, takes one copy. */
static bool
sum_up(struct world *w, int t)
{
    const struct dist_case *c = w->c;
    int64_t rows = case_rows(c, axis_of(t));
    int64_t heads = axis_of(t) ? c->p.kv_heads : c->p.heads;
    bool alike = t == WORLD_OUT || t == WORLD_LSE ||
                 (t != WORLD_D_SINK && c->p.flags & ULYX_DIST_ATTENTION_FULL);
    for (int64_t i = 0; i < w->count[t]; i++) {
        int64_t row = 0;
        if (t == WORLD_LSE)
            row = i % rows;
        else if (t != WORLD_D_SINK)
            row = i / (w->count[t] / (rows * c->p.batch)) % rows;
        bool copy = alike && world_replicated(c, axis_of(t), row);
        w->sum[t][i] = w->result[0][t][i];
        for (int r = 1; r < c->nranks; r++) {
            double value = w->result[r][t][i];
            if (copy && value != w->sum[t][i]) {
                fprintf(stderr, "%s: rank %d has %g, rank 0 %g\n", names[t], r,
                    value, w->sum[t][i]);
                return false;
            }
            w->sum[t][i] += copy ? 0 : value;
        }
    }
    (void)heads;
    return true;
}

bool
world_run(struct world *w, bool processes)
{
    int failed = processes
                     ? ranks_run_processes(w->c->nranks, world_rank, w, LIMIT_S)
                     : ranks_run_threads(w->c->nranks, world_rank, w, LIMIT_S);
    bool good = failed == 0;
    for (int t = WORLD_OUT; t < WORLD_TENSORS && good; t++)
        good = sum_up(w, t);
    return good;
}

/* ---- the oracle ---------------------------------------------------------- */

static ulyx_attention_tensor_t
tensor_view(double *base, int64_t rows, int64_t heads, int64_t dim)
{
    ulyx_attention_tensor_t t = ULYX_ATTENTION_TENSOR_INIT;
    t.base = base;
    t.head_stride = dim * 8;
    t.row_stride = heads * t.head_stride;
    t.batch_stride = rows * t.row_stride;
    return t;
}

static void
oracle_problem(const struct dist_case *c, const struct case_given *given,
    const struct world *w, ulyx_attention_t *problem_p)
{
    const ulyx_dist_attention_params_t *p = &given->p;
    *problem_p = (ulyx_attention_t)ULYX_ATTENTION_INIT;
    problem_p->dtype = problem_p->param_dtype = ULYX_DTYPE_F64;
    problem_p->mask = p->mask_kind;
    problem_p->align = p->mask_align;
    problem_p->batch = p->batch;
    problem_p->len_q = case_rows(c, 0);
    problem_p->len_k = case_rows(c, 1);
    problem_p->heads_q = problem_p->heads_global = p->heads;
    problem_p->heads_kv = p->kv_heads;
    problem_p->dim_qk = p->dim_qk;
    problem_p->dim_v = p->dim_v ? p->dim_v : p->dim_qk;
    problem_p->scale = p->scale;
    problem_p->softcap = p->softcap;
    problem_p->window_left = p->mask_left;
    problem_p->window_right = p->mask_right;
    problem_p->diagonal = p->mask_diagonal;
    problem_p->docs_q = p->docs_q;
    problem_p->docs_k = p->docs_k;
    problem_p->sinks = c->sinks ? w->sinks : NULL;
    problem_p->alibi_slopes = c->slopes ? w->slopes : NULL;
}

bool
world_reference(const struct world *w, struct world *reference_p)
{
    struct case_given given;
    ulyx_attention_t problem;
    ulyx_attention_exec_t exec = ULYX_ATTENTION_EXEC_INIT;
    int64_t bytes[2];
    world_allocate(reference_p, w->c);
    case_params(w->c, &given);
    oracle_problem(w->c, &given, w, &problem);
    exec.kernel = "reference";
    int64_t s = problem.len_q, k = problem.len_k, h = problem.heads_q;
    int64_t hk = problem.heads_kv, dk = problem.dim_qk, dv = problem.dim_v;
    double **in = (double **)w->input, **out = reference_p->sum;
    ulyx_attention_tensor_t t[WORLD_TENSORS] = {tensor_view(in[0], s, h, dk),
        tensor_view(in[1], k, hk, dk), tensor_view(in[2], k, hk, dv),
        tensor_view(in[3], s, h, dv), tensor_view(in[WORLD_DLSE], 1, h, s),
        tensor_view(out[WORLD_OUT], s, h, dv),
        tensor_view(out[WORLD_LSE], 1, h, s),
        tensor_view(out[WORLD_DQ], s, h, dk),
        tensor_view(out[WORLD_DK], k, hk, dk),
        tensor_view(out[WORLD_DV], k, hk, dv)};
    t[WORLD_LSE].row_stride = t[WORLD_DLSE].row_stride = 8;
    ulyx_attention_forward_t f = ULYX_ATTENTION_FORWARD_INIT;
    f.q = &t[0], f.k = &t[1], f.v = &t[2];
    f.out = &t[WORLD_OUT], f.lse = &t[WORLD_LSE];
    ulyx_attention_backward_t b = ULYX_ATTENTION_BACKWARD_INIT;
    b.q = &t[0], b.k = &t[1], b.v = &t[2], b.dout = &t[3];
    b.out = &t[WORLD_OUT], b.lse = &t[WORLD_LSE];
    b.dlse = w->c->dlse ? &t[WORLD_DLSE] : NULL;
    b.dq = &t[WORLD_DQ], b.dk = &t[WORLD_DK], b.dv = &t[WORLD_DV];
    b.d_sink = w->c->sinks ? out[WORLD_D_SINK] : NULL;
    if (ulyx_attention_workspace(&problem, 0, &exec, &bytes[0]) ||
        ulyx_attention_workspace(&problem, 1, &exec, &bytes[1]))
        return false;
    int64_t most = bytes[0] > bytes[1] ? bytes[0] : bytes[1];
    void *workspace = aligned_alloc(64, (size_t)(most + 127) / 64 * 64);
    bool good =
        !ulyx_attention_forward(&problem, &f, &exec, workspace, most, NULL) &&
        !ulyx_attention_backward(&problem, &b, &exec, workspace, most, NULL);
    if (!good)
        fprintf(stderr, "reference: %s\n", ulyx_last_error());
    free(workspace);
    return good;
}

/* ---- comparing ----------------------------------------------------------- */

static double
world_tolerance(const struct world *w, int t)
{
    bool sums = t == WORLD_D_SINK; /* a sum over all rows, which cancels most */
    switch (w->c->p.dtype) {
    case ULYX_DTYPE_F64:
        return sums ? 1e-5 : 1e-11;
    case ULYX_DTYPE_F32:
        return 3e-5;
    case ULYX_DTYPE_BF16:
        return sums ? 6e-2 : 2e-2;
    default:
        return sums ? 1e-2 : 3e-3;
    }
}

/* Gradients may cancel completely (with one key p is 1 for every score). They
 * are compared relative to the random terms that they add up. */
static double
world_terms(const struct world *w, int t)
{
    const struct dist_case *c = w->c;
    int64_t rows = case_rows(c, 0);
    if (t == WORLD_D_SINK)
        return (double)(rows * c->p.batch + 1) * 1e-2;
    if (t == WORLD_DK)
        return (double)(rows * (c->p.heads / c->p.kv_heads) + 1) /
               (double)(case_rows(c, 1) + 1);
    return 1;
}

bool
world_close(const struct world *w, const struct world *reference)
{
    bool good = true;
    for (int t = WORLD_OUT; t < WORLD_TENSORS; t++) {
        double error = 0, norm = 0;
        for (int64_t i = 0; i < w->count[t]; i++) {
            double a = w->sum[t][i], b = reference->sum[t][i];
            if (a == b) {
                norm += isinf(b) ? 0 : b * b;
                continue;
            }
            error += (a - b) * (a - b);
            norm += b * b;
        }
        double least = 1e-2 * world_terms(w, t) * (double)(w->count[t] + 1);
        double relative = sqrt(error / (norm > least ? norm : least));
        if (!(relative <= world_tolerance(w, t))) {
            fprintf(stderr, "%s: relative L2 distance %g (norm %g)\n", names[t],
                relative, sqrt(norm));
            good = false;
        }
    }
    return good;
}

bool
world_same(const struct world *w, const struct world *other, bool dq, bool dkv)
{
    for (int t = WORLD_OUT; t <= WORLD_DV; t++) {
        if ((t == WORLD_DQ && !dq) || (t > WORLD_DQ && !dkv))
            continue;
        for (int64_t i = 0; i < w->count[t]; i++)
            if (w->sum[t][i] != other->sum[t][i]) {
                fprintf(stderr, "%s[%lld] is %.17g here, %.17g there\n",
                    names[t], (long long)i, w->sum[t][i], other->sum[t][i]);
                return false;
            }
    }
    return true;
}

bool
world_check(const struct dist_case *c, bool processes, bool dq, bool dkv,
    int64_t *groups_p)
{
    struct dist_case single;
    struct world w, one, reference;
    world_init(&w, c);
    case_single(c, &single);
    world_like(&one, &single, &w);
    bool good = world_run(&w, processes) && world_run(&one, false);
    good = world_reference(&w, &reference) && good;
    for (int r = 0; r < c->nranks; r++)
        dkv &= w.own_keys[r] != 0;
    if (groups_p)
        *groups_p = w.groups[0];
    good = good && world_close(&w, &reference) && world_same(&w, &one, dq, dkv);
    world_free(&w);
    world_free(&one);
    world_free(&reference);
    return good;
}

int64_t
case_check_draws(
    const struct case_draws *draws, case_draw_fn draw, case_check_fn check)
{
    struct test_random random = {test_seed(draws->seed)};
    int64_t count = 0;
    for (int64_t i = 0; i < draws->count; i++) {
        struct dist_case c;
        uint64_t state = random.state;
        draw(&c, &random);
        c.delay_ms = draws->delay_ms;
        if (!check(&c, draws->processes, &count)) {
            case_print(&c);
            fail_msg("draw %lld of state %llu", (long long)i,
                (unsigned long long)state);
        }
    }
    return count;
}
