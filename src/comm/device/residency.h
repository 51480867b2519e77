/* SPDX-License-Identifier: Apache-2.0
 *
 * Which launches may spin. Blocks that wait for each other must be on their
 * devices at the same time: if an awaited block cannot start because waiting
 * blocks take all the room, nothing ends before the deadline. So each plan,
 * channel and batch claims the blocks of its largest launch for as long as it
 * lives, out of what its device holds, whichever communicator it belongs to. A
 * plan that finds no room takes three launches per call, of which the waiting
 * ones are one warp each; a batch that finds no room waits in one block. Such a
 * wait needs room as well, so it is counted as one block, and claims leave room
 * for one. As all claims of a process fit on the device at one time, the order
 * of launches on different streams does not matter; where waits are too many
 * for that (crowded), the order has to be the same at all ranks. Kernels of
 * the caller end by themselves and need no claim.
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

/* The launches of one plan, channel or batch. */
struct uli_residency {
    int32_t multiprocessors, per_sm; /* given */
    int32_t claimed;                 /* number of blocks that may wait, or 0 */
    int32_t waits;                   /* launches of one warp that wait, or 0 */
    bool crowded; /* the device may not hold them beside what is claimed */
    bool shares_device; /* with another rank of this process */
};

/* Claims blocks. False: they do not fit. multiprocessors: this process's part
 * of the device; per_sm: blocks of the kernel that one multiprocessor holds.
 * Any thread. */
bool uli_residency_claim(
    int32_t device, int64_t multiprocessors, int32_t per_sm, int64_t blocks);
/* Counts launches of one warp that wait. False: they may find no room beside
 * what is claimed. Any thread. */
bool uli_residency_wait(int32_t device, int64_t multiprocessors, int64_t waits);
/* Gives back the claims and waits that uli_residency_choose has recorded in the
 * room. A zeroed room gives back nothing. */
void uli_residency_release(int32_t device, const struct uli_residency *room);

/* The number of multiprocessors of a launch: max_sms, the caller's hint; if
 * that is 0, the setting; if that is 0 too, this rank's part of a device that
 * ranks share, and 32 of a device of its own. Never more than this rank's part,
 * which is an equal part per rank on the device; where ranks share the device,
 * one multiprocessor of the part is left for waits. */
int32_t uli_residency_sms(
    const ulyx_comm_t *comm, int32_t max_sms, int32_t multiprocessors);
/* Claims `blocks` blocks for launches whose blocks wait for each other, or none
 * where they may not all run at once or blocks is 0; then `waits` launches of
 * one warp are counted, as many as the owner has in flight at one time.
 * room->multiprocessors and per_sm are given; fills the rest. */
void uli_residency_choose(const ulyx_comm_t *comm, int64_t blocks,
    int32_t waits, struct uli_residency *room);

/* Once the ranks are known: warns where ranks that are threads of one process
 * may have more streams on their device than it has queues for
 * (CUDA_DEVICE_MAX_CONNECTIONS, which is read here). Work of two streams that
 * share a queue runs in one order, so a kernel can stand behind a kernel of the
 * other stream that waits for it. */
void uli_residency_warn(const ulyx_comm_t *comm);

#endif
