/* SPDX-License-Identifier: Apache-2.0
 *
 * Attention is the only place where tokens interact, and so the only place that
 * depends on ranks: attend_plain.c calls the attention of one rank,
 * attend_sharded.c distributed attention. In both cases the model uses local
 * rows [rows][heads][head_dim].
 */
#ifndef EXAMPLES_TRAIN_BYTES_MODEL_ATTEND_H
#define EXAMPLES_TRAIN_BYTES_MODEL_ATTEND_H

#include "data.h"
#include "options.h"
#include "real.h"

#include <stdbool.h>

struct attend;

/* Each function returns 0, or prints the cause and returns another number. */
struct attend_ops {
    int (*create)(struct attend *attend);
    void (*destroy)(struct attend *attend);
    int (*step)(struct attend *attend, const ulyx_docs_t *docs);
    int (*forward)(struct attend *attend, int64_t layer, const real *q,
        const real *k, const real *v, real *out);
    int (*backward)(struct attend *attend, int64_t layer, const real *q,
        const real *k, const real *v, const real *out, const real *dout,
        real *dq, real *dk, real *dv);
};

/* Ordinary memory, or a window that all ranks have attached. */
struct memory {
    void *at;
    ulyx_mem_t *window;
};

struct attend {
    const struct attend_ops *ops;
    const struct options *options;
    ulyx_comm_t *comm; /* NULL: one rank */
    int64_t heads, kv_heads, head_dim;
    int threads;
    int64_t rows;       /* of this rank */
    int64_t *positions; /* [rows]: the row of the sequence of each local row */
    bool keeps_inputs;  /* `saved` has q, k, v: backward needs no others */
    void **saved;       /* [layers]: saved_bytes each */
    int64_t saved_bytes, workspace_bytes;
    void *workspace;
    struct memory held;          /* of workspace and saved */
    int64_t exchanged_bytes;     /* sent by this rank so far */
    ulyx_dist_attention_t *dist; /* NULL: one rank */
    const struct batch *batch;
};

int attend_create(struct attend *attend_p, const struct options *options,
    ulyx_comm_t *comm, int threads);
void attend_destroy(struct attend *attend);
/* Allocates memory for tensors, aligned to 64 bytes: a window on a device, or
 * if the options require one; else ordinary memory. Returns 0, or prints the
 * cause and returns another number. */
int attend_take(
    const struct attend *attend, int64_t bytes, struct memory *memory_p);
void attend_give_back(const struct attend *attend, struct memory *memory);
/* Begins a batch, whose documents are used by the passes that follow. The batch
 * must stay valid until the next call. */
int attend_step(struct attend *attend, const struct batch *batch);

/* The passes of one layer, on tensors [rows][heads or kv_heads][head_dim].
 * Backward writes dq, dk and dv, the exact adjoints. */
int attend_forward(struct attend *attend, int64_t layer, const real *q,
    const real *k, const real *v, real *out);
int attend_backward(struct attend *attend, int64_t layer, const real *q,
    const real *k, const real *v, const real *out, const real *dout, real *dq,
    real *dk, real *dv);

extern const struct attend_ops attend_plain_ops, attend_sharded_ops;

#endif
