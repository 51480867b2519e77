/* SPDX-License-Identifier: Apache-2.0
 *
 * kernelcheck's parts: a case (one logical attention problem, its values and
 * its true result), a layout in which a kernel is given it, and outcomes.
 *
 * Logical tensors are dense arrays of doubles [batch][head][row][column] whose
 * values are exact in the case's dtype. A run lays them out in guarded memory,
 * calls the public API with one kernel, and gathers the results back.
 */
#ifndef TESTS_ATTENTION_KC_H
#define TESTS_ATTENTION_KC_H

#include <stdbool.h>
#include <stdint.h>
#include "support/random.h"
#include "ulyx/attention.h"

enum kc_name {
    KC_Q,
    KC_K,
    KC_V,
    KC_OUT,
    KC_LSE,
    KC_DOUT,
    KC_DELTA,
    KC_DLSE,
    KC_DQ,
    KC_DK,
    KC_DV,
    KC_TENSORS
};

extern const char *const kc_names[KC_TENSORS];

/* The sizes of a logical tensor. */
struct kc_shape {
    int64_t batch, heads, rows, columns;
};

struct kc_values {
    struct kc_shape shape;
    double *at; /* [batch][head][row][column] */
};

/* Options of a random case. All others are drawn. */
struct kc_preference {
    ulyx_dtype_t dtype;
    int64_t dim_qk, dim_v; /* 0: drawn */
    int64_t max_len;       /* of queries and of keys */
    double logit_gain;     /* multiplies q; 0 = 1 */
    bool plain;            /* no documents, segments, sinks, caps, slopes */
    bool no_segments;
};

struct kc_case {
    ulyx_attention_t problem; /* its pointers refer to the arrays below */
    ulyx_docs_t docs_q, docs_k;
    void *docs_arrays[4]; /* q begin, q length, k begin, k length */
    int64_t *kv_map, *head_ids;
    void *sinks, *slopes;
    ulyx_segment_t *q_segments, *k_segments; /* offsets count rows here */
    struct kc_values values[KC_TENSORS];     /* for outputs, the true result */
    double *d_sink, *max_logit;              /* the true result */
    bool partial; /* whether the segments hold only a part of the rows */
};

enum kc_strides { KC_BSHD, KC_SBHD, KC_BHSD, KC_PACKED_QKV, KC_STRIDES };

/* How a run lays out the tensors and makes the call. */
struct kc_layout {
    enum kc_strides strides;
    int64_t pad; /* bytes (a multiple of 8) between rows */
    int pieces;  /* 0: no pieces */
    int threads;
    bool give_delta;
    bool wide_kv;        /* dk and dv are fp32 where the problem has 16 bits */
    bool no_lse, no_max; /* statistics that forward is not to compute */
    const char *kernel;
};

/* Results of a run, gathered. d_sink, max_logit as in the case; results that
 * were not requested are NULL. */
struct kc_result {
    struct kc_values values[KC_TENSORS];
    double *d_sink, *max_logit;
    int64_t scores;
    /* whether backward took out, in its dtype, in place of delta */
    bool from_out;
};

/* Returns a pad of n steps with which the kernel itself still runs: TMA reads
 * rows at multiples of 16 bytes, and with other strides another kernel would
 * run. */
int64_t kc_pad(const char *kernel, int64_t n);

void *kc_alloc(int64_t bytes);
int64_t kc_count(const struct kc_shape *shape);
double *kc_row(
    const struct kc_values *values, int64_t batch, int64_t head, int64_t row);
double kc_round(ulyx_dtype_t dtype, double value);
struct kc_shape kc_shape_of(const struct kc_case *kc, enum kc_name name);

/* ---- case.c, generate.c */
void kc_generate(struct kc_case *kc, struct test_random *random,
    const struct kc_preference *preference);
/* Makes a case without features, of the problem's sizes and dtype, with normal
 * data. The caller changes its problem and then calls kc_solve. */
void kc_simple(struct kc_case *kc, const ulyx_attention_t *problem,
    struct test_random *random);
/* Sets documents [begin[n], begin[n] + length[n]) of the queries, which keys
 * without documents of their own share, or of the keys. The arrays are
 * copied. */
void kc_set_docs(struct kc_case *kc, bool keys, const int64_t *begin,
    const int64_t *length, int64_t count);
