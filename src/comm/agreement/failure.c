/* SPDX-License-Identifier: Apache-2.0
 *
 * How a communicator fails: once, with one cause, and at every rank that can be
 * reached. Peers get the death of a rank as RANK_LOST and ranks in different
 * calls as MISMATCH; any other error of this rank alone (a system call) they
 * get as its abort. A timeout stays local: only this rank's deadline is over.
 *
 * An abort may come from a signal handler, in the middle of any code of this
 * rank. So it takes no lock and formats nothing. The caller that claims the
 * failure, by an atomic exchange, writes the cause; the text of an abort was
 * written when the communicator was made; and peers get the poison by atomics,
 * futexes and an eventfd. This rank's next check or destroy writes the log
 * line.
 *
 * Peers get the poison before the failure can be read here: a rank that reads
 * the failure may leave, and a peer that finds a rank gone must find the cause
 * as well. A thread that finds the failure claimed but not yet stored waits
 * until the peers have the poison, which takes no wait for another rank. An
 * abort does not wait, because it may have interrupted the thread that stores
 * the failure.
 */
#include "comm/comm.h"

#include <errno.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include "base/log.h"
#include "bootstrap/bootstrap.h"
#include "comm/agreement/abort_record.h"
#include "comm/device/gpu.h"
#include "comm/record/dump.h"
#include "comm/record/stand.h"
#include "comm/remote/remote.h"

static uint64_t
poison_pack(ulyx_status_t status, int32_t rank)
{
    return (uint64_t)(uint32_t)status << 32 | (uint32_t)rank;
}

void
uli_comm_spread_poison(ulyx_comm_t *comm, uint64_t poison)
{
    for (int32_t p = 0; p < comm->nranks; p++) {
        struct uli_control *control = uli_comm_mapped_control(comm, p);
        uint64_t none = 0;

        if (!control)
            continue;
        atomic_compare_exchange_strong(&control->poison, &none, poison);
        uli_doorbell_ring(control);
    }
    uli_remote_send_poison(comm, poison);
}

void
uli_comm_receive_poison(
    ulyx_comm_t *comm, uint64_t poison, const void *cause, size_t bytes)
{
    if (uli_poison_status(poison) == ULYX_ERR_ABORTED)
        uli_abort_receive(comm, cause, bytes);
    else
        uli_differ_receive(comm, cause, bytes);
    uli_comm_spread_poison(comm, poison);
}

static void
poison_peers(ulyx_comm_t *comm, ulyx_status_t status, int32_t rank)
{
    uli_comm_spread_poison(comm, poison_pack(status, rank));
}

/* True for one caller only, which writes failure_text and then calls
 * settle_failure. */
static bool
claim_failure(ulyx_comm_t *comm)
{
    return !atomic_exchange(&comm->failing, true);
}

static void
settle_failure(ulyx_comm_t *comm, ulyx_status_t status, int32_t rank)
{
    atomic_store(&comm->failed_rank, rank);
    atomic_store(&comm->control->failed, 1);
    /* A peer that reads data that this rank's caller writes from now on, and
     * checks for the failure afterwards, finds the failure. */
    atomic_thread_fence(memory_order_seq_cst);
    atomic_store(&comm->failed, status);
    uli_gpu_set_poison(comm, poison_pack(status, rank));
    uli_dump_request(comm);
}

/* The failure is claimed. Once it is stored, its text never changes. */
static ulyx_status_t
read_failure(ulyx_comm_t *comm)
{
    char text[ULI_FAILURE_BYTES];
    ulyx_status_t status;

    while ((status = atomic_load(&comm->failed)) == ULYX_SUCCESS)
        sched_yield();
    uli_dump_settle(comm);
    return uli_error_pass(status, uli_comm_failure_text(comm, text));
}

ulyx_status_t
uli_comm_failure(ulyx_comm_t *comm)
{
    if (atomic_load(&comm->failed) == ULYX_SUCCESS)
        return ULYX_SUCCESS;
    return read_failure(comm);
}

