/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a meeting. In a gather the root receives nranks records and
 * sends nranks tables of nranks records; all tables are one shared blob. A rank
 * sends its next record after it has read its table, so at most two tables
 * exist at a time.
 */
#include "bootstrap/meet/meeting.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/log.h"
#include "base/size.h"
#include "base/status.h"
#include "base/late.h"

/* ---- blobs --------------------------------------------------------------- */

struct uli_blob *
uli_blob_new(size_t bytes)
{
    struct uli_blob *blob = malloc(sizeof(*blob) + bytes);
    if (!blob)
        return NULL;
    blob->refs = 1;
    blob->bytes = bytes;
    return blob;
}

struct uli_blob *
uli_blob_ref(struct uli_blob *blob)
{
    blob->refs++;
    return blob;
}

void
uli_blob_unref(struct uli_blob *blob)
{
    if (blob && --blob->refs == 0)
        free(blob);
}

static struct uli_blob *
new_frame(const struct uli_frame *frame)
{
    struct uli_blob *blob =
        uli_blob_new(ULI_FRAME_HEADER_BYTES + (size_t)frame->bytes);
    if (blob)
        uli_frame_encode(frame, blob->data);
    return blob;
}

void
uli_meeting_free(struct uli_meeting *meeting)
{
    free(meeting->members);
    uli_blob_unref(meeting->table);
    uli_blob_unref(meeting->failure);
    uli_blob_unref(meeting->full);
    memset(meeting, 0, sizeof(*meeting));
}

/* ---- texts --------------------------------------------------------------- */

static void
add_text(char *text, size_t bytes, const char *format, ...)
{
    size_t used = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + used, bytes - used, format, arguments);
    va_end(arguments);
}

static void
add_strays(const struct uli_strays *strays, char *text, size_t bytes)
{
    if (strays->count == 0)
        return;
    add_text(text, bytes, "; %d connection%s dropped: ", strays->count,
        strays->count == 1 ? "" : "s");
    int listed = 0;
    for (int i = 0; i < strays->kinds; i++) {
        add_text(text, bytes, "%s%s (%s)", i ? ", " : "",
            strays->kind[i].address, strays->kind[i].why);
        if (strays->kind[i].count > 1)
            add_text(text, bytes, " %d times", strays->kind[i].count);
        listed += strays->kind[i].count;
    }
    if (listed < strays->count)
        add_text(text, bytes, ", others");
}

void
uli_meeting_stray(
    struct uli_meeting *meeting, const char *address, const char *why)
{
    struct uli_strays *strays = &meeting->strays;
    ULI_INFO(ULI_LOG_INIT, -1, "bootstrap: dropped a connection from %s: %s",
        address, why);
    strays->count++;
    int i = 0;
    while (i < strays->kinds && (strcmp(strays->kind[i].address, address) ||
                                    strcmp(strays->kind[i].why, why)))
        i++;
    if (i == ULI_STRAY_KINDS)
        return;
    if (i == strays->kinds) {
        strays->kinds++;
        snprintf(strays->kind[i].address, sizeof(strays->kind[i].address), "%s",
            address);
        snprintf(strays->kind[i].why, sizeof(strays->kind[i].why), "%s", why);
    }
    strays->kind[i].count++;
}

/* ---- failing ------------------------------------------------------------- */

static struct uli_blob *
new_error(ulyx_status_t status, const char *text)
{
    struct uli_frame frame = {ULI_FRAME_ERROR, 0, strlen(text), status};
    struct uli_blob *blob = new_frame(&frame);
    if (blob)
        memcpy(blob->data + ULI_FRAME_HEADER_BYTES, text, strlen(text));
    return blob;
}

