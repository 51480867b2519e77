/* SPDX-License-Identifier: Apache-2.0
 *
 * The flight recorder: the last calls of a rank, at the beginning of its
 * control segment, so that other ranks and other processes (ulyx_info ranks)
 * can read which call the rank is in while it hangs.
 *
 * Cost per call: one atomic addition and eleven stores at its beginning, into a
 * cache line of its own, and two stores at its end. Nothing is locked. A short
 * call has read the clock already; its beginning uses that time.
 *
 * Memory order. The thread that makes the call writes its entry: the serial
 * number becomes 0, then each field is released, then the serial number. A
 * reader acquires each field between two equal reads of the serial number: a
 * reader that has read a later field reads a later serial number too. The
 * awaited rank and the end of a call are written apart: the time of the end,
 * then the status. The progress of a call that stands still is written in the
 * same way, by one thread at a time.
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

/* "ulyxrec" and the version of this format. Recorders of other versions are not
 * read. */
#define ULI_RECORDER_MAGIC UINT64_C(0x0263657278796c75)

struct uli_recorded_call {
    _Alignas(64) _Atomic uint64_t serial; /* from 1; 0: a write is under way */
    _Atomic uint64_t plan;   /* number of the collective call that made the
                              * plan */
    _Atomic uint64_t number; /* of the plan's calls, else of collective calls */
    _Atomic uint64_t fingerprint;       /* of the plan; 0: no plan */
    _Atomic int64_t begun_ns, ended_ns; /* CLOCK_MONOTONIC; 0: not yet */
    _Atomic uint32_t call;              /* enum uli_call */
    _Atomic int32_t direction;
    _Atomic int32_t awaited; /* the rank for which the call stands still, or
                              * -1 */
    _Atomic int32_t status;  /* ULYX_IN_PROGRESS until the call has ended */
};

/* The last call of a plan that was begun or refused, at index plan %
 * ULI_RECORDED_PLANS; a later plan may overwrite it. */
struct uli_recorded_plan {
    _Atomic uint64_t plan, number; /* number 0: unused, or a write is under
                                    * way */
};

/* The progress of a call that stands still, or of a peer in that call. */
enum uli_recorder_stage {
    ULI_STAGE_UNKNOWN,
    ULI_STAGE_AWAY,  /* has not begun the call */
    ULI_STAGE_OPENS, /* waits for peers to leave the call before */
    ULI_STAGE_MOVES, /* tensors are announced; bytes, or their end, are missing
                      */
    ULI_STAGES
};
const char *uli_recorder_stage_name(int32_t stage);

/* A peer for which a call waits. Chunks are counted on the rings of the pair,
 * over all calls. */
struct uli_recorded_peer {
    int32_t rank, stage;
    uint64_t sent_chunks, received_chunks;
};
/* Of the call that has written its progress last. */
struct uli_recorded_progress {
    _Atomic uint32_t writing; /* 1: a thread writes */
    _Atomic uint64_t serial;  /* of the call; 0: a write is under way */
    _Atomic int32_t stage;    /* of the rank itself */
    _Atomic int32_t missing;  /* number of awaited peers; the first ones
                               * follow */
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
    /* Collective calls (agreement rounds) that the rank has begun. */
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

/* Writes the owner; from then on the recorder can be read. Called once, by the
 * owner, on zeroed memory. */
void uli_recorder_open(
    struct uli_recorder *recorder, const struct uli_recorder_owner *owner);

/* The description of a call when it begins. */
struct uli_recorder_entry {
    uint32_t call; /* enum uli_call */
    int32_t direction;
    uint64_t plan, number, fingerprint;
    int64_t begun_ns;
};
/* Records the beginning of a call. Any thread. Returns the serial number, for
 * the two functions below. */
uint64_t uli_recorder_begin(
    struct uli_recorder *recorder, const struct uli_recorder_entry *entry);
/* Record the awaited rank (-1: none) and the end of a call. Do nothing for a
 * call that has been overwritten since, and for serial number 0. Any thread. */
void uli_recorder_await(
    struct uli_recorder *recorder, uint64_t serial, int32_t rank);
void uli_recorder_end(struct uli_recorder *recorder, uint64_t serial,
    ulyx_status_t status, int64_t ended_ns);

/* The peers for which a call that stands still waits. */
struct uli_recorder_progress {
    uint64_t serial; /* 0: no progress recorded */
    int32_t stage;
    int32_t missing; /* number of awaited peers */
    int32_t npeers;  /* number of entries in peers */
    struct uli_recorded_peer peers[ULI_RECORDED_PEERS];
};
/* Adds a peer; its rank is higher than all before. Peers beyond
 * ULI_RECORDED_PEERS are only counted. */
void uli_recorder_miss(struct uli_recorder_progress *progress,
    const struct uli_recorded_peer *peer);
/* Replaces the recorded progress. Does nothing while another thread writes. Any
 * thread. */
void uli_recorder_note(struct uli_recorder *recorder,
    const struct uli_recorder_progress *progress);

/* The rank for which the newest call stands still; -1: the call has ended or
 * has recorded none. The value is not checked to be a rank. Any thread. */
int32_t uli_recorder_awaited(const struct uli_recorder *recorder);

/* Whether it is only a guess that the newest call waits for `rank`: the
 * progress of that peer is unknown. Any thread. */
bool uli_recorder_doubts(const struct uli_recorder *recorder, int32_t rank);

/* Records that call `number` of a plan is begun or refused, before any peer can
 * notice that. For the thread that has the plan's ticket. */
void uli_recorder_count(
    struct uli_recorder *recorder, uint64_t plan, uint64_t number);

/* Whether the recorder's owner has begun the call, a call of a plan, an
 * alltoall or a collective call. */
struct uli_call_key;
enum uli_begun { ULI_BEGUN_NO, ULI_BEGUN_YES, ULI_BEGUN_UNKNOWN };
enum uli_begun uli_recorder_begun(
    const struct uli_recorder *recorder, const struct uli_call_key *key);

/* ---- reading, also a recorder of another process ------------------------- */

/* A copy of a call's entry. */
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
    int32_t ncalls; /* newest first */
    struct uli_recorder_call calls[ULI_RECORDED_CALLS];
    struct uli_recorder_progress progress;
};

/* Copies a recorder from `bytes` readable bytes, which others may write
 * meanwhile: every value is checked. False: there is no recorder of this
 * format, or it makes no sense. Calls whose entry is being written, and ranks
 * out of range, are left out. */
bool uli_recorder_read(
    const void *memory, int64_t bytes, struct uli_recorder_copy *copy_p);

#endif
