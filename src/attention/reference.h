/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two files of the reference share.
 */
#ifndef ULI_ATTENTION_REFERENCE_H
#define ULI_ATTENTION_REFERENCE_H

#include "attention/problem.h"

#define ULI_ATTN_DIM_MAX 512

/* One query row: where it lies and what it sees. */
struct uli_ref_row {
    struct uli_attn_run run;
    int64_t row; /* of the batch item */
    bool in_doc;
    struct uli_attn_doc doc;
    int64_t i;          /* of the document */
    int64_t begin, end; /* keys of the document that it sees */
    int64_t kv;
    double slope;
};

struct uli_ref_row uli_ref_row_at(const struct uli_attn_problem *problem,
    const struct uli_attn_run *run, int64_t row);

/* Element row j (of the document) of k or v as doubles. */
void uli_ref_load_key(struct uli_attn_call *call, enum uli_attn_tensor tensor,
    const struct uli_ref_row *row, int64_t j, double *values_p);
void uli_ref_load_query(struct uli_attn_call *call, enum uli_attn_tensor tensor,
    const struct uli_ref_row *row, double *values_p);

/* The score of a pair before the softmax; *slope_p is d score / d (scale q.k),
 * 1 without a softcap. */
double uli_ref_score(const struct uli_attn_problem *problem,
    const struct uli_ref_row *row, int64_t j, const double *q, const double *k,
    double *slope_p);

/* Runs body for every row of a side's runs, by threads. */
typedef void (*uli_ref_body)(
    struct uli_attn_call *call, const struct uli_attn_run *run, int64_t row);
void uli_ref_for_rows(struct uli_attn_call *call,
    const struct uli_attn_runs *runs, uli_ref_body body);

void uli_ref_backward(struct uli_attn_call *call);

#endif
