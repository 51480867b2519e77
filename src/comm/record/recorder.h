/* SPDX-License-Identifier: Apache-2.0
 *
 * The flight recorder: the last calls of a rank, at the beginning of its
 * control segment, so that other ranks and other processes (ulyx_info ranks)
 * can read what the rank does while it hangs.
 *
 * Cost: a call is one atomic addition and ten stores into a line of its own;
 * nothing is locked, and the time of a call's beginning is one that the call
 * has read anyway where it is short.
 *
 * Memory order. An entry is written by the thread that makes the call: its
 * serial number becomes 0, each field is released after that, then the serial
 * number. Who reads acquires each field between two equal reads of the serial
 * number: one that has seen a later field sees a later serial number too. Whom
 * a call awaits, and its end, are words of their own: the time of the end, then
 * its status. What a call that stands still waits for (progress) is written in
 * the same way, by one thread at a time.
 */
#ifndef ULI_COMM_RECORD_RECORDER_H
#define ULI_COMM_RECORD_RECORDER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include "ulyx/types.h"

enum {
    ULI_RECORDED_PLANS = 256,
    ULI_RECORDED_CALLS = 64,
    ULI_RECORDED_PEERS = 64,
    ULI_RECORDER_TEXT = 64
};

/* "ulyxrec" and the version of this format: other builds' are not read. */
#define ULI_RECORDER_MAGIC UINT64_C(0x0263657278796c75)

struct uli_recorded_call {
    _Alignas(64) _Atomic uint64_t serial; /* from 1; 0: is being written */
    _Atomic uint64_t plan;   /* number of the collective call that made it */
    _Atomic uint64_t number; /* of the calls of its plan, else collective */
    _Atomic uint64_t fingerprint;       /* of the plan; 0: it has none */
    _Atomic int64_t begun_ns, ended_ns; /* CLOCK_MONOTONIC; 0: not yet */
    _Atomic uint32_t call;              /* enum uli_call */
    _Atomic int32_t direction;
    _Atomic int32_t awaited; /* the rank that it stands still for, or -1 */
    _Atomic int32_t status;  /* ULYX_IN_PROGRESS until it has ended */
};

/* The last call of a plan that was begun, or refused; in the place that the
 * plan's number gives, where a later plan may take it. */
struct uli_recorded_plan {
    _Atomic uint64_t plan, number; /* number 0: nobody's, or is being written */
};

/* How far a call is that stands still, or a peer of it. */
enum uli_recorder_stage {
    ULI_STAGE_UNKNOWN,
    ULI_STAGE_AWAY,  /* has not begun the call */
    ULI_STAGE_OPENS, /* waits for peers to leave the call before */
    ULI_STAGE_MOVES, /* tensors are announced; bytes, or their end, are missing
                      */
    ULI_STAGES
};
const char *uli_recorder_stage_name(int32_t stage);

/* A peer that a call waits for. Chunks are those of the rings of a pair, over
 * all calls. */
struct uli_recorded_peer {
    int32_t rank, stage;
    uint64_t sent_chunks, received_chunks;
};
/* Of the call that has noted it last. */
struct uli_recorded_progress {
    _Atomic uint32_t writing; /* 1: a thread is */
    _Atomic uint64_t serial;  /* of the call; 0: is being written */
    _Atomic int32_t stage;    /* of the rank itself */
    _Atomic int32_t missing;  /* all peers that it waits for; the first ones: */
    struct {
        _Atomic int32_t rank, stage;
        _Atomic uint64_t sent_chunks, received_chunks;
    } peers[ULI_RECORDED_PEERS];
};

struct uli_recorder {
    _Alignas(64) _Atomic uint64_t magic; /* released last, by open */
    int32_t rank, nranks, pid;
    unsigned char id[16]; /* of the communicator */
    char name[ULI_RECORDER_TEXT], host[ULI_RECORDER_TEXT];
    /* Collective calls (agreement rounds) that the rank has come to. */
    _Alignas(64) _Atomic uint64_t collectives;
    _Atomic uint64_t serial; /* of the last call */
    struct uli_recorded_call calls[ULI_RECORDED_CALLS];
    _Alignas(64) struct uli_recorded_progress progress;
    _Alignas(64) struct uli_recorded_plan plans[ULI_RECORDED_PLANS];
};

