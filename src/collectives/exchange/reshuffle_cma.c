/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies boxes out of a peer's ordinary memory by the kernel
 * (process_vm_readv): one copy, no window. It costs a system call per batch of
 * ranges and page-table walks per range. So it is used only where a probe has
 * shown that the kernel permits it, and for rows so long that it costs less CPU
 * time than the two copies of the ring. The least such row is measured once per
 * process, with the transport that reads; on some machines (nested guests) the
 * kernel's copy is never faster.
 */
#include "collectives/exchange/exchange.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "base/log.h"
#include "base/size.h"
#include "collectives/plan/plan.h"

enum { BATCH = 256 };

/* ---- is it worth it? ----------------------------------------------------- */

/* Rows are measured against the two copies of the ring. */
enum {
    SAMPLE_BYTES = 256 << 10,
    SAMPLE_ROW_LEAST = 512,
    SAMPLE_ROW_MOST = 32768,
    SAMPLES = 5,
};

static int64_t
cpu_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * INT64_C(1000000000) + time.tv_nsec;
}

/* CPU time in ns to move SAMPLE_BYTES from `from`, contiguous, to rows in `to`
 * that lie 2 * row apart: by the reader, or by way of `between` (reader NULL).
 * The best of SAMPLES. */
static int64_t
cma_sample(char *to, char *from, char *between, int64_t row,
    const struct uli_tr_ops *reader)
{
    struct iovec local[SAMPLE_BYTES / SAMPLE_ROW_LEAST];
    struct iovec remote = {from, SAMPLE_BYTES};
    size_t count = (size_t)(SAMPLE_BYTES / row);
    int64_t best = INT64_MAX;
    for (int i = 0; i < SAMPLES; i++) {
        int64_t begin = cpu_ns();
        for (size_t k = 0; k < count; k++) {
            local[k].iov_base = to + (int64_t)k * 2 * row;
            local[k].iov_len = (size_t)row;
        }
        if (reader &&
            reader->read(getpid(), local, count, &remote, 1) != ULYX_SUCCESS)
            return INT64_MAX;
        if (!reader) {
            memcpy(between, from, SAMPLE_BYTES);
            for (size_t k = 0; k < count; k++)
                memcpy(
                    local[k].iov_base, between + (int64_t)k * row, (size_t)row);
        }
        best = uli_min(best, cpu_ns() - begin);
    }
    return best;
}

/* Logs, once per process, why ordinary memory goes through the rings. */
static void
cma_log_refused(const ulyx_comm_t *comm, const char *why)
{
    static atomic_flag logged = ATOMIC_FLAG_INIT;
    static const char what[] =
        "ordinary memory of other processes goes through rings: ";
    if (atomic_flag_test_and_set(&logged))
        return;
    if (!strcmp(comm->settings.cma, "on"))
        ULI_WARN(ULI_LOG_PLAN, comm->rank, "ULYX_CMA=on, but %s%s", what, why);
    else
        ULI_INFO(ULI_LOG_PLAN, comm->rank, "%s%s", what, why);
}

/* The least row in bytes from which on the reader wins; 0: it never does. */
static int64_t
cma_measure(const struct uli_tr_ops *reader)
{
    int64_t least_row = 0;
    char *memory = malloc(4 * SAMPLE_BYTES);
    if (!memory)
        return 0;
    memset(memory, 1, 4 * SAMPLE_BYTES);
    char *from = memory + 2 * SAMPLE_BYTES, *between = from + SAMPLE_BYTES;
    for (int64_t row = SAMPLE_ROW_LEAST; row <= SAMPLE_ROW_MOST && !least_row;
         row *= 2)
        if (cma_sample(memory, from, between, row, reader) <=
            cma_sample(memory, from, between, row, NULL))
            least_row = row;
    free(memory);
    return least_row;
}

/* The result for the reader that was measured last; a process has one
 * reader. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static const struct uli_tr_ops *measured; /* under lock, as is measured_row */
static int64_t measured_row;

/* Tries on this process's own memory; where that cannot be read, no peer's
 * can. */
static int64_t
measure_if_permitted(const ulyx_comm_t *comm, const struct uli_tr_ops *reader)
{
    if (reader->read_probe(getpid(), &uli_tr_probe_word) != ULYX_SUCCESS) {
        cma_log_refused(comm, uli_error_text());
        return 0;
    }
    int64_t least_row = cma_measure(reader);
    if (least_row == 0)
        cma_log_refused(comm, "the kernel's copies cost more here");
    return least_row;
}

static int64_t
least_row_of(const ulyx_comm_t *comm, const struct uli_tr_ops *reader)
{
    pthread_mutex_lock(&lock);
    if (measured != reader)
        measured_row = measure_if_permitted(comm, reader);
    measured = reader;
    int64_t least_row = measured_row;
    pthread_mutex_unlock(&lock);
    return least_row;
}

