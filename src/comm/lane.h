/* SPDX-License-Identifier: Apache-2.0
 *
 * A lane: numbered rounds of posts over the control blocks of one node. Round
 * n lies in buffer n mod 2 of each rank's own block; nobody overwrites what a
 * slower rank still reads, because posting n + 1 says that one has read all
 * of round n, and n + 2 is posted only after everybody's n + 1.
 */
#ifndef ULI_COMM_LANE_H
#define ULI_COMM_LANE_H

#include "comm/comm.h"

enum uli_lane { ULI_LANE_AGREE, ULI_LANE_SHRINK };

struct uli_agree_post *uli_lane_post(
    struct uli_control *control, enum uli_lane lane, uint64_t round);

/* Fills my post of the round from the header and bytes <= ULI_AGREE_BYTES of
 * payload, and rings all peers. */
void uli_lane_publish(ulyx_comm_t *comm, enum uli_lane lane, uint64_t round,
    const struct uli_agree_post *header, const void *payload, int64_t bytes);

bool uli_lane_has(
    const ulyx_comm_t *comm, enum uli_lane lane, int32_t rank, uint64_t round);

/* "3, 5-7": the ranks whose post of the round is missing. */
void uli_lane_missing(const ulyx_comm_t *comm, enum uli_lane lane,
    uint64_t round, char *text_p, size_t text_bytes);

#endif
