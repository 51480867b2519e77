/* SPDX-License-Identifier: Apache-2.0
 *
 * Which launches may spin. Blocks that wait for each other must be on their
 * addresses together: if one that is waited for cannot start because all room
 * is taken by blocks that wait, nothing ends before the deadline. So each plan,
 * channel and batch claims the blocks of its largest launch for as long as it
 * lives, from what its device holds, whichever communicator it belongs to; a
 * plan that finds no room left takes three launches a call, of which those that
 * wait are one warp each, and a batch waits in one block. As all claims of a
 * process fit on the address at one time, the order of launches on different
 * streams does not matter. Kernels of the caller end by themselves and need no
 * claim.
 *
 * Processes share an address only in equal parts: a claim is refused beyond its
 * process's part. (Without MPS processes take turns, which ends every wait.)
 */
#ifndef ULI_COMM_DEVICE_RESIDENCY_H
#define ULI_COMM_DEVICE_RESIDENCY_H

#include <stdbool.h>
#include <stdint.h>
#include "comm/comm.h"

/* multiprocessors: this process's part of the device; per_sm: blocks of the
 * kernel that one of them holds. Any thread. */
bool uli_residency_claim(
    int32_t device, int64_t multiprocessors, int32_t per_sm, int64_t blocks);
/* blocks as claimed; 0: nothing was. */
void uli_residency_release(int32_t device, int32_t per_sm, int64_t blocks);

/* The launches of one plan, channel or batch. */
struct uli_residency {
    int32_t multiprocessors, per_sm; /* given */
    int32_t claimed;                 /* as many blocks may wait, or 0 */
    bool shares_device;              /* with another rank of this process */
};

/* Multiprocessors of a launch: as the hint (0 = none) or else the setting says,
 * at most an equal part of the device for each rank on it. */
int32_t uli_residency_sms(
    const ulyx_comm_t *comm, int32_t max_sms, int32_t multiprocessors);
/* Claims that many blocks for launches whose blocks wait for each other, or
 * none where they may not all run at once (blocks 0: none are wanted). */
void uli_residency_choose(
    const ulyx_comm_t *comm, int64_t blocks, struct uli_residency *room);

#endif
