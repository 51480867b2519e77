/* SPDX-License-Identifier: Apache-2.0
 *
 * The board: a part of the control block in which a rank that stands still in a
 * blocking wait publishes its call, the rank for which it waits, and whether
 * more than one thread calls the communicator. Boards serve to find ranks in
 * different calls (differ.h).
 *
 * A rank whose board has an awaited rank is in the wait of the published call,
 * and begins no other call of the communicator before its epoch has changed:
 * the wait itself fills in the board, and clears it before it returns. The
 * epoch changes with every change of the board, so where two reads find the
 * same epoch, the rank stood still all the time between them.
 *
 * One call at a time holds the board. Of several operations for which a group
 * waits, the first holds the board: the group ends when all operations have
 * ended, so one of them is enough. An operation does not hold the board while
 * calls are queued in a group, because a queued call begins in its turn,
 * whatever becomes of the operation.
 */
#ifndef ULI_COMM_AGREEMENT_BOARD_H
#define ULI_COMM_AGREEMENT_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct ulyx_comm;

/* Names a call on all ranks. */
struct uli_call_key {
    uint32_t call; /* enum uli_call */
    int32_t direction;
    uint64_t plan, number, fingerprint; /* as the flight recorder's */
};

/* In the control block. */
struct uli_board {
    _Alignas(64) _Atomic uint64_t epoch; /* odd: a write is under way */
    _Atomic uint32_t concurrent; /* 1: several threads call, or may call */
    _Atomic int32_t awaited;     /* -1: waits for no rank */
    _Atomic uint32_t call;
    _Atomic int32_t direction;
    _Atomic uint64_t plan, number, fingerprint;
};

/* A copy of a board. */
struct uli_board_copy {
    uint64_t epoch;
    int32_t awaited; /* -1: does not stand still, or waits for no rank */
    uint32_t pad;
    struct uli_call_key key;
};

/* Called before peers may read the board. */
void uli_board_open(struct ulyx_comm *comm);

/* The calling thread, or the thread for which it acts, begins a call. A second
 * thread turns the board off for good. Called before peers can notice the
 * call. */
void uli_board_enter(struct ulyx_comm *comm);

/* The wait of a call stands still for a rank that has not begun the call.
 * holder: any address that belongs to this call alone. May be repeated, by one
 * thread at a time. */
void uli_board_publish(struct ulyx_comm *comm, const void *holder,
    const struct uli_call_key *key, int32_t awaited);
/* The wait continues or has ended. Does nothing where the call does not hold
 * the board. */
void uli_board_withdraw(struct ulyx_comm *comm, const void *holder);

/* A call is queued in a group; a queued call has run. */
void uli_board_queue(struct ulyx_comm *comm);
void uli_board_unqueue(struct ulyx_comm *comm);
/* The calling thread runs queued calls from now on, one after another. */
void uli_board_run_queue(bool runs);
/* Whether an operation of the calling thread may hold the board. */
bool uli_board_is_free(struct ulyx_comm *comm);

/* Reads any rank's board. Any thread, also of another process. */
void uli_board_read(
    const struct uli_board *board, struct uli_board_copy *standing_p);

static inline bool
uli_call_key_equal(const struct uli_call_key *a, const struct uli_call_key *b)
{
    return a->call == b->call && a->plan == b->plan && a->number == b->number;
}

#endif
