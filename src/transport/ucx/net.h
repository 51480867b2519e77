/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank's end of UCX: a context (so that each rank has its own devices), a
 * worker, an endpoint for each peer that is spoken to.
 *
 * Each put is an active message with one header, struct uli_ucx_head. The data
 * of a small one comes with it; that of a large one by the verb of the link
 * (verb.c):
 *     AM   a rendezvous, by which UCX moves it straight into the target
 *     PUT  UCX's put by the window's remote key (keys.c); a flush, which tells
 *          when it is there; then the header. Not a fence: it orders one
 *          connection only or, from 1.19 on, blocks
 *     TAG  a tagged message, received where the header says
 * The target stores the signal when it has header and data (recv_buffer.c).
 * So no order of the network is relied upon, verbs may change at any time, and
 * whoever sleeps is woken by the header. Messages are eager and numbered, and
 * are handed over in the order of their numbers, after all puts sent before
 * them but rendezvous by AM.
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
#include "base/list.h"
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
    /* Not a window of the communicator: bytes of each end to probe with. */
    ULI_UCX_SCRATCH = 0xFFFFFFFE,
    ULI_UCX_SCRATCH_BYTES = 262144,
    ULI_UCX_PROBE_DEPTH = 4,  /* probes at one time */
    ULI_UCX_PROBE_ROUNDS = 5, /* of a turn of each verb */
    ULI_UCX_PROBE_LEAST = 3,  /* rounds that an outcome needs */
};

/* How the data of a large put travels. */
enum uli_ucx_verb {
    ULI_UCX_BY_AM,
    ULI_UCX_BY_PUT,
    ULI_UCX_BY_TAG,
    ULI_UCX_VERBS,
    ULI_UCX_BY_PROBE = ULI_UCX_VERBS, /* of settings only */
};

enum uli_ucx_kind {
    ULI_UCX_PUT,        /* with its data */
    ULI_UCX_PUT_PLACED, /* its data came by put, and is there */
    ULI_UCX_PUT_TAGGED, /* its data comes with tag `number`: UCX gives what has
                         * it to whoever waits for it, whoever sent it */
    ULI_UCX_MESSAGE,
    ULI_UCX_BYE,        /* my last word */
    ULI_UCX_BYE_ANSWER, /* all before your last word has come */
    ULI_UCX_REFUSAL,    /* what you sent is wrong: I hear you no more */
    ULI_UCX_KEY_ASKED,  /* for the key of `window` */
    ULI_UCX_KEY,        /* numbered as messages are; empty: there is none */
    ULI_UCX_KEY_GONE,   /* the same: `window` has ended */
    ULI_UCX_PROBED,     /* one probe of yours has landed */
    ULI_UCX_VERB_PREFERENCE, /* find out how we should send */
    ULI_UCX_VERB,            /* a proposal */
    ULI_UCX_VERB_AGREED,     /* its answer, binding */
};

struct uli_ucx_head {
    uint64_t token; /* of the receiver's net: who has its address knows it */
    int32_t from;
    uint32_t kind;
    uint32_t window, signal_window; /* of a put; of the scratch: a verb */
    int64_t offset, signal_offset;
    uint64_t signal;       /* of a key: bytes; a verb, + VERBS if insisted on */
    uint64_t number;       /* of a message, from 0; tag of a put */
    uint64_t eager_before; /* puts but rendezvous, sent before this message */
    int64_t bytes;         /* of a put whose data is not here */
};

/* Where an end listens for those who ask whether its host is there;
 * any.sa_family 0: nowhere. */
