/* SPDX-License-Identifier: Apache-2.0
 *
 * What can carry a communicator's batch (comm/batch.h): kinds of struct
 * uli_batch, best first. Each is asked at every rank whether it can serve; the
 * first that all ranks have opened is taken, and why those before it were not
 * is kept. All but ops is called by uli_comm_batch_open alone, on all ranks
 * in the same order.
 */
#ifndef ULI_COMM_CARRIER_H
#define ULI_COMM_CARRIER_H

#include "comm/comm.h"
#include "transport/batch.h"

struct uli_carrier {
    const char *name; /* also of an algorithm that asks for it */
    /* Can it serve at this rank, as far as is known without the others? When
     * not, why_p says why. */
    bool (*usable)(const ulyx_comm_t *comm, char *why_p, size_t why_bytes);
    /* What all ranks are to know, drawn at rank 0 if it can serve there.
     * Errors: any, which passes it over. */
    ulyx_status_t (*make_id)(
        ulyx_comm_t *comm, unsigned char id_p[ULI_BATCH_ID_BYTES]);
    /* Collective, with the id of rank 0, after usable at all ranks; rounds of
     * agreement may be taken in it, if by all ranks alike. Returns before the
     * deadline. Errors: any, which passes it over if the communicator goes on;
     * nothing is left then. */
    ulyx_status_t (*open)(ulyx_comm_t *comm, const unsigned char *id,
        uli_deadline_t deadline, struct uli_batch **batch_p);
    /* Of what open has made: run, check, abort, close, describe. */
    const struct uli_batch_ops *(*ops)(void);
};

extern const struct uli_carrier uli_carrier_nccl;   /* carrier_nccl.c */
extern const struct uli_carrier uli_carrier_staged; /* staged.h */

#endif
