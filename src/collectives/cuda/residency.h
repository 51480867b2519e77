/* SPDX-License-Identifier: Apache-2.0
 *
 * Which launches may spin. Blocks that wait for each other must be on their
 * cards together: if one that is waited for cannot start because all room is
 * taken by blocks that wait, nothing ends before the deadline. So each plan
 * claims the blocks of its largest launch for as long as it lives, from what
 * its device holds, whichever communicator it belongs to; a plan that finds no
 * room left takes three launches a call, of which those that wait are one warp
 * each. As all claims of a process fit on the card at one time, the order of
 * launches on different streams does not matter. Kernels of the caller end by
 * themselves and need no claim.
 *
 * Processes share a card only in equal parts: a claim is refused beyond its
 * process's part. (Without MPS processes take turns, which ends every wait.)
 */
#ifndef ULI_COLLECTIVES_CUDA_RESIDENCY_H
#define ULI_COLLECTIVES_CUDA_RESIDENCY_H

#include <stdbool.h>
#include <stdint.h>
#include "comm/comm.h"

/* capacity: the blocks that this process's part of the device holds. Any
 * thread. */
bool uli_residency_claim(int32_t device, int64_t capacity, int64_t blocks);
void uli_residency_release(int32_t device, int64_t blocks);

/* The launches of one plan or channel. */
struct uli_residency {
    int32_t device, multiprocessors; /* given */
    bool waits;         /* given: blocks of a launch wait for those of others */
    int32_t blocks;     /* of a launch that moves: one a multiprocessor */
    int32_t claimed;    /* as many where they may wait, or 0 */
    bool shares_device; /* with another rank of this process */
};

/* Multiprocessors of a launch: as the hint (0 = none) or else the setting says,
 * at most an equal part of the device for each rank on it. */
int32_t uli_residency_sms(
    const ulyx_comm_t *comm, int32_t max_sms, int32_t multiprocessors);
/* So many blocks, claimed if they wait and there is room for all of them; fewer
 * would be no help. per_sm: blocks that a multiprocessor holds. */
void uli_residency_choose(const ulyx_comm_t *comm, int32_t per_sm,
    int32_t max_sms, struct uli_residency *room);

#endif
