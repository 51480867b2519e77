/* SPDX-License-Identifier: Apache-2.0
 *
 * What attention on one rank and distributed attention share: the choice
 * between them, and the saved memory of each layer, which backward needs.
 */
#include "attend.h"
#include "values.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The next larger multiple of 64, the alignment that the library requires. It
 * is never 0, so that a rank without rows gets memory too. */
static int64_t
bytes_rounded(int64_t bytes)
{
    return (bytes + 64) / 64 * 64;
}

int
attend_take(const struct attend *attend, int64_t bytes, struct memory *memory_p)
{
    ulyx_mem_params_t params = ULYX_MEM_PARAMS_INIT;

    memory_p->window = NULL;
    params.memory_kind = REAL_MEMORY; /* device memory is always a window */
    if (REAL_MEMORY == ULYX_MEMORY_HOST &&
        (!attend->options->windows || !attend->comm)) {
        memory_p->at = aligned_alloc(64, (size_t)bytes_rounded(bytes));
        if (!memory_p->at)
            fprintf(stderr, "train_bytes: no memory for a tensor\n");
        return memory_p->at == NULL;
    }
    if (ulyx_mem_alloc(bytes_rounded(bytes), &params, &memory_p->window,
            &memory_p->at) != ULYX_SUCCESS) {
        memory_p->at = NULL;
        fprintf(stderr, "train_bytes: window: %s\n", ulyx_last_error());
        return 3;
    }
    if (ulyx_mem_attach(attend->comm, memory_p->window) == ULYX_SUCCESS)
        return 0;
    fprintf(stderr, "train_bytes: window: %s\n", ulyx_last_error());
    ulyx_mem_free(memory_p->window);
    *memory_p = (struct memory){NULL, NULL};
    return 3;
}

void
attend_give_back(const struct attend *attend, struct memory *memory)
{
    if (!memory->window) {
        free(memory->at);
    } else if (ulyx_mem_detach(attend->comm, memory->window) != ULYX_SUCCESS ||
               ulyx_mem_free(memory->window) != ULYX_SUCCESS) {
        fprintf(stderr, "train_bytes: window: %s\n", ulyx_last_error());
    }
    *memory = (struct memory){NULL, NULL};
}

static int
attend_allocate(struct attend *attend)
{
    int64_t layers = attend->options->layers;
    int64_t workspace = bytes_rounded(attend->workspace_bytes);
    int64_t saved = bytes_rounded(attend->saved_bytes);

    attend->saved = calloc((size_t)layers, sizeof(*attend->saved));
    if (!attend->saved ||
        attend_take(attend, workspace + layers * saved, &attend->held) != 0)
        return -1;
    attend->workspace = attend->held.at;
    for (int64_t i = 0; i < layers; i++)
        attend->saved[i] = (char *)attend->held.at + workspace + i * saved;
    return 0;
}

int
attend_create(struct attend *attend_p, const struct options *options,
    ulyx_comm_t *comm, int threads)
{
    memset(attend_p, 0, sizeof(*attend_p));
    attend_p->ops = !comm ? &attend_plain_ops : &attend_sharded_ops;
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
    if (attend_allocate(attend_p) != 0) {
        fprintf(stderr,
            "train_bytes: no memory for %lld layers, which save %lld bytes "
            "each\n",
            (long long)options->layers, (long long)attend_p->saved_bytes);
        attend_destroy(attend_p);
        return 3;
    }
    return 0;
}

void
attend_destroy(struct attend *attend)
{
    if (!attend->ops)
        return;
    attend->ops->destroy(attend);
    attend_give_back(attend, &attend->held);
    free(attend->saved);
    free(attend->positions);
    memset(attend, 0, sizeof(*attend));
}

int
attend_step(struct attend *attend, const struct batch *batch)
{
    ulyx_docs_t docs = ULYX_DOCS_INIT;

    attend->batch = batch;
    docs.count = batch->docs;
    docs.begin = batch->begins; /* begins of all documents, and the end */
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
