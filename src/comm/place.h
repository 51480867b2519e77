/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a communicator's own threads and memory go (topology/bind.h): near the
 * GPU of a CUDA communicator; else, over several nodes, near the NIC that the
 * network has opened; else to the cores of the rank that creates it. Nothing
 * here fails: what cannot be bound stays where it is.
 */
#ifndef ULI_COMM_PLACE_H
#define ULI_COMM_PLACE_H

#include "comm/comm.h"

/* With the segment, before it is used by others. */
void uli_place_own(ulyx_comm_t *comm);
/* The same for comm->gpu, whose device is known. */
void uli_place_gpu(ulyx_comm_t *comm);
/* Once comm->net is open, before it knows the segment: moves the rank's things
 * to the NIC unless they are at a GPU or the NIC's place is not known. */
void uli_place_net(ulyx_comm_t *comm);

#endif
