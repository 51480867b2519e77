/* SPDX-License-Identifier: Apache-2.0
 *
 * See reshuffle_fixture.h.
 */
#include "collectives/exchange/reshuffle_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include "support/test.h"

const struct mode modes[MODES] = {{"windows", 1, -1, 0}, {"rings", 0, -1, 512},
    {"slots", 0, 65536, 0}, {"mixed", 2, -1, 512}};

struct fixture *
fixture_new(const struct mode *mode, int32_t dtype)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct test_random random = {42};
    setenv("ULYX_CMA", "off", 1);
    world_ranks_init(&f->ranks, RANKS);
    unsetenv("ULYX_CMA");
    world_plain_case(&f->w, RANKS, 32, 8, 2, 8, dtype);
    f->w.fixed_limits = true;
    f->w.slot_bytes = mode->slot_bytes;
    f->w.bytes_in_flight = mode->bytes_in_flight;
    assert_true(world_draw(&f->w, &f->ranks, &random, mode->memory));
    world_fill(&f->w);
    return f;
}

void
fixture_free(struct fixture *f)
{
    world_free(&f->w);
    world_ranks_free(&f->ranks);
    free(f);
}

void
fixture_run(struct fixture *f, rank_fn body)
{
    assert_int_equal(ranks_run_threads(RANKS, body, f, LIMIT_S), 0);
}

void
pause_ms(int ms)
{
    struct timespec time = {0, ms * 1000000L};
    nanosleep(&time, NULL);
}
