/* SPDX-License-Identifier: Apache-2.0
 *
 * A small dense problem for the tests of the public calls.
 */
#ifndef TESTS_ATTENTION_SETUP_H
#define TESTS_ATTENTION_SETUP_H

#include "ulyx/attention.h"

#define FORWARD  ULYX_ATTENTION_PASS_FORWARD
#define BACKWARD ULYX_ATTENTION_PASS_BACKWARD

enum { Q, K, V, OUT, LSE, DOUT, DQ, DK, DV, TENSORS };

/* A dense fp32 [b][h][s][d] problem with all that both passes take. */
struct bench {
    ulyx_attention_t problem;
    ulyx_attention_tensor_t t[TENSORS];
    float *data[TENSORS];
    int64_t floats[TENSORS];
    ulyx_attention_forward_t forward;
    ulyx_attention_backward_t backward;
    ulyx_attention_exec_t exec;
    void *workspace;
    int64_t bytes;
};

/* Fills the inputs with normal data and makes a workspace of 64 MiB. */
void bench_init(struct bench *b, int64_t batch, int64_t heads, int64_t heads_kv,
    int64_t len, int64_t dim);
void bench_free(struct bench *b);
ulyx_status_t forward(struct bench *b);
ulyx_status_t backward(struct bench *b);
/* Checks that forward is refused with the status, that `out` keeps its bytes,
 * and that the text of the error contains `word`. */
void refused(struct bench *b, ulyx_status_t expected, const char *word);

#endif
