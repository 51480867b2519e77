/* SPDX-License-Identifier: Apache-2.0
 *
 * Distributed attention, forward and backward, as one of the soak's calls. Its
 * results have the same bits on any number of ranks, so that one rank alone
 * computes what each rank has to get.
 */
#ifndef TESTS_SOAK_ATTENTION_H
#define TESTS_SOAK_ATTENTION_H

#include <stdbool.h>
#include "ulyx/ulyx.h"

enum attention_tensor {
    ATTENTION_Q,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_DOUT,
    ATTENTION_INPUTS,
    ATTENTION_OUT = ATTENTION_INPUTS,
    ATTENTION_DQ,
    ATTENTION_DK,
    ATTENTION_DV,
    ATTENTION_TENSORS
};

struct attention {
    ulyx_dist_attention_t *dist;
    int64_t rows, *positions; /* rows of this rank, and their positions */
    float *tensors[ATTENTION_TENSORS], *expected[ATTENTION_TENSORS];
    void *workspace, *saved;
    int64_t workspace_bytes, saved_bytes;
};

/* `rows` counts the rows of all ranks. Also computes what is expected. After an
 * error, attention_close destroys what was made. */
ulyx_status_t attention_open(
    ulyx_comm_t *comm, int64_t rows, double timeout_s, struct attention *a);
/* Runs a forward and a backward pass. */
ulyx_status_t attention_step(struct attention *a);
bool attention_is_right(const struct attention *a);
/* Overwrites the tensors that the calls read. */
void attention_spoil(struct attention *a);
ulyx_status_t attention_close(struct attention *a);

#endif
