/* SPDX-License-Identifier: Apache-2.0
 *
 * The check of a row. First what timing left in the schedule's sets (on a
 * device, where comparators write to the same tensors, what one more call per
 * set leaves). Then, in each pass, the schedule's sets are poisoned and
 * exchanged anew, so that an element that no operation writes is found; for the
 * two permutations the exchange back must give what was sent.
 */
#include "perf.h"

#include <stdio.h>

/* Exchanges forth and back; false on failure. Adds the elements that differ. */
static bool
round_trip(struct perf_rank *ranks, int count_ranks, int64_t *wrong_p)
{
    ulyx_status_t status = ULYX_SUCCESS, end = ULYX_SUCCESS;
    bool grouped = ranks[0].stream == NULL;

    if (ranks[0].direction > 1)
        return true;
    if (grouped)
        ulyx_group_start();
    for (int r = 0; r < count_ranks && status == ULYX_SUCCESS; r++) {
        void *src[PERF_TENSORS], *dst[PERF_TENSORS];

        perf_rank_pointers(&ranks[r], &ranks[r].dst, ranks[r].algo, src);
        perf_rank_pointers(&ranks[r], &ranks[r].back, 0, dst);
        status = ulyx_reshuffle_execute(ranks[r].plan, 1 - ranks[r].direction,
            (const void *const *)src, dst, ranks[r].stream);
    }
    if (grouped)
        end = ulyx_group_end();
    if (status != ULYX_SUCCESS || end != ULYX_SUCCESS ||
        !perf_device_wait(ranks, count_ranks)) {
        fprintf(stderr, "ulyx_perf: round trip: %s\n", ulyx_last_error());
        return false;
    }
    for (int r = 0; r < count_ranks; r++) {
        struct perf_rank *rank = &ranks[r];

        if (!perf_side_down(rank, &rank->back))
            return false;
        for (int32_t t = 0; t < rank->shape->params.ntensors; t++)
            for (int64_t i = 0; i < rank->src.extent[t]; i++)
                *wrong_p += rank->src.base[rank->src.offset[t] + i] !=
                            rank->back.base[rank->back.offset[t] + i];
    }
    return true;
}

/* Checks every element of every rank's destination, guards included. */
static bool
check_all(struct perf_rank *ranks, int count_ranks, int64_t *wrong_p)
{
    for (int r = 0; r < count_ranks; r++) {
        if (!perf_side_down(&ranks[r], &ranks[r].dst))
            return false;
        *wrong_p += perf_check(&ranks[r]);
    }
    return true;
}

static int
sets_in_use(const struct perf_rank *rank)
{
    return rank->sets / rank->nplans;
}

bool
perf_verify_timed(struct perf_rank *ranks, int count_ranks, int64_t *wrong_p)
{
    if (ranks[0].stream &&
        !(perf_run_ulyx(ranks, count_ranks, sets_in_use(&ranks[0])) &&
            perf_device_wait(ranks, count_ranks)))
        return false;
    return check_all(ranks, count_ranks, wrong_p);
}

bool
perf_verify_anew(
    struct perf_rank *ranks, int count_ranks, int passes, int64_t *wrong_p)
{
    for (int pass = 0; pass < passes; pass++) {
        /* A rank that is ahead must not store where a peer still fills. */
        for (int r = 0; r < count_ranks; r++)
            if (!perf_fill(&ranks[r]))
                return false;
        if (!perf_barrier(ranks, count_ranks) ||
            !perf_run_ulyx(ranks, count_ranks, sets_in_use(&ranks[0])) ||
            !perf_device_wait(ranks, count_ranks) ||
            !check_all(ranks, count_ranks, wrong_p))
            return false;
        if (!round_trip(ranks, count_ranks, wrong_p))
            return false;
    }
    return true;
}
