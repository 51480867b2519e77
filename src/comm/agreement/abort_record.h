/* SPDX-License-Identifier: Apache-2.0
 *
 * The record of an abort: the rank for which the aborting rank waited. The
 * documented way out of a timeout is to abort, so the ranks that receive an
 * abort receive its cause too.
 *
 * The record is a struct uli_late whose origin is the rank that has aborted. It
 * lies in the control block of each rank that receives the abort, written
 * before the poison of the abort; other nodes get it in the message with the
 * poison. The first record stays, because any of several aborts is a valid
 * cause.
 */
#ifndef ULI_COMM_AGREEMENT_ABORT_RECORD_H
#define ULI_COMM_AGREEMENT_ABORT_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include "base/late.h"

struct ulyx_comm;

/* Called when this rank aborts: writes its record at all ranks of its node,
 * this rank included. Does nothing where this rank waited for no rank, or has
 * received a record already. Async-signal-safe. */
void uli_abort_record(struct ulyx_comm *comm);

/* The record that this rank has received or written; false: none. Any
 * thread. */
bool uli_abort_read(struct ulyx_comm *comm, struct uli_late *late_p);

/* A record from a rank of another node: writes it at the ranks of this node. */
void uli_abort_receive(
    struct ulyx_comm *comm, const void *content, size_t bytes);

#endif
