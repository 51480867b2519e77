/* SPDX-License-Identifier: Apache-2.0
 *
 * Variants of distributed attention, run in turn by one program: ranks are
 * threads, tensors lie in windows, and each rank's attention has one thread.
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

/* What all variants have in common. */
struct scene {
    int32_t nranks, nvariants, rounds;
    int64_t rows, dim;
    ulyx_dtype_t dtype;
    int64_t left;         /* rows of a causal window; UNBOUNDED: no window */
    const int64_t *begin; /* [ndocs + 1], or NULL */
    int64_t ndocs;
    struct variant variants[BENCH_VARIANTS];
};

/* The times of one variant and pass. */
struct result {
    /* from the start of all ranks to the end of all */
    double wall_s[BENCH_ROUNDS];
    double cpu_s[BENCH_ROUNDS]; /* CPU time of the process during this */
    double attention_s[BENCH_RANKS], exchange_s[BENCH_RANKS];
    double exposed_s[BENCH_RANKS]; /* added up over rounds */
    int64_t scores[BENCH_RANKS];   /* scores of one call */
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
/* times_p: the times of the call. With `alone`, only attention_s and scores are
 * set. */
bool bench_rank_call(
    struct bench_rank *r, int pass, ulyx_dist_attention_times_t *times_p);
bool bench_rank_close(struct bench_rank *r);

struct bench_alone *bench_alone_open(const struct bench_rank *r);
bool bench_alone_call(
    struct bench_alone *only, int pass, ulyx_dist_attention_times_t *times_p);
void bench_alone_close(struct bench_alone *only);

/* If the status is an error, prints the last error and returns false. */
bool bench_ok(ulyx_status_t status, const char *what);

/* Runs the scene. Returns false when any rank failed. */
bool bench_run(struct bench *bench);

/* Fills a tensor quickly with small values. */
void bench_fill(void *at, int64_t bytes, ulyx_dtype_t dtype);

#endif
