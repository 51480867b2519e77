/* SPDX-License-Identifier: Apache-2.0
 *
 * Between the files of remote peers:
 *     remote.c          opening, addresses, connections, replicas, closing,
 *                       puts, progress, the net's thread
 *     remote_message.c  messages: what travels, sending, carrying out
 *     remote_windows.c  windows made known to remote peers, and taken back
 *     nodes.c           agreement rounds over nodes
 *     survivors_message.c  decisions of survivors
 *
 * Hooks run inside the net's progress and must not send; what they have to
 * say goes to the outbox, which whoever moves the net on empties afterwards.
 *
 * Locks: `lock` guards outbox and calls; nothing is called under it.
 */
#ifndef ULI_COMM_REMOTE_REMOTE_INTERNAL_H
#define ULI_COMM_REMOTE_REMOTE_INTERNAL_H

#include <pthread.h>
#include "comm/remote/nodes.h"
#include "comm/remote/remote.h"

/* ---- what travels -------------------------------------------------------- */

enum uli_message_kind {
    ULI_MESSAGE_GUARD = 1, /* makes a connection to watch, and its answer */
    ULI_MESSAGE_POSTS,     /* agreement posts of some ranks (nodes.c) */
    ULI_MESSAGE_ASK,       /* which ranks of your node are in the round? */
    ULI_MESSAGE_HERE,      /* these; and whom the others wait for */
    ULI_MESSAGE_SHRINK,    /* the sender's post of the shrink rounds */
    ULI_MESSAGE_COME,      /* the sender has come to a decision */
    ULI_MESSAGE_BALLOT,    /* asks the votes of a node (survivors.h) */
    ULI_MESSAGE_VOTES,     /* these */
    ULI_MESSAGE_DECISION,
    ULI_MESSAGE_POISON,
    ULI_MESSAGE_LEFT,     /* the sender has left: status is enum uli_left */
    ULI_MESSAGE_WINDOW,   /* a window of the sender begins */
    ULI_MESSAGE_WITHDRAW, /* it ends */
    ULI_MESSAGE_RETIRE,   /* the same if no operation is in flight */
    ULI_MESSAGE_ACK,      /* the answer to one of these three */
    ULI_MESSAGE_LOOK,     /* where do you stand, have you begun this call? */
    ULI_MESSAGE_STANDS,   /* there, and that (differ.h) */
};

struct uli_message_head {
    uint64_t token; /* of the communicator: a stray has another */
    uint32_t kind, count;
};

/* Every message but POSTS, which nodes.c lays out. */
struct uli_message {
    struct uli_message_head head;
    uint64_t value; /* round; poison; number of a window call; 1: answer;
                     * instance and ballot */
    int64_t bytes;  /* of the window; LEFT: the poison or 0 */
    uint32_t window;
    int32_t status;
    unsigned char more[]; /* head.count: HERE whereabouts, ACK text, SHRINK
                           * post, VOTES, DECISION, LOOK's call, STANDS' board,
                           * POISON, LEFT with one: struct uli_differ, of an
                           * abort struct uli_late, or nothing */
};

/* ---- one rank's end ------------------------------------------------------ */

struct uli_remote_peer {
    _Atomic bool contacted;           /* something went to it or came from it */
    _Atomic uint64_t left_round;      /* the last it posted before it left */
    _Atomic int64_t doubted_until_ns; /* not reached; -1: reported */
    /* Answers on agreement rounds (nodes.c): */
    _Atomic uint64_t here;     /* a round that it is known to have posted */
    _Atomic uint64_t waits;    /* a round that it waits elsewhere in place of */
    _Atomic int32_t awaits;    /* with `waits`: for whom */
    _Atomic uint64_t answered; /* a round that it has answered on */
};

struct uli_survivors_call;

struct uli_remote {
    const struct uli_net_ops *ops;
    uint64_t token;
    struct uli_remote_peer *peers; /* [nranks] */
    unsigned char *replicas;       /* control blocks without left[] */
    size_t replica_bytes;          /* of all */
    struct uli_nodes nodes;

    pthread_t thread;
    bool has_thread;
    _Atomic bool stop;
    _Atomic int active;   /* puts were made lately: look often */
    _Atomic bool guarded; /* the peer that I watch has answered */
    _Atomic int callers;  /* a thread of the caller has moved the net lately */

    pthread_mutex_t lock;
    struct uli_list outbox;              /* under lock */
    struct uli_list calls;               /* under lock, of remote_windows.c */
    uint64_t last_call;                  /* under lock */
    struct uli_survivors_call *deciding; /* under lock; survivors_call.h */
    _Atomic int noutbox, ndoubted;
    _Atomic uint64_t poison; /* to be told to remote peers, or told */
    _Atomic bool poison_told;

    _Atomic int64_t nmessages; /* sent, for tests */
};

/* ---- remote_message.c ---------------------------------------------------- */

/* What a net did not take. Nothing for a peer that is lost: the net tells that,
 * after all that has come from the peer; a little later for one that cannot be
 * reached at all. Errors: the communicator's failure (no memory). */
ulyx_status_t uli_remote_dropped(
    ulyx_comm_t *comm, int32_t peer, ulyx_status_t status);
/* Sends now; not from a hook. Errors: as uli_remote_dropped. */
ulyx_status_t uli_remote_send(
    ulyx_comm_t *comm, int32_t peer, const void *message, size_t bytes);
/* A message with `count` bytes after it; allocates nothing. */
ulyx_status_t uli_remote_send_message(ulyx_comm_t *comm, int32_t peer,
    struct uli_message *message, const void *more, size_t count);
/* From a hook: sent by the next progress. */
void uli_remote_post(ulyx_comm_t *comm, int32_t peer,
    struct uli_message *message, const void *more, size_t count);
/* In good order this rank leaves; with the poison, if there is one. */
void uli_remote_tell_left(ulyx_comm_t *comm, int32_t peer);
/* Empties the outbox and tells what poison is due. */
void uli_remote_flush(ulyx_comm_t *comm);
/* The net's `message` hook. */
void uli_remote_receive(
    void *context, int32_t from, const void *message, size_t bytes);

/* ---- remote_windows.c ---------------------------------------------------- */

/* Hooks: a request of `from`, and an answer. */
void uli_remote_window_request(
    ulyx_comm_t *comm, int32_t from, const struct uli_message *message);
void uli_remote_window_answer(
    ulyx_comm_t *comm, int32_t from, const struct uli_message *message);

/* ---- survivors_message.c ------------------------------------------------- */

/* Hook: COME, BALLOT, VOTES, DECISION. */
void uli_survivors_receive(
    ulyx_comm_t *comm, int32_t from, const struct uli_message *message);

/* ---- nodes.c ------------------------------------------------------------- */

/* Hooks. */
void uli_nodes_receive(ulyx_comm_t *comm, const void *message, size_t bytes);
void uli_nodes_answer(ulyx_comm_t *comm, int32_t from, uint64_t round);
void uli_nodes_here(ulyx_comm_t *comm, int32_t from,
    const struct uli_message *message, size_t bytes);

#endif
