/* SPDX-License-Identifier: Apache-2.0
 *
 * What the programs on several hosts exchange: a plan for q, k and v whose KV
 * heads are shared by ranks of a host, and its tensors.
 */
#ifndef TESTS_HOSTS_EXCHANGE_H
#define TESTS_HOSTS_EXCHANGE_H

#include <stdint.h>
#include "comm/comm.h"
#include "ulyx/ulyx.h"

enum { HEADS = 8, KV_HEADS = 2, DIM = 32, TENSORS = 3 };

struct exchange {
    ulyx_comm_t *comm;
    ulyx_plan_t *plan;
    int32_t rank, nranks;
    int64_t rows;
    /* seq and back: [own rows][heads][DIM] bf16; head: [rows][own heads][DIM],
     * large enough for partial sums, whose elements are wider */
    unsigned char *seq[TENSORS], *back[TENSORS], *head[TENSORS];
    size_t bytes[TENSORS], head_bytes[TENSORS];
};

int64_t exchange_heads(int tensor);
/* Creates the communicator from the environment, then the plan. Where the plan
 * fails, the communicator remains. */
ulyx_status_t exchange_meet(struct exchange *exchange);
ulyx_status_t exchange_plan(struct exchange *exchange);
void exchange_close(struct exchange *exchange);

#endif
