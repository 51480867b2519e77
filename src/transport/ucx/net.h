/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank's end of UCX: a context (so that each rank has its own devices), a
 * worker, an endpoint for each peer that is spoken to.
 *
 * Everything travels as active messages with one header, struct uli_ucx_head.
 * A small put is eager; a large one is a rendezvous, by which UCX moves the
 * data straight into the target; the signal is stored when it has come, so no
 * order of the network is relied upon. Messages are eager and numbered, and
 * are handed over in the order of their numbers, after the eager puts that
 * were sent before them.
 *
 * The lock. UCX's worker is for one thread at a time. `busy` is a flag that
 * progress only tries to set; put and message yield until they have it, which
 * is one step of progress at most. All that is not atomic below is touched
 * under it.
 *
 * The end. A connection that closes looks like a death to the other side, and
 * what was sent last may be lost with it. So close first sends BYE to every
 * peer and waits for their answers: the answer tells that all before it has
 * been received, and whoever has had a BYE is not surprised by the end.
 */
#ifndef ULI_TRANSPORT_UCX_NET_H
#define ULI_TRANSPORT_UCX_NET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/types.h>
#include "transport/net.h"
#include "transport/transport.h"
#include "transport/ucx/library.h"

enum {
    ULI_UCX_AM = 1, /* the active message of ulyx */
    /* A longer put is a rendezvous. Over TCP a copy costs less than the round
     * trip up to half a MiB (perf/PERFORMANCE.md); hardware that moves data by
     * itself needs no copies. */
    ULI_UCX_EAGER_TCP_BYTES = 262144,
    ULI_UCX_EAGER_BYTES = 32768,
};

enum uli_ucx_kind {
    ULI_UCX_PUT,
    ULI_UCX_MESSAGE,
    ULI_UCX_BYE,        /* my last word */
    ULI_UCX_BYE_ANSWER, /* all before your last word has come */
    ULI_UCX_REFUSAL,    /* what you sent is wrong: I hear you no more */
};

struct uli_ucx_head {
    uint64_t token; /* of the receiver's net: who has its address knows it */
    int32_t from;
    uint32_t kind;
    uint32_t window, signal_window; /* of a put */
    int64_t offset, signal_offset;
    uint64_t signal;
    uint64_t number;       /* of a message, from 0 */
    uint64_t eager_before; /* eager puts sent before this message */
};

/* Where an end listens for those who ask whether its host is there;
 * any.sa_family 0: nowhere. */
