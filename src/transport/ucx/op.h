/* SPDX-License-Identifier: Apache-2.0
 *
 * What is on its way out. UCX reads header and data until it says that it has
 * done, so both live in an operation of ours: taken from a list that grows to
 * the most that were ever on their way, never beyond, and never gives back
 * before close. All under the net's lock.
 */
#ifndef ULI_TRANSPORT_UCX_OP_H
#define ULI_TRANSPORT_UCX_OP_H

#include "transport/ucx/net.h"

/* Something that UCX has not finished with. */
struct uli_ucx_op {
    struct uli_ucx_op *next; /* in a free list */
    struct uli_list node;    /* among the peer's, from send to end */
    struct uli_net *net;
    struct uli_ucx_peer *peer;
    struct uli_ucx_head head; /* UCX reads it until the end */
    _Atomic int64_t *pending; /* of the caller, or NULL */
    enum uli_ucx_verb verb;
    int parts;    /* calls of UCX that have not ended, and the posting */
    int flying;   /* those that `flying` of peer and net counts */
    bool by_verb; /* a put that counts in `unsettled` */
    bool large;   /* copy has room for a message */
    unsigned char copy[];
};

/* One to the peer, by AM, with a header that says who sends and what. large:
 * with room for a message. Errors: NULL, NO_MEMORY is reported. */
struct uli_ucx_op *uli_ucx_op_take(struct uli_net *net,
    struct uli_ucx_peer *peer, enum uli_ucx_kind kind, bool large);
/* A call of UCX that `flying` counts has ended. */
void uli_ucx_op_landed(struct uli_ucx_op *op);
/* All parts have ended. A failed operation has ended as well: the endpoint's
 * error handler tells of the peer. */
void uli_ucx_op_end(struct uli_ucx_op *op);

/* Prepares `count` operations, so that calls need not. */
ulyx_status_t uli_ucx_ops_prepare(struct uli_net *net, int count);
/* The peer's endpoint is no more: the callers' data is theirs again, whatever
 * UCX says of it later, or never. */
void uli_ucx_abandon_sends(struct uli_ucx_peer *peer);
void uli_ucx_ops_free(struct uli_net *net);

#endif
