/* SPDX-License-Identifier: Apache-2.0
 *
 * Where the tensors of a distributed attention lie: what differs between host
 * and device memory, behind one table. Layers above it and the passes ask
 * neither by name.
 *
 * Entries with a pass come in the order of the call. On a device they enqueue
 * on the call's stream and wait for nothing; what the device finds out later is
 * the error of a later call.
 */
#ifndef ULI_ATTENTION_DIST_ATTENTION_MEMORY_H
#define ULI_ATTENTION_DIST_ATTENTION_MEMORY_H

#include "attention/dist_attention/pass.h"
#include "attention/statistics.h"

/* At the begin of saved: whose it is, and by which tables it lies. */
struct uli_saved_header {
    uint64_t magic, shape, tables;
};
#define ULI_SAVED_IS_OTHER                                                     \
    "saved was not written by a forward of this distributed attention"
#define ULI_SAVED_HAS_OTHER_TABLES                                             \
    "saved was written by a forward with other documents or rows: backward "   \
    "must have those of its forward"

/* One part of the sequence side for delta; strides are {batch, row, head} in
 * bytes. */
struct uli_delta_part {
    ulyx_dtype_t dtype;
    int64_t sizes[4];                        /* batch, rows, heads, dim_v */
    struct uli_attn_strided dout, out, dlse; /* dlse.base NULL: none */
    unsigned char *delta;
    int64_t delta_strides[3];
};

struct uli_dist_memory {
    ulyx_memory_kind_t kind;
    uint64_t group_flags; /* of plans, where there are several head groups */

    /* ---- creation ---- */

    /* Refuses parameters that no call could serve, of measure too. Errors:
     * UNSUPPORTED by name. */
    ulyx_status_t (*check_params)(const ulyx_dist_attention_params_t *p);
    /* Before the ranks agree: makes dist->device. Never waits for a rank.
     * Errors: UNSUPPORTED by name, NO_MEMORY, the driver's. */
    ulyx_status_t (*open)(struct ulyx_dist_attention *dist);
    /* Is a call in flight? BUSY with the text; the driver's. */
    ulyx_status_t (*idle)(const struct ulyx_dist_attention *dist);
    /* At any stage; nothing is in flight. */
    void (*close)(struct ulyx_dist_attention *dist);
    /* Around what asks for kernels: makes the device current. leave gives
     * status back, or its own error. */
    ulyx_status_t (*enter)(const struct ulyx_dist_attention *dist);
    ulyx_status_t (*leave)(ulyx_status_t status);

    /* Once the head groups are chosen: what the order between them needs. In
     * between enter and leave. Errors: the driver's. */
    ulyx_status_t (*settle)(struct ulyx_dist_attention *dist);

    /* ---- calls ---- */

    /* dist->tables has changed: calls that were captured before are stale. */
    ulyx_status_t (*retable)(struct ulyx_dist_attention *dist, void *stream);
    /* First of a call, also of a refused one: sets pass->silent,
     * pass->earlier and pass->exchange_stream. */
    ulyx_status_t (*begin)(struct uli_pass *pass);
    /* Does all that the call gives lie in this memory? INVALID_ARGUMENT naming
     * what does not. */
    ulyx_status_t (*check)(const struct ulyx_dist_attention *dist,
        const struct uli_dist_call *call);
    /* Is saved what a forward with these tables left? */
    ulyx_status_t (*check_saved)(
        struct uli_pass *pass, const struct uli_saved_header *expected);
    ulyx_status_t (*write_header)(
        struct uli_pass *pass, const struct uli_saved_header *header);
    ulyx_status_t (*copy)(
        const struct uli_pass *pass, void *dst, const void *src, int64_t bytes);
    ulyx_status_t (*zero)(
        const struct uli_pass *pass, void *address, int64_t bytes);
    /* delta = sum of dout * out, less dlse, by the routine of plain backward.
     */
    ulyx_status_t (*delta)(
        const struct uli_pass *pass, const struct uli_delta_part *part);
    ulyx_status_t (*attend)(const struct uli_pass *pass,
        struct uli_attn_call *attention, ulyx_attention_pass_t kind);
    /* The order between exchanges and attention, where the exchanges have a
     * stream of their own: mark notes how far the mark's stream is, follow
     * makes the other one wait for the last note of the mark. */
    ulyx_status_t (*mark)(const struct uli_pass *pass, enum uli_mark mark);
    ulyx_status_t (*follow)(const struct uli_pass *pass, enum uli_mark mark);
    /* Last of a call that has begun, whatever came of it. */
    ulyx_status_t (*end)(const struct uli_pass *pass);
};

extern const struct uli_dist_memory uli_dist_memory_host, uli_dist_memory_cuda;

/* Of a memory kind; NULL: this build does not have it. (cuda/memories.c) */
const struct uli_dist_memory *uli_dist_memory_of(ulyx_memory_kind_t kind);

#endif
