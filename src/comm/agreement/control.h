/* SPDX-License-Identifier: Apache-2.0
 *
 * The control block: the words that the ranks of one node share. Each rank
 * owns one, in memory that all local peers have mapped; the rest of the same
 * segment is the rank's first arena.
 *
 * Memory order. A peer that posts something for me first writes it (release),
 * then increments my doorbell (seq_cst) and, if I say that I sleep, wakes the
 * futex. I say that I sleep (seq_cst) before the kernel compares the doorbell
 * with the value that I read before I looked for posts, so no post is missed.
 */
#ifndef ULI_COMM_AGREEMENT_CONTROL_H
#define ULI_COMM_AGREEMENT_CONTROL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/late.h"
#include "comm/agreement/board.h"
#include "comm/agreement/consensus.h"
#include "comm/agreement/differ.h"
#include "comm/record/recorder.h"

enum { ULI_LINE = 64, ULI_AGREE_BYTES = 4096, ULI_COPIES_TEXT = 1024 };

/* A post of agreement round n, in buffer n mod 2. */
struct uli_agree_post {
    _Alignas(ULI_LINE) _Atomic uint64_t round; /* released last */
    uint32_t call;                             /* enum uli_call */
    int32_t status;       /* the rank's own outcome so far */
    uint64_t sequence;    /* of collective calls on the communicator */
    uint64_t total_bytes; /* of the payload, over all chunks */
    uint32_t bytes;       /* of it in this round */
    unsigned char payload[ULI_AGREE_BYTES];
};

struct uli_control {
    struct uli_recorder recorder; /* first: where other processes find it */
    _Alignas(ULI_LINE) _Atomic uint32_t doorbell; /* futex word */
    _Atomic uint32_t sleeping;                    /* owner may be in futex */
    /* First failure posted here by a peer: status in the high half, the rank
     * that is its cause (or -1) in the low half; from 0 by compare and swap. */
    _Alignas(ULI_LINE) _Atomic uint64_t poison;
    _Atomic uint32_t abort_seen; /* owner has left all its operations */
    /* The first rank of a node: where posts of other nodes lie (nodes.h). */
    _Atomic uint32_t table_window;
    _Atomic uint64_t table_offset;
    /* Whom the owner waited for when a deadline was over and failed its
     * communicator. Written once, before it marks anything as closed or left,
     * and before late_noted. */
    struct uli_late late;
    _Atomic uint32_t late_noted;
    /* The owner's communicator has failed, for whatever reason: its caller may
     * have its tensors back. Set when `poison` is at the peers and `late` is
     * whole, before the owner can see the failure itself. */
    _Atomic uint32_t failed;
    /* Whom a rank waited for that has aborted (abort_record.h), written once,
     * before the poison that tells of it. */
    _Atomic uint32_t abort_state;
    struct uli_late abort;
    struct uli_board board;
    /* Ranks that are in different calls, written once, before the poison that
     * tells of it. */
    _Atomic uint32_t differ_state;
    struct uli_differ differ;
    /* Agreement rounds of collective calls, and of a creation by shrink, which
     * must work when a failure has left the first rounds out of step. */
    _Alignas(ULI_LINE) struct uli_agree_post agree[2];
    _Alignas(ULI_LINE) struct uli_agree_post shrink[2];
    /* Of the survivors' decisions (consensus.h): by parity of the instance,
     * written by the owner before its vote says so. */
    _Alignas(ULI_LINE) _Atomic uint64_t vote;
    struct uli_opinion opinions[2];
    struct uli_decision decisions[2];
    /* The first rank of a node: how its ranks copy, as text (collectives'
     * copies.h); its bytes, from 0 once it is there. */
    _Alignas(ULI_LINE) _Atomic uint32_t copies_bytes;
    char copies[ULI_COPIES_TEXT];
    /* How peer p has left, enum uli_left; [nranks], then the arena, at
     * multiples of ULI_LINE. */
    _Alignas(ULI_LINE) _Atomic uint32_t left[];
};

/* Not, by destroying its handle, or by the orderly end of its process. */
enum uli_left { ULI_STAYS, ULI_LEFT_BY_DESTROY, ULI_LEFT_BY_EXIT };

/* The doorbell's value, to be read before looking for posts. */
static inline uint32_t
uli_doorbell_read(struct uli_control *mine)
{
    return atomic_load_explicit(&mine->doorbell, memory_order_acquire);
}

/* After a post: bump, and wake the owner if it sleeps. Never blocks. */
void uli_doorbell_ring(struct uli_control *peer);

/* Sleeps until the doorbell differs from seen, at most max_ns (itself cut to
 * 50 ms). May return early. */
void uli_doorbell_sleep(
    struct uli_control *mine, uint32_t seen, int64_t max_ns);

/* A record of the block that is written once, by whichever rank comes first.
 * state: 0: nothing is there, 1: it is being written, 2: it is whole. A later
 * write changes nothing. Async-signal-safe. */
void uli_control_write_once(
    _Atomic uint32_t *state, void *record_p, const void *record, size_t bytes);
/* Copies the record. False: there is none, or its writer stands still. */
bool uli_control_read_once(const _Atomic uint32_t *state, const void *record,
    void *copy_p, size_t bytes);

/* Bytes of a control block for nranks, a multiple of ULI_LINE: where the
 * arena begins. */
int64_t uli_control_bytes(int32_t nranks);

#endif
