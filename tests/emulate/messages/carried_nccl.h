/* SPDX-License-Identifier: Apache-2.0
 *
 * The scene of carried plans with an imitation of NCCL that has kernels of its
 * own as batch transport. Each rank is a thread.
 */
#ifndef TESTS_EMULATE_MESSAGES_CARRIED_NCCL_H
#define TESTS_EMULATE_MESSAGES_CARRIED_NCCL_H

#include "emulate/messages/carried_scene.h"

int carried_nccl_set_up(void **state);
/* Fails if anything is left. */
int carried_nccl_tear_down(void **state);
/* Runs `play` on all ranks, then ends the job. */
void carried_nccl_run(struct job *job, int (*play)(struct job *job, int rank));

#endif
