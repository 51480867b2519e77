/* SPDX-License-Identifier: Apache-2.0
 *
 * The check of a row: what timing left in every set; then, in each pass, all
 * sets from poison anew, so that an element that no operation writes shows,
 * and for the two permutations the way back, which must give what was sent.
 */
#include "perf.h"

#include <stdio.h>

/* There and back again; false on failure. Adds what does not come back. */
static bool
round_trip(struct perf_rank *ranks, int count_ranks, int64_t *wrong_p)
{
    ulyx_status_t status = ULYX_SUCCESS, end;

    if (ranks[0].operation > 1)
        return true;
    ulyx_group_start();
    for (int r = 0; r < count_ranks && status == ULYX_SUCCESS; r++) {
        void *src[PERF_TENSORS], *dst[PERF_TENSORS];

        perf_rank_pointers(&ranks[r], &ranks[r].dst, 0, src);
        perf_rank_pointers(&ranks[r], &ranks[r].back, 0, dst);
        status = ulyx_reshuffle_execute(ranks[r].plan, 1 - ranks[r].operation,
            (const void *const *)src, dst, NULL);
    }
    end = ulyx_group_end();
    if (status != ULYX_SUCCESS || end != ULYX_SUCCESS) {
        fprintf(stderr, "ulyx_perf: round trip: %s\n", ulyx_last_error());
        return false;
    }
    for (int r = 0; r < count_ranks; r++) {
        const struct perf_rank *rank = &ranks[r];

        for (int32_t t = 0; t < rank->shape->params.ntensors; t++)
            for (int64_t i = 0; i < rank->src.extent[t]; i++)
                *wrong_p += rank->src.base[rank->src.offset[t] + i] !=
                            rank->back.base[rank->back.offset[t] + i];
    }
    return true;
}

/* Every element of every rank's destination, guards included. */
static int64_t
check_all(struct perf_rank *ranks, int count_ranks)
{
    int64_t wrong = 0;

    for (int r = 0; r < count_ranks; r++)
        wrong += perf_check(&ranks[r]);
    return wrong;
}

bool
perf_verify(
    struct perf_rank *ranks, int count_ranks, int passes, int64_t *wrong_p)
{
    int64_t wrong = check_all(ranks, count_ranks);

    for (int pass = 0; pass < passes; pass++) {
        /* A rank that is ahead must not store where a peer still fills. */
        for (int r = 0; r < count_ranks; r++)
            perf_fill(&ranks[r]);
        if (!perf_barrier(ranks, count_ranks) ||
            !perf_run_ulyx(ranks, count_ranks, ranks[0].sets))
            return false;
        wrong += check_all(ranks, count_ranks);
        if (!round_trip(ranks, count_ranks, &wrong))
            return false;
    }
    *wrong_p = wrong;
    return true;
}
