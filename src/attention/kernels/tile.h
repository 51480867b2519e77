/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface between the two halves of the tiled kernels: a driver, compiled
 * once (work lists, threads, workspace), and tile code, compiled once per
 * instruction set (tile_body.h).
 *
 * Sizes. A key tile has ULI_TILE_KEYS rows and starts at a multiple of
 * ULI_TILE_KEYS from its document's first key. A query tile of backward has
 * ULI_TILE_QUERIES rows and starts at a multiple of ULI_TILE_QUERIES from the
 * document's first query. A row of a tile has "units" of 32 bits: floats, or in
 * a paired kernel pairs of bf16, each for one dot-product instruction.
 */
#ifndef ULI_ATTENTION_TILE_H
#define ULI_ATTENTION_TILE_H

#include "attention/problem.h"

#define ULI_TILE_KEYS    128
#define ULI_TILE_QUERIES 64 /* of backward */

/* Query rows [i, i + rows) of one run (problem.h) and one document. */
struct uli_tile_item {
    int64_t run, doc; /* doc -1: rows between documents, i in the batch item */
    int64_t i, rows;
    double cost;
};

/* One key tile of a document and kv head, for backward. */
struct uli_tile_unit {
    int64_t kv, doc, tile;
    double cost; /* of this and the later tiles of the document and kv head;
                  * the highest goes first */
};

/* What the threads of one backward call share. The rows of all runs are
 * numbered one after another: the first row of run r is row_base[r], or
 * r * len_q where row_base is NULL. */
struct uli_tile_shared {
    const int64_t *row_base;
    float *lse2;            /* lse * log2(e); +inf for rows that see no key */
    float *delta;           /* delta - dlse; 0 for rows that see no key */
    float *dq;              /* [row][dim padded]: sums so far */
    _Atomic int32_t *turns; /* [row]: key tiles done; only the entries of the
                             * first rows of query tiles are used */
};

struct uli_attn_tile_ops {
    /* The maximum of query rows of a forward item, a power of two times 64.
     * With more rows the keys are loaded less often, but an item takes more of
     * the L2 cache. */
    int64_t item_rows;
    /* Bytes of scratch that one thread needs for a pass. */
    int64_t (*scratch_bytes)(
        const struct uli_attn_problem *problem, ulyx_attention_pass_t pass);
    /* Columns of a row of uli_tile_shared.dq. */
    int64_t (*dq_columns)(const struct uli_attn_problem *problem);
    /* head_max[head]: the largest score of a head so far. */
    void (*forward_item)(struct uli_attn_call *call,
        const struct uli_tile_item *item, double *head_max, void *scratch);
    void (*backward_unit)(struct uli_attn_call *call,
        const struct uli_tile_unit *unit, struct uli_tile_shared *shared,
        void *scratch);
};

/* ---- helpers of the tile code, compiled once ----------------------------- */

/* Parameters of the scores of one query head, as tiles use them. */
struct uli_tile_head {
    float factor; /* stored score to base 2: scale * log2(e), or log2(e) where
                   * stored scores are transformed */
    double exact; /* factor before it was rounded */
    float scale;  /* of the dot product, where stored scores are transformed */
    float cap, cap_inverse; /* 0: none */
    float slope;            /* 0: none */
    double sink;            /* -inf: none */
    bool transformed;       /* by cap or slope before the softmax */
};
struct uli_tile_head uli_tile_head_of(
    const struct uli_attn_problem *problem, int64_t head);

/* ALiBi of row i and key j0 + n, less ALiBi of the row's nearest visible key,
 * is -slope * (fabs(at - n) + plus): exact for keys close to the nearest key,
 * also at distances beyond 2^24. */
struct uli_tile_alibi {
    float at, plus;
};
struct uli_tile_alibi uli_tile_alibi_of(const struct uli_attn_problem *problem,
    const struct uli_attn_doc *doc, int64_t i, int64_t j0);
/* Distance of the nearest key that row i sees (which must exist). */
int64_t uli_tile_nearest(const struct uli_attn_problem *problem,
    const struct uli_attn_doc *doc, int64_t i);

/* Finishes a row. max is the row's largest stored score, sum the sum of its
 * weights relative to max; both are without the sink and without the ALiBi of
 * the row's nearest key, which is -shift. Returns the factor by which out is to
 * be multiplied, lse, and the largest score, scaled and with ALiBi. */
struct uli_tile_final {
    float factor;
    double lse, max;
};
struct uli_tile_final uli_tile_finish(
    const struct uli_tile_head *head, double max, double sum, double shift);

/* For rows that see no key: stores 0 in out, and `lse` as their lse. */
void uli_tile_store_empty(struct uli_attn_call *call,
    const struct uli_attn_run *run, int64_t row, int64_t rows, double lse);
void uli_tile_store_lse(struct uli_attn_call *call,
    const struct uli_attn_run *run, int64_t row, double lse);

/* Rounds `count` floats to a row of a tensor. */
void uli_tile_store_row(
    unsigned char *to, ulyx_dtype_t dtype, const float *values, int64_t count);

/* Rounds rows of values, ld floats apart, to rows of a query-side tensor. */
void uli_tile_store_rows(struct uli_attn_call *call,
    enum uli_attn_tensor tensor, const struct uli_attn_run *run, int64_t row,
    int64_t rows, const float *values, int64_t ld);

/* Iterates over the query runs that read a kv head and have rows in a
 * document's batch item, heads ascending. uli_tile_next_reader returns -1 after
 * the last. */
struct uli_tile_readers {
    int64_t kv, batch, next, end;
};
struct uli_tile_readers uli_tile_readers_of(
    const struct uli_attn_problem *problem, const struct uli_attn_doc *doc,
    int64_t kv);
int64_t uli_tile_next_reader(
    const struct uli_attn_problem *problem, struct uli_tile_readers *readers);

/* Index of a run's row among all rows of a backward call. */
static inline int64_t
uli_tile_row(const struct uli_attn_problem *problem,
    const struct uli_tile_shared *shared, int64_t run_index,
    const struct uli_attn_run *run, int64_t row)
{
    if (!shared->row_base)
        return run_index * problem->len_q + row;
    return shared->row_base[run_index] + row - run->row_begin;
}

/* Key tiles [*first_p, *end_p) that rows [i, end) of a document see. */
void uli_tile_key_range(const struct uli_attn_problem *problem,
    const struct uli_attn_doc *doc, int64_t i, int64_t end, int64_t *first_p,
    int64_t *end_p);

/* Waits until turns reaches `turn`, or the call has failed. */
void uli_tile_await(
    struct uli_attn_call *call, _Atomic int32_t *turns, int32_t turn);

/* ---- the driver ---------------------------------------------------------- */
int64_t uli_attn_tiled_workspace(const struct uli_attn_tile_ops *ops,
    const struct uli_attn_problem *problem, ulyx_attention_pass_t pass,
    int threads);
/* Bytes of all but the threads' scratch; -1 where they do not fit 63 bits. */
int64_t uli_attn_tiled_forward_bytes(const struct uli_attn_problem *problem);
void uli_attn_tiled_forward(struct uli_attn_call *call);
void uli_attn_tiled_backward(struct uli_attn_call *call);

extern const struct uli_attn_tile_ops uli_attn_tile_portable;
#if defined(__x86_64__)
extern const struct uli_attn_tile_ops uli_attn_tile_avx2;
extern const struct uli_attn_tile_ops uli_attn_tile_avx512;
extern const struct uli_attn_tile_ops uli_attn_tile_avx512_bf16;
extern const struct uli_attn_tile_ops uli_attn_tile_amx;
#endif

#endif
