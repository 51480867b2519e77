/* SPDX-License-Identifier: Apache-2.0
 *
 * Circles of ranks that stand still, each waiting for the next. Pure functions
 * over a table.
 */
#ifndef ULI_COMM_AGREEMENT_CIRCLE_H
#define ULI_COMM_AGREEMENT_CIRCLE_H

#include <stdbool.h>
#include <stdint.h>
#include "comm/agreement/board.h"

/* A rank's row: its board, and whether the rank for which it waits is known not
 * to have begun its call. */
struct uli_circle_row {
    struct uli_board_copy standing;
    bool away;
};

/* The length of the circle that `rank` is part of; 0: none. On a circle each
 * rank waits for the next, and the last for the first. Let a be any rank of the
 * circle and b the rank for which a waits: b stands still in another call than
 * a, and a knows that b has not begun the call of a. So no rank can continue
 * before another one does, and none ever will. Rows out of range count as ranks
 * that do not stand still. */
int32_t uli_circle_length(
    const struct uli_circle_row *rows, int32_t nranks, int32_t rank);

#endif
