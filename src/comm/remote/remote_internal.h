/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of remote peers:
 *     remote.c          opening, addresses, connections, replicas, closing,
 *                       puts, progress, the net's thread
 *     remote_message.c  messages: what travels, sending, carrying out
 *     remote_windows.c  windows made known to remote peers, and taken back
 *     nodes.c           agreement rounds over nodes
 *     survivors_message.c  decisions of survivors
 *
 * Hooks run inside the network's progress and must not send: their messages go
 * to the outbox, which the thread that drives the network empties afterwards.
 *
 * Locks: `lock` guards outbox and calls; no function of the network is called
 * under it.
 */
#ifndef ULI_COMM_REMOTE_REMOTE_INTERNAL_H
#define ULI_COMM_REMOTE_REMOTE_INTERNAL_H

#include <pthread.h>
#include "comm/remote/nodes.h"
#include "comm/remote/remote.h"

/* ---- messages ------------------------------------------------------------ */

enum uli_message_kind {
    ULI_MESSAGE_GUARD = 1, /* makes a connection to watch, and its answer */
    ULI_MESSAGE_POSTS,     /* agreement posts of some ranks (nodes.c) */
    ULI_MESSAGE_QUERY,     /* queries which ranks of a node are in the round */
    ULI_MESSAGE_HERE,      /* answers; also for which ranks the others wait */
    ULI_MESSAGE_REFUSE,    /* the sender's post of the round is a refusal */
    ULI_MESSAGE_SHRINK,    /* the sender's post of the shrink rounds */
    ULI_MESSAGE_COME,      /* the sender has come to a decision */
    ULI_MESSAGE_BALLOT,    /* queries the votes of a node (survivors.h) */
    ULI_MESSAGE_VOTES,     /* the answers */
    ULI_MESSAGE_DECISION,
    ULI_MESSAGE_POISON,
    ULI_MESSAGE_LEFT,     /* the sender has left: status is enum uli_left */
    ULI_MESSAGE_WINDOW,   /* a window of the sender begins */
    ULI_MESSAGE_WITHDRAW, /* the window ends */
    ULI_MESSAGE_RETIRE,   /* the window ends if no operation is in flight */
    ULI_MESSAGE_ACK,      /* the answer to any of these three */
    ULI_MESSAGE_LOOK,     /* queries a board, and whether a call has begun */
    ULI_MESSAGE_STANDS,   /* the answer (differ.h) */
};

struct uli_message_head {
    uint64_t token; /* of the communicator: distinguishes stray messages */
    uint32_t kind, count;
};

/* Every message except POSTS, which nodes.c lays out. */
struct uli_message {
    struct uli_message_head head;
    uint64_t value; /* round; poison; number of a window call; 1: answer;
                     * instance and ballot */
    int64_t bytes;  /* of the window; LEFT: the poison or 0 */
    uint32_t window;
    int32_t status;
    unsigned char more[]; /* head.count bytes. HERE: struct whereabouts; ACK:
                           * text; SHRINK: payload of the post; VOTES: struct
                           * voice; DECISION: the decision; LOOK: the call;
                           * STANDS: the board; POISON, and LEFT with poison:
                           * struct uli_differ, of an abort struct uli_late, or
                           * nothing */
};

/* ---- one rank's end ------------------------------------------------------ */

struct uli_remote_peer {
    _Atomic bool contacted;           /* a message went to the peer or came from
                                       * it */
    _Atomic uint64_t left_round;      /* the last round posted before it left */
    _Atomic int64_t doubted_until_ns; /* could not be reached; -1: reported */
    /* Answers about agreement rounds (nodes.c): */
    _Atomic uint64_t here;     /* a round that the peer is known to have
                                * posted */
    _Atomic uint64_t waits;    /* a round that it missed so far, waiting
                                * elsewhere */
    _Atomic int32_t awaits;    /* with `waits`: the rank for which it waits */
    _Atomic uint64_t answered; /* a round about which it has answered */
    _Atomic uint64_t refused;  /* the last round that it has refused early */
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
    _Atomic int active;   /* puts were made lately: drive often */
    _Atomic bool guarded; /* the peer that this rank watches has answered */
    _Atomic int callers;  /* a thread of the caller has driven it lately */

    pthread_mutex_t lock;
    struct uli_list outbox;              /* under lock */
    struct uli_list calls;               /* under lock, of remote_windows.c */
    uint64_t last_call;                  /* under lock */
    struct uli_survivors_call *deciding; /* under lock; survivors_call.h */
    _Atomic int noutbox, ndoubted;
    _Atomic uint64_t poison; /* to be sent to remote peers, or sent */
    _Atomic bool poison_sent;

    _Atomic int64_t nmessages; /* sent, for tests */
};

/* ---- remote_message.c ---------------------------------------------------- */

/* Handles a message or put that the network did not accept. For a lost peer
 * nothing is done: the network reports the loss, after all that has arrived
 * from the peer. A peer that cannot be reached at all is reported dead a little
 * later. Errors: the communicator's failure (no memory). */
ulyx_status_t uli_remote_dropped(
    ulyx_comm_t *comm, int32_t peer, ulyx_status_t status);
/* Sends at once; not from a hook. Errors: as uli_remote_dropped. */
ulyx_status_t uli_remote_send(
    ulyx_comm_t *comm, int32_t peer, const void *message, size_t bytes);
/* A message with `count` bytes after it; allocates nothing. */
ulyx_status_t uli_remote_send_message(ulyx_comm_t *comm, int32_t peer,
    struct uli_message *message, const void *more, size_t count);
/* For hooks: the next progress sends the message. */
void uli_remote_post(ulyx_comm_t *comm, int32_t peer,
    struct uli_message *message, const void *more, size_t count);
/* Sends that this rank leaves in good order, with the poison, if there is
 * one. */
void uli_remote_send_left(ulyx_comm_t *comm, int32_t peer);
/* Sends the outbox, and poison that has not been sent yet. */
void uli_remote_flush(ulyx_comm_t *comm);
/* The network's `message` hook. */
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
