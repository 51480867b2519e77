/* SPDX-License-Identifier: Apache-2.0
 *
 * Per-row and per-head numbers that every kernel shares: delta, dlse, the
 * sinks' gradient, the largest score of a head.
 */
#ifndef ULI_ATTENTION_STATISTICS_H
#define ULI_ATTENTION_STATISTICS_H

#include "attention/problem.h"

/* sum_c dout[c] * out[c] in double, in a fixed order of its own. Every delta is
 * computed by this function, so the bits agree wherever it is computed. The
 * caller rounds to the statistics' dtype (uli_attn_delta does). */
double uli_attn_delta_row(
    const void *dout, const void *out, ulyx_dtype_t dtype, int64_t columns);

/* A statistic or tensor, with strides in bytes {batch, row, head}. */
struct uli_attn_strided {
    const char *base;
    int64_t strides[3];
};

/* delta of the tensors dout and out [batch, rows, heads, columns] = sizes, less
 * dlse where its base is not NULL: computed by distributed attention where out
 * and dout are sharded by sequence. A row whose out is zeros has delta 0
 * whatever its dout, because the dout of a row without keys may be anything.
 * delta and dlse are F64 where dtype is, else F32. Pure. */
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

/* The largest score per head: init, raise from any thread (in any order),
 * store. scratch: heads_q doubles. */
void uli_attn_max_init(struct uli_attn_call *call, double *scratch);
void uli_attn_max_raise(double *scratch, int64_t head, double value);
void uli_attn_max_store(struct uli_attn_call *call, const double *scratch);

#endif
