/* SPDX-License-Identifier: Apache-2.0
 *
 * The soaks' ranks after a peer has been killed or stopped.
 */
#ifndef TESTS_SOAK_AFTERMATH_H
#define TESTS_SOAK_AFTERMATH_H

#include <stdatomic.h>
#include <stdint.h>
#include "soak/scene.h"

/* The time since then, if it is the longest of all ranks. */
void aftermath_note(_Atomic int64_t *longest_ns, int64_t since_ns);
/* Shrinks, and makes `calls` checked calls, adjoint ones in turn. Returns the
 * number of remaining ranks; 0, with the reason printed, on failure. */
int32_t aftermath_go_on(
    ulyx_comm_t *comm, enum scene_path path, int64_t rows, int calls);

#endif
