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

/* Sizes of a logical tensor. */
struct kc_shape {
    int64_t batch, heads, rows, columns;
};

struct kc_values {
    struct kc_shape shape;
    double *at; /* [batch][head][row][column] */
};

/* Options of a random case; the rest is drawn. */
struct kc_preference {
    ulyx_dtype_t dtype;
    int64_t dim_qk, dim_v; /* 0: drawn */
    int64_t max_len;       /* of both sides */
    double logit_gain;     /* multiplies q; 0 = 1 */
    bool plain;            /* no documents, segments, sinks, caps, slopes */
    bool no_segments;
};

struct kc_case {
    ulyx_attention_t problem; /* pointers lead into the arrays below */
    ulyx_docs_t docs_q, docs_k;
    void *docs_arrays[4]; /* q begin, q length, k begin, k length */
    int64_t *kv_map, *head_ids;
    void *sinks, *slopes;
    ulyx_segment_t *q_segments, *k_segments; /* offsets in rows here */
    struct kc_values values[KC_TENSORS];     /* outputs: the true result */
    double *d_sink, *max_logit;              /* the true result */
    bool partial; /* segments hold a part of the rows only */
};

enum kc_strides { KC_BSHD, KC_SBHD, KC_BHSD, KC_PACKED_QKV, KC_STRIDES };

/* How a run lays tensors out and calls. */
struct kc_layout {
    enum kc_strides strides;
    int64_t pad; /* bytes (a multiple of 8) between rows */
    int pieces;  /* 0: none, else the number of pieces */
    int threads;
    bool give_delta;
    bool wide_kv;        /* dk, dv in fp32 of 16-bit problems */
    bool no_lse, no_max; /* forward is not to compute them */
    const char *kernel;
};

/* Results of a run, gathered. d_sink, max_logit as in the case; results that
 * were not requested are NULL. */
struct kc_result {
    struct kc_values values[KC_TENSORS];
    double *d_sink, *max_logit;
    int64_t scores;
    bool from_out; /* backward had out, in its dtype, and not delta */
};

/* A pad of n steps that the kernel's own code takes: TMA reads rows at
 * multiples of 16 bytes, and other strides would be another kernel's. */
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
/* A case without features: sizes and dtype of the problem, normal data. Change
 * its problem, then solve it. */
void kc_simple(struct kc_case *kc, const ulyx_attention_t *problem,
    struct test_random *random);
/* Documents [begin[n], begin[n] + length[n]) for queries (and keys where they
 * have no own). The arrays are copied. */
void kc_set_docs(struct kc_case *kc, bool keys, const int64_t *begin,
    const int64_t *length, int64_t count);
/* Are two gathered results the same bit for bit, on the rows that kc holds?
 * Prints the first difference. */
bool kc_same(const struct kc_case *kc, const char *what,
    const struct kc_result *a, const struct kc_result *b, enum kc_name first,
    enum kc_name last);
/* Gives the case values: normal data, gain on q. */
void kc_fill_random(
    struct kc_case *kc, struct test_random *random, double gain);
void kc_alloc_values(struct kc_case *kc);
/* The true result of both passes, by the reference in fp64. */
void kc_solve(struct kc_case *kc);
void kc_free(struct kc_case *kc);
void kc_describe(const struct kc_case *kc, char *text_p, int64_t bytes);
/* Is a query (key) row in the call? True for all without segments. */
bool kc_holds(const struct kc_case *kc, bool keys, int64_t batch, int64_t head,
    int64_t row);
/* By the definition, without code of the library: does row i of a batch item
 * attend to key j? */
bool kc_sees(const struct kc_case *kc, int64_t q_batch, int64_t i,
    int64_t k_batch, int64_t j);

/* The document of a query row (without documents the batch item), or -1, and
 * its {q begin, q rows, k begin, k rows} on the flattened axes. */
int64_t kc_doc_of(
    const struct kc_case *kc, int64_t batch, int64_t i, int64_t bounds_p[4]);

/* ---- run.c. problem: the case's, or a mutated copy of it. false: a guard, an
 * unwritten or overwritten byte, or a refused call, which is printed. */
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
