/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributed attentions that alternate in one run: ranks are threads, tensors
 * lie in windows, each rank's attention has one thread.
 */
#ifndef TESTS_ATTENTION_DISTBENCH_BENCH_H
#define TESTS_ATTENTION_DISTBENCH_BENCH_H

#include <pthread.h>
#include <stdbool.h>
#include "ulyx/ulyx.h"

enum { BENCH_RANKS = 16, BENCH_VARIANTS = 4, BENCH_ROUNDS = 64 };

struct variant {
    const char *name;
    int64_t heads, kv_heads;
    int32_t work_split, head_groups, save;
    bool alone; /* only the attention of the rank's heads, no exchange */
};

/* Common to all variants. */
struct scene {
    int32_t nranks, nvariants, rounds;
    int64_t rows, dim;
    ulyx_dtype_t dtype;
    int64_t left;         /* causal window; UNBOUNDED: plain causal */
    const int64_t *begin; /* [ndocs + 1], or NULL */
    int64_t ndocs;
    struct variant variants[BENCH_VARIANTS];
};

/* Times of each variant and pass. */
struct result {
    double wall_s[BENCH_ROUNDS]; /* from all ready to all done */
    double cpu_s[BENCH_ROUNDS];  /* of the process meanwhile */
    double attention_s[BENCH_RANKS], exchange_s[BENCH_RANKS];
    double exposed_s[BENCH_RANKS]; /* sums over rounds */
    int64_t scores[BENCH_RANKS];   /* of one call */
};

struct bench {
    struct scene scene;
    ulyx_comm_t *comms[BENCH_RANKS];
    pthread_barrier_t barrier;
    struct result results[BENCH_VARIANTS][2];
};

/* One rank of one variant (rank.c, alone.c). */
struct bench_rank {
    const struct scene *scene;
    const struct variant *variant;
    ulyx_comm_t *comm;
    ulyx_dist_attention_t *dist;
    ulyx_dist_attention_forward_t forward;
    ulyx_dist_attention_backward_t backward;
    void *tensors[8]; /* q k v out dout dq dk dv */
    ulyx_mem_t *mem;
    void *memory;
    struct bench_alone *only;
};
bool bench_rank_open(struct bench_rank *r, const struct scene *scene,
    const struct variant *variant, ulyx_comm_t *comm);
/* times_p: of the call; alone: attention_s and scores only. */
bool bench_rank_call(
    struct bench_rank *r, int pass, ulyx_dist_attention_times_t *times_p);
bool bench_rank_close(struct bench_rank *r);

struct bench_alone *bench_alone_open(const struct bench_rank *r);
bool bench_alone_call(
    struct bench_alone *only, int pass, ulyx_dist_attention_times_t *times_p);
void bench_alone_close(struct bench_alone *only);

/* Prints the last error and returns false where the status is one. */
bool bench_ok(ulyx_status_t status, const char *what);

/* Runs the scene; false when any rank failed. */
bool bench_run(struct bench *bench);

/* Fills a tensor with small values of any kind, quickly. */
void bench_fill(void *at, int64_t bytes, ulyx_dtype_t dtype);

#endif
