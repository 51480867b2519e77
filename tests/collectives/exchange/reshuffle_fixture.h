/* SPDX-License-Identifier: Apache-2.0
 *
 * Four threads as ranks with q, k and v, on each way that bytes can take.
 */
#ifndef TESTS_COLLECTIVES_EXCHANGE_RESHUFFLE_FIXTURE_H
#define TESTS_COLLECTIVES_EXCHANGE_RESHUFFLE_FIXTURE_H

#include "collectives/exchange/reshuffle_world.h"
#include "support/ranks.h"

enum { RANKS = 4, LIMIT_S = 30, MODES = 4 };

/* `memory` is as in world_draw, slot_bytes and bytes_in_flight as in the plan's
 * parameters. */
struct mode {
    const char *name;
    int memory;
    int64_t slot_bytes, bytes_in_flight;
};
extern const struct mode modes[MODES];

struct fixture {
    struct world_ranks ranks;
    struct world w;
};

/* Draws and fills all tensors. The bodies create the plans. */
struct fixture *fixture_new(const struct mode *mode, int32_t dtype);
void fixture_free(struct fixture *f);
/* Runs the body on every rank, with the fixture as its context. */
void fixture_run(struct fixture *f, rank_fn body);

void pause_ms(int ms);
#endif
