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

/* Where the tensors of calls lie, if not on the host. The test keeps its
 * buffers on the host; before a call all of them, guards included, are copied
 * to the place, and after the call back. The rank's thread calls these
 * functions, which print failures. */
struct test_buffer;
struct meet;
struct case_place {
    bool (*open)(
        struct meet *meet, int rank, ulyx_comm_t **comm_p, void **place_p);
    /* Returns the address, at the place, of the buffer's data. */
    void *(*address)(void *place, const struct test_buffer *buffer);
    void *(*stream)(void *place);
    bool (*before)(void *place);
    bool (*after)(void *place);
    /* Called before the communicator is destroyed. */
    bool (*close)(void *place);
};

/* The parameters of a distributed attention. case_params sets the pointers of
 * p. */
struct dist_case {
    int32_t nranks;
    ulyx_dist_attention_params_t p;
    ulyx_part_t parts[CASE_PARTS];
    int64_t splits[CASE_PARTS][CASE_RANKS], head_splits[CASE_RANKS];
    bool has_splits[CASE_PARTS], has_head_splits;
    int64_t ndocs, docs[2][2][CASE_DOCS + 1]; /* [axis][begin, length] */
    bool has_docs, dlse, sinks, slopes, window, strided;
    bool call_docs;    /* whether forward and backward pass the documents */
    bool changes_rows; /* whether creation has other rows than the calls */
    bool call_strides; /* whether the calls of most ranks pass strides */
    /* A ceiling of the workspace: from the least that creation accepts (0) to
     * what is needed without a ceiling (8), in eighths. */
    bool ceiling;
    int32_t ceiling_eighths;
    int32_t delay_ms; /* ranks sleep up to this long before calls */
    uint64_t seed;
    const struct case_place *place; /* NULL: the host */
};

void case_draw(struct dist_case *c, struct test_random *random);
/* Makes a case of one part of `rows` rows, without options. */
void case_plain(struct dist_case *c, int32_t nranks, int64_t rows,
    int64_t heads, int64_t kv_heads, int64_t dim);
/* Makes the case of the same problem on one rank, in one head group. */
void case_single(const struct dist_case *c, struct dist_case *single_p);
void case_print(const struct dist_case *c);
bool case_cross(const struct dist_case *c);
int64_t case_rows(const struct dist_case *c, int axis);
/* The parameters of creation. Their pointers refer to the case and to this
 * struct. */
struct case_given {
    ulyx_dist_attention_params_t p;
    ulyx_part_t parts[CASE_PARTS];
    ulyx_docs_t docs[2];
};
void case_params(const struct dist_case *c, struct case_given *given_p);

/* The tensors of the whole sequence. */
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

/* Tensors are [b, S, heads, dim], and lse [b, heads, S], all in shared
 * memory. */
struct world {
    const struct dist_case *c;
    int64_t count[WORLD_TENSORS];
    double *input[WORLD_TENSORS]; /* q, k, v */
    /* dout and dlse of each rank; they differ only on replicated rows */
    double *rank_grad[CASE_RANKS][2];
    /* out and later tensors; zero where the rank has no rows */
    double *result[CASE_RANKS][WORLD_TENSORS];
    /* sums over all ranks, see world_run */
    double *sum[WORLD_TENSORS];
    double *sinks, *slopes; /* [heads] */
    /* [nranks] scores of each pass */
    int64_t (*scores)[2];
    int64_t *own_keys; /* [nranks] whether every KV head is on one rank */
    int64_t *groups;   /* [nranks] head groups */
    int64_t *ceilings; /* [nranks] ceilings of the workspace */
    struct meet *meet;
    void *memory;
    size_t memory_bytes;
};

void world_init(struct world *w, const struct dist_case *c);
void world_free(struct world *w);
/* Copies the data to a world whose case has the same problem. */
void world_like(
    struct world *w, const struct dist_case *c, const struct world *original);
/* Returns whether the row of the axis is in a replicated part. */
bool world_replicated(const struct dist_case *c, int axis, int64_t row);

/* Returns whether the sizes that are measured from the parameters equal those
 * of the rank's distributed attention (dist_measured.c). */
bool world_measured(const struct world *w, int rank,
    const ulyx_dist_attention_t *dist, ulyx_dist_attention_params_t p);

/* Runs one rank of world_run. Returns 0 on success (dist_rank.c). */
int world_rank(int rank, int nranks, void *world);

/* Runs forward and backward on all ranks, then sums over ranks. Returns whether
 * every rank succeeded. */
bool world_run(struct world *w, bool processes);
/* Computes the oracle into sum. The input must be unchanged since
 * world_init. */
bool world_reference(const struct world *w, struct world *reference_p);
/* Returns whether the largest relative L2 distance of the results is small. */
bool world_close(const struct world *w, const struct world *reference);
/* Returns whether out and lse and, if requested, dq, and dk and dv, have the
 * same bits. */
bool world_same(
    const struct world *w, const struct world *other, bool dq, bool dkv);
/* Returns whether the case, on its ranks, is close to the oracle and has the
 * bits that one rank computes: dq's if requested; dk's and dv's if requested
 * and if every KV head is on one rank. Stores the number of head groups in
 * *groups_p, unless NULL. */
bool world_check(const struct dist_case *c, bool processes, bool dq, bool dkv,
    int64_t *groups_p);

/* The draws of a random test. A check returns whether the case holds, and may
 * count cases of a kind. */
struct case_draws {
    uint64_t seed;
    int64_t count;
    bool processes;
    int32_t delay_ms;
};
typedef void (*case_draw_fn)(struct dist_case *c, struct test_random *random);
typedef bool (*case_check_fn)(
    const struct dist_case *c, bool processes, int64_t *count);
/* Fails the test at the first case that does not hold. Returns the count. */
int64_t case_check_draws(
    const struct case_draws *draws, case_draw_fn draw, case_check_fn check);

#endif