static void
log_failure(ulyx_comm_t *comm)
{
    char text[ULI_FAILURE_BYTES];

    ULI_WARN(ULI_LOG_FAULT, comm->rank, "%s: %s: %s", comm->name,
        ulyx_status_text(atomic_load(&comm->failed)),
        uli_comm_failure_text(comm, text));
}

ulyx_status_t
uli_comm_fail(ulyx_comm_t *comm, ulyx_status_t status, int32_t rank,
    const char *format, ...)
{
    va_list arguments;

    if (!claim_failure(comm))
        return read_failure(comm);
    va_start(arguments, format);
    vsnprintf(
        comm->failure_text, sizeof(comm->failure_text), format, arguments);
    va_end(arguments);
    if (status == ULYX_ERR_RANK_LOST || status == ULYX_ERR_MISMATCH)
        poison_peers(comm, status, rank);
    else if (status != ULYX_ERR_TIMEOUT)
        poison_peers(comm, ULYX_ERR_ABORTED,
            status == ULYX_ERR_ABORTED ? rank : comm->rank);
    /* A record that late_note has begun is complete before peers may read
     * it. */
    pthread_mutex_lock(&comm->failure_lock);
    settle_failure(comm, status, rank);
    pthread_mutex_unlock(&comm->failure_lock);
    log_failure(comm);
    uli_doorbell_ring(comm->control);
    return read_failure(comm);
}

/* ---- deadlines ----------------------------------------------------------- */

/* Written once: a record that peers may read does not change. */
static void
late_note(ulyx_comm_t *comm, const struct uli_late *late)
{
    struct uli_control *control = comm->control;

    pthread_mutex_lock(&comm->failure_lock);
    if (atomic_load(&comm->failed) == 0 && late->count > 0 &&
        atomic_load(&control->late_noted) == 0) {
        control->late = *late;
        atomic_store(&control->late_noted, 1);
    }
    pthread_mutex_unlock(&comm->failure_lock);
}

const struct uli_late *
uli_comm_noted_late(const ulyx_comm_t *comm, int32_t rank)
{
    const struct uli_control *control = atomic_load(&comm->peers[rank].control);

    return control && atomic_load(&control->late_noted) != 0 ? &control->late
                                                             : NULL;
}

/* A rank writes its record before its call ends, so the recorder is read
 * first. */
int32_t
uli_comm_awaits(const ulyx_comm_t *comm, int32_t rank)
{
    const struct uli_control *control = atomic_load(&comm->peers[rank].control);
    int32_t awaited = control ? uli_recorder_awaited(&control->recorder) : -1;
    const struct uli_late *noted = uli_comm_noted_late(comm, rank);
    struct uli_late late;

    if (noted && uli_late_take(noted, comm->nranks, &late))
        return late.runs[0].first;
    return awaited < comm->nranks && awaited != rank ? awaited : -1;
}

/* "node5, pid 412" where exactly one rank is late, else "". */
static void
late_identity(const ulyx_comm_t *comm, const struct uli_late *late,
    char text_p[ULI_LATE_WHO_BYTES])
{
    text_p[0] = 0;
    if (late->count == 1 && late->runs[0].first < comm->nranks) {
        const struct uli_peer *peer = &comm->peers[late->runs[0].first];

        snprintf(text_p, ULI_LATE_WHO_BYTES, "%.63s, pid %d",
            peer->identity.host, peer->identity.pid);
    }
}

/* Replaces a rank by its number in errors. During creation a communicator waits
 * for one rank at a time; in all other communicators the numbers are the
 * ranks. */
static struct uli_late
late_numbered(const ulyx_comm_t *comm, const struct uli_late *late)
{
    struct uli_late numbered = *late;

    if (late->count == 1 && late->runs[0].first < comm->nranks) {
        int32_t number = uli_comm_number(comm, late->runs[0].first);
        numbered.runs[0] = (struct uli_late_run){number, number};
    }
    return numbered;
}

