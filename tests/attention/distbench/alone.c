/* SPDX-License-Identifier: Apache-2.0
 *
 * The attention of a rank's heads on tensors of its own: the time that
 * distributed attention would take if the exchange were free. HEADS only, with
 * one head group.
 */
#include <stdlib.h>
#include <string.h>
#include "attention/distbench/bench.h"
#include "base/dtype.h"
#include "base/system/clock.h"

enum { Q, K, V, OUT, DOUT, DQ, DK, DV, LSE, COUNT };

struct bench_alone {
    ulyx_attention_t problem;
    ulyx_attention_exec_t exec;
    ulyx_attention_tensor_t t[COUNT];
    int64_t kv_map[128];
    void *workspace[2];
    int64_t bytes[2], scores;
};

static void
make_tensor(struct bench_alone *a, int t, ulyx_dtype_t dtype)
{
    bool keys = t == K || t == V || t == DK || t == DV;
    int64_t heads = keys ? a->problem.heads_kv : a->problem.heads_q;
    int64_t rows = a->problem.len_q, elem = uli_dtype_size(dtype);
    int64_t dim = t == LSE ? 1 : a->problem.dim_qk;
    int64_t bytes = rows * heads * dim * elem;
    a->t[t] = (ulyx_attention_tensor_t)ULYX_ATTENTION_TENSOR_INIT;
    a->t[t].base = aligned_alloc(64, (size_t)(bytes + 63) / 64 * 64 + 64);
    a->t[t].dtype = dtype;
    a->t[t].row_stride = t == LSE ? elem : heads * dim * elem;
    a->t[t].head_stride = t == LSE ? rows * elem : dim * elem;
    a->t[t].batch_stride = bytes;
    bench_fill(a->t[t].base, bytes, dtype);
}

static bool
share_of(const struct bench_rank *r, struct bench_alone *a)
{
    const ulyx_plan_t *plan;
    int32_t me;
    int64_t q_first, kv_first;
    int64_t each = r->variant->heads / r->variant->kv_heads;
    if (!bench_ok(ulyx_comm_get_rank(r->comm, &me), "get_rank") ||
        !bench_ok(ulyx_dist_attention_get_plan(r->dist, 0, &plan, NULL),
            "get_plan") ||
        !bench_ok(
            ulyx_plan_get_heads(plan, 0, me, &q_first, &a->problem.heads_q),
            "get_heads") ||
        !bench_ok(
            ulyx_plan_get_heads(plan, 1, me, &kv_first, &a->problem.heads_kv),
            "get_heads"))
        return false;
    for (int64_t n = 0; n < a->problem.heads_q; n++)
        a->kv_map[n] = (q_first + n) / each - kv_first;
    return true;
}

struct bench_alone *
bench_alone_open(const struct bench_rank *r)
{
    const struct scene *s = r->scene;
    struct bench_alone *a = calloc(1, sizeof(*a));
    a->problem = (ulyx_attention_t)ULYX_ATTENTION_INIT;
    a->problem.dtype = s->dtype;
    a->problem.mask = ULYX_MASK_CAUSAL;
    a->problem.batch = 1;
    a->problem.len_q = a->problem.len_k = s->rows;
    a->problem.dim_qk = a->problem.dim_v = s->dim;
    a->problem.kv_map = a->kv_map;
    a->exec = (ulyx_attention_exec_t)ULYX_ATTENTION_EXEC_INIT;
    a->exec.threads = 1;
    a->exec.deterministic = 1;
    a->exec.scores_p = &a->scores;
    bool good = share_of(r, a);
    for (int t = 0; t < LSE; t++)
        make_tensor(a, t, s->dtype);
    make_tensor(a, LSE, ULYX_DTYPE_F32);
    for (int pass = 0; pass < 2; pass++) {
        good = good && bench_ok(ulyx_attention_workspace(&a->problem, pass,
                                    &a->exec, &a->bytes[pass]),
                           "attention_workspace");
        a->workspace[pass] =
            aligned_alloc(64, (size_t)(a->bytes[pass] + 127) / 64 * 64);
    }
    if (good)
        return a;
    bench_alone_close(a);
    return NULL;
}

bool
bench_alone_call(
    struct bench_alone *a, int pass, ulyx_dist_attention_times_t *times_p)
{
    ulyx_attention_forward_t f = {.size = sizeof(f),
        .q = &a->t[Q],
        .k = &a->t[K],
        .v = &a->t[V],
        .out = &a->t[OUT],
        .lse = &a->t[LSE]};
    ulyx_attention_backward_t b = {.size = sizeof(b),
        .q = &a->t[Q],
        .k = &a->t[K],
        .v = &a->t[V],
        .out = &a->t[OUT],
        .dout = &a->t[DOUT],
        .lse = &a->t[LSE],
        .dq = &a->t[DQ],
        .dk = &a->t[DK],
        .dv = &a->t[DV]};
    int64_t begin = uli_clock_ns();
    ulyx_status_t status =
        pass ? ulyx_attention_backward(&a->problem, &b, &a->exec,
                   a->workspace[1], a->bytes[1], NULL)
             : ulyx_attention_forward(&a->problem, &f, &a->exec,
                   a->workspace[0], a->bytes[0], NULL);
    times_p->attention_s = (double)(uli_clock_ns() - begin) * 1e-9;
    times_p->scores = a->scores;
    return bench_ok(status, "attention");
}

void
bench_alone_close(struct bench_alone *a)
{
    for (int t = 0; t < COUNT; t++)
        free(a->t[t].base);
    free(a->workspace[0]);
    free(a->workspace[1]);
    free(a);
}
