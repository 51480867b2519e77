/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of a rank while one of them fails: each once, from creation to
 * destroy. The scene's own memory is static, so that all allocations are the
 * library's.
 */
#ifndef TESTS_FAILING_SCENE_H
#define TESTS_FAILING_SCENE_H

#include <stdbool.h>
#include "ulyx/ulyx.h"

enum { SCENE_RANKS = 3, SCENE_TEXT = 512 };

enum scene_step {
    STEP_CREATE,
    STEP_MEM,
    STEP_ATTACH,
    STEP_PLAN,
    STEP_EXECUTE,
    STEP_ALLTOALL,
    STEP_ALLREDUCE,
    STEP_DIST,
    STEP_FORWARD,
    STEP_SPLIT,
    STEP_BARRIER,
    STEP_SHRINK,
    STEP_DESTROY,
    STEPS
};
extern const char *const scene_steps[STEPS];

/* The result: the first error and its step. */
struct scene_end {
    ulyx_status_t status;
    enum scene_step step;
    char text[SCENE_TEXT];
    bool wrong; /* data, or an object left that cannot be destroyed */
};

/* The rank's part, with a communicator that it is given, which is destroyed. */
void scene_run(ulyx_comm_t *comm, int rank, struct scene_end *end_p);
/* Notes an error, unless there is one. returns whether there is none now. */
bool scene_note(
    struct scene_end *end, enum scene_step step, ulyx_status_t status);

#endif
