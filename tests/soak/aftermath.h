/* SPDX-License-Identifier: Apache-2.0
 *
 * What the soaks' ranks do after a peer has been killed or stopped.
 */
#ifndef TESTS_SOAK_AFTERMATH_H
#define TESTS_SOAK_AFTERMATH_H

#include <stdatomic.h>
#include <stdint.h>
#include "soak/scene.h"

/* The time since then, if it is the longest of all ranks. */
void aftermath_note(_Atomic int64_t *longest_ns, int64_t since_ns);
/* Shrinks, and makes so many calls that are checked, adjoint ones in turn.
 * Returns how many ranks go on; 0, having said why, if they cannot. */
int32_t aftermath_go_on(
    ulyx_comm_t *comm, enum scene_path path, int64_t rows, int calls);

#endif