ulyx_status_t
uli_comm_fail_late(
    ulyx_comm_t *comm, const struct uli_late *late, const char *format, ...)
{
    char what[96], who[ULI_LATE_WHO_BYTES], text[ULI_LATE_TEXT_BYTES];
    struct uli_late numbered;
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    late_note(comm, late);
    late_identity(comm, late, who);
    numbered = late_numbered(comm, late);
    uli_late_text(&numbered, what, who, text, sizeof(text));
    return uli_comm_fail(comm, ULYX_ERR_TIMEOUT,
        late->count > 0 ? late->runs[0].first : -1, "%s", text);
}

/* "rank 0 (node4, pid 9) aborted; it waited for rank 3 (node5, pid 412)". Where
 * there is a record of an abort, the text names its rank, because that abort
 * was the first. */
static void
abort_text(ulyx_comm_t *comm, int32_t rank, char *text_p, size_t bytes)
{
    struct uli_late late = uli_late_none(ULI_LATE_MOVE), numbered = late;
    const struct uli_peer *peer;
    char aborter[ULI_LATE_WHO_BYTES + 24], who[ULI_LATE_WHO_BYTES] = "";

    if (uli_abort_read(comm, &late)) {
        rank = late.origin;
        late_identity(comm, &late, who);
        numbered = late_numbered(comm, &late);
    }
    peer = &comm->peers[rank];
    snprintf(aborter, sizeof(aborter), "rank %d (%.63s, pid %d)",
        uli_comm_number(comm, rank), peer->identity.host, peer->identity.pid);
    uli_late_abort_text(&numbered, aborter, who, text_p, bytes);
}

/* An abort at this rank stored only the rank, because it may have come from a
 * signal handler. The reader adds the rank for which it waited. */
const char *
uli_comm_failure_text(ulyx_comm_t *comm, char text_p[ULI_FAILURE_BYTES])
{
    struct uli_late late;

    if (atomic_load(&comm->failed) != ULYX_ERR_ABORTED ||
        strcmp(comm->failure_text, comm->abort_text) != 0 ||
        !uli_abort_read(comm, &late))
        return comm->failure_text;
    abort_text(comm, comm->rank, text_p, ULI_FAILURE_BYTES);
    return text_p;
}

ulyx_status_t
uli_comm_late_error(
    const ulyx_comm_t *comm, const struct uli_late *late, const char *what)
{
    const struct uli_late numbered = late_numbered(comm, late);
    char who[ULI_LATE_WHO_BYTES];

    late_identity(comm, late, who);
    return uli_late_error(&numbered, who, "%s", what);
}

/* ---- deaths and poison --------------------------------------------------- */

void
uli_comm_rank_died(ulyx_comm_t *comm, int32_t rank, const char *how)
{
    struct uli_peer *peer = &comm->peers[rank];

    /* A rank that left before its process ended has not died. */
    atomic_store(&peer->dead, 1);
    if (atomic_load(&comm->control->left[rank]) != 0)
        return;
    uli_comm_fail(comm, ULYX_ERR_RANK_LOST, rank, "rank %d (%s, pid %d) %s",
        uli_comm_number(comm, rank), peer->identity.host, peer->identity.pid,
        how);
}

static ulyx_status_t
take_poison(ulyx_comm_t *comm, uint64_t poison)
{
    ulyx_status_t status = uli_poison_status(poison);
    int32_t rank = (int32_t)(uint32_t)poison;
    char text[ULI_FAILURE_BYTES];

    if (status == ULYX_ERR_MISMATCH)
        return uli_differ_fail(comm, rank);
    if (rank < 0 || rank >= comm->nranks)
        return uli_comm_fail(comm, status, rank, "rank %d aborted", rank);
    if (status != ULYX_ERR_RANK_LOST) {
        abort_text(comm, rank, text, sizeof(text));
        return uli_comm_fail(comm, status, rank, "%s", text);
    }
    const struct uli_peer *peer = &comm->peers[rank];
    uint32_t left = atomic_load(&comm->control->left[rank]);
    atomic_store(&comm->peers[rank].dead, 1);
    if (left != ULI_STAYS)
        return uli_comm_fail(comm, status, rank, "rank %d %s",
            uli_comm_number(comm, rank), uli_left_text((enum uli_left)left));
    return uli_comm_fail(comm, status, rank,
        "rank %d (%.63s, pid %d) was found dead by a peer",
        uli_comm_number(comm, rank), peer->identity.host, peer->identity.pid);
}

