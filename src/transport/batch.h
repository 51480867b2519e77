/* SPDX-License-Identifier: Apache-2.0
 *
 * The BATCH capability of transports: ranks that send each other contiguous
 * pieces of memory on a stream. What a schedule packs, a batch carries, and
 * another launch of the same stream unpacks.
 *
 * A batch is one rank's end of a group of ranks, made by all of them at once
 * from an id that one of them drew. Its runs come in the same order on all
 * ranks, and every piece sent meets a piece of the same size received, the
 * n-th of a pair and direction the n-th: a rank leaves out a run that it has
 * no piece of, so runs cannot be numbered alike on all. Ranks that disagree
 * wait for each other, until someone aborts. Nothing of this is
 * checked here: who runs a batch sees to it, and to a deadline.
 *
 * Threads. One thread at a time is in open, run or close of a batch; a second
 * is refused with ERR_BUSY. check and abort may come from any thread at any
 * time between open and close. Abort does not wait for a peer, but for what is
 * on streams to leave it, perhaps; a run that is under way returns soon after.
 */
#ifndef ULI_TRANSPORT_BATCH_H
#define ULI_TRANSPORT_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/clock.h"
#include "base/settings.h"
#include "base/status.h"

enum { ULI_BATCH_ID_BYTES = 128 };

struct uli_batch; /* each carrier has its own */

struct uli_batch_params {
    int32_t rank, nranks;
    int32_t memory_kind, device; /* of all pieces, ULYX_MEMORY_... */
    const struct uli_settings *settings;
    const unsigned char *id; /* [ULI_BATCH_ID_BYTES], equal on all ranks */
    uli_deadline_t deadline;
};

/* Bytes to or from a peer. Order among pieces of one pair and direction is
 * kept, otherwise they go at once. */
struct uli_batch_piece {
    void *data;
    int64_t bytes; /* above 0 */
    int32_t peer;  /* not the own rank */
    bool send;
};

/* ---- the slots of struct uli_tr_ops for ULI_TR_BATCH --------------------- */

struct uli_batch_ops {
    /* Draws an id, at one rank. It must stay alive until all have opened.
     * Errors: UNSUPPORTED (no such library, too old), SYSTEM. */
    ulyx_status_t (*make_id)(const struct uli_settings *settings,
        unsigned char id_p[ULI_BATCH_ID_BYTES]);
    /* Meets all other ranks; collective. Connections between ranks are made
     * by the first run that uses them, which is why plans run one at creation.
     * Errors: UNSUPPORTED, TIMEOUT (who is missing is not known), NO_MEMORY,
     * SYSTEM in the library's words; nothing is left then. */
    ulyx_status_t (*open)(
        const struct uli_batch_params *params, struct uli_batch **batch_p);
    /* Enqueues all pieces on the stream, as one step: none of them waits for
     * another. Returns once they are enqueued, which at the first use of a
     * connection waits for the peer. Allocates nothing of its own; may be
     * captured. Errors: BUSY, ABORTED (by abort, then or before), TIMEOUT
     * (the batch is aborted), SYSTEM, INVALID_ARGUMENT. */
    ulyx_status_t (*run)(struct uli_batch *batch,
        const struct uli_batch_piece *pieces, int32_t count, void *stream,
        uli_deadline_t deadline);
    /* Has something gone wrong since, at any rank? SUCCESS; ABORTED, which
     * sets no text; SYSTEM in the library's words. IN_PROGRESS sets no text: a
     * run is under way and will find out itself. Never blocks, never makes a
     * run wait, and changes nothing: who sees an error aborts. */
    ulyx_status_t (*check)(struct uli_batch *batch);
    /* Ends all runs, those on streams included; their data is undefined. */
    void (*abort)(struct uli_batch *batch);
    /* Ends this rank's end and frees it. In good order, where nothing failed
     * and the others close as well before the deadline; else as abort does. */
    void (*close)(struct uli_batch *batch, uli_deadline_t deadline);
    /* Name and version of what carries it. */
    void (*describe)(struct uli_batch *batch, char *text_p, size_t text_bytes);
};

#endif
