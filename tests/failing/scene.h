/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls of a rank while one of them fails: each call once, from creation to
 * destroy. The scene's own memory is static, so all allocations are the
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

/* The result of a rank: the first error and the step that returned it. */
struct scene_end {
    ulyx_status_t status;
    enum scene_step step;
    char text[SCENE_TEXT];
    bool wrong; /* data are wrong, or an object could not be destroyed */
};

/* Makes the calls of one rank on its communicator, and destroys the
 * communicator. */
void scene_run(ulyx_comm_t *comm, int rank, struct scene_end *end_p);
/* Keeps the status and its text, unless an earlier error is kept. Returns
 * whether no error is kept. */
bool scene_note(
    struct scene_end *end, enum scene_step step, ulyx_status_t status);

#endif
