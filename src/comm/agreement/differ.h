/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks in different calls are found out, not timed out, where that can be
 * proved: by a circle of ranks, each inside a blocking wait for the next, which
 * is in another call and has not begun that one (board.h, circle.h).
 *
 * A rank that stands still follows from itself whom ranks wait for: on its own
 * node in their control blocks, elsewhere by asking them. Back at itself it has
 * a circle; half a second later it looks again at all of it. Where each epoch
 * is the same, all stood still at the same time, and the first of them to go on
 * would have needed another one to go on before: none ever will. Then the
 * communicator fails by MISMATCH, at all ranks, with two of the calls.
 *
 * No proof, so no alarm: a rank outside the library, which is only slow, or
 * stopped and on another node; more than one thread that calls the
 * communicator; memory of devices; circles over several communicators, or of
 * more than ULI_DIFFER_MOST ranks. There the deadline holds.
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

/* What was found: the lowest rank of the circle, and the one that it waits for;
 * in memory that ranks share, and in messages. */
struct uli_differ {
    int32_t ranks[2];
    int32_t length, pad; /* of the circle */
    struct uli_call_key keys[2];
};

struct uli_suspicion;

/* Of a communicator. Errors: NO_MEMORY. */
ulyx_status_t uli_differ_open(struct ulyx_comm *comm);
void uli_differ_close(struct ulyx_comm *comm);

/* For which of the ranks in question a call waits: one that stands still in
 * another call before others. candidate: has it not begun the call, as far as
 * this rank knows? returns -1: none. */
int32_t uli_differ_choose(struct ulyx_comm *comm,
    const struct uli_call_key *key,
    bool (*candidate)(void *context, int32_t rank), void *context);

/* Looks whether this rank is on such a circle, now and then from the wait of
 * the call that holds the board. May fail the communicator. */
void uli_differ_look(struct ulyx_comm *comm);

/* What this rank was told, or has found; false: nothing. */
bool uli_differ_told(struct ulyx_comm *comm, struct uli_differ *differ_p);
/* Fails the communicator by it, or by what rank `rank` has found where that did
 * not come. Any thread. Returns as uli_comm_fail. */
ulyx_status_t uli_differ_fail(struct ulyx_comm *comm, int32_t rank);

/* Hooks: another node's rank asks, answers, tells what was found. */
void uli_differ_answer(
    struct ulyx_comm *comm, int32_t from, const struct uli_message *message);
void uli_differ_hear(
    struct ulyx_comm *comm, int32_t from, const struct uli_message *message);
void uli_differ_receive(
    struct ulyx_comm *comm, const void *content, size_t bytes);

#endif
