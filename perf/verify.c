/* SPDX-License-Identifier: Apache-2.0
 *
 * The check of a row. First, the destinations that the timed operations have
 * left in the schedule's sets are checked; on a device, where comparators write
 * to the same tensors, one more operation per set is made before. Then, in each
 * pass, all destinations are filled with 0xff and written anew, so that
 * elements that no operation writes are found. For the two permutations, the
 * exchange in the inverse direction must restore the source.
 */
#include "perf.h"

#include <stdio.h>

/* Exchanges the schedule's first destination set in the inverse direction, and
 * adds the number of bytes that differ from the source; false on failure. */
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

/* Checks every element of the destinations of this thread's ranks, and the
 * bytes between tensors. */
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
        /* The barrier keeps a rank from storing to memory that a peer still
         * fills. */
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