static const struct uli_tr_ops *
choose_reader(const ulyx_comm_t *comm, int32_t p)
{
    char why[256];
    return uli_tr_select(&comm->settings, &comm->peers[comm->rank].identity,
        &comm->peers[p].identity, ULI_TR_READ, why, sizeof(why));
}

/* The reader of the first peer in another process that has one. */
static const struct uli_tr_ops *
first_reader(const ulyx_comm_t *comm)
{
    const struct uli_tr_ops *reader = NULL;
    for (int32_t p = 0; p < comm->nranks && !reader; p++)
        if (!comm->peers[p].same_process)
            reader = choose_reader(comm, p);
    return reader;
}

/* reader: NULL where no peer can be read. */
static int64_t
min_row_by(const ulyx_comm_t *comm, const struct uli_tr_ops *reader)
{
    int64_t setting = comm->settings.cma_min_row_bytes;
    if (!strcmp(comm->settings.cma, "off"))
        return 0;
    if (comm->one_process || !strcmp(comm->settings.cma, "on"))
        return setting;
    int64_t least_row = reader ? least_row_of(comm, reader) : 0;
    return least_row ? uli_max(setting, least_row) : 0;
}

int64_t
uli_reader_min_row(const ulyx_comm_t *comm)
{
    return min_row_by(comm, first_reader(comm));
}

const struct uli_tr_ops *
uli_reader_of(const ulyx_comm_t *comm, int32_t p, uint64_t probe)
{
    const struct uli_identity *me = &comm->peers[comm->rank].identity;
    const struct uli_identity *peer = &comm->peers[p].identity;
    const struct uli_tr_ops *reader = choose_reader(comm, p);
    if (reader && me->pid_namespace != peer->pid_namespace) {
        cma_log_refused(comm, "they are in other pid namespaces");
        return NULL;
    }
    if (!reader || min_row_by(comm, reader) == 0)
        return NULL;
    if (reader->read_probe(peer->pid, (const void *)(uintptr_t)probe) ==
        ULYX_SUCCESS)
        return reader;
    cma_log_refused(comm, uli_error_text());
    return NULL;
}

/* Ranges of one side of a read. */
struct ranges {
    struct iovec at[BATCH];
    size_t count;
};

/* Adjacent ranges become one, because the kernel pins pages per range. Where
 * all heads of a source go to one destination, the source side is
 * contiguous. */
static void
add_range(struct ranges *ranges, uintptr_t base, size_t bytes)
{
    struct iovec *last = &ranges->at[ranges->count ? ranges->count - 1 : 0];
    if (ranges->count && (uintptr_t)last->iov_base + last->iov_len == base) {
        last->iov_len += bytes;
        return;
    }
    ranges->at[ranges->count].iov_base = (void *)base;
    ranges->at[ranges->count++].iov_len = bytes;
}

/* Takes consecutive runs until one side has no room; returns their bytes. */
static int64_t
iovec_fill(const struct uli_box *box, struct uli_cursor *cursor, uintptr_t dst,
    uintptr_t src, struct ranges *local, struct ranges *remote)
{
    struct uli_box part;
    int64_t bytes, total = 0;
    local->count = remote->count = 0;
    while (local->count < BATCH && remote->count < BATCH &&
           total < ULI_SPAN_BYTES &&
           (bytes = uli_box_cut_run(box, &cursor->run, &cursor->in_run,
                ULI_SPAN_BYTES - total, &part)) > 0) {
        add_range(local, dst + (uintptr_t)part.dst_offset, (size_t)bytes);
        add_range(remote, src + (uintptr_t)part.src_offset, (size_t)bytes);
        total += bytes;
    }
    return total;
}

bool
uli_direct_read(struct uli_exchange *exchange, int32_t p,
    const struct uli_item *item, struct uli_cursor *cursor)
{
    struct uli_pair *pair = &exchange->pairs[p];
    struct ranges local, remote;
    int64_t bytes;
    while (
        (bytes = iovec_fill(&item->box, cursor,
             (uintptr_t)exchange->dst[item->tensor],
             (uintptr_t)pair->src[item->tensor].offset, &local, &remote)) > 0) {
        ulyx_status_t status =
            pair->reader->read(exchange->comm->peers[p].identity.pid, local.at,
                local.count, remote.at, remote.count);
        /* A rank that has failed may have freed that memory by now. */
        if (status != ULYX_SUCCESS && !uli_exchange_sources_kept(exchange, p))
            return false;
        if (status != ULYX_SUCCESS) {
            status = uli_comm_fail(exchange->comm, status, p,
                "reading the memory of rank %d: %s", p, uli_error_text());
            uli_request_finish(&exchange->request, status);
            return false;
        }
        if (!uli_exchange_check(exchange, bytes))
            return false;
    }
    cursor->item++;
    cursor->run = cursor->in_run = 0;
    return true;
}
