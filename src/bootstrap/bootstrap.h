/* SPDX-License-Identifier: Apache-2.0
 *
 * How ranks meet. A bootstrap is an open meeting of nranks ranks, which can
 * gather small records. A creation makes two gathers, or three if there are
 * several nodes, and then closes the bootstrap. Each implementation has a file:
 * meet/star.c (TCP or Unix stream sockets to a root), meet/tree.c (a tree over
 * the star, for many ranks), callback.c (the caller's allgather), comm/split.c
 * and comm/agreement/shrink.c (ranks of a communicator that splits or shrinks).
 */
#ifndef ULI_BOOTSTRAP_BOOTSTRAP_H
#define ULI_BOOTSTRAP_BOOTSTRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include "base/settings.h"
#include "base/system/clock.h"
#include "ulyx/comm.h"

struct uli_bootstrap;

struct uli_bootstrap_ops {
    const char *name;
    /* all_p[nranks][bytes] <- each rank's bytes (equal on all ranks, at most
     * 64 KiB). Blocks until all ranks have called, or until the deadline.
     * Errors: TIMEOUT naming the missing ranks, RANK_LOST (a connection
     * broke), MISMATCH (nranks or bytes differ, two processes with one rank),
     * AUTH, VERSION, SYSTEM. After an error only close may be called. */
    ulyx_status_t (*gather)(struct uli_bootstrap *bootstrap, const void *mine,
        size_t bytes, void *all_p, uli_deadline_t deadline);
    /* NULL, or: reports that this rank cannot continue, because of `status`
     * with `text`. The next gather of the other ranks fails with this status
     * and names this rank; before that their `broken` is true. Allocates
     * nothing. Then only close may be called.
     * returns the failure of the meeting, which is the first one and the same
     * on all ranks; or status, with text as last error, if the deadline passes
     * before the root has answered. */
    ulyx_status_t (*give_up)(struct uli_bootstrap *bootstrap,
        ulyx_status_t status, const char *text, uli_deadline_t deadline);
    /* NULL, or: is it known that the next gather will fail? To be called
     * between two gathers only; never blocks. A rank that has received a
     * failure leaves the meeting; by this call the other ranks notice that they
     * must not wait for it. */
    bool (*broken)(struct uli_bootstrap *bootstrap);
    /* NULL, or: publishes for which rank this rank waits (-1: for none), to the
     * ranks that wait for this rank's next record. To be called between two
     * gathers only; never blocks. */
    void (*await)(struct uli_bootstrap *bootstrap, int32_t rank);
    /* Leaves the meeting and frees the bootstrap; blocks for at most a
     * second. */
    void (*close)(struct uli_bootstrap *bootstrap);
};

struct uli_bootstrap {
    const struct uli_bootstrap_ops *ops; /* first member of each kind */
    int32_t rank, nranks;
    /* [2], owned by the caller: the hash of this rank's node, if an old
     * communicator has it (split, shrink); NULL: identity.h determines it. */
    const uint64_t *node_hash;
    /* [nranks], owned by the caller: the ranks' numbers in the old communicator
     * (split, shrink), which errors of the creation use; NULL: errors use the
     * new numbers. */
    const int32_t *numbers;
};

/* By unique id: dials the id's addresses in order until one answers. */
ulyx_status_t uli_bootstrap_open_id(const ulyx_unique_id_t *id, int32_t nranks,
    int32_t rank, const struct uli_settings *settings, uli_deadline_t deadline,
    struct uli_bootstrap **bootstrap_p);
ulyx_status_t uli_bootstrap_open_callback(ulyx_allgather_fn allgather,
    void *context, int32_t nranks, int32_t rank,
    struct uli_bootstrap **bootstrap_p);
/* By the launcher's environment (launcher.c finds rank, size and meeting
 * point); the bootstrap then has rank and nranks. The n-th creation of a
 * process meets the n-th creation of the others, also after a creation that
 * failed. So a creation takes its number, with uli_bootstrap_count_env, before
 * it can fail. */
uint32_t uli_bootstrap_count_env(void);
ulyx_status_t uli_bootstrap_open_env(const struct uli_settings *settings,
    uint32_t meeting, uli_deadline_t deadline,
    struct uli_bootstrap **bootstrap_p);

/* The root of a unique id: listens and serves from a thread of its own. Destroy
 * ends it, in the process that made it. */
ulyx_status_t uli_unique_id_create(ulyx_unique_id_t *id_p);
ulyx_status_t uli_unique_id_destroy(const ulyx_unique_id_t *id);
ulyx_status_t uli_unique_id_to_string(
    const ulyx_unique_id_t *id, char *text_p, size_t text_bytes);
ulyx_status_t uli_unique_id_from_string(
    const char *text, ulyx_unique_id_t *id_p);

#endif
