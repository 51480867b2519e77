/* SPDX-License-Identifier: Apache-2.0
 *
 * A schedule's messages in GOAL, the input of LogGOPSim and ATLAHS.
 */
#ifndef TOOLS_INFO_GOAL_H
#define TOOLS_INFO_GOAL_H

#include <stdio.h>

#include "topology/model/schedule.h"

/* Writes every message of the direction's schedule; peers: uli_model.peers.
 * Errors: INVALID_ARGUMENT for more than 2^24 messages, NO_MEMORY, SYSTEM. */
ulyx_status_t info_write_goal(const struct uli_demand *demand,
    ulyx_direction_t direction, enum uli_algo algo, int64_t peers, FILE *file);

#endif
