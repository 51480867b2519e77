/* SPDX-License-Identifier: Apache-2.0
 *
 * What the ranks of a soak do after a peer has been killed or stopped.
 */
#ifndef TESTS_SOAK_AFTERMATH_H
#define TESTS_SOAK_AFTERMATH_H

#include <stdatomic.h>
#include <stdint.h>
#include "soak/scene.h"

/* Stores the time since since_ns in *longest_ns, if it is longer than that of
 * every other rank. */
void aftermath_note(_Atomic int64_t *longest_ns, int64_t since_ns);
/* Shrinks the communicator, and makes `calls` calls whose data is checked,
 * every second one the adjoint. Returns the number of remaining ranks, or,
 * after printing the reason, 0 on failure. */
int32_t aftermath_go_on(
    ulyx_comm_t *comm, enum scene_path path, int64_t rows, int calls);

#endif
