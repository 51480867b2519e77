/* SPDX-License-Identifier: Apache-2.0
 *
 * The limit of small calls: the bytes of the exchange are copied as vs_memcpy
 * copies them, then each rank sets one flag at each rank. This comparator
 * agrees on nothing, detects no failure and has no outcomes; these are what an
 * exchange pays for with the time that it takes beyond this limit.
 *
 * Flag q in rank p's window is the number of operations for which rank q has
 * made all copies.
 */
#include "perf.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/system/clock.h"
#include "comm/comm.h"

enum {
    FLAG_BYTES = 64, /* a cache line each */
    SPINS = 512,     /* between yields */
};

bool
perf_flag_open(struct perf_rank *rank)
{
    ulyx_mem_params_t params = ULYX_MEM_PARAMS_INIT;
    void *address;

    rank->round = 0;
    if (!perf_status_ok("window of flags",
            ulyx_mem_alloc((int64_t)FLAG_BYTES * rank->nranks, &params,
                &rank->flag_mem, &address)))
        return false;
    rank->flags = address;
    rank->flag_of = calloc((size_t)rank->nranks, sizeof(*rank->flag_of));
    return perf_status_ok(
               "flags", rank->flag_of ? ULYX_SUCCESS : ULYX_ERR_NO_MEMORY) &&
           perf_status_ok(
               "attach", ulyx_mem_attach(rank->comm, rank->flag_mem));
}

void
perf_flag_close(struct perf_rank *rank)
{
    if (!rank->flag_mem)
        return;
    ulyx_mem_detach(rank->comm, rank->flag_mem);
    ulyx_mem_free(rank->flag_mem);
    free(rank->flag_of);
    rank->flag_mem = NULL;
    rank->flag_of = NULL;
}

/* Finds this rank's flags at all ranks, which have attached their windows. */
static bool
flags_find(struct perf_rank *rank)
{
    int64_t offset, at = (int64_t)FLAG_BYTES * rank->rank;
    uint32_t window;
    bool found = uli_window_find(rank->comm, rank->flags, 1, &window, &offset);

    for (int32_t p = 0; found && p < rank->nranks; p++) {
        rank->flag_of[p] = p == rank->rank
                               ? (void *)(rank->flags + at)
                               : uli_window_address(rank->comm, p, window, at,
                                     (int64_t)sizeof(uint64_t));
        found = rank->flag_of[p];
    }
    if (!found)
        fprintf(stderr,
            "ulyx_perf: --vs flag needs ranks that map each other's memory\n");
    return found;
}

static bool
flags_post(struct perf_rank *rank)
{
    if (rank->round == 0 && !flags_find(rank))
        return false;
    rank->round++;
    for (int32_t i = 0; i < rank->nranks; i++)
        atomic_store_explicit(rank->flag_of[(rank->rank + i) % rank->nranks],
            rank->round, memory_order_release);
    return true;
}

/* Waits for the flags of all ranks. A rank that waits yields its core now and
 * then, as ranks may share cores. */
static bool
flags_await(struct perf_rank *rank)
{
    uli_deadline_t deadline = uli_deadline_in(rank->comm->timeout_s);
    int32_t p = 0;

    for (int64_t spins = 1; p < rank->nranks; spins++) {
        const _Atomic uint64_t *flag =
            (const _Atomic uint64_t *)(rank->flags + (int64_t)FLAG_BYTES * p);
        if (atomic_load_explicit(flag, memory_order_acquire) >= rank->round) {
            p++;
        } else if (spins % SPINS == 0) {
            if (uli_deadline_over(deadline))
                return perf_status_ok("--vs flag", ULYX_ERR_TIMEOUT);
            sched_yield();
        }
    }
    return true;
}

bool
perf_run_flag(struct perf_rank *ranks, int count_ranks, int count, int copy)
{
    bool good = true;

    for (int i = 0; good && i < count; i++) {
        good = perf_run_memcpy(ranks, count_ranks, 1, copy);
        for (int r = 0; good && r < count_ranks; r++)
            good = flags_post(&ranks[r]);
        for (int r = 0; good && r < count_ranks; r++)
            good = flags_await(&ranks[r]);
    }
    return good;
}