void
uli_meeting_fail(
    struct uli_meeting *meeting, ulyx_status_t status, const char *format, ...)
{
    if (meeting->failed)
        return;
    char text[ULI_FRAME_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    add_strays(&meeting->strays, text, sizeof(text));
    meeting->failed = status;
    uli_error(status, "%s", text);
    meeting->failure = new_error(status, text);
    uli_blob_unref(meeting->table);
    meeting->table = NULL;
}

struct uli_blob *
uli_meeting_full(struct uli_meeting *meeting)
{
    char text[160];
    snprintf(text, sizeof(text),
        "all %d ranks have joined this meeting: a unique id serves one "
        "communicator, make a new id for each communicator",
        meeting->nranks);
    if (!meeting->full)
        meeting->full = new_error(ULYX_ERR_INVALID_ARGUMENT, text);
    return meeting->full;
}

/* The ranks that have not joined; if all have joined, the ranks that have not
 * given their record of the running gather. */
static struct uli_late
meeting_missing(const struct uli_meeting *meeting)
{
    bool joining = meeting->njoined < meeting->nranks;
    struct uli_late late =
        uli_late_none(joining ? ULI_LATE_JOIN : ULI_LATE_REACH);
    for (int32_t rank = 0; rank < meeting->nranks; rank++) {
        const struct uli_member *member = &meeting->members[rank];
        if (joining ? !member->joined : !member->waits)
            uli_late_add(&late, rank);
    }
    return late;
}

/* If the root could accept no connection, this hindrance is the cause. */
static void
fail_missing(struct uli_meeting *meeting, const char *text)
{
    bool hindered = meeting->hindrance[0] != 0;
    uli_meeting_fail(meeting, hindered ? ULYX_ERR_SYSTEM : ULYX_ERR_TIMEOUT,
        "%s%s%s", meeting->hindrance, hindered ? "; " : "", text);
}

void
uli_meeting_time_out(struct uli_meeting *meeting)
{
    struct uli_late late = meeting_missing(meeting);
    char what[64], text[ULI_LATE_TEXT_BYTES];
    if (meeting->nranks == 0) {
        fail_missing(meeting, "no rank joined before the deadline");
    } else if (late.phase == ULI_LATE_JOIN) {
        snprintf(what, sizeof(what), "meeting of %d ranks", meeting->nranks);
        uli_late_text(&late, what, "", text, sizeof(text));
        fail_missing(meeting, text);
    } else {
        const struct uli_member *first =
            late.count > 0 ? &meeting->members[late.runs[0].first] : NULL;
        snprintf(what, sizeof(what), "gather %u of %d ranks",
            meeting->gathers + 1, meeting->nranks);
        uli_late_text(
            &late, what, first ? first->name : "", text, sizeof(text));
        uli_meeting_fail(meeting, ULYX_ERR_TIMEOUT, "%s", text);
    }
}

void
uli_meeting_expire(struct uli_meeting *meeting, int64_t now_ns)
{
    uli_deadline_t next = INT64_MAX;
    bool over = false;
    for (int32_t rank = 0; rank < meeting->nranks; rank++) {
        const struct uli_member *member = &meeting->members[rank];
        if (!member->joined || member->left)
            continue;
        next = uli_min(next, member->deadline);
        over |= member->deadline <= now_ns;
    }
    meeting->deadline = next;
    if (over)
        uli_meeting_time_out(meeting);
}

/* ---- joining ------------------------------------------------------------- */

static bool
open_members(struct uli_meeting *meeting, int32_t nranks)
{
    meeting->members = calloc((size_t)nranks, sizeof(*meeting->members));
    if (!meeting->members) {
        uli_meeting_fail(meeting, ULYX_ERR_NO_MEMORY,
            "the root has no memory for %d ranks", nranks);
        return false;
    }
    meeting->nranks = nranks;
    meeting->deadline = INT64_MAX;
    return true;
}

/* The lowest rank that has joined, for the text of a mismatch; at least one
 * rank has joined. */
static int32_t
meeting_lowest(const struct uli_meeting *meeting)
{
    int32_t rank = 0;
    while (rank < meeting->nranks && !meeting->members[rank].joined)
        rank++;
    return rank;
}

/* The lower rank is named first, whichever joined first. */
static void
fail_by_nranks(struct uli_meeting *meeting, const struct uli_join *join)
{
    int32_t other = meeting_lowest(meeting);
    const char *name = meeting->members[other].name;
    bool lower = other < join->rank;
    uli_meeting_fail(meeting, ULYX_ERR_MISMATCH,
        "nranks is %d on rank %d (%s), %d on rank %d (%s)",
        lower ? meeting->nranks : join->nranks, lower ? other : join->rank,
        lower ? name : join->name, lower ? join->nranks : meeting->nranks,
        lower ? join->rank : other, lower ? join->name : name);
}

static bool
check_join(struct uli_meeting *meeting, const struct uli_join *join)
{
    if (join->nranks < 1 || join->nranks > ULI_NRANKS_MAX || join->rank < 0 ||
        join->rank >= join->nranks) {
        uli_meeting_fail(meeting, ULYX_ERR_MISMATCH,
            "%s gives its rank as %d of %d (at most %d ranks can meet)",
            join->name, join->rank, join->nranks, ULI_NRANKS_MAX);
        return false;
    }
    if (meeting->nranks == 0)
        return open_members(meeting, join->nranks);
    if (join->nranks != meeting->nranks) {
        fail_by_nranks(meeting, join);
        return false;
    }
    if (meeting->members[join->rank].joined) {
        uli_meeting_fail(meeting, ULYX_ERR_MISMATCH,
            "two processes are rank %d of %d: %s and %s", join->rank,
            join->nranks, meeting->members[join->rank].name, join->name);
        return false;
    }
    return true;
}

bool
uli_meeting_join(struct uli_meeting *meeting, const struct uli_join *join,
    uli_deadline_t deadline)
{
    if (meeting->failed || !check_join(meeting, join))
        return false;
    struct uli_member *member = &meeting->members[join->rank];
    member->joined = true;
    member->deadline = deadline;
    snprintf(member->name, sizeof(member->name), "%s", join->name);
    meeting->njoined++;
    meeting->deadline = uli_min(meeting->deadline, deadline);
    return true;
}

static void
fail_lost(struct uli_meeting *meeting, int32_t rank, const char *how)
{
    uli_meeting_fail(meeting, ULYX_ERR_RANK_LOST,
        "rank %d (%s) %s before the end of gather %u", rank,
        meeting->members[rank].name, how, meeting->gathers + 1);
}

void
uli_meeting_leave(struct uli_meeting *meeting, int32_t rank)
{
    struct uli_member *member = &meeting->members[rank];
    if (member->left)
        return;
    member->left = true;
    meeting->nleft++;
    if (meeting->njoined < meeting->nranks || meeting->nrecords > 0)
        fail_lost(meeting, rank, "left");
}

void
uli_meeting_lost(struct uli_meeting *meeting, int32_t rank, const char *why)
{
    struct uli_member *member = &meeting->members[rank];
    if (member->left)
        return;
    member->left = true;
    meeting->nleft++;
    char how[160];
    snprintf(how, sizeof(how), "broke its connection (%s)", why);
    fail_lost(meeting, rank, how);
}

/* ---- gathering ----------------------------------------------------------- */

/* All records of a gather have the size of the first record. */
static bool
open_table(struct uli_meeting *meeting, int32_t rank, uint64_t bytes)
{
    struct uli_frame frame = {ULI_FRAME_TABLE, meeting->gathers + 1,
        bytes * (uint64_t)meeting->nranks, 0};
    meeting->table = new_frame(&frame);
    if (!meeting->table) {
        uli_meeting_fail(meeting, ULYX_ERR_NO_MEMORY,
            "the root has no memory for %d records of %llu bytes",
            meeting->nranks, (unsigned long long)bytes);
        return false;
    }
    meeting->record_bytes = bytes;
    meeting->record_rank = rank;
    return true;
}

static bool
check_record(struct uli_meeting *meeting, int32_t rank,
    const struct uli_frame *frame, int32_t gone)
{
    if (gone < meeting->nranks) {
        fail_lost(meeting, gone, "left");
        return false;
    }
    if (meeting->members[rank].waits || frame->round != meeting->gathers + 1) {
        uli_meeting_fail(meeting, ULYX_ERR_INTERNAL,
            "rank %d sent an unexpected record of gather %u during gather %u",
            rank, frame->round, meeting->gathers + 1);
        return false;
    }
    if (!meeting->table)
        return open_table(meeting, rank, frame->bytes);
    if (frame->bytes != meeting->record_bytes) {
        uli_meeting_fail(meeting, ULYX_ERR_MISMATCH,
            "gather %u: rank %d gives %llu bytes, rank %d gave %llu",
            meeting->gathers + 1, rank, (unsigned long long)frame->bytes,
            meeting->record_rank, (unsigned long long)meeting->record_bytes);
        return false;
    }
    return true;
}

static int32_t
first_gone(const struct uli_meeting *meeting)
{
    if (meeting->nleft == 0)
        return meeting->nranks;
    int32_t rank = 0;
    while (rank < meeting->nranks && !meeting->members[rank].left)
        rank++;
    return rank;
}

struct uli_blob *
uli_meeting_record(struct uli_meeting *meeting, int32_t rank,
    const struct uli_frame *frame, const unsigned char *payload,
    uli_deadline_t deadline)
{
    if (meeting->failed ||
        !check_record(meeting, rank, frame, first_gone(meeting)))
        return NULL;
    struct uli_member *member = &meeting->members[rank];
    member->waits = true;
    member->deadline = deadline;
    meeting->deadline = uli_min(meeting->deadline, deadline);
    size_t bytes = (size_t)frame->bytes;
    if (bytes)
        memcpy(meeting->table->data + ULI_FRAME_HEADER_BYTES +
                   (size_t)rank * bytes,
            payload, bytes);
    if (++meeting->nrecords < meeting->nranks)
        return NULL;

    struct uli_blob *table = meeting->table;
    meeting->table = NULL;
    meeting->nrecords = 0;
    meeting->gathers++;
    for (int32_t i = 0; i < meeting->nranks; i++) {
        meeting->members[i].waits = false;
        meeting->members[i].deadline = INT64_MAX;
    }
    meeting->deadline = INT64_MAX;
    return table;
}
