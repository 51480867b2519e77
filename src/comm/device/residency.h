/* SPDX-License-Identifier: Apache-2.0
 *
 * Which launches may spin. Blocks that wait for each other must be on their
 * devices at the same time: if an awaited block cannot start because waiting
 * blocks take all the room, nothing ends before the deadline. So each plan,
 * channel and batch claims the blocks of its largest launch for as long as it
 * lives, out of what its device holds, whichever communicator it belongs to. A
 * plan that finds no room takes three launches per call, of which the waiting
 * ones are one warp each; a batch that finds no room waits in one block. As all
 * claims of a process fit on the device at one time, the order of launches on
 * different streams does not matter. Kernels of the caller end by themselves
 * and need no claim.
 *
 * Processes share a device in equal parts: a claim beyond the part of its
 * process is refused. (Without MPS, processes take turns, which ends every
 * wait.)
 */
#ifndef ULI_COMM_DEVICE_RESIDENCY_H
#define ULI_COMM_DEVICE_RESIDENCY_H

#include <stdbool.h>
#include <stdint.h>
#include "comm/comm.h"

/* Claims blocks. False: they do not fit. multiprocessors: this process's part
 * of the device; per_sm: blocks of the kernel that one multiprocessor holds.
 * Any thread. */
bool uli_residency_claim(
    int32_t device, int64_t multiprocessors, int32_t per_sm, int64_t blocks);
/* blocks: as claimed; 0: nothing was claimed. */
void uli_residency_release(int32_t device, int32_t per_sm, int64_t blocks);

/* The launches of one plan, channel or batch. */
struct uli_residency {
    int32_t multiprocessors, per_sm; /* given */
    int32_t claimed;                 /* so many blocks may wait, or 0 */
    bool shares_device;              /* with another rank of this process */
};

/* Multiprocessors of a launch: max_sms, the caller's hint, or the setting where
 * the hint is 0; at most an equal part of the device per rank on it. */
int32_t uli_residency_sms(
    const ulyx_comm_t *comm, int32_t max_sms, int32_t multiprocessors);
/* Claims `blocks` blocks for launches whose blocks wait for each other, or none
 * where they may not all run at once. blocks = 0 claims none.
 * room->multiprocessors and per_sm are given; fills the rest. */
void uli_residency_choose(
    const ulyx_comm_t *comm, int64_t blocks, struct uli_residency *room);

#endif
