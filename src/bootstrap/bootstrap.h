/* SPDX-License-Identifier: Apache-2.0
 *
 * How ranks meet. A bootstrap is an open meeting of nranks ranks that can
 * gather small records; creation needs two gathers, three where there are
 * several nodes, then closes it.
 * One implementation a file: star.c (TCP or Unix stream sockets to
 * a root), bootstrap/callback.c (the caller's allgather), local.c
 * (ranks of one communicator that splits or shrinks).
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
     * 64 KiB). Blocks until all have come or the deadline.
     * Errors: TIMEOUT naming the missing ranks, RANK_LOST (a connection
     * broke), MISMATCH (nranks, two ranks of one number, bytes), AUTH,
     * VERSION, SYSTEM. After an error only close may be called. */
    ulyx_status_t (*gather)(struct uli_bootstrap *bootstrap, const void *mine,
        size_t bytes, void *all_p, uli_deadline_t deadline);
    /* NULL, or: this rank cannot go on, for `status` with `text`. The others'
     * next gather gives that with this rank's number, and `broken` reports it
     * before. Needs no memory. Then only close may be called.
     * returns the meeting's failure, the same on all ranks: the first one; or
     * status, with text as last error, where the deadline is over before. */
    ulyx_status_t (*give_up)(struct uli_bootstrap *bootstrap,
        ulyx_status_t status, const char *text, uli_deadline_t deadline);
    /* NULL, or: is it known that the next gather will fail? Between two gathers
     * only; never blocks. A rank that has received a failure leaves, and a
     * rank that has not must not wait for it. */
    bool (*broken)(struct uli_bootstrap *bootstrap);
    /* NULL, or: reports to the ranks that wait for this rank's next record for
     * which rank it waits itself; -1: for none. Between two gathers only; never
     * blocks. */
    void (*await)(struct uli_bootstrap *bootstrap, int32_t rank);
    /* Releases; never blocks for longer than a second. */
    void (*close)(struct uli_bootstrap *bootstrap);
};

struct uli_bootstrap {
    const struct uli_bootstrap_ops *ops; /* first member of each kind */
    int32_t rank, nranks;
    /* [2], the caller's: the node that this rank is known to be on, by the
     * communicator that it comes from; NULL: find out (identity.h). */
    const uint64_t *node_hash;
    /* [nranks], the caller's: the ranks' numbers in the communicator that they
     * come from, by which errors of the creation name them; NULL: their own. */
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
 * point); the bootstrap then has rank and nranks. The n-th meeting of a process
 * is the n-th of the others, also after one that failed: so a creation takes
 * its number before it can fail. */
uint32_t uli_bootstrap_count_env(void);
ulyx_status_t uli_bootstrap_open_env(const struct uli_settings *settings,
    uint32_t meeting, uli_deadline_t deadline,
    struct uli_bootstrap **bootstrap_p);

/* The root of a unique id: listens and serves from a thread of its own. Destroy
 * ends it, by the process that made it. */
ulyx_status_t uli_unique_id_create(ulyx_unique_id_t *id_p);
ulyx_status_t uli_unique_id_destroy(const ulyx_unique_id_t *id);
ulyx_status_t uli_unique_id_to_string(
    const ulyx_unique_id_t *id, char *text_p, size_t text_bytes);
ulyx_status_t uli_unique_id_from_string(
    const char *text, ulyx_unique_id_t *id_p);

#endif
