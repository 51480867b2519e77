/* SPDX-License-Identifier: Apache-2.0
 *
 * A wait that stands still logs one warning, long before its deadline: the
 * awaited ranks, and their present calls from their flight recorders.
 */
#ifndef ULI_COMM_RECORD_STALL_H
#define ULI_COMM_RECORD_STALL_H

#include "comm/comm.h"

/* One line at WARN: "reshuffle, call 7 has waited for 10 s, for rank 3 (node5,
 * pid 412): in barrier, collective call 2, begun 9.8 s ago". Of several ranks
 * the first ones are described. Any thread that may wait for the communicator's
 * peers. */
void uli_comm_warn_stall(
    ulyx_comm_t *comm, const char *what, const struct uli_late *late);

/* "reshuffle, call 7 of plan 2"; "barrier, collective call 3"; "attach". */
void uli_recorder_call_text(
    const struct uli_recorder_call *call, char *text_p, size_t bytes);

/* When a wait that begins now logs its warning; INT64_MAX: never. */
static inline int64_t
uli_comm_stall_ns(const ulyx_comm_t *comm, int64_t now_ns)
{
    return comm->settings.stall_warn_s > 0
               ? now_ns + (int64_t)(comm->settings.stall_warn_s * 1e9)
               : INT64_MAX;
}

#endif
