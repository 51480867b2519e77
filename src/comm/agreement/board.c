/* SPDX-License-Identifier: Apache-2.0
 *
 * The board; see board.h. Its writer makes the epoch odd, stores the fields and
 * makes the epoch even again: a reader that finds the same even epoch before
 * and after has a whole copy. Writers take turns by comm->board_holder.
 */
#include "comm/agreement/board.h"

#include <sched.h>
#include "base/system/thread.h"
#include "comm/comm.h"

void
uli_board_open(ulyx_comm_t *comm)
{
    struct uli_board *board = &comm->control->board;

    atomic_store(&board->awaited, -1);
    /* The host does not know which calls a device's stream has reached. */
    atomic_store(
        &board->concurrent, (comm->flags & ULYX_COMM_CONCURRENT) != 0 ||
                                comm->memory_kind != ULYX_MEMORY_HOST);
}

static void
board_begin(struct uli_board *board)
{
    atomic_fetch_add_explicit(&board->epoch, 1, memory_order_seq_cst);
    atomic_thread_fence(memory_order_seq_cst);
}

static void
board_end(struct uli_board *board)
{
    atomic_fetch_add_explicit(&board->epoch, 1, memory_order_seq_cst);
}

/* Sets a mark that stays, and changes the epoch, so that every reader notices.
 * The epoch grows by two at once: whether it is odd or even belongs to the
 * holder of the board. */
static void
board_turn_off(struct uli_board *board)
{
    atomic_store(&board->concurrent, 1);
    atomic_fetch_add(&board->epoch, 2);
}

void
uli_board_enter(ulyx_comm_t *comm)
{
    const void *me = uli_thread_caller(), *nobody = NULL;

    if (atomic_load_explicit(&comm->caller, memory_order_relaxed) == me ||
        atomic_compare_exchange_strong(&comm->caller, &nobody, me))
        return;
    if (atomic_load(&comm->control->board.concurrent) == 0)
        board_turn_off(&comm->control->board);
}

static bool
board_holds(const struct uli_board *board, const struct uli_call_key *key,
    int32_t awaited)
{
    return atomic_load_explicit(&board->awaited, memory_order_relaxed) ==
               awaited &&
           atomic_load_explicit(&board->call, memory_order_relaxed) ==
               key->call &&
           atomic_load_explicit(&board->plan, memory_order_relaxed) ==
               key->plan &&
           atomic_load_explicit(&board->number, memory_order_relaxed) ==
               key->number;
}

static bool
board_take(ulyx_comm_t *comm, const void *holder)
{
    const void *nobody = NULL;

    return atomic_load(&comm->board_holder) == holder ||
           atomic_compare_exchange_strong(&comm->board_holder, &nobody, holder);
}

void
uli_board_publish(ulyx_comm_t *comm, const void *holder,
    const struct uli_call_key *key, int32_t awaited)
{
    struct uli_board *board = &comm->control->board;

    if (atomic_load(&board->concurrent) != 0 || !board_take(comm, holder) ||
        board_holds(board, key, awaited))
        return;
    board_begin(board);
    atomic_store(&board->awaited, awaited);
    atomic_store(&board->call, key->call);
    atomic_store(&board->direction, key->direction);
    atomic_store(&board->plan, key->plan);
    atomic_store(&board->number, key->number);
    atomic_store(&board->fingerprint, key->fingerprint);
    board_end(board);
}

void
uli_board_withdraw(ulyx_comm_t *comm, const void *holder)
{
    struct uli_board *board = &comm->control->board;

    if (atomic_load_explicit(&comm->board_holder, memory_order_relaxed) !=
        holder)
        return;
    board_begin(board);
    atomic_store(&board->awaited, -1);
    board_end(board);
    atomic_store(&comm->board_holder, NULL);
}

void
uli_board_queue(ulyx_comm_t *comm)
{
    atomic_fetch_add(&comm->queued, 1);
}

void
uli_board_unqueue(ulyx_comm_t *comm)
{
    atomic_fetch_sub(&comm->queued, 1);
}

static _Thread_local bool runs_queue;

void
uli_board_run_queue(bool runs)
{
    runs_queue = runs;
}

bool
uli_board_is_free(ulyx_comm_t *comm)
{
    return runs_queue || atomic_load(&comm->queued) == 0;
}

/* A board that changes during the read belongs to a rank that does not stand
 * still. */
void
uli_board_read(const struct uli_board *board, struct uli_board_copy *standing_p)
{
    struct uli_board_copy copy = {.epoch = atomic_load(&board->epoch)};

    copy.awaited = atomic_load(&board->awaited);
    copy.key.call = atomic_load(&board->call);
    copy.key.direction = atomic_load(&board->direction);
    copy.key.plan = atomic_load(&board->plan);
    copy.key.number = atomic_load(&board->number);
    copy.key.fingerprint = atomic_load(&board->fingerprint);
    if (copy.epoch % 2 != 0 || atomic_load(&board->concurrent) != 0 ||
        atomic_load(&board->epoch) != copy.epoch)
        copy = (struct uli_board_copy){.epoch = copy.epoch, .awaited = -1};
    *standing_p = copy;
}
