/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that meet again and again by unique ids, and the resources that a
 * process holds.
 */
#ifndef TESTS_SOAK_JOBS_H
#define TESTS_SOAK_JOBS_H

#include <stdatomic.h>
#include <stdbool.h>
#include "ulyx/ulyx.h"

enum { JOB_RANKS = 16, JOB_TIMEOUT_S = 20 };

/* In memory that the ranks share. */
struct job {
    _Atomic int created;          /* ids made so far */
    ulyx_unique_id_t ids[2];      /* the id of creation n is at n mod 2 */
    _Atomic int taken[JOB_RANKS]; /* ids read so far, by rank */
};

/* Creates a communicator: rank 0 makes an id, for which the other ranks wait. n
 * is the number of the creation in this job, from 0, and equal on all ranks.
 * Returns TIMEOUT where rank 0 made no id. */
ulyx_status_t job_meet(struct job *job, int n, int nranks, int rank,
    double timeout_s, ulyx_comm_t **comm_p);

/* Resources of this process. */
struct holdings {
    int64_t rss_bytes, heap_bytes; /* of the process; in use by malloc */
    int descriptors, mappings, threads;
};
struct holdings holdings_now(void);
/* Waits, at most limit_s, until the process holds no more descriptors, mappings
 * and threads than before. If the limit comes first, prints both and returns
 * false. */
bool holdings_back(const struct holdings *before, double limit_s);
/* Returns whether the heap has grown by at most slack_bytes; if not, prints
 * both. The answer is exact only where the allocator keeps no freed blocks per
 * thread (in glibc: tcache). Under a sanitizer, whose allocator has no count,
 * it is always true. */
bool holdings_heap_is(const struct holdings *before, int64_t slack_bytes);
void holdings_print(const char *when, const struct holdings *now);

#endif
