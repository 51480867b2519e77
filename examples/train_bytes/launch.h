/* SPDX-License-Identifier: Apache-2.0
 *
 * Starting ranks: one rank alone, threads of this process, processes of this
 * program, or this process as a rank that a launcher has started.
 */
#ifndef TRAIN_LAUNCH_H
#define TRAIN_LAUNCH_H

#include "options.h"
#include "train.h"

/* Finds out whether mpirun, torchrun, srun or launch_processes has started this
 * process as a rank. returns: 0, or the exit status where the launcher's
 * variables are refused. */
int launch_query(ulyx_launch_t *launch_p);

/* Each function runs the whole training. returns: the exit status. */
int launch_one(const struct options *options);
/* As the rank that the environment describes. */
int launch_rank(struct options *options);
int launch_processes(const struct options *options, char **argv);
/* The threads of all ranks call hook, at the same time; hook may be NULL. */
int launch_threads(const struct options *options, const struct corpus *corpus,
    train_hook hook, void *context, bool quiet);

#endif
