/* SPDX-License-Identifier: Apache-2.0
 *
 * A rank's distributed attention with its tensors in one window.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "attention/element.h"
#include "attention/distbench/bench.h"
#include "base/dtype.h"

bool
bench_ok(ulyx_status_t status, const char *what)
{
    if (status != ULYX_SUCCESS)
        fprintf(stderr, "distbench: %s: %s\n", what, ulyx_last_error());
    return status == ULYX_SUCCESS;
}

void
bench_fill(void *at, int64_t bytes, ulyx_dtype_t dtype)
{
    enum { PERIOD = 997 }; /* does not divide the length of a row */
    int64_t elem = uli_dtype_size(dtype), count = bytes / elem;
    unsigned char *to = at;
    for (int64_t n = 0; n < count; n++) {
        if (n < PERIOD)
            uli_element_store(
                to, dtype, n, (double)(n * 7919 % PERIOD) / PERIOD * 2 - 1);
        else
            memcpy(to + n * elem, to + (n - PERIOD) * elem, (size_t)elem);
    }
}

static bool
bench_rank_create(struct bench_rank *r)
{
    const struct scene *s = r->scene;
    ulyx_dist_attention_params_t p = ULYX_DIST_ATTENTION_PARAMS_INIT;
    ulyx_part_t part = ULYX_PART_INIT;
    ulyx_docs_t docs = ULYX_DOCS_INIT;
    part.rows = s->rows;
    docs.count = s->ndocs;
    docs.begin = s->begin;
    p.dtype = s->dtype;
    p.heads = r->variant->heads;
    p.kv_heads = r->variant->kv_heads;
    p.dim_qk = s->dim;
    p.parts = &part;
    p.nparts = 1;
    p.work_split = r->variant->work_split;
    p.head_groups = r->variant->head_groups;
    p.save = r->variant->save;
    p.threads = 1;
    p.mask_kind =
        s->left == ULYX_UNBOUNDED ? ULYX_MASK_CAUSAL : ULYX_MASK_WINDOW;
    p.mask_left = s->left == ULYX_UNBOUNDED ? 0 : s->left;
    p.docs_q = s->begin ? &docs : NULL;
    p.seq_memory = p.head_memory = ULYX_POINTER_WINDOW;
    return bench_ok(
        ulyx_dist_attention_create(r->comm, &p, &r->dist), "create");
}

static bool
bench_rank_allocate(struct bench_rank *r)
{
    const struct scene *s = r->scene;
    const ulyx_plan_t *plan;
    int32_t me;
    int64_t rows, workspace, saved, each, total = 0;
    if (!bench_ok(ulyx_comm_get_rank(r->comm, &me), "get_rank") ||
        !bench_ok(ulyx_dist_attention_get_plan(r->dist, 0, &plan, NULL),
            "get_plan") ||
        !bench_ok(ulyx_plan_get_seq_rows(plan, 0, me, &rows), "rows") ||
        !bench_ok(
            ulyx_dist_attention_get_bytes(r->dist, &workspace, &saved, NULL),
            "get_bytes"))
        return false;
    each = rows * r->variant->heads * s->dim * uli_dtype_size(s->dtype);
    each = (each + 63) / 64 * 64;
    workspace = (workspace + 63) / 64 * 64;
    total = 8 * each + workspace + saved + 64;
    if (!bench_ok(ulyx_mem_alloc(total, NULL, &r->mem, &r->memory), "alloc") ||
        !bench_ok(ulyx_mem_attach(r->comm, r->mem), "attach"))
        return false;
    char *at = r->memory;
    for (int t = 0; t < 8; t++, at += each) {
        r->tensors[t] = at;
        bench_fill(at, each, s->dtype);
    }
    memset(at, 0, (size_t)(workspace + saved));
    r->forward =
        (ulyx_dist_attention_forward_t)ULYX_DIST_ATTENTION_FORWARD_INIT;
    r->backward =
        (ulyx_dist_attention_backward_t)ULYX_DIST_ATTENTION_BACKWARD_INIT;
    r->forward.workspace = r->backward.workspace = at;
    r->forward.workspace_bytes = r->backward.workspace_bytes = workspace;
    r->forward.saved = at + workspace;
    r->backward.saved = at + workspace;
    r->forward.saved_bytes = r->backward.saved_bytes = saved;
    return true;
}

static void
bench_rank_point(struct bench_rank *r)
{
    void **t = r->tensors;
    r->forward.q = r->backward.q = (const void *const *)&t[0];
    r->forward.k = r->backward.k = (const void *const *)&t[1];
    r->forward.v = r->backward.v = (const void *const *)&t[2];
    r->forward.out = &t[3];
    r->backward.out = (const void *const *)&t[3];
    r->backward.dout = (const void *const *)&t[4];
    r->backward.dq = &t[5];
    r->backward.dk = &t[6];
    r->backward.dv = &t[7];
}

bool
bench_rank_open(struct bench_rank *r, const struct scene *scene,
    const struct variant *variant, ulyx_comm_t *comm)
{
    memset(r, 0, sizeof(*r));
    r->scene = scene;
    r->variant = variant;
    r->comm = comm;
    if (!bench_rank_create(r))
        return false;
    if (variant->alone) {
        r->only = bench_alone_open(r);
        return r->only != NULL;
    }
    if (!bench_rank_allocate(r))
        return false;
    bench_rank_point(r);
    return true;
}

bool
bench_rank_call(
    struct bench_rank *r, int pass, ulyx_dist_attention_times_t *times_p)
{
    *times_p = (ulyx_dist_attention_times_t)ULYX_DIST_ATTENTION_TIMES_INIT;
    if (r->only)
        return bench_alone_call(r->only, pass, times_p);
    return bench_ok(
               pass ? ulyx_dist_attention_backward(r->dist, &r->backward, NULL)
                    : ulyx_dist_attention_forward(r->dist, &r->forward, NULL),
               pass ? "backward" : "forward") &&
           bench_ok(
               ulyx_dist_attention_get_times(r->dist, times_p), "get_times");
}

bool
bench_rank_close(struct bench_rank *r)
{
    bool good = bench_ok(ulyx_dist_attention_destroy(r->dist), "destroy");
    if (r->only)
        bench_alone_close(r->only);
    if (r->mem)
        good &= bench_ok(ulyx_mem_detach(r->comm, r->mem), "detach") &&
                bench_ok(ulyx_mem_free(r->mem), "free");
    return good;
}
