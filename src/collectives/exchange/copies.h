/* SPDX-License-Identifier: Apache-2.0
 *
 * How a communicator copies: by the file that ULYX_CALIBRATE names, by the
 * defaults (off), or by measurement (on). A measurement is made once per
 * machine, library version and user, and kept in the user's cache directory;
 * where it cannot be kept, once per process. One rank of a node measures for
 * all of its ranks. The choice decides the time of copies, never bytes.
 */
#ifndef ULI_COLLECTIVES_EXCHANGE_COPIES_H
#define ULI_COLLECTIVES_EXCHANGE_COPIES_H

#include "collectives/kernels/copy_choice.h"
#include "comm/comm.h"

/* Before the agreement of a call that copies: from here on the first rank of a
 * node has its choice, and has published it for the others. Does nothing the
 * second time. Errors: INVALID_ARGUMENT for a file that ULYX_CALIBRATE names;
 * NO_MEMORY. */
ulyx_status_t uli_copies_offer(ulyx_comm_t *comm);
/* After the agreement: the other ranks take the published choice. */
void uli_copies_take(ulyx_comm_t *comm);

/* The communicator's choice; the defaults until it has one. */
const struct uli_copy_choice *uli_copies_of(const ulyx_comm_t *comm);

enum { ULI_COPIES_ORIGIN = 600 };
/* The choice of a process without a communicator, by these settings; measures
 * where the cache has none. origin_p: where the choice is from, in words.
 * Errors: INVALID_ARGUMENT for a file that the setting names. */
ulyx_status_t uli_copies_choose(const struct uli_settings *settings,
    struct uli_copy_choice *choice_p, char origin_p[ULI_COPIES_ORIGIN]);

#endif
