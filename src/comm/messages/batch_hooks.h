/* SPDX-License-Identifier: Apache-2.0
 *
 * The hooks through which a batch transport (transport/batch.h) uses its
 * communicator: arenas, windows, agreement, puts and the device.
 */
#ifndef ULI_COMM_MESSAGES_BATCH_HOOKS_H
#define ULI_COMM_MESSAGES_BATCH_HOOKS_H

#include "comm/comm.h"
#include "transport/batch.h"

/* The context of the hooks; lives as long as the batch. */
struct uli_batch_context {
    ulyx_comm_t *comm;
    void *addresses; /* [nranks][ULI_BATCH_ADDRESS_BYTES] while a batch is
                        opened */
};

/* All of a batch's parameters, except its id and deadline. */
struct uli_batch_params uli_batch_params_of(struct uli_batch_context *context);

#endif
