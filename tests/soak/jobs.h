/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that meet by a unique id, over and over, and what a process holds.
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
    ulyx_unique_id_t ids[2];      /* of creation n at n mod 2 */
    _Atomic int taken[JOB_RANKS]; /* ids read so far, by rank */
};

/* Rank 0 makes an id, the others wait for it. Creation n of the job (from 0),
 * in step at all ranks. TIMEOUT where rank 0 made none. */
ulyx_status_t job_meet(struct job *job, int n, int nranks, int rank,
    double timeout_s, ulyx_comm_t **comm_p);

/* Resources of this process. */
struct holdings {
    int64_t rss_bytes, heap_bytes; /* of malloc, in use */
    int descriptors, mappings, threads;
};
struct holdings holdings_now(void);
/* Waits, at most limit_s, until no more descriptors, mappings and threads are
 * held than before; false, having printed both, if that does not come. */
bool holdings_back(const struct holdings *before, double limit_s);
/* At most slack_bytes more of the heap than before? Prints both when not. Exact
 * only where the allocator keeps no freed blocks of threads (in glibc's
 * tcache), and always true under a sanitizer, whose allocator has no count. */
bool holdings_heap_is(const struct holdings *before, int64_t slack_bytes);
void holdings_print(const char *when, const struct holdings *now);

#endif
