/* SPDX-License-Identifier: Apache-2.0
 *
 * Per-row and per-head numbers that every kernel shares: delta, dlse, the
 * sinks' gradient, the largest score of a head.
 */
#ifndef ULI_ATTENTION_STATISTICS_H
#define ULI_ATTENTION_STATISTICS_H

#include "attention/problem.h"

/* sum_c dout[c] * out[c] in double, in an order of its own. The one routine
 * behind every delta, so the bits agree wherever it is computed; the caller
 * rounds to the statistics' dtype (uli_attn_delta does). */
double uli_attn_delta_row(
    const void *dout, const void *out, ulyx_dtype_t dtype, int64_t columns);

/* A statistic or tensor by strides in bytes {batch, row, head}. */
struct uli_attn_strided {
    const char *base;
    int64_t strides[3];
};

/* delta of a [batch, rows, heads, columns] pair of tensors, less dlse where its
 * base is not NULL: what distributed attention computes where out and dout are
 * sharded by sequence. A row whose out is zeros has delta 0 whatever its dout,
 * which is not looked at where no key is seen. delta and dlse are F64 where
 * dtype is, else F32. Pure. */
void uli_attn_delta(ulyx_dtype_t dtype, const int64_t sizes[4],
    const struct uli_attn_strided *dout, const struct uli_attn_strided *out,
    const struct uli_attn_strided *dlse, void *delta_p,
    const int64_t delta_strides[3]);

/* lse, and delta - dlse, of one row of a run in a backward call. */
double uli_attn_row_lse(
    struct uli_attn_call *call, const struct uli_attn_run *run, int64_t row);
double uli_attn_row_delta(
    struct uli_attn_call *call, const struct uli_attn_run *run, int64_t row);

/* d_sink of a backward call, if asked for. scratch: heads_q doubles. */
void uli_attn_sink_gradient(struct uli_attn_call *call, double *scratch);

/* The largest score per head: start, raise from any thread (the order does
 * not matter), store. scratch: heads_q doubles. */
void uli_attn_max_init(struct uli_attn_call *call, double *scratch);
void uli_attn_max_raise(double *scratch, int64_t head, double value);
void uli_attn_max_store(struct uli_attn_call *call, const double *scratch);

#endif