union uli_ucx_place {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

enum { ULI_UCX_LISTENERS = 16, ULI_UCX_ADDRESSES = 16 };

struct uli_ucx_listener {
    int fd;
    in_port_t port;
    sa_family_t family;
};

/* Whose packets reach the sockets that this net listens on (gate.c). */
struct uli_ucx_gate {
    bool open;                 /* ULYX_INSECURE=1: everybody's */
    bool met;                  /* a peer is known: UCX may read */
    bool stale;                /* filters are to be made */
    struct in6_addr *admitted; /* IPv4 as mapped */
    size_t count;
    struct uli_ucx_listener listeners[ULI_UCX_LISTENERS];
    int nlisteners, nbefore;
    ino_t *before; /* sockets that listened ahead of UCX */
};

/* What a watcher says (sentinel.c). */
struct uli_ucx_hello {
    uint64_t token; /* of the watched */
    int32_t from, reserved;
};

/* Who has connected to the keepalive socket and has not said yet who it is.
 */
struct uli_ucx_caller {
    int fd; /* -1: none */
    int64_t since_ns;
    size_t got;
    struct uli_ucx_hello hello;
};
enum { ULI_UCX_CALLERS = 8 };

/* The connection by which this rank watches a peer's process. */
struct uli_ucx_sentinel {
    struct uli_ucx_peer *peer; /* NULL: none is watched */
    int fd;
    bool asked, answered;
    int64_t again_ns, gone_ns; /* when to try again; when it ended, or 0 */
};

/* A message or a key that came before its turn. */
struct uli_ucx_early {
    struct uli_ucx_early *next;
    struct uli_ucx_head head;
    size_t bytes;
    unsigned char data[];
};

/* A put whose data is on its way in. */
struct uli_ucx_incoming {
    struct uli_ucx_incoming *next; /* in a list of the net */
    struct uli_list node;          /* among the peer's, while UCX has it */
    struct uli_ucx_peer *peer;
    _Atomic uint64_t *signal;
    uint64_t value;
    int64_t bytes; /* of a put by TAG */
    void *request; /* the same; NULL: not known yet */
    bool flying;   /* `flying` of peer and net counts it */
};

/* A window of mine, and who has its key. */
struct uli_ucx_window {
    struct uli_ucx_window *next;
    uint32_t window;
    void *address;
    int64_t bytes;
    ucp_mem_h memory;       /* NULL: no key can be had */
    unsigned char holder[]; /* nranks: 1 asks, 2 has the key */
};

/* The key of a window of a peer. */
struct uli_ucx_key {
    uint32_t window;
    ucp_rkey_h key; /* NULL: asked for, or refused */
    bool refused;
    uint64_t address;
    int64_t bytes;
    int64_t asked_ns; /* 0: to be asked for */
};

/* By which verb a link's large puts go, and how that came about (verb.c). */
struct uli_ucx_link {
    enum uli_ucx_verb verb; /* BY_AM until it is settled */
    enum {
        ULI_UCX_UNUSED,
        ULI_UCX_PREFERRED, /* the other end is to find out */
        ULI_UCX_PROBING,   /* this one does */
        ULI_UCX_PROPOSED,  /* an answer is due */
        ULI_UCX_RESTING,   /* a bad moment: probed again after again_ns */
        ULI_UCX_SETTLED,
    } state;
    enum uli_ucx_verb preference; /* what this end proposes */
    bool insists;                 /* on it, for it has no other */
    int turn, unanswered, attempts;
    int64_t begun_ns, again_ns; /* of this attempt, of the next */
    int64_t since_ns, best_ns[ULI_UCX_VERBS];
    int64_t took_ns[ULI_UCX_PROBE_ROUNDS][ULI_UCX_VERBS];
    bool excluded[ULI_UCX_VERBS];
    uint32_t to_say; /* a bit for each kind */
    int to_acknowledge;
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
    struct uli_ucx_link link;
    struct uli_ucx_key *keys;
    int nkeys, room_keys;
    bool want_keys;             /* one is to be asked for, or to be given */
    uint64_t placed;            /* puts to it by PUT */
    _Atomic uint64_t probe_end; /* where signals of its probes go */
    bool last_word;             /* its BYE has come, before its turn: */
    uint64_t last, last_before; /* messages and eager puts before it */
    _Atomic int64_t unsettled;  /* puts by a verb on their way */
    struct uli_list sends, receives; /* what UCX has not ended */
    int64_t receive_buffer;          /* of receives: not given up */
    /* keepalive.c */
    struct uli_list watch; /* in net->watched, ->asked or ->dropped */
    int64_t check_ns;      /* of watched: when to look */
    int steps_left;        /* of dropped: looks until it is abandoned */
    union uli_ucx_place place;
    int64_t flying;   /* operations that have not ended */
    bool moved;       /* something has come or ended since the last look */
    bool unheard;     /* something was sent, nothing has come since: UCX may
                       * have ended it when the kernel had taken it */
    int64_t alive_ns; /* it, or its host, was there; 0: nobody has asked */
    int64_t asked_ns; /* the first question since then; 0: none */
    int probe_fd;     /* -1: none */
    bool probe_made;  /* the connection is there */
    int watcher_fd;   /* by which it watches this process; -1: it does not */
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
    int64_t verb_bytes;          /* longer puts go by the link's verb */
    enum uli_ucx_verb verb;      /* of the settings */
    bool may_put;                /* the context has remote memory access */
    uint64_t next_tag;           /* counts from where nobody can guess */
    int outcomes[ULI_UCX_VERBS]; /* of probes */
    bool unflushed;              /* a test: what would come without it? */
    struct uli_ucx_window *windows;
    unsigned char *scratch;
    struct uli_ucx_op *ready; /* flushed: their headers are to be sent */
    struct uli_ucx_incoming *free_incoming, *tagged;
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
    struct uli_ucx_gate gate;
    int listener; /* -1: none */
    union uli_ucx_place place;
    struct uli_ucx_caller callers[ULI_UCX_CALLERS];
    struct uli_ucx_sentinel sentinel;
    int64_t next_check_ns;
    /* Peers that something is on its way to or from, by check_ns; those that
     * are asked whether they are there; those whose endpoint was closed. */
    struct uli_list watched, asked, dropped;
    struct uli_ucx_peer *due;
    struct uli_ucx_op *free_small, *free_large;
    struct uli_ucx_peer peers[]; /* nranks */
};

/* ---- configure.c --------------------------------------------------------- */

/* A context that uses network transports only. *may_put_p: it has remote memory
 * access. Errors: UNSUPPORTED also where PUT is insisted on and not safe. */
ulyx_status_t uli_ucx_context(const struct uli_ucx_calls *ucx,
    const struct uli_net_params *params, char *devices_p, size_t devices_bytes,
    bool *may_put_p, ucp_context_h *context_p);

/* ---- devices.c ----------------------------------------------------------- */

/* preference: UCX_NET_DEVICES as UCX has read it. "all" where nothing is known.
 */
void uli_ucx_choose_devices(const struct uli_net_params *params,
    const char *preference, char *devices_p, size_t bytes);
/* The best device for TCP of a list of interfaces; untouched if none is fit. */
struct ifaddrs;
void uli_ucx_tcp_device(
    const struct ifaddrs *list, char *device_p, size_t bytes);
bool uli_ucx_has_infiniband(void);
/* Whether every device of the list is a port whose link is InfiniBand, by a
 * folder laid out as /sys/class/infiniband. */
bool uli_ucx_is_infiniband(const char *folder, const char *devices);

/* ---- net.c --------------------------------------------------------------- */

void uli_ucx_enter(struct uli_net *net);
void uli_ucx_leave(struct uli_net *net);
/* One step, under the lock. True when something happened. */
bool uli_ucx_step(struct uli_net *net);
/* An error with UCX's words. */
ulyx_status_t uli_ucx_error(
    const struct uli_net *net, ucs_status_t status, const char *call);

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
/* Its endpoint is of no use any more: the next step closes it. */
void uli_ucx_break(struct uli_ucx_peer *peer, ucs_status_t cause);
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
/* What has no data: BYE, a preference, ... under the lock. Nothing after my BYE
 * but answers. */
ulyx_status_t uli_ucx_say(struct uli_net *net, struct uli_ucx_peer *peer,
    enum uli_ucx_kind kind, uint32_t window, uint64_t value);
/* A numbered one with a payload of at most ULI_NET_INLINE_BYTES. */
ulyx_status_t uli_ucx_tell_key(struct uli_net *net, struct uli_ucx_peer *peer,
    const struct uli_ucx_head *head, const void *data, size_t bytes);
/* A put into the peer's scratch, by a verb; under the lock. */
ulyx_status_t uli_ucx_probe(
    struct uli_net *net, struct uli_ucx_peer *peer, enum uli_ucx_verb verb);
/* Sends the headers of puts that have been flushed; a part of a step. */
void uli_ucx_do_ready(struct uli_net *net);
/* Prepares `count` operations, so that calls need not. */
ulyx_status_t uli_ucx_ops_prepare(struct uli_net *net, int count);
/* The peer's endpoint is no more: the callers' data is theirs again, whatever
 * UCX says of it later, or never. */
void uli_ucx_abandon_sends(struct uli_ucx_peer *peer);
void uli_ucx_ops_free(struct uli_net *net);

/* ---- receive.c ----------------------------------------------------------- */

ulyx_status_t uli_ucx_listen(struct uli_net *net);
void uli_ucx_forget(struct uli_ucx_peer *peer); /* messages before their turn */
/* Messages, and the last word, whose turn has come. */
void uli_ucx_take_turns(struct uli_ucx_peer *peer);

/* ---- recv_buffer.c ---------------------------------------------------------
 */

ulyx_status_t uli_ucx_recv_open(struct uli_net *net);
void uli_ucx_recv_close(struct uli_net *net);
/* The data of a put has come. counted: by other than a rendezvous. */
void uli_ucx_land(struct uli_ucx_peer *peer, _Atomic uint64_t *signal,
    uint64_t value, bool counted);
/* Where data and signal of a put go; false: not ours. */
bool uli_ucx_find(struct uli_ucx_peer *peer, const struct uli_ucx_head *head,
    size_t bytes, void **data_p, _Atomic uint64_t **signal_p);
void uli_ucx_refuse_put(
    struct uli_ucx_peer *peer, const struct uli_ucx_head *head, size_t bytes);
ucs_status_t uli_ucx_receive_rendezvous(struct uli_ucx_peer *peer,
    const struct uli_ucx_head *head, void *descriptor, size_t bytes);
void uli_ucx_receive_placed(
    struct uli_ucx_peer *peer, const struct uli_ucx_head *head);
void uli_ucx_receive_tagged(
    struct uli_ucx_peer *peer, const struct uli_ucx_head *head);
/* As abandon_sends: what it was sending does not count any more. */
void uli_ucx_abandon_receives(struct uli_ucx_peer *peer);
/* The slot of the same name (transport/net.h). */
bool uli_ucx_landed(struct uli_net *net, int32_t rank, bool dead);
/* What the peer will send no more; NULL: all of them. */
void uli_ucx_recv_drop(struct uli_net *net, const struct uli_ucx_peer *peer);

/* ---- keys.c -------------------------------------------------------------- */

ulyx_status_t uli_ucx_window_add(
    struct uli_net *net, uint32_t window, void *address, int64_t bytes);
void uli_ucx_window_remove(struct uli_net *net, uint32_t window);
void uli_ucx_windows_close(struct uli_net *net);
/* The peer's key for [offset, offset + bytes), and where that lies there; NULL:
 * not yet (then it is asked for), or never (*refused_p). */
ucp_rkey_h uli_ucx_key(struct uli_ucx_peer *peer, uint32_t window,
    int64_t offset, int64_t bytes, uint64_t *address_p, bool *refused_p);
void uli_ucx_key_refuse(struct uli_ucx_peer *peer, uint32_t window);
void uli_ucx_keys_free(struct uli_ucx_peer *peer);
/* Asks for keys and gives them. */
void uli_ucx_do_keys(struct uli_net *net, struct uli_ucx_peer *peer);
void uli_ucx_key_asked(struct uli_ucx_peer *peer, uint32_t window);
void uli_ucx_key_came(struct uli_ucx_peer *peer,
    const struct uli_ucx_head *head, const void *data, size_t bytes);
void uli_ucx_key_gone(struct uli_ucx_peer *peer, uint32_t window);

/* ---- verb.c -------------------------------------------------------------- */

enum uli_ucx_verb uli_ucx_verb_of(const struct uli_settings *settings);
const char *uli_ucx_verb_name(enum uli_ucx_verb verb);
/* The verb for a large put to the peer now; begins to settle it. */
enum uli_ucx_verb uli_ucx_verb(struct uli_net *net, struct uli_ucx_peer *peer);
/* Begins a probe again that had a bad moment, when it is time. */
void uli_ucx_verb_retry(struct uli_ucx_peer *peer, int64_t now_ns);
/* Probes and says what is due. */
void uli_ucx_do_verb(struct uli_net *net, struct uli_ucx_peer *peer);
/* The owner of a scratch insists on a verb, or (VERBS) on none. */
void uli_ucx_verb_insisted(struct uli_ucx_peer *peer, uint32_t verb);
void uli_ucx_verb_heard(
    struct uli_ucx_peer *peer, const struct uli_ucx_head *head);

/* ---- verb_choice.c ------------------------------------------------------- */

/* took_ns[round][verb] of a probe, 0: not measured. VERBS: nothing can be said,
 * the rounds differ too much or are too few. */
enum uli_ucx_verb uli_ucx_verb_choose(
    const int64_t (*took_ns)[ULI_UCX_VERBS], int rounds);

/* ---- keepalive.c --------------------------------------------------------- */

/* Listens within the ports. Failures only mean that others notice our host's
 * end late. */
void uli_ucx_keepalive_open(struct uli_net *net, struct uli_port_range ports);
void uli_ucx_keepalive_close(struct uli_net *net);
/* Something is on its way to or from the peer. */
void uli_ucx_watch(struct uli_net *net, struct uli_ucx_peer *peer);
/* Its endpoint has been closed: what UCX does not end soon is abandoned. */
void uli_ucx_watch_end(struct uli_net *net, struct uli_ucx_peer *peer);
/* Answers, asks and judges; a part of a step, at most every 10 ms. */
void uli_ucx_keepalive_step(struct uli_net *net);

socklen_t uli_ucx_place_bytes(const union uli_ucx_place *place);

/* ---- sentinel.c ---------------------------------------------------------- */

/* The slot `watch` of transport/net.h. */
void uli_ucx_sentinel_watch(struct uli_net *net, int32_t rank);
/* Who has connected to the keepalive socket; fd is taken. */
void uli_ucx_sentinel_accept(struct uli_net *net, int fd);
void uli_ucx_sentinel_step(struct uli_net *net, int64_t now);
void uli_ucx_sentinel_close(struct uli_net *net);

/* ---- sockets.c ----------------------------------------------------------- */

/* Sockets that no fork and no exec of this process has; not blocking. -1 and
 * errno where there is none. */
int uli_ucx_socket(sa_family_t family);
int uli_ucx_accept(int listener);
/* Closes it, in the process that made it, and sets it to -1; harmless twice. */
void uli_ucx_hang_up(int *fd);

/* ---- gate.c -------------------------------------------------------------- */

/* Before UCX's worker is made, and after it and the keepalive socket: finds
 * the sockets that listen. Errors: SYSTEM and UNSUPPORTED where they cannot be
 * closed to others. */
ulyx_status_t uli_ucx_gate_before(struct uli_net *net);
ulyx_status_t uli_ucx_gate_after(struct uli_net *net);
/* The addresses of this host that connections may come from, at most `room`;
 * returns how many. */
size_t uli_ucx_gate_addresses(
    const struct uli_net *net, struct in6_addr *list_p, size_t room);
/* Those of a peer's host; takes effect with the next step. */
ulyx_status_t uli_ucx_gate_admit(
    struct uli_net *net, const struct in6_addr *list, size_t count);
/* Drops the packets of all others, and ends their connections. */
void uli_ucx_gate_close(struct uli_net *net);
void uli_ucx_gate_free(struct uli_net *net);

#endif