/* Returns whether two gathered results are equal bit for bit on the rows that
 * kc holds. Prints the first difference. */
bool kc_same(const struct kc_case *kc, const char *what,
    const struct kc_result *a, const struct kc_result *b, enum kc_name first,
    enum kc_name last);
/* Fills the case with normal data; q is multiplied by gain. */
void kc_fill_random(
    struct kc_case *kc, struct test_random *random, double gain);
void kc_alloc_values(struct kc_case *kc);
/* Computes the true result of both passes, by the reference in fp64. */
void kc_solve(struct kc_case *kc);
void kc_free(struct kc_case *kc);
void kc_describe(const struct kc_case *kc, char *text_p, int64_t bytes);
/* Returns whether a query or key row is in the call. Without segments all rows
 * are. */
bool kc_holds(const struct kc_case *kc, bool keys, int64_t batch, int64_t head,
    int64_t row);
/* Returns whether row i of a batch item attends to key j, by the definition,
 * without code of the library. */
bool kc_sees(const struct kc_case *kc, int64_t q_batch, int64_t i,
    int64_t k_batch, int64_t j);

/* Returns the document of a query row (without documents, the batch item), or
 * -1, and stores its {q begin, q rows, k begin, k rows} on the flattened
 * axes. */
int64_t kc_doc_of(
    const struct kc_case *kc, int64_t batch, int64_t i, int64_t bounds_p[4]);

/* ---- run.c. problem: the case's, or a mutated copy of it. Returns false,
 * after printing the reason, for a changed guard, an unwritten or overwritten
 * byte, or a refused call. */
bool kc_run(const struct kc_case *kc, const ulyx_attention_t *problem,
    const struct kc_layout *layout, bool backward, struct kc_result *result_p);
void kc_result_free(struct kc_result *result);

/* ---- judge.c. Compares a result with the truth by the tolerance rule.
 * quiet: prints nothing. */
bool kc_judge(const struct kc_case *kc, const struct kc_result *result,
    bool backward, bool quiet);

/* ---- families */
struct kc_options {
    const char *kernel;    /* NULL: all that the machine runs */
    int64_t draws;         /* multiplier of each family's number of cases, % */
    int64_t dim_qk, dim_v; /* of random and metamorphic cases; 0: own */
    uint64_t seed;
    bool full;
    const char *vs;       /* --bench on a card, beside these peers; or NULL */
    const char *rows;     /* of that bench; NULL: all */
    const char *variants; /* of ours in that bench; NULL: kernel, or "auto" */
    bool cpu_time;        /* --bench by the process's CPU time per thread */
};
/* The number of cases to run, of a family's usual number: at least 1. */
static inline int64_t
kc_draws(const struct kc_options *options, int64_t usual)
{
    return (usual * options->draws + 99) / 100;
}
/* The passes run are kc_first_pass up to kc_passes: both (0, 2), --forward
 * (0, 1), for kernels whose backward is another's, --backward (1, 2). */
extern int kc_first_pass, kc_passes;
/* Counts of a family: cases run, cases failed. */
struct kc_tally {
    int64_t cases, failed;
};
typedef void (*kc_family)(
    const struct kc_options *options, const char *kernel, struct kc_tally *t);

void kc_family_random(
    const struct kc_options *, const char *, struct kc_tally *);
void kc_family_large_logits(
    const struct kc_options *, const char *, struct kc_tally *);
void kc_family_gradient(
    const struct kc_options *, const char *, struct kc_tally *);
void kc_family_counting(
    const struct kc_options *, const char *, struct kc_tally *);
void kc_family_counting_long(
    const struct kc_options *, const char *, struct kc_tally *);
void kc_family_retrieval(
    const struct kc_options *, const char *, struct kc_tally *);
void kc_family_metamorphic(
    const struct kc_options *, const char *, struct kc_tally *);
void kc_family_reported(
    const struct kc_options *, const char *, struct kc_tally *);
void kc_family_long(const struct kc_options *, const char *, struct kc_tally *);
/* Whether the kernel runs here and takes the problem; or any problem of that
 * dtype, of 64 columns and no mask. Families leave out cases that it does not
 * take. */
bool kc_takes_problem(const char *kernel, const ulyx_attention_t *problem);
bool kc_takes(const char *kernel, ulyx_dtype_t dtype);
int kc_mutate(const struct kc_options *options);
int kc_bench(const struct kc_options *options);

#endif
