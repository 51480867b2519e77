/* SPDX-License-Identifier: Apache-2.0
 *
 * Starting ranks: one rank, threads of this process, processes of this program,
 * or what a launcher has started already.
 */
#ifndef TRAIN_LAUNCH_H
#define TRAIN_LAUNCH_H

#include "options.h"
#include "train.h"

/* Has mpirun, torchrun, srun or launch_processes started this process as a
 * rank? returns: 0, or the exit status when its variables are refused. */
int launch_query(ulyx_launch_t *launch_p);

/* Each runs the training to its end. returns: the exit status. */
int launch_one(const struct options *options);
int launch_rank(struct options *options); /* from the environment */
int launch_processes(const struct options *options, char **argv);
/* The threads of all ranks call hook at the same time; it may be NULL. */
int launch_threads(const struct options *options, const struct corpus *corpus,
    train_hook hook, void *context, bool quiet);

#endif
