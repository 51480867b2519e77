/* SPDX-License-Identifier: Apache-2.0
 *
 * The record of an abort: whom the rank that aborts waited for. The documented
 * way out of a timeout is to abort, so the ranks that hear of an abort are told
 * the cause with it.
 *
 * It is a struct uli_late whose origin is the rank that has aborted, in the
 * control block of each rank that is told, written before the poison that tells
 * of the abort; to other nodes it goes with the poison. The first record stays:
 * of several aborts any is a cause.
 */
#ifndef ULI_COMM_AGREEMENT_ABORT_RECORD_H
#define ULI_COMM_AGREEMENT_ABORT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include "base/late.h"

struct ulyx_comm;

/* This rank aborts: the ranks of its node, itself among them, get its record,
 * unless it waited for nobody. What it has been told itself goes on instead.
 * Async-signal-safe. */
void uli_abort_record(struct ulyx_comm *comm);

/* What this rank was told, or has recorded; false: nothing. Any thread. */
bool uli_abort_told(struct ulyx_comm *comm, struct uli_late *late_p);

/* Another node's rank tells: to the ranks of this node. */
void uli_abort_receive(
    struct ulyx_comm *comm, const void *content, size_t bytes);

#endif
