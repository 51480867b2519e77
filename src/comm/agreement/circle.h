/* SPDX-License-Identifier: Apache-2.0
 *
 * Circles of ranks that stand still, each for the next. Pure: over a table.
 */
#ifndef ULI_COMM_AGREEMENT_CIRCLE_H
#define ULI_COMM_AGREEMENT_CIRCLE_H

#include <stdbool.h>
#include <stdint.h>
#include "comm/agreement/board.h"

/* A rank's row: what its board says, and whether the rank that it waits for is
 * known not to have begun its call. */
struct uli_circle_row {
    struct uli_board_copy standing;
    bool away;
};

/* The length of the circle that `rank` is part of: it waits for a rank that
 * waits for a rank ... that waits for it, and each of them stands still in
 * another call than the one that waits for it, and has not begun that one. So
 * none of them can go on before another does, and none ever will. 0: it is on
 * no such circle. Rows out of range count as ranks that do not stand still. */
int32_t uli_circle_length(
    const struct uli_circle_row *rows, int32_t nranks, int32_t rank);

#endif
