/* SPDX-License-Identifier: Apache-2.0
 *
 * The BATCH capability of transports: ranks send each other contiguous
 * messages, from and to memory, on a stream. A schedule packs the messages, a
 * batch moves them, and another launch on the same stream unpacks them.
 *
 * A batch is one rank's end of a group of ranks. All ranks make it together,
 * from an id that one of them made. Runs have the same order on all ranks. The
 * n-th message sent from one rank to another meets the n-th message received
 * there from the sender, of the same size. A rank leaves out a run in which it
 * has no message, so runs have no common numbers. Ranks that disagree wait for
 * each other, until a rank aborts. The transport checks none of this: the
 * caller of run ensures it, and a deadline.
 *
 * Threads. One thread at a time is in open, run or close of a batch; a second
 * is refused with ERR_BUSY. Any thread may call check and abort at any time
 * between open and close. abort does not wait for a peer, but may wait until
 * the batch's work on streams has ended; a run that is in progress returns soon
 * afterwards.
 */
#ifndef ULI_TRANSPORT_BATCH_H
#define ULI_TRANSPORT_BATCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/settings.h"
#include "base/status.h"
#include "base/system/clock.h"
#include "transport/net.h"

enum {
    ULI_BATCH_ID_BYTES = 128,
    ULI_BATCH_ADDRESS_BYTES = 256, /* the most bytes per rank of a gather */
};

struct uli_batch; /* opaque: each transport casts it to its own struct */
struct uli_binding;

/* Host memory of this rank that all peers reach, as (window, offset). */
struct uli_batch_memory {
    void *address;
    uint32_t window;
    int64_t offset, bytes;
};

/* Functions of the communicator for a batch: transports without a library of
 * their own connect their ranks by these. context outlives the batch. All but
 * put, progress and has_failed are called within open and close only. */
struct uli_batch_hooks {
    void *context;
    /* Gathers `bytes` bytes of each rank, at most ULI_BATCH_ADDRESS_BYTES: rank
     * p's at *all_p + p * bytes, valid until the next gather. Collective: all
     * ranks take part in the same number of gathers in open, whatever has
     * failed at one of them. Errors: the communicator's; no gather may follow
     * one that failed. */
    ulyx_status_t (*gather)(void *context, const void *mine, size_t bytes,
        uli_deadline_t deadline, const void **all_p);
    /* Zeroed memory, near the rank's device. Errors: NO_MEMORY, the
     * communicator's. */
    ulyx_status_t (*memory_alloc)(
        void *context, int64_t bytes, struct uli_batch_memory *memory_p);
    /* Called when no rank stores into the memory any more. */
    void (*memory_free)(void *context, const struct uli_batch_memory *memory);
    /* Whether the peer's memory is not mapped here, but reached by put. */
    bool (*is_remote)(void *context, int32_t peer);
    /* The address here of a mapped peer's memory; NULL: the peer has no such
     * memory. */
    void *(*address)(void *context, int32_t peer, uint32_t window,
        int64_t offset, int64_t bytes);
    /* Puts into a remote peer's memory, as the put of net.h. Errors: the
     * communicator's. */
    ulyx_status_t (*put)(
        void *context, int32_t peer, const struct uli_net_put *put);
    /* Drives the network; true when something happened. */
    bool (*progress)(void *context);
    /* Whether the communicator has failed: then nothing needs to be sent any
     * more. */
    bool (*has_failed)(void *context);
    /* Copies to device memory of this rank (src NULL: zeros) and waits for the
     * copy. Errors: TIMEOUT, the driver's. */
    ulyx_status_t (*upload)(
        void *context, void *dst, const void *src, int64_t bytes);
    /* Claims blocks of a launch that may wait for other ranks, where a
     * multiprocessor holds per_sm of them: the requested number, or this
     * rank's part of its device if that is less, or 0. Returns the number,
     * which stays claimed until release. */
    int32_t (*claim)(void *context, int32_t multiprocessors, int32_t per_sm,
        int64_t requested);
    void (*release)(void *context, int32_t per_sm, int32_t claimed);
};

struct uli_batch_params {
    int32_t rank, nranks;
    int32_t memory_kind, device; /* of all messages, ULYX_MEMORY_... */
    const struct uli_settings *settings;
    const unsigned char *id; /* [ULI_BATCH_ID_BYTES], equal on all ranks */
    uli_deadline_t deadline;
    const struct uli_binding *binding; /* for own threads and memory */
    const uint64_t *poison; /* for kernels: not 0 = the communicator failed */
    struct uli_batch_hooks hooks;
};

/* Bytes to or from a peer. Messages of one pair and direction keep their order;
 * otherwise all messages move at the same time. */
struct uli_batch_message {
    void *data;
    int64_t bytes; /* above 0 */
    int32_t peer;  /* not the own rank */
    bool send;
};

/* ---- the slots of struct uli_tr_ops for ULI_TR_BATCH --------------------- */

struct uli_batch_ops {
    int32_t ranks_max; /* of a batch; 0 = any number */
    /* Makes an id, at one rank. This rank's process must live until all ranks
     * have opened. Errors: UNSUPPORTED (no such library, too old), SYSTEM. */
    ulyx_status_t (*make_id)(const struct uli_settings *settings,
        unsigned char id_p[ULI_BATCH_ID_BYTES]);
    /* Opens a batch with all other ranks; collective. The first run that uses a
     * connection between ranks makes it, which is why plans run one at
     * creation. settings, binding, poison and all that the hooks use outlive
     * the batch. Errors: UNSUPPORTED, TIMEOUT (the missing rank is not known),
     * NO_MEMORY, SYSTEM with the library's text; then nothing is kept. */
    ulyx_status_t (*open)(
        const struct uli_batch_params *params, struct uli_batch **batch_p);
    /* Enqueues all messages on the stream, as one step: no message waits for
     * another. Returns once they are enqueued; the first use of a connection
     * waits for the peer. Allocates nothing of its own; may be captured.
     * Errors: BUSY, ABORTED (by abort, during the run or before), TIMEOUT (the
     * batch is aborted), SYSTEM, INVALID_ARGUMENT. */
    ulyx_status_t (*run)(struct uli_batch *batch,
        const struct uli_batch_message *messages, int32_t count, void *stream,
        uli_deadline_t deadline);
    /* Whether an error has occurred at any rank since open: SUCCESS; ABORTED,
     * which sets no text; SYSTEM with the library's text; other errors of the
     * transport. IN_PROGRESS sets no text: a run is in progress and will find
     * the error itself. Never blocks, never makes a run wait, and changes
     * nothing: a caller that gets an error aborts. */
    ulyx_status_t (*check)(struct uli_batch *batch);
    /* Ends all runs, those on streams included; their data is undefined. */
    void (*abort)(struct uli_batch *batch);
    /* Closes this rank's end and frees it: in good order where nothing has
     * failed and the other ranks close before the deadline too; else the runs
     * end as by abort. */
    void (*close)(struct uli_batch *batch, uli_deadline_t deadline);
    /* Name and version of the transport or its library. */
    void (*describe)(struct uli_batch *batch, char *text_p, size_t text_bytes);
};

#endif
