/* SPDX-License-Identifier: Apache-2.0
 *
 * Round n uses buffer n mod 2: a rank that posts n + 1 has read all of n, and a
 * rank posts n + 2 only after all ranks have posted n + 1.
 */
#include "comm/meet.h"

#include <string.h>
#include <time.h>
#include "bootstrap/bootstrap.h"
#include "support/ranks.h"

enum { RANKS = 64, BYTES = 4096 };

struct place {
    _Atomic uint64_t round;
    unsigned char data[2][BYTES];
};

struct meet {
    int nranks;
    struct place places[RANKS];
};

struct member {
    struct meet *meet;
    int rank;
};

struct meet *
meet_new(int nranks)
{
    struct meet *meet = ranks_shared(sizeof(*meet));
    meet->nranks = nranks;
    return meet;
}

void
meet_free(struct meet *meet)
{
    ranks_shared_free(meet, sizeof(*meet));
}

static int
meet_allgather(void *context, const void *mine, void *all, size_t bytes)
{
    struct member *me = context;
    struct place *places = me->meet->places;
    uint64_t round = atomic_load(&places[me->rank].round) + 1;
    uli_deadline_t deadline = uli_deadline_in(30);
    if (bytes > BYTES)
        return 1;
    memcpy(places[me->rank].data[round & 1], mine, bytes);
    atomic_store(&places[me->rank].round, round);
    for (int p = 0; p < me->meet->nranks; p++) {
        while (atomic_load(&places[p].round) < round) {
            struct timespec nap = {0, 50000};
            if (uli_deadline_over(deadline))
                return 2;
            nanosleep(&nap, NULL);
        }
        memcpy(
            (char *)all + (size_t)p * bytes, places[p].data[round & 1], bytes);
    }
    return 0;
}

ulyx_status_t
meet_comm_by(struct meet *meet, int rank, const ulyx_comm_params_t *params,
    ulyx_comm_t **comm_p)
{
    struct member me = {meet, rank};
    struct uli_bootstrap *bootstrap;
    ULI_TRY(uli_bootstrap_open_callback(
        meet_allgather, &me, meet->nranks, rank, &bootstrap));
    ulyx_status_t status = uli_comm_create(bootstrap, meet->nranks, rank,
        params, uli_deadline_in(params->timeout_s), comm_p);
    bootstrap->ops->close(bootstrap);
    return status;
}

ulyx_status_t
meet_comm(struct meet *meet, int rank, double timeout_s, ulyx_comm_t **comm_p)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    params.timeout_s = timeout_s;
    return meet_comm_by(meet, rank, &params, comm_p);
}

bool
meet_gather(struct meet *meet, int rank, uint64_t mine, uint64_t *all_p)
{
    struct member me = {meet, rank};
    return meet_allgather(&me, &mine, all_p, sizeof(mine)) == 0;
}

bool
meet_barrier(struct meet *meet, int rank)
{
    uint64_t all[RANKS];
    return meet_gather(meet, rank, 0, all);
}