union uli_ucx_place {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

/* Something that UCX has not finished with. */
struct uli_ucx_op {
    struct uli_ucx_op *next; /* in a free list */
    struct uli_net *net;
    struct uli_ucx_peer *peer;
    struct uli_ucx_head head; /* UCX reads it until the end */
    _Atomic int64_t *pending; /* of the caller, or NULL */
    bool rendezvous;          /* a put that counts in `unsettled` */
    bool large;               /* copy has room for a message */
    unsigned char copy[];
};

/* A message that came before its turn. */
struct uli_ucx_early {
    struct uli_ucx_early *next;
    uint64_t number, eager_before;
    size_t bytes;
    unsigned char data[];
};

struct uli_ucx_peer {
    struct uli_net *net;
    int32_t rank;
    ucp_address_t *address; /* NULL: not known yet */
    uint64_t token;
    ucp_ep_h ep; /* NULL: not connected */
    struct uli_ucx_peer *due_next;
    bool due;                     /* in the list of things to do */
    bool want_ep;                 /* it has spoken to us */
    bool want_answer;             /* it has said BYE */
    bool want_refusal;            /* it is to be told that it is lost */
    bool broken;                  /* its endpoint is to be closed */
    ucs_status_t cause;           /* of broken */
    _Atomic bool lost;            /* no put or message any more */
    bool said_bye, answered, bye; /* its BYE came, its answer, mine is sent */
    uint64_t sent, eager_sent;    /* messages, eager puts to it */
    uint64_t next, eager_landed;  /* number of the message whose turn it is */
    struct uli_ucx_early *early;  /* ascending */
    bool last_word;               /* its BYE has come, before its turn: */
    uint64_t last, last_before;   /* messages and eager puts before it */
    _Atomic int64_t unsettled;    /* rendezvous puts on their way */
    /* lifeline.c */
    union uli_ucx_place place;
    int64_t flying;   /* operations that have not ended */
    bool moved;       /* something has come or ended since the last look */
    bool unheard;     /* something was sent, nothing has come since: UCX may
                       * have ended it when the kernel had taken it */
    int64_t alive_ns; /* it, or its host, was there; 0: nobody has asked */
    int64_t asked_ns; /* the first question since then; 0: none */
    int probe_fd;     /* -1: none */
    bool probe_made;  /* the connection is there */
};

struct uli_net {
    const struct uli_tr_ops *ops;
    const struct uli_ucx_calls *ucx;
    struct uli_net_hooks hooks;
    int32_t rank, nranks;
    pid_t pid; /* who opened it: a forked child touches nothing */
    uint64_t token;
    char devices[256]; /* what UCX was told to use */
    int64_t eager_bytes;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    int event_fd; /* UCX's */
    int wake_fd;  /* ours */
    atomic_flag busy;
    _Atomic bool sleeping; /* a thread is in wait */
    bool happened;         /* something has arrived in this step */
    bool leaving;          /* close has begun: losses are told to nobody */
    bool closing;          /* nothing that comes is delivered any more */
    int64_t flying;        /* operations of UCX that have not ended */
    double keepalive_s;
    int listener; /* -1: none */
    union uli_ucx_place place;
    int64_t next_check_ns;
    struct uli_ucx_peer *due;
    struct uli_ucx_op *free_small, *free_large;
    struct uli_ucx_peer peers[]; /* nranks */
};

/* ---- configure.c --------------------------------------------------------- */

/* A context that uses network transports only. */
ulyx_status_t uli_ucx_context(const struct uli_ucx_calls *ucx,
    const struct uli_net_params *params, char *devices_p, size_t devices_bytes,
    ucp_context_h *context_p);

/* ---- devices.c ----------------------------------------------------------- */

/* wish: UCX_NET_DEVICES as UCX has read it. "all" where nothing is known. */
void uli_ucx_choose_devices(const struct uli_net_params *params,
    const char *wish, char *devices_p, size_t bytes);
bool uli_ucx_has_infiniband(void);

/* ---- net.c --------------------------------------------------------------- */

void uli_ucx_enter(struct uli_net *net);
void uli_ucx_leave(struct uli_net *net);
/* One step, under the lock. True when something happened. */
bool uli_ucx_step(struct uli_net *net);
/* An error with UCX's words. */
ulyx_status_t uli_ucx_error(const struct uli_net *net, ucs_status_t status,
    const char *call, int32_t peer);

/* ---- peer.c -------------------------------------------------------------- */

ulyx_status_t uli_ucx_address(
    struct uli_net *net, void *address_p, size_t *bytes_p);
ulyx_status_t uli_ucx_connect(
    struct uli_net *net, int32_t peer, const void *address, size_t bytes);
/* The peer's endpoint is there after it. */
ulyx_status_t uli_ucx_reach(struct uli_net *net, struct uli_ucx_peer *peer);
/* The peer gets on the list of things that the next step does. */
void uli_ucx_due(struct uli_net *net, struct uli_ucx_peer *peer);
void uli_ucx_do_due(struct uli_net *net);
/* The peer is lost, for the reason given. Its endpoint stays. */
void uli_ucx_lose(
    struct uli_net *net, struct uli_ucx_peer *peer, const char *how);
/* The same for a peer that has sent what it must not; it is told. */
void uli_ucx_refuse(
    struct uli_net *net, struct uli_ucx_peer *peer, const char *how);
/* Its endpoint is closed, whatever is on its way. */
void uli_ucx_drop(struct uli_net *net, struct uli_ucx_peer *peer);

/* ---- send.c -------------------------------------------------------------- */

ulyx_status_t uli_ucx_put(
    struct uli_net *net, int32_t peer, const struct uli_net_put *put);
ulyx_status_t uli_ucx_message(
    struct uli_net *net, int32_t peer, const void *message, size_t bytes);
/* BYE or its answer, under the lock. */
ulyx_status_t uli_ucx_say(
    struct uli_net *net, struct uli_ucx_peer *peer, enum uli_ucx_kind kind);
/* Prepares `count` operations, so that calls need not. */
ulyx_status_t uli_ucx_ops_prepare(struct uli_net *net, int count);
void uli_ucx_ops_free(struct uli_net *net);

/* ---- receive.c ----------------------------------------------------------- */

ulyx_status_t uli_ucx_listen(struct uli_net *net);
void uli_ucx_forget(struct uli_ucx_peer *peer); /* messages before their turn */

/* ---- lifeline.c ---------------------------------------------------------- */

/* Failures only mean that others notice our host's end late. */
void uli_ucx_lifeline_open(struct uli_net *net);
void uli_ucx_lifeline_close(struct uli_net *net);
/* Answers, asks and judges; a part of a step, at most every 10 ms. */
void uli_ucx_lifeline_step(struct uli_net *net);

/* ---- close.c ------------------------------------------------------------- */

void uli_ucx_close(struct uli_net *net, int64_t deadline_ns);

#endif
