/* SPDX-License-Identifier: Apache-2.0
 *
 * How the ranks of soaks meet, and what a process holds; see jobs.h.
 */
#include "soak/jobs.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "base/status.h"
#include "base/system/clock.h"
#include "bootstrap/meet/root.h"

#ifdef __GLIBC__
#include <malloc.h>
#define HAS_MALLINFO2 __GLIBC_PREREQ(2, 33)
#endif

/* Rank 0 may write id n over id n - 2 only when all ranks have read the
 * latter. */
static bool
slowest_has(struct job *job, int n, int nranks)
{
    for (int r = 0; r < nranks; r++)
        if (atomic_load(&job->taken[r]) < n)
            return false;
    return true;
}

static ulyx_status_t
share_id(struct job *job, int n, int nranks, int rank, uli_deadline_t deadline)
{
    if (rank == 0) {
        while (n >= 2 && !slowest_has(job, n - 1, nranks)) {
            if (uli_deadline_over(deadline))
                return uli_error(ULYX_ERR_TIMEOUT, "job: ids are not read");
            usleep(100);
        }
        ulyx_status_t status = ulyx_unique_id_create(&job->ids[n & 1]);
        if (status != ULYX_SUCCESS)
            return status;
        atomic_store(&job->created, n + 1);
        return ULYX_SUCCESS;
    }
    while (atomic_load(&job->created) <= n) {
        if (uli_deadline_over(deadline))
            return uli_error(ULYX_ERR_TIMEOUT, "job: rank 0 made no id");
        usleep(100);
    }
    return ULYX_SUCCESS;
}

ulyx_status_t
job_meet(struct job *job, int n, int nranks, int rank, double timeout_s,
    ulyx_comm_t **comm_p)
{
    ulyx_comm_params_t params = ULYX_COMM_PARAMS_INIT;
    ulyx_unique_id_t id;
    params.timeout_s = timeout_s;
    /* how long the thread of a failed meeting stays */
    uli_root_limit_linger(0.5);
    ulyx_status_t status =
        share_id(job, n, nranks, rank, uli_deadline_in(timeout_s));
    if (status != ULYX_SUCCESS)
        return status;
    id = job->ids[n & 1];
    atomic_store(&job->taken[rank], n + 1);
    status = ulyx_comm_create(&id, nranks, rank, &params, comm_p);
    /* An id that was used keeps a thread until it is destroyed. After a failure
     * the id stays, because it still answers ranks that come late. */
    if (rank == 0 && status == ULYX_SUCCESS)
        ulyx_unique_id_destroy(&id);
    return status;
}

/* ---- holdings ------------------------------------------------------------ */

static int
count_entries(const char *path)
{
    DIR *folder = opendir(path);
    int count = 0;
    if (!folder)
        return -1;
    for (struct dirent *entry; (entry = readdir(folder));)
        count += entry->d_name[0] != '.';
    closedir(folder);
    return count;
}

/* Counts the mappings of memfds, which are ulyx's own. The allocator's mappings
 * come and go. */
static int
count_mappings(void)
{
    FILE *file = fopen("/proc/self/maps", "re");
    char line[512];
    int count = 0;
    while (file && fgets(line, sizeof(line), file))
        count += strstr(line, "/memfd:") != NULL;
    if (file)
        fclose(file);
    return count;
}

/* Returns 0 where the C library has no such count. */
static int64_t
heap_used(void)
{
#if HAS_MALLINFO2
    struct mallinfo2 heap = mallinfo2();
    return (int64_t)(heap.uordblks + heap.hblkhd);
#else
    return 0;
#endif
}

struct holdings
holdings_now(void)
{
    struct holdings now = {0};
    FILE *file = fopen("/proc/self/statm", "re");
    long pages = 0;
    if (file) {
        if (fscanf(file, "%*s %ld", &pages) != 1)
            pages = 0;
        fclose(file);
    }
    now.rss_bytes = (int64_t)pages * sysconf(_SC_PAGESIZE);
    now.heap_bytes = heap_used();
    now.descriptors = count_entries("/proc/self/fd");
    now.mappings = count_mappings();
    now.threads = count_entries("/proc/self/task");
    return now;
}

void
holdings_print(const char *when, const struct holdings *now)
{
    fprintf(stderr,
        "%s: %lld KiB resident, %lld bytes of heap, %d descriptors, %d "
        "mappings, "
        "%d threads\n",
        when, (long long)now->rss_bytes / 1024, (long long)now->heap_bytes,
        now->descriptors, now->mappings, now->threads);
}

bool
holdings_heap_is(const struct holdings *before, int64_t slack_bytes)
{
    struct holdings now = holdings_now();
    if (now.heap_bytes - before->heap_bytes <= slack_bytes)
        return true;
    holdings_print("before", before);
    holdings_print("after", &now);
    return false;
}

/* A thread sanitizer adds a thread of its own when a process starts its first
 * thread. */
#if defined(__SANITIZE_THREAD__)
enum { SANITIZER_THREADS = 1 };
#else
enum { SANITIZER_THREADS = 0 };
#endif

bool
holdings_back(const struct holdings *before, double limit_s)
{
    struct holdings now = holdings_now();
    uli_deadline_t deadline = uli_deadline_in(limit_s);
    while (now.descriptors > before->descriptors ||
           now.mappings > before->mappings ||
           now.threads > before->threads + SANITIZER_THREADS) {
        if (uli_deadline_over(deadline)) {
            holdings_print("before", before);
            holdings_print("after", &now);
            return false;
        }
        usleep(1000);
        now = holdings_now();
    }
    return true;
}
