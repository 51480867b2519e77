/* SPDX-License-Identifier: Apache-2.0
 *
 * A small distributed attention on four threads, without options, for tests of
 * errors and of when they are found.
 */
#ifndef TESTS_ATTENTION_DIST_ATTENTION_DIST_SMALL_H
#define TESTS_ATTENTION_DIST_ATTENTION_DIST_SMALL_H

#include <stdbool.h>
#include "support/ranks.h"
#include "ulyx/ulyx.h"

enum { RANKS = 4, ROWS = 40, HEADS = 6, KV = 2, DIM = 8, LIMIT_S = 30 };

struct small {
    ulyx_comm_t *comms[RANKS];
    int32_t groups[RANKS]; /* number of head groups, set by the body */
    int64_t bytes[RANKS];
    int64_t ceiling[RANKS];
    bool all_cores; /* the number of threads is not set */
};
void small_params(ulyx_dist_attention_params_t *p, ulyx_part_t *part);
void small_open(struct small *s);
void small_close(struct small *s);
/* Opens a small, runs the body on all ranks with groups[0], [1], [2] = a, b, c,
 * and closes it. */
void small_run(rank_fn body, int32_t a, int32_t b, int32_t c);

/* The distributed attention of one rank with all that its calls need. */
struct own {
    ulyx_dist_attention_t *dist;
    void *q, *k, *v, *out, *dout, *dq, *dk, *dv;
    void *workspace, *saved;
    int64_t workspace_bytes, saved_bytes;
    ulyx_dist_attention_forward_t f;
    ulyx_dist_attention_backward_t b;
};
/* Makes tensors of zeros for an existing distributed attention. */
void own_take(struct own *o, ulyx_dist_attention_t *dist);
/* Makes a distributed attention, and its tensors. Returns false where it cannot
 * be made. */
bool own_open(
    struct own *o, ulyx_comm_t *comm, const ulyx_dist_attention_params_t *p);
bool own_close(struct own *o);
/* Frees the tensors, but not the distributed attention, which others use
 * too. */
void own_drop(struct own *o);
/* Fills the inputs with random values. */
void own_fill(struct own *o, int rank);

#endif