struct uli_recorder_owner {
    int32_t rank, nranks, pid;
    const unsigned char *id; /* [16] */
    const char *name, *host;
};

/* Names the owner; what is recorded can be read from then on. Once, by the
 * owner, over zeros. */
void uli_recorder_open(
    struct uli_recorder *recorder, const struct uli_recorder_owner *owner);

/* What a call says of itself when it begins. */
struct uli_recorder_entry {
    uint32_t call; /* enum uli_call */
    int32_t direction;
    uint64_t plan, number, fingerprint;
    int64_t begun_ns;
};
/* Any thread. returns the serial number, for the two below. */
uint64_t uli_recorder_begin(
    struct uli_recorder *recorder, const struct uli_recorder_entry *entry);
/* Of a call that has been overwritten since, and of serial number 0, nothing
 * is noted. Any thread. */
void uli_recorder_await(
    struct uli_recorder *recorder, uint64_t serial, int32_t rank);
void uli_recorder_end(struct uli_recorder *recorder, uint64_t serial,
    ulyx_status_t status, int64_t ended_ns);

/* What a call that stands still waits for. */
struct uli_recorder_progress {
    uint64_t serial; /* 0: nothing was noted */
    int32_t stage;
    int32_t missing; /* peers in all */
    int32_t npeers;  /* the first of them: */
    struct uli_recorded_peer peers[ULI_RECORDED_PEERS];
};
/* One more peer, higher than all before. Those beyond ULI_RECORDED_PEERS are
 * counted only. */
void uli_recorder_miss(struct uli_recorder_progress *progress,
    const struct uli_recorded_peer *peer);
/* Replaces what was noted before. Where another thread does so at the same
 * time, nothing is. Any thread. */
void uli_recorder_note(struct uli_recorder *recorder,
    const struct uli_recorder_progress *progress);

/* Whom the newest call stands still for, of a rank of this communicator; -1: it
 * has ended, or has not said. Any thread. */
int32_t uli_recorder_awaited(const struct uli_recorder *recorder);

/* May the newest call stand still for others instead, of which it cannot see
 * how far they are? Any thread. */
bool uli_recorder_doubts(const struct uli_recorder *recorder, int32_t rank);

/* The call is begun, or refused; before any peer can see that. By the thread
 * that has the plan's ticket. */
void uli_recorder_count(
    struct uli_recorder *recorder, uint64_t plan, uint64_t number);

/* Has the owner begun the call, which is an exchange or a collective call? */
struct uli_call_key;
enum uli_begun { ULI_BEGUN_NO, ULI_BEGUN_YES, ULI_BEGUN_UNKNOWN };
enum uli_begun uli_recorder_begun(
    const struct uli_recorder *recorder, const struct uli_call_key *key);

/* ---- reading, also what another process owns ----------------------------- */

/* A call as it was read. */
struct uli_recorder_call {
    uint64_t serial, plan, number, fingerprint;
    int64_t begun_ns, ended_ns;
    uint32_t call;
    int32_t direction, awaited, status;
};
struct uli_recorder_copy {
    int32_t rank, nranks, pid;
    unsigned char id[16];
    char name[ULI_RECORDER_TEXT], host[ULI_RECORDER_TEXT]; /* printable */
    uint64_t collectives;
    int32_t ncalls; /* newest first: */
    struct uli_recorder_call calls[ULI_RECORDED_CALLS];
    struct uli_recorder_progress progress;
};

/* Takes a copy of what lies in at least `bytes` readable bytes, which others
 * may write meanwhile: nothing in it is believed. false: no recorder of this
 * format is there, or it makes no sense. Calls that are being written, and
 * ranks out of range, are left out. */
bool uli_recorder_read(
    const void *memory, int64_t bytes, struct uli_recorder_copy *copy_p);

#endif
