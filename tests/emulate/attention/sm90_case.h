/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls of the forward kernels on the emulator: a problem laid out in
 * device memory with NaN wherever the kernel must not look, run, and compared
 * with attention by its definition in double precision.
 */
#ifndef TESTS_EMULATE_ATTENTION_SM90_CASE_H
#define TESTS_EMULATE_ATTENTION_SM90_CASE_H

#include <stdbool.h>
#include <stdint.h>
#include "attention/cuda/forward_gpu.h"
#include "attention/cuda/hopper/forward_sm90.h"
#include "support/random.h"

enum { SM90_DOCS_MAX = 8, SM90_PIECES_MAX = 8 };

/* How the rows of a tensor lie in memory. */
enum sm90_layout {
    SM90_STRIDED,    /* [b][s][h][d] with a gap after each row */
    SM90_CONTINUING, /* pieces of one [b][s][h][d] */
    SM90_EVENLY,     /* pieces of equal rows, [piece][b][t][h][d] */
    SM90_APART,      /* each piece an allocation of its own */
};

struct sm90_case {
    const struct uli_sm90_family *family;
    /* if not NULL, the kernels of this family run */
    const struct uli_gpu_attn_forward *portable;
    bool f16;
    int64_t batch, heads_q, heads_kv, len_q, len_k, dim_qk, dim_v;
    int64_t left, right, diagonal;
    bool top_left;
    /* head n has the slope slope / (n + 1) and the sink sink + n */
    double softcap, slope, sink;
    bool has_sink;
    /* every second head, beginning with the first, has slope 0 */
    bool flat_heads;
    bool no_lse, no_max; /* outputs that are not requested */
    /* 0: no documents. Where len_q is len_k, each document has the same rows of
     * q and of k. */
    int64_t ndocs;
    int64_t q_begin[SM90_DOCS_MAX], q_rows[SM90_DOCS_MAX];
    int64_t k_begin[SM90_DOCS_MAX], k_rows[SM90_DOCS_MAX];
    enum sm90_layout layout;
    int64_t pieces, tile; /* EVENLY: each piece has a multiple of `tile` rows */
    bool flags;           /* pieces arrive while the kernel runs */
    bool late;            /* pieces never arrive */
    int missing;          /* 1, 2, 3: the pieces of q, k, v never arrive */
    /* extra bytes before and between rows, an even number */
    int64_t odd;
    bool counting; /* v encodes its row, and each q selects one key */
    int blocks;
    uint64_t seed;
};

/* The results of a run as floats: out [b][h][s][dv], lse [b][h][s]. */
struct sm90_result {
    float *out, *lse, *max_logit;
    int64_t bad;  /* wrong values, and bytes written elsewhere */
    double worst; /* the largest ratio of an error to its bound */
    uint64_t failed;
};

/* The flags of v, q and k. They are set from the last piece to the first, by a
 * block that holds shared_bytes of shared memory. The function returns a
 * cudaError_t. */
struct sm90_flags {
    uint64_t *of[3];
};
#ifdef __cplusplus
extern "C"
#endif
    int
    sm90_flags_set(const struct sm90_flags *flags, int64_t count,
        uint64_t value, size_t shared_bytes, void *stream);

/* A piece that arrives: `bytes` bytes of each batch item, then its flag. */
struct sm90_arrival {
    unsigned char *to;
    const unsigned char *from;
    int64_t batch, stride, bytes;
    uint64_t *flag;
};
/* Writes the pieces of v, q and k, of each tensor the last piece first. Returns
 * a cudaError_t. */
struct sm90_arrivals {
    struct sm90_arrival of[3][SM90_PIECES_MAX];
};
#ifdef __cplusplus
extern "C"
#endif
    int
    sm90_arrive(const struct sm90_arrivals *arrivals, int64_t count,
        uint64_t value, void *stream);

/* Runs the case on the open emulator and compares the results; prints
 * nothing. */
struct sm90_result sm90_case_run(const struct sm90_case *c);
void sm90_result_free(struct sm90_result *result);

#endif
