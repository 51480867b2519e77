/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of one communicator that live in this process. They reach each
 * other's control blocks and arenas by address, and a peer may still ring a
 * doorbell just after the owner has destroyed its handle. So these segments are
 * retired to the team and freed when its last rank has left.
 */
#ifndef ULI_COMM_TEAM_H
#define ULI_COMM_TEAM_H

#include "device/share.h"
#include "transport/segment.h"

struct uli_team;

/* Joins the team of a communicator id; the first rank makes the team. Reserves
 * room to retire one segment, the rank's control segment. NO_MEMORY: *team_p is
 * untouched. */
ulyx_status_t uli_team_join(
    const unsigned char id[16], struct uli_team **team_p);
/* Reserves room to retire one more segment, so that retiring cannot fail.
 * NO_MEMORY: nothing more may be retired. */
ulyx_status_t uli_team_reserve(struct uli_team *team);
/* Gives a reservation back: the memory that it was made for is gone. */
void uli_team_unreserve(struct uli_team *team);
/* The team owns the memory from now on. Each call uses one reservation. */
void uli_team_retire(struct uli_team *team, const struct uli_segment *segment);
void uli_team_retire_device(
    struct uli_team *team, const struct uli_share_memory *memory);
void uli_team_leave(struct uli_team *team);

#endif