void
uli_comm_take_poison(ulyx_comm_t *comm)
{
    uint64_t poison =
        atomic_load_explicit(&comm->control->poison, memory_order_acquire);

    if (poison != 0 && atomic_load(&comm->failed) == 0)
        take_poison(comm, poison);
}

void
uli_comm_notify_meeting(ulyx_comm_t *comm, int32_t rank)
{
    struct uli_bootstrap *meeting = comm->meeting;

    if (!meeting || !meeting->ops->await)
        return;
    meeting->ops->await(meeting, -1);
    comm->meeting_awaits = rank;
    comm->meeting_still_ns = uli_clock_ns() + ULI_STAND_NS;
}

/* Reports the awaited rank, but not before a pause. If a rank were stopped
 * right after a report, its report would stay, also when the awaited rank has
 * answered since, and others would follow it to the wrong rank. */
static void
meeting_notify(ulyx_comm_t *comm)
{
    int32_t rank = comm->meeting_awaits;

    if (rank < 0 || uli_clock_ns() < comm->meeting_still_ns)
        return;
    comm->meeting_awaits = -1;
    comm->meeting->ops->await(comm->meeting, rank);
}

/* Needs no cause in its text: the following gather spreads the cause. */
static ulyx_status_t
check_meeting(ulyx_comm_t *comm)
{
    struct uli_bootstrap *meeting = comm->meeting;

    meeting_notify(comm);
    if (!meeting->ops->broken || !meeting->ops->broken(meeting))
        return ULYX_SUCCESS;
    return uli_error(ULYX_ERR_RANK_LOST, "the meeting has failed");
}

void
uli_comm_log_abort(ulyx_comm_t *comm)
{
    if (atomic_load(&comm->abort_unlogged) &&
        atomic_exchange(&comm->abort_unlogged, false))
        log_failure(comm);
}

ulyx_status_t
uli_comm_check(ulyx_comm_t *comm)
{
    uint64_t poison;

    if (atomic_load_explicit(&comm->failed, memory_order_acquire) != 0) {
        uli_comm_log_abort(comm);
        return read_failure(comm);
    }
    poison = atomic_load_explicit(&comm->control->poison, memory_order_acquire);
    if (poison != 0)
        return take_poison(comm, poison);
    return comm->meeting ? check_meeting(comm) : ULYX_SUCCESS;
}

ulyx_status_t
uli_comm_look(ulyx_comm_t *comm)
{
    uli_gpu_look(comm);
    return uli_comm_check(comm);
}

void
uli_comm_acknowledge(ulyx_comm_t *comm)
{
    if (atomic_load(&comm->failed) != 0 && atomic_load(&comm->nops) == 0)
        atomic_store(&comm->control->abort_seen, 1);
}

void
uli_comm_abort(ulyx_comm_t *comm)
{
    int saved = errno;
    bool first = claim_failure(comm);

    if (first)
        memcpy(comm->failure_text, comm->abort_text, sizeof(comm->abort_text));
    uli_abort_record(comm);
    /* Also where the communicator had failed for another reason: peers may
     * still wait. */
    poison_peers(comm, ULYX_ERR_ABORTED, comm->rank);
    if (first) {
        settle_failure(comm, ULYX_ERR_ABORTED, comm->rank);
        atomic_store(&comm->abort_unlogged, true);
    }
    uli_doorbell_ring(comm->control);
    uli_comm_acknowledge(comm);
    errno = saved;
}
