/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds ranks in different calls before the deadline, where that can be proved:
 * by a circle of ranks, each inside a blocking wait for the next, which is in
 * another call and has not begun the waiting rank's call (board.h, circle.h).
 *
 * A rank that stands still follows the chain of waits that begins at itself: on
 * its own node in the control blocks, on other nodes by messages. If the chain
 * leads back to this rank, the rank has found a circle, and half a second later
 * it reads the whole circle again. If each epoch is unchanged, all ranks of the
 * circle stood still at the same time; the first to continue would have needed
 * another one to continue before it, so none ever will. Then the communicator
 * fails by MISMATCH, at all ranks, with two of the calls in the text.
 *
 * There is no proof, and so no alarm: for a rank outside the library, which may
 * only be slow, or is stopped and on another node; where more than one thread
 * calls the communicator; for memory of devices; for circles over several
 * communicators, or of more than ULI_DIFFER_MOST ranks. In these cases the
 * deadline holds.
 */
#ifndef ULI_COMM_AGREEMENT_DIFFER_H
#define ULI_COMM_AGREEMENT_DIFFER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "comm/agreement/board.h"
#include "ulyx/types.h"

struct uli_message;

enum { ULI_DIFFER_MOST = 64 };

/* The record of a circle: its lowest rank and the rank for which that one
 * waits, with their calls. Lies in memory that ranks share, and in messages. */
struct uli_differ {
    int32_t ranks[2];
    int32_t length, pad; /* length: of the circle */
    struct uli_call_key keys[2];
};

struct uli_suspicion;

/* Opens and closes the search of a communicator. Errors: NO_MEMORY. */
ulyx_status_t uli_differ_open(struct ulyx_comm *comm);
void uli_differ_close(struct ulyx_comm *comm);

/* Chooses, among the candidates, the rank for which a call is published to
 * wait: first a rank of this node that stands still in another call, else any.
 * candidate: whether a rank, as far as this rank knows, has not begun the call.
 * Returns -1: none. */
int32_t uli_differ_choose(struct ulyx_comm *comm,
    const struct uli_call_key *key,
    bool (*candidate)(void *context, int32_t rank), void *context);

/* Searches for a circle through this rank. Called repeatedly from the wait of
 * the call that holds the board. May fail the communicator. */
void uli_differ_look(struct ulyx_comm *comm);

/* The circle that this rank has received or found; false: none. */
bool uli_differ_read(struct ulyx_comm *comm, struct uli_differ *differ_p);
/* Fails the communicator by MISMATCH with the circle in its text; where the
 * record of the circle has not arrived, names rank `rank`, which found it. Any
 * thread. Returns as uli_comm_fail. */
ulyx_status_t uli_differ_fail(struct ulyx_comm *comm, int32_t rank);

/* Hooks for messages of a rank of another node: a query (answer), an answer to
 * this rank's query (receive_answer), a circle that was found (receive). */
void uli_differ_answer(
    struct ulyx_comm *comm, int32_t from, const struct uli_message *message);
void uli_differ_receive_answer(
    struct ulyx_comm *comm, int32_t from, const struct uli_message *message);
void uli_differ_receive(
    struct ulyx_comm *comm, const void *content, size_t bytes);

#endif
