/* SPDX-License-Identifier: Apache-2.0
 *
 * The BATCH capability of transports: ranks that send each other contiguous
 * messages from and to memory on a stream. What a schedule packs, a batch
 * carries, and another launch of the same stream unpacks.
 *
 * A batch is one rank's end of a group of ranks, made by all of them at once
 * from an id that one of them drew. Its runs come in the same order on all
 * ranks, and every message sent meets a message of the same size received, the
 * n-th of a pair and direction the n-th: a rank leaves out a run that it has
 * no message of, so runs cannot be numbered alike on all. Ranks that disagree
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
#include "base/settings.h"
#include "base/status.h"
#include "base/system/clock.h"
#include "transport/net.h"

enum {
    ULI_BATCH_ID_BYTES = 128,
    ULI_BATCH_ADDRESS_BYTES = 256, /* the most that a rank gathers at once */
};

struct uli_batch; /* opaque: each transport casts it to its own */
struct uli_binding;

/* Host memory of this rank's that all peers reach, as (window, offset). */
struct uli_batch_memory {
    void *address;
    uint32_t window;
    int64_t offset, bytes;
};

/* What the communicator gives a batch: by it transports are made that have no
 * library to meet by. context outlives the batch. All but put, progress and
 * has_failed are called within open and close only. */
struct uli_batch_hooks {
    void *context;
    /* At most ADDRESS_BYTES of each rank, rank by rank at *all_p, which lives
     * until the next gather. Collective: all ranks take the same number of
     * gathers in open, whatever has failed at one. Errors: the communicator's,
     * after which it takes none any more. */
    ulyx_status_t (*gather)(void *context, const void *mine, size_t bytes,
        uli_deadline_t deadline, const void **all_p);
    /* Zeroed memory, near the rank's device. Errors: NO_MEMORY, the
     * communicator's. */
    ulyx_status_t (*memory_alloc)(
        void *context, int64_t bytes, struct uli_batch_memory *memory_p);
    /* Nobody stores to it any more. */
    void (*memory_free)(void *context, const struct uli_batch_memory *memory);
    /* A peer whose memory is not mapped here but put into. */
    bool (*is_remote)(void *context, int32_t peer);
    /* Where a mapped peer's memory lies here; NULL: it has none there. */
    void *(*address)(void *context, int32_t peer, uint32_t window,
        int64_t offset, int64_t bytes);
    /* Into a remote peer's memory, as the put of net.h. Errors: the
     * communicator's. */
    ulyx_status_t (*put)(
        void *context, int32_t peer, const struct uli_net_put *put);
    /* Moves the network on; true when something happened. */
    bool (*progress)(void *context);
    /* The communicator has failed: nothing need be sent any more. */
    bool (*has_failed)(void *context);
    /* Copies to device memory of this rank, src NULL: zeros; waits for it.
     * Errors: TIMEOUT, the driver's. */
    ulyx_status_t (*upload)(
        void *context, void *dst, const void *src, int64_t bytes);
    /* How many of the blocks of a launch may wait for other ranks, where a
     * multiprocessor holds per_sm of them: as many as are wanted, or of this
     * rank's part of its device if that is less; or 0. Theirs until release. */
    int32_t (*claim)(
        void *context, int32_t multiprocessors, int32_t per_sm, int64_t wanted);
    void (*release)(void *context, int32_t per_sm, int32_t claimed);
};

struct uli_batch_params {
    int32_t rank, nranks;
    int32_t memory_kind, device; /* of all messages, ULYX_MEMORY_... */
    const struct uli_settings *settings;
    const unsigned char *id; /* [ULI_BATCH_ID_BYTES], equal on all ranks */
    uli_deadline_t deadline;
    const struct uli_binding *binding; /* of own threads and memory */
    const uint64_t *poison; /* for kernels: not 0 = the communicator failed */
    struct uli_batch_hooks hooks;
};

/* Bytes to or from a peer. Order among messages of one pair and direction is
 * kept, otherwise they go at once. */
struct uli_batch_message {
    void *data;
    int64_t bytes; /* above 0 */
    int32_t peer;  /* not the own rank */
    bool send;
};

/* ---- the slots of struct uli_tr_ops for ULI_TR_BATCH --------------------- */

struct uli_batch_ops {
    int32_t ranks_max; /* of a batch; 0 = any number */
    /* Draws an id, at one rank. It must stay alive until all have opened.
     * Errors: UNSUPPORTED (no such library, too old), SYSTEM. */
    ulyx_status_t (*make_id)(const struct uli_settings *settings,
        unsigned char id_p[ULI_BATCH_ID_BYTES]);
    /* Meets all other ranks; collective. Connections between ranks are made
     * by the first run that uses them, which is why plans run one at creation.
     * settings, binding, poison and what the hooks need outlive the batch.
     * Errors: UNSUPPORTED, TIMEOUT (who is missing is not known), NO_MEMORY,
     * SYSTEM in the library's words; nothing is left then. */
    ulyx_status_t (*open)(
        const struct uli_batch_params *params, struct uli_batch **batch_p);
    /* Enqueues all messages on the stream, as one step: none of them waits for
     * another. Returns once they are enqueued, which at the first use of a
     * connection waits for the peer. Allocates nothing of its own; may be
     * captured. Errors: BUSY, ABORTED (by abort, then or before), TIMEOUT
     * (the batch is aborted), SYSTEM, INVALID_ARGUMENT. */
    ulyx_status_t (*run)(struct uli_batch *batch,
        const struct uli_batch_message *messages, int32_t count, void *stream,
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
