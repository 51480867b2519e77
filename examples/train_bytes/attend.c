/* SPDX-License-Identifier: Apache-2.0
 *
 * What both kinds of attention share: choosing one, and the memory of what
 * backward needs, one piece a layer. */
#include "attend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* At least one byte, aligned as the library asks. */
static void *
aligned(int64_t bytes)
{
    return aligned_alloc(64, (size_t)(bytes + 64) / 64 * 64);
}

static int
allocate(struct attend *attend)
{
    int64_t layers = attend->options->layers;

    attend->saved = calloc((size_t)layers, sizeof(*attend->saved));
    attend->workspace = aligned(attend->workspace_bytes);
    if (attend->saved == NULL || attend->workspace == NULL)
        return -1;
    for (int64_t i = 0; i < layers; i++) {
        attend->saved[i] = aligned(attend->saved_bytes);
        if (attend->saved[i] == NULL)
            return -1;
    }
    return 0;
}

int
attend_create(struct attend *attend_p, const struct options *options,
    ulyx_comm_t *comm, int threads)
{
    memset(attend_p, 0, sizeof(*attend_p));
    attend_p->ops = comm == NULL ? &attend_plain_ops : &attend_sharded_ops;
    attend_p->options = options;
    attend_p->comm = comm;
    attend_p->heads = options->heads;
    attend_p->kv_heads = options->kv_heads;
    attend_p->head_dim = options->dim / options->heads;
    attend_p->threads = threads;
    if (attend_p->ops->create(attend_p) != 0) {
        attend_destroy(attend_p);
        return 3;
    }
    if (allocate(attend_p) != 0) {
        fprintf(stderr,
            "train_bytes: no memory for %lld layers' saved parts of %lld "
            "bytes\n",
            (long long)options->layers, (long long)attend_p->saved_bytes);
        attend_destroy(attend_p);
        return 3;
    }
    return 0;
}

void
attend_destroy(struct attend *attend)
{
    if (attend->ops == NULL)
        return;
    attend->ops->destroy(attend);
    for (int64_t i = 0; attend->saved && i < attend->options->layers; i++)
        free(attend->saved[i]);
    free(attend->saved);
    free(attend->workspace);
    free(attend->positions);
    memset(attend, 0, sizeof(*attend));
}

int
attend_step(struct attend *attend, const struct batch *batch)
{
    ulyx_docs_t docs = ULYX_DOCS_INIT;

    attend->batch = batch;
    docs.count = batch->docs;
    docs.begin = batch->begins; /* cumulative, so without lengths */
    return attend->ops->step(attend, &docs);
}

int
attend_forward(struct attend *attend, int64_t layer, const real *q,
    const real *k, const real *v, real *out)
{
    return attend->ops->forward(attend, layer, q, k, v, out);
}

int
attend_backward(struct attend *attend, int64_t layer, const real *q,
    const real *k, const real *v, const real *out, const real *dout, real *dq,
    real *dk, real *dv)
{
    return attend->ops->backward(attend, layer, q, k, v, out, dout, dq, dk, dv);
}
