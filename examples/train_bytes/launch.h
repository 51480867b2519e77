/* SPDX-License-Identifier: Apache-2.0
 *
 * Starting ranks: one, threads of this process, processes of this program, or
 * what a launcher has started already.
 */
#ifndef TRAIN_LAUNCH_H
#define TRAIN_LAUNCH_H

#include "options.h"
#include "train.h"

/* Whether mpirun, torchrun, srun or launch_processes has started this process
 * as a rank. returns: 0, or the exit status when its variables are refused. */
int launch_query(ulyx_launch_t *launch_p);

/* Each runs the training to its end. returns: the exit status. */
int launch_one(const struct options *options);
int launch_rank(struct options *options); /* from the environment */
int launch_processes(const struct options *options, char **argv);
/* hook is called by all ranks' threads at once; may be NULL. */
int launch_threads(const struct options *options, const struct corpus *corpus,
    train_hook hook, void *context, bool quiet);

#endif
