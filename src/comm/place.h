/* SPDX-License-Identifier: Apache-2.0
 *
 * Binds a communicator's own threads and memory (topology/bind.h): near the GPU
 * of a CUDA communicator; else, over several nodes, near the NIC that the
 * network has opened; else to the cores of the rank that creates it. Nothing
 * here fails: a thread or memory that cannot be bound stays where it is.
 */
#ifndef ULI_COMM_PLACE_H
#define ULI_COMM_PLACE_H

#include "comm/comm.h"

/* Binds to the rank's own cores. Called once the segment exists, before other
 * ranks use it. */
void uli_place_own(ulyx_comm_t *comm);
/* Binds near the device of comm->gpu. */
void uli_place_gpu(ulyx_comm_t *comm);
/* Called once comm->net is open, before the network registers the segment:
 * binds near the NIC, unless the communicator has a GPU or the place of the NIC
 * is not known. */
void uli_place_net(ulyx_comm_t *comm);

#endif
