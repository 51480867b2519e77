/* SPDX-License-Identifier: Apache-2.0
 *
 * What differs between distributed attention on host memory and on device
 * memory, behind one table. The passes and the layers above do not test which
 * of the two a distributed attention has.
 *
 * Entries with a pass are called in the order of the call. On a device they
 * enqueue and wait for nothing; an error that the device finds later is
 * returned by a later call.
 */
#ifndef ULI_ATTENTION_DIST_ATTENTION_MEMORY_H
#define ULI_ATTENTION_DIST_ATTENTION_MEMORY_H

#include "attention/dist_attention/pass.h"
#include "attention/statistics.h"

/* At the start of saved: which distributed attention has filled it, with which
 * documents and rows. */
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

    /* Refuses parameters that no call could serve, in creation and in measure.
     * Errors: UNSUPPORTED by name. */
    ulyx_status_t (*check_params)(const ulyx_dist_attention_params_t *p);
    /* Before the ranks agree: makes dist->device. Never waits for a rank.
     * Errors: UNSUPPORTED by name, NO_MEMORY, the driver's. */
    ulyx_status_t (*open)(struct ulyx_dist_attention *dist);
    /* BUSY, with the text set, while a call is in flight. Errors: the
     * driver's. */
    ulyx_status_t (*idle)(const struct ulyx_dist_attention *dist);
    /* At any stage; nothing is in flight. */
    void (*close)(struct ulyx_dist_attention *dist);
    /* enter makes the device current until leave. leave returns status, or its
     * own error. */
    ulyx_status_t (*enter)(const struct ulyx_dist_attention *dist);
    ulyx_status_t (*leave)(ulyx_status_t status);

    /* After the head groups are chosen: makes what orders exchanges and
     * attention. Called between enter and leave. Errors: the driver's. */
    ulyx_status_t (*settle)(struct ulyx_dist_attention *dist);

    /* ---- calls ---- */

    /* dist->tables has changed: calls that were captured before are stale. */
    ulyx_status_t (*retable)(struct ulyx_dist_attention *dist, void *stream);
    /* First of a call, also of a refused one: sets pass->silent,
     * pass->earlier and pass->exchange_stream. */
    ulyx_status_t (*begin)(struct uli_pass *pass);
    /* Checks that all arrays of the call lie in this memory. Errors:
     * INVALID_ARGUMENT with the name of one that does not. */
    ulyx_status_t (*check)(const struct ulyx_dist_attention *dist,
        const struct uli_dist_call *call);
    /* Checks that a forward with these documents and rows has filled saved. */
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
    /* The order between exchanges and attention, where exchanges have a stream
     * of their own: mark records an event in the mark's stream, follow makes
     * the other stream wait for the last record of the mark. */
    ulyx_status_t (*mark)(const struct uli_pass *pass, enum uli_mark mark);
    ulyx_status_t (*follow)(const struct uli_pass *pass, enum uli_mark mark);
    /* Last of a call that has begun, whether or not it has failed. */
    ulyx_status_t (*end)(const struct uli_pass *pass);
};

extern const struct uli_dist_memory uli_dist_memory_host, uli_dist_memory_cuda;

/* Of a memory kind; NULL: this build does not have it. (cuda/memories.c) */
const struct uli_dist_memory *uli_dist_memory_of(ulyx_memory_kind_t kind);

#endif
