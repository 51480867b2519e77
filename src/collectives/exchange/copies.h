/* SPDX-License-Identifier: Apache-2.0
 *
 * The choice of copies that a communicator has: by ULYX_CALIBRATE of a file, of
 * the defaults, or measured: then once a machine, library and user, for it is
 * kept in the user's cache directory; else once a process; and by one rank of a
 * node for all of them. It decides time alone, never bytes.
 */
#ifndef ULI_COLLECTIVES_EXCHANGE_COPIES_H
#define ULI_COLLECTIVES_EXCHANGE_COPIES_H

#include "collectives/kernels/copy_choice.h"
#include "comm/comm.h"

/* Before the round of a call that copies: the first rank of a node has the
 * choice from here on, and shows it to the others. Costs nothing the second
 * time. Errors: INVALID_ARGUMENT for a file that ULYX_CALIBRATE names;
 * NO_MEMORY. */
ulyx_status_t uli_copies_offer(ulyx_comm_t *comm);
/* After it: the others have it. */
void uli_copies_take(ulyx_comm_t *comm);

/* What a communicator copies by: the defaults until it has a choice. */
const struct uli_copy_choice *uli_copies_of(const ulyx_comm_t *comm);

enum { ULI_COPIES_ORIGIN = 600 };
/* The choice of a process alone by these settings; measures where nothing is
 * kept. origin_p: where it is from, in words.
 * Errors: INVALID_ARGUMENT for a file that the setting names. */
ulyx_status_t uli_copies_choose(const struct uli_settings *settings,
    struct uli_copy_choice *choice_p, char origin_p[ULI_COPIES_ORIGIN]);

#endif
