/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a root's meeting: which ranks have joined, which have given
 * their record of the running gather, and the failure. The functions do no I/O,
 * read no clock and run in one thread: bootstrap/meet/root.c calls them for the
 * frames that its connections receive.
 *
 * The first failure wins and is final. Its text names every rank concerned and
 * goes to all ranks, also to those that join afterwards.
 */
#ifndef ULI_BOOTSTRAP_MEET_MEETING_H
#define ULI_BOOTSTRAP_MEET_MEETING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/system/clock.h"
#include "bootstrap/meet/frame.h"
#include "ulyx/types.h"

enum { ULI_NRANKS_MAX = 1 << 17, ULI_STRAY_KINDS = 6 };

/* Bytes that one or many connections send. */
struct uli_blob {
    int64_t refs;
    size_t bytes;
    unsigned char data[];
};
struct uli_blob *uli_blob_new(size_t bytes); /* one reference, or NULL */
struct uli_blob *uli_blob_ref(struct uli_blob *blob);
void uli_blob_unref(struct uli_blob *blob); /* NULL: does nothing */

struct uli_member {
    bool joined, left, notified; /* notified: of the failure */
    bool waits;                  /* gave its record of the running gather */
    uli_deadline_t deadline;     /* of the rank's running wait */
    char name[80];               /* host:pid */
};

/* Connections that never proved the secret, by address and reason. */
struct uli_strays {
    int count, kinds;
    struct {
        char address[80];
        char why[64];
        int count;
    } kind[ULI_STRAY_KINDS];
};

struct uli_meeting {
    int32_t nranks; /* 0 until the first rank joined */
    int32_t njoined, nleft, nnotified, nrecords;
    struct uli_member *members;
    uint32_t gathers;        /* completed */
    uint64_t record_bytes;   /* of the running gather, from record_rank */
    int32_t record_rank;     /* of the first record */
    struct uli_blob *table;  /* frame of the running gather, or NULL */
    uli_deadline_t deadline; /* the earliest deadline of a rank, or earlier */
    ulyx_status_t failed;
    struct uli_blob *failure; /* its frame */
    struct uli_blob *full;    /* answers connections once all have joined */
    struct uli_strays strays;
    char hindrance[160]; /* why no further rank can join, or "" */
};

void uli_meeting_free(struct uli_meeting *meeting);

/* Adds a rank to the meeting. False: the meeting has failed, now or before. */
bool uli_meeting_join(struct uli_meeting *meeting, const struct uli_join *join,
    uli_deadline_t deadline);
/* Takes a rank's record. When it was the last one, returns the table's frame
 * (one reference, the caller's) for all ranks; else NULL. */
struct uli_blob *uli_meeting_record(struct uli_meeting *meeting, int32_t rank,
    const struct uli_frame *frame, const unsigned char *payload,
    uli_deadline_t deadline);
void uli_meeting_leave(struct uli_meeting *meeting, int32_t rank);
void uli_meeting_lost(
    struct uli_meeting *meeting, int32_t rank, const char *why);
/* Fails the meeting when a rank's deadline is over at now_ns; else moves
 * meeting->deadline on. */
void uli_meeting_expire(struct uli_meeting *meeting, int64_t now_ns);
/* Fails with TIMEOUT and names the missing ranks. */
void uli_meeting_time_out(struct uli_meeting *meeting);
void uli_meeting_fail(struct uli_meeting *meeting, ulyx_status_t status,
    const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The answer to a connection after all ranks have joined. The frame is the
 * meeting's own; NULL without memory. */
struct uli_blob *uli_meeting_full(struct uli_meeting *meeting);
void uli_meeting_stray(
    struct uli_meeting *meeting, const char *address, const char *why);

#endif
