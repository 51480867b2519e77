/* SPDX-License-Identifier: Apache-2.0
 *
 * The training of one rank, from the first step to the last, and how a caller
 * can observe it.
 */
#ifndef TRAIN_TRAIN_H
#define TRAIN_TRAIN_H

#include "data.h"
#include "options.h"

#include <ulyx/ulyx.h>

/* A matrix [in][out], or a gain [1][out]. Its values are adjacent in the
 * model's flat arrays, from index `at` on. */
struct parameter {
    char name[32];
    int64_t in, out, at;
};

/* The state in a step, after the sums over ranks and before the update. */
struct train_view {
    int64_t step;
    int32_t rank;
    double loss, norm; /* mean over all predicted tokens; global norm */
    const struct parameter *parameters;
    int64_t parameter_count;
    const void *gradients; /* [values] of float or double; device memory for
                            * train_rank_cuda */
};
typedef void (*train_hook)(void *context, const struct train_view *view);

struct train_rank {
    const struct options *options;
    const struct corpus *corpus;
    ulyx_comm_t *comm; /* NULL: one rank */
    int32_t rank;
    int threads;     /* with which this rank computes */
    train_hook hook; /* NULL, or called at each step on every rank */
    void *context;
    bool quiet; /* print nothing but errors */
};

/* Runs options->steps steps; collective over comm. Rank 0 prints.
 * returns: 0, or the program's exit status after a message. */
int train_rank_f32(const struct train_rank *self);
int train_rank_f64(const struct train_rank *self);
/* train_rank_cuda; NULL in a program without the kernels, which then refuses
 * --device cuda. */
extern int (*train_rank_device)(const struct train_rank *self);
int train_rank_cuda(const struct train_rank *self);

#endif
