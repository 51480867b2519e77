/* SPDX-License-Identifier: Apache-2.0
 *
 * The control block: the flags and records that the ranks of one node share.
 * Each rank owns one, in a segment that all peers of the node have mapped; the
 * rest of the segment is the rank's first arena.
 *
 * Memory order. A peer that posts first writes the post (release), then
 * increments the owner's doorbell (seq_cst) and, if the owner's `sleeping` is
 * set, wakes the futex. The owner sets `sleeping` (seq_cst) before the kernel
 * compares the doorbell with the value that the owner read before it checked
 * for posts. So no post is missed.
 *
 * Posts of an exchange leave the doorbell alone where the owner does not sleep,
 * because its line would travel between cores with each post. The peer writes
 * the post, and after a fence (seq_cst) it reads `sleeping`. The owner sets
 * `sleeping`, and after a fence it looks for posts once more before it sleeps.
 * So either the peer finds the owner asleep, or the owner finds the post.
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
    uint32_t bytes;       /* of the payload in this round */
    unsigned char payload[ULI_AGREE_BYTES];
};

struct uli_control {
    struct uli_recorder recorder; /* first: where other processes find it */
    _Alignas(ULI_LINE) _Atomic uint32_t doorbell; /* futex word */
    _Atomic uint32_t sleeping;                    /* counts threads in the
                                                   * futex */
    /* First failure posted here by a peer: status in the high half, the rank
     * that is its cause (or -1) in the low half. Set once, from 0, by compare
     * and swap. */
    _Alignas(ULI_LINE) _Atomic uint64_t poison;
    _Atomic uint32_t abort_seen; /* owner has left all its operations */
    /* Of the first rank of a node: where posts of other nodes lie (nodes.h). */
    _Atomic uint32_t table_window;
    _Atomic uint64_t table_offset;
    /* The ranks for which the owner waited when a deadline was over and its
     * communicator failed. Written once, before the owner marks anything as
     * closed or left, and before late_noted. */
    struct uli_late late;
    _Atomic uint32_t late_noted;
    /* The owner's communicator has failed, for whatever reason: its caller may
     * have its tensors back. Set when the peers have `poison` and `late` is
     * complete, before the owner's calls can return the failure. */
    _Atomic uint32_t failed;
    /* The rank for which an aborted rank waited (abort_record.h), written once,
     * before the poison of the abort. */
    _Atomic uint32_t abort_state;
    struct uli_late abort;
    struct uli_board board;
    /* Ranks that are in different calls (differ.h), written once, before the
     * poison of that failure. */
    _Atomic uint32_t differ_state;
    struct uli_differ differ;
    /* Posts of the rounds of collective calls, and of the rounds of a creation
     * by shrink. The latter have numbers of their own, because after a failure
     * ranks may be in different rounds of collective calls. */
    _Alignas(ULI_LINE) struct uli_agree_post agree[2];
    _Alignas(ULI_LINE) struct uli_agree_post shrink[2];
    /* For the decisions of survivors (consensus.h), by parity of the instance.
     * The owner writes an opinion or a decision before its vote shows it. */
    _Alignas(ULI_LINE) _Atomic uint64_t vote;
    struct uli_opinion opinions[2];
    struct uli_decision decisions[2];
    /* Of the first rank of a node: the copy choices of its ranks, as text
     * (collectives' copies.h). copies_bytes leaves 0 once the text is
     * complete. */
    _Alignas(ULI_LINE) _Atomic uint32_t copies_bytes;
    char copies[ULI_COPIES_TEXT];
    /* left[p]: how peer p has left (enum uli_left), [nranks]. The arena follows
     * at the next multiple of ULI_LINE. */
    _Alignas(ULI_LINE) _Atomic uint32_t left[];
};

/* Has not left; has destroyed its handle; its process has ended in good
 * order. */
enum uli_left { ULI_STAYS, ULI_LEFT_BY_DESTROY, ULI_LEFT_BY_EXIT };

/* The doorbell's value. Read it before checking for posts. */
static inline uint32_t
uli_doorbell_read(struct uli_control *mine)
{
    return atomic_load_explicit(&mine->doorbell, memory_order_acquire);
}

/* After a post: increments the doorbell and wakes the owner if it sleeps. Never
 * blocks. */
void uli_doorbell_ring(struct uli_control *peer);

/* After a post and a fence (seq_cst): as uli_doorbell_ring, but only where the
 * owner sleeps. */
static inline void
uli_doorbell_wake(struct uli_control *peer)
{
    if (atomic_load_explicit(&peer->sleeping, memory_order_relaxed))
        uli_doorbell_ring(peer);
}

/* Sleeps until the doorbell differs from seen, but at most max_ns and at most
 * 50 ms. May return early. ready(context): called once after `sleeping` is set;
 * true ends the sleep; NULL where no exchange is waited for. */
void uli_doorbell_sleep(struct uli_control *mine, uint32_t seen, int64_t max_ns,
    bool (*ready)(void *context), void *context);

/* Writes a record of the block that is written once, by the first rank that
 * does so. state: 0: no record, 1: a write is under way, 2: complete. A later
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
