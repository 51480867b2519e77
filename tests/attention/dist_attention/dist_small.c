/* SPDX-License-Identifier: Apache-2.0
 *
 * See dist_small.h.
 */
#include "attention/dist_attention/dist_small.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "support/random.h"
#include "support/ranks.h"
#include "support/test.h"

void
small_params(ulyx_dist_attention_params_t *p, ulyx_part_t *part)
{
    *p = (ulyx_dist_attention_params_t)ULYX_DIST_ATTENTION_PARAMS_INIT;
    *part = (ulyx_part_t)ULYX_PART_INIT;
    part->rows = ROWS;
    p->dtype = ULYX_DTYPE_F32;
    p->heads = HEADS;
    p->kv_heads = KV;
    p->dim_qk = DIM;
    p->parts = part;
    p->nparts = 1;
    p->threads = 1;
    p->mask_kind = ULYX_MASK_CAUSAL;
}

void
small_open(struct small *s)
{
    memset(s, 0, sizeof(*s));
    assert_status(ulyx_comm_create_local(RANKS, NULL, s->comms), ULYX_SUCCESS);
}

void
small_close(struct small *s)
{
    for (int r = 0; r < RANKS; r++)
        assert_status(ulyx_comm_destroy(s->comms[r]), ULYX_SUCCESS);
}

void
small_run(rank_fn body, int32_t a, int32_t b, int32_t c)
{
    struct small s;
    small_open(&s);
    s.groups[0] = a;
    s.groups[1] = b;
    s.groups[2] = c;
    assert_int_equal(ranks_run_threads(RANKS, body, &s, LIMIT_S), 0);
    small_close(&s);
}

static void *
array_of(int64_t bytes)
{
    void *at = aligned_alloc(64, (size_t)(bytes + 127) / 64 * 64);
    memset(at, 0, (size_t)bytes);
    return at;
}

void
own_take(struct own *o, ulyx_dist_attention_t *dist)
{
    memset(o, 0, sizeof(*o));
    o->dist = dist;
    ulyx_dist_attention_get_bytes(
        o->dist, &o->workspace_bytes, &o->saved_bytes, NULL);
    int64_t q = ROWS * HEADS * DIM * 4;
    void **tensors[] = {
        &o->q, &o->k, &o->v, &o->out, &o->dout, &o->dq, &o->dk, &o->dv};
    for (int i = 0; i < 8; i++)
        *tensors[i] = array_of(q);
    o->workspace = array_of(o->workspace_bytes);
    o->saved = array_of(o->saved_bytes);
    o->f = (ulyx_dist_attention_forward_t)ULYX_DIST_ATTENTION_FORWARD_INIT;
    o->f.q = (const void *const *)&o->q;
    o->f.k = (const void *const *)&o->k;
    o->f.v = (const void *const *)&o->v;
    o->f.out = &o->out;
    o->b = (ulyx_dist_attention_backward_t)ULYX_DIST_ATTENTION_BACKWARD_INIT;
    o->b.out = (const void *const *)&o->out;
    o->b.dout = (const void *const *)&o->dout;
    o->b.dq = &o->dq;
    o->b.dk = &o->dk;
    o->b.dv = &o->dv;
    o->f.workspace = o->b.workspace = o->workspace;
    o->f.workspace_bytes = o->b.workspace_bytes = o->workspace_bytes;
    o->f.saved = o->saved;
    o->b.saved = o->saved;
    o->f.saved_bytes = o->b.saved_bytes = o->saved_bytes;
}

bool
own_open(
    struct own *o, ulyx_comm_t *comm, const ulyx_dist_attention_params_t *p)
{
    ulyx_dist_attention_t *dist;
    if (!ranks_expect(!ulyx_dist_attention_create(comm, p, &dist)))
        return false;
    own_take(o, dist);
    return true;
}

void
own_drop(struct own *o)
{
    void *all[] = {o->q, o->k, o->v, o->out, o->dout, o->dq, o->dk, o->dv,
        o->workspace, o->saved};
    for (int i = 0; i < 10; i++)
        free(all[i]);
}

bool
own_close(struct own *o)
{
    own_drop(o);
    return ranks_expect(!ulyx_dist_attention_destroy(o->dist));
}

void
own_fill(struct own *o, int rank)
{
    void *tensors[] = {o->q, o->k, o->v, o->dout};
    struct test_random random = {(uint64_t)rank};
    for (int t = 0; t < 4; t++)
        for (int i = 0; i < ROWS / RANKS * HEADS * DIM; i++)
            ((float *)tensors[t])[i] = (float)test_random_normal(&random);
}
