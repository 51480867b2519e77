/* SPDX-License-Identifier: Apache-2.0
 *
 * Random distributed attentions with their oracle: the whole sequence on one
 * rank, in fp64 by the reference kernel. Results of all ranks lie in shared
 * memory as doubles (exact for every dtype), so ranks may be threads or
 * processes.
 */
#ifndef TESTS_ATTENTION_DIST_ATTENTION_DIST_WORLD_H
#define TESTS_ATTENTION_DIST_ATTENTION_DIST_WORLD_H

#include <stdbool.h>
#include "support/random.h"
#include "ulyx/ulyx.h"

enum {
    CASE_RANKS = 8,
    CASE_PARTS = 6,
    CASE_DOCS = 12,
};

/* The place of the calls' tensors, where that is not the host. The test keeps
 * its buffers on the host: all of them, guards included, are copied to the
 * place before a call and back after it. Entries are called by the rank's
 * thread and print failures. */
struct test_buffer;
struct meet;
struct case_place {
    bool (*open)(
        struct meet *meet, int rank, ulyx_comm_t **comm_p, void **place_p);
    /* The address there of the buffer's data. */
    void *(*address)(void *place, const struct test_buffer *buffer);
    void *(*stream)(void *place);
    bool (*before)(void *place);
    bool (*after)(void *place);
    /* Before the communicator is destroyed. */
    bool (*close)(void *place);
};

/* What a distributed attention is made from; pointers of p are set by
 * case_params. */
struct dist_case {
    int32_t nranks;
    ulyx_dist_attention_params_t p;
    ulyx_part_t parts[CASE_PARTS];
    int64_t splits[CASE_PARTS][CASE_RANKS], head_splits[CASE_RANKS];
    bool has_splits[CASE_PARTS], has_head_splits;
    int64_t ndocs, docs[2][2][CASE_DOCS + 1]; /* [axis][begin, length] */
    bool has_docs, dlse, sinks, slopes, window, strided;
    bool call_docs;    /* forward and backward bring the documents */
    bool changes_rows; /* creation has other rows than calls */
    bool call_strides; /* calls of most ranks bring strides of their own */
    /* A ceiling of the workspace, in eighths of the way from the least that is
     * taken to what is needed without one. */
    bool ceiling;
    int32_t ceiling_eighths;
    int32_t delay_ms; /* ranks sleep up to so long before calls */
    uint64_t seed;
    const struct case_place *place; /* NULL: the host */
};

void case_draw(struct dist_case *c, struct test_random *random);
/* One part of `rows` rows and nothing odd. */
void case_plain(struct dist_case *c, int32_t nranks, int64_t rows,
    int64_t heads, int64_t kv_heads, int64_t dim);
/* The problem on one rank, in one head group. */
void case_single(const struct dist_case *c, struct dist_case *single_p);
void case_print(const struct dist_case *c);
bool case_cross(const struct dist_case *c);
int64_t case_rows(const struct dist_case *c, int axis);
/* What creation takes; its pointers lie in the case and in given_p. */
struct case_given {
    ulyx_dist_attention_params_t p;
    ulyx_part_t parts[CASE_PARTS];
    ulyx_docs_t docs[2];
};
void case_params(const struct dist_case *c, struct case_given *given_p);

/* Tensors of the whole sequence. */
enum world_tensor {
    WORLD_Q,
    WORLD_K,
    WORLD_V,
    WORLD_DOUT,
    WORLD_DLSE,
    WORLD_OUT,
    WORLD_LSE,
    WORLD_DQ,
    WORLD_DK,
    WORLD_DV,
    WORLD_D_SINK,
    WORLD_TENSORS
};

/* [b, S, heads, dim] each, in shared memory; lse [b, heads, S]. */
struct world {
    const struct dist_case *c;
    int64_t count[WORLD_TENSORS];
    double *input[WORLD_TENSORS]; /* q, k, v */
    /* dout and dlse, equal but on replicated rows */
    double *rank_grad[CASE_RANKS][2];
    double *result[CASE_RANKS][WORLD_TENSORS]; /* from out on; zero elsewhere */
    double *sum[WORLD_TENSORS];                /* of all ranks, see world_run */
    double *sinks, *slopes;                    /* [heads] */
    int64_t (*scores)[2];                      /* [nranks], of each pass */
    int64_t *own_keys; /* [nranks] is every KV head on one rank? */
    int64_t *groups;   /* [nranks] head groups */
    int64_t *ceilings; /* [nranks] of the workspace */
    struct meet *meet;
    void *memory;
    size_t memory_bytes;
};

void world_init(struct world *w, const struct dist_case *c);
void world_free(struct world *w);
/* Copies the data to another case of the same problem. */
void world_like(
    struct world *w, const struct dist_case *c, const struct world *original);
/* Row of the axis: its part, and whether that is replicated. */
bool world_replicated(const struct dist_case *c, int axis, int64_t row);

/* Do the measures of parameters equal the sizes of the rank's distributed
 * attention? (dist_measured.c) */
bool world_measured(const struct world *w, int rank,
    const ulyx_dist_attention_t *dist, ulyx_dist_attention_params_t p);

/* A rank of world_run: returns 0 when content (dist_rank.c). */
int world_rank(int rank, int nranks, void *world);

/* Forward and backward on all ranks, then sums over ranks: true when every
 * rank was content. */
bool world_run(struct world *w, bool processes);
/* The oracle, into sum; input must not have changed since. */
bool world_reference(const struct world *w, struct world *reference_p);
/* Largest relative L2 distance of the results. */
bool world_close(const struct world *w, const struct world *reference);
/* Compares bits of out, lse and, if requested, dq and dk, dv. */
bool world_same(
    const struct world *w, const struct world *other, bool dq, bool dkv);
/* Is the case on its ranks close to the oracle, and has it one rank's bits:
 * dq's if requested, dk's and dv's if requested and every KV head is on one
 * rank? *groups_p, if not NULL, is the number of head groups. */
bool world_check(const struct dist_case *c, bool processes, bool dq, bool dkv,
    int64_t *groups_p);

/* Draws of a random test. A check returns whether the case holds, and may count
 * cases of a kind. */
struct case_draws {
    uint64_t seed;
    int64_t count;
    bool processes;
    int32_t delay_ms;
};
typedef void (*case_draw_fn)(struct dist_case *c, struct test_random *random);
typedef bool (*case_check_fn)(
    const struct dist_case *c, bool processes, int64_t *count);
/* Fails the test with the first case that does not hold; returns the count. */
int64_t case_check_draws(
    const struct case_draws *draws, case_draw_fn draw, case_check_fn check);

#endif
