/* SPDX-License-Identifier: Apache-2.0
 *
 * The board: what a rank says while it stands still in a blocking wait, in its
 * control block: in which call it is, for which rank it waits, and whether more
 * than one thread calls the communicator. By the boards ranks in different
 * calls are found out (differ.h).
 *
 * A rank whose board names a rank is in the wait of that call, and begins no
 * other call of the communicator before its epoch has changed: the board is
 * filled in by the wait itself, and cleared before the wait returns. The epoch
 * changes with every change of the board, so two looks that find the same
 * epoch have seen the rank stand still all the time between them.
 *
 * One call at a time holds the board. Of several operations that a group waits
 * for the first one does: the group ends when all have, so it is enough. An
 * operation does not hold it while calls are queued, for those begin when they
 * come to it, whatever becomes of the operation.
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
    _Alignas(64) _Atomic uint64_t epoch; /* odd: is being written */
    _Atomic uint32_t concurrent; /* 1: several threads call, or may call */
    _Atomic int32_t awaited;     /* -1: stands still for nobody */
    _Atomic uint32_t call;
    _Atomic int32_t direction;
    _Atomic uint64_t plan, number, fingerprint;
};

/* As it was read. */
struct uli_board_copy {
    uint64_t epoch;
    int32_t awaited; /* -1: it does not stand still, or for nobody */
    uint32_t pad;
    struct uli_call_key key;
};

/* Before peers may read it. */
void uli_board_open(struct ulyx_comm *comm);

/* The calling thread, or the one that it acts for, begins a call. A second
 * thread turns the board off for good. Before anything of the call is seen. */
void uli_board_enter(struct ulyx_comm *comm);

/* The wait of the call `holder`, any address of its own, stands still for a
 * rank that has not begun it. Again and again, by one thread at a time. */
void uli_board_publish(struct ulyx_comm *comm, const void *holder,
    const struct uli_call_key *key, int32_t awaited);
/* It goes on, or has ended. Nothing where it does not hold the board. */
void uli_board_withdraw(struct ulyx_comm *comm, const void *holder);

/* Calls are queued in a group, and have run. */
void uli_board_queue(struct ulyx_comm *comm);
void uli_board_unqueue(struct ulyx_comm *comm);
/* The calling thread runs queued calls from now on, one after another. */
void uli_board_run_queue(bool runs);
/* May an operation of the calling thread hold the board? */
bool uli_board_is_free(struct ulyx_comm *comm);

/* Any thread, also of another process. */
void uli_board_read(
    const struct uli_board *board, struct uli_board_copy *standing_p);

static inline bool
uli_call_key_equal(const struct uli_call_key *a, const struct uli_call_key *b)
{
    return a->call == b->call && a->plan == b->plan && a->number == b->number;
}

#endif
