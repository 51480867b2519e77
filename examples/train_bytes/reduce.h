/* SPDX-License-Identifier: Apache-2.0
 *
 * Sums over ranks: what each rank contributes to the gradient of a replicated
 * parameter becomes the gradient on all ranks, with the same bits on all ranks
 * and in every run.
 */
#ifndef TRAIN_REDUCE_H
#define TRAIN_REDUCE_H

#include <ulyx/ulyx.h>

/* values[count] <- sum over ranks, of type F32 or F64, in the kind of memory of
 * the communicator; on a device, in the order of the stream. comm NULL (one
 * rank): no effect. *sent_p grows by the bytes that this rank has sent.
 * returns: 0, or 3 after a message. */
int reduce_sum(ulyx_comm_t *comm, ulyx_dtype_t dtype, int64_t count,
    void *values, void *stream, int64_t *sent_p);

#endif
