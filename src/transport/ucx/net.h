/* SPDX-License-Identifier: Apache-2.0
 *
 * One rank's end of UCX: a context (so that each rank has its own devices), a
 * worker, and an endpoint for each peer with which the rank exchanges data.
 *
 * Each put is an active message with one header, struct uli_ucx_head. The
 * message carries the data of a small put; the data of a large put goes by the
 * verb of the link (verb.c):
 *     AM   a rendezvous: UCX moves the data straight into the target
 *     PUT  UCX's put by the window's remote key (keys.c), then a flush, which
 *          ends when the data is there, then the header. Not a fence: a fence
 *          orders one connection only or, from 1.19 on, blocks
 *     TAG  a tagged message, received at the place that the header names
 * The target stores the signal when it has header and data (recv_buffer.c). So
 * nothing depends on the order of the network, verbs may change at any time,
 * and the header wakes a sleeping receiver. Messages are eager and numbered.
 * They are delivered in the order of their numbers, after all puts that were
 * sent before them, except rendezvous by AM.
 *
 * The lock. UCX's worker is for one thread at a time. `busy` is a flag that
 * progress only tries to set; put and message yield until they have set `busy`,
 * at most for one step of progress. All fields below that are not atomic are
 * accessed only by the thread that has set `busy`.
 *
 * The end. The other side cannot distinguish a connection that closes from a
 * death, and the last data sent may be lost with the connection. So close
 * first sends BYE to every peer and waits for their answers. The answer means
 * that all data before the BYE has been received, and a peer that has received
 * a BYE expects the end.
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
    /* A longer put is a rendezvous. Over TCP, up to half a MiB, a copy costs
     * less than the round trip (perf/PERFORMANCE.md); hardware that moves data
     * by itself needs no copies. */
    ULI_UCX_EAGER_TCP_BYTES = 262144,
    ULI_UCX_EAGER_BYTES = 32768,
    /* Not a window of the communicator: memory of each end for probes. */
    ULI_UCX_SCRATCH = 0xFFFFFFFE,
    ULI_UCX_SCRATCH_BYTES = 262144,
    ULI_UCX_PROBE_DEPTH = 4,  /* probes at one time */
    ULI_UCX_PROBE_ROUNDS = 5, /* each with a turn of each verb */
    ULI_UCX_PROBE_LEAST = 3,  /* rounds that a result needs */
};

/* How the data of a large put is sent. */
enum uli_ucx_verb {
    ULI_UCX_BY_AM,
    ULI_UCX_BY_PUT,
    ULI_UCX_BY_TAG,
    ULI_UCX_VERBS,
    ULI_UCX_BY_PROBE = ULI_UCX_VERBS, /* of settings only */
};

enum uli_ucx_kind {
    ULI_UCX_PUT,        /* a put with its data */
    ULI_UCX_PUT_PLACED, /* a put whose data has landed by PUT */
    ULI_UCX_PUT_TAGGED, /* a put whose data comes with tag `number`; UCX matches
                         * it with any receive for that tag, from any sender */
    ULI_UCX_MESSAGE,
    ULI_UCX_BYE,         /* the sender's last message */
    ULI_UCX_BYE_ANSWER,  /* all before the receiver's BYE has arrived */
    ULI_UCX_REFUSAL,     /* the receiver sent something invalid and is ignored
                          * from now on */
    ULI_UCX_KEY_REQUEST, /* requests the key of `window` */
    ULI_UCX_KEY,         /* the key; numbered like messages; empty: there is
                          * none */
    ULI_UCX_KEY_GONE,    /* `window` has ended; numbered like messages */
    ULI_UCX_PROBED,      /* one probe of the receiver has landed */
    ULI_UCX_VERB_PREFERENCE, /* requests that the receiver chooses the verb */
    ULI_UCX_VERB,            /* a proposal */
    ULI_UCX_VERB_AGREED,     /* the answer to a proposal, binding */
};

struct uli_ucx_head {
    uint64_t token; /* of the receiver's net: proves that the sender has its
                     * address */
    int32_t from;
    uint32_t kind;
    uint32_t window, signal_window; /* of a put. In the scratch's key
                                     * signal_window is the sender's verb (of
                                     * its settings) */
    int64_t offset, signal_offset;
    uint64_t signal;       /* of a key: bytes; a verb, + VERBS if forced */
    uint64_t number;       /* of a message, from 0; the tag of a put */
    uint64_t eager_before; /* puts sent before this message, except
                            * rendezvous */
    int64_t bytes;         /* of a put whose data comes apart */
};

/* The address at which an end listens for keepalive probes; any.sa_family 0:
 * none. */
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

/* The hosts whose packets reach the sockets that this net listens on
 * (gate.c). */
struct uli_ucx_gate {
    bool open;                 /* ULYX_INSECURE=1: no filter */
    bool met;                  /* a peer is known: UCX may read */
    bool stale;                /* the filters must be made anew */
    struct in6_addr *admitted; /* IPv4 as mapped addresses */
    size_t count;
    struct uli_ucx_listener listeners[ULI_UCX_LISTENERS];
    int nlisteners, nbefore;
    ino_t *before; /* inodes of sockets that listened before UCX */
};

/* The message of a watcher (sentinel.c). */
struct uli_ucx_hello {
    uint64_t token; /* of the watched rank */
    int32_t from, reserved;
};

/* A connection to the keepalive socket that has not identified itself yet.
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
    bool requested, answered;
    int64_t again_ns, gone_ns; /* when to try again; when the connection ended,
                                * or 0 */
};

/* A message or a key that arrived before its turn. */
struct uli_ucx_early {
    struct uli_ucx_early *next;
    struct uli_ucx_head head;
    size_t bytes;
    unsigned char data[];
};

/* An arriving put whose data is on its way. */
struct uli_ucx_incoming {
    struct uli_ucx_incoming *next; /* in a list of the net */
    struct uli_list node;          /* in peer->receives, while UCX uses it */
    struct uli_ucx_peer *peer;
    _Atomic uint64_t *signal;
    uint64_t value;
    int64_t bytes; /* of a put by TAG */
    void *request; /* of a put by TAG; NULL: not known yet */
    bool flying;   /* `flying` of peer and net counts it */
};

/* A window of this rank, and the peers that have its key. */
struct uli_ucx_window {
    struct uli_ucx_window *next;
    uint32_t window;
    void *address;
    int64_t bytes;
    ucp_mem_h memory;       /* NULL: no key is possible */
    unsigned char holder[]; /* [nranks]: 1: has requested the key, 2: has it */
};

/* The key of a window of a peer. */
struct uli_ucx_key {
    uint32_t window;
    ucp_rkey_h key; /* NULL: requested, or refused */
    bool refused;
    uint64_t address;
    int64_t bytes;
    int64_t requested_ns; /* 0: to be requested */
};

/* The verb of a link's large puts, and the state of its choice (verb.c). */
struct uli_ucx_link {
    enum uli_ucx_verb verb; /* BY_AM until settled */
    enum {
        ULI_UCX_UNUSED,
        ULI_UCX_PREFERRED, /* the other end is to probe */
        ULI_UCX_PROBING,   /* this end probes */
        ULI_UCX_PROPOSED,  /* an answer is expected */
        ULI_UCX_RESTING,   /* no result: probes again after again_ns */
        ULI_UCX_SETTLED,
    } state;
    enum uli_ucx_verb preference; /* the verb that this end proposes */
    bool forced;                  /* this end forces the preference, because it
                                   * supports no other verb */
    int turn, unanswered, attempts;
    int64_t begun_ns, again_ns; /* start of this attempt, of the next */
    int64_t since_ns, best_ns[ULI_UCX_VERBS];
    int64_t took_ns[ULI_UCX_PROBE_ROUNDS][ULI_UCX_VERBS];
    bool excluded[ULI_UCX_VERBS];
    uint32_t to_send; /* messages to send, a bit per kind */
    int to_acknowledge;
};

struct uli_ucx_peer {
    struct uli_net *net;
    int32_t rank;
    ucp_address_t *address; /* NULL: not known yet */
    uint64_t token;
    ucp_ep_h ep; /* NULL: not connected */
    struct uli_ucx_peer *due_next;
    bool due;           /* in the list net->due */
    bool needs_ep;      /* the peer has sent something */
    bool answer_due;    /* the peer has sent BYE */
    bool refusal_due;   /* the peer is to receive REFUSAL */
    bool broken;        /* the endpoint is to be closed */
    ucs_status_t cause; /* of broken */
    _Atomic bool lost;  /* no put or message is accepted any more */
    bool bye_received, answered, bye; /* bye_received: the peer's BYE has
                                       * arrived; answered: the answer to this
                                       * rank's BYE has arrived; bye: this
                                       * rank's BYE is sent */
    uint64_t sent, eager_sent;        /* messages, eager puts to the peer */
    /* number of the message whose turn it is; the peer's eager puts that have
     * landed */
    uint64_t next, eager_landed;
    struct uli_ucx_early *early; /* ascending */
    struct uli_ucx_link link;
    struct uli_ucx_key *keys;
    int nkeys, room_keys;
    bool keys_due;              /* a key is to be requested or sent */
    uint64_t placed;            /* puts to the peer by PUT */
    _Atomic uint64_t probe_end; /* where the peer's probes signal */
    bool last_word;             /* the peer's BYE waits for its turn */
    uint64_t last, last_before; /* messages and eager puts before that BYE */
    _Atomic int64_t unsettled;  /* puts by a verb in flight */
    struct uli_list sends, receives; /* operations that UCX has not ended */
    int64_t receive_buffer;          /* number of `receives` that are not
                                      * abandoned */
    /* keepalive.c */
    struct uli_list watch; /* in net->watched, ->probed or ->dropped */
    int64_t check_ns;      /* in watched: when to check */
    int steps_left;        /* in dropped: checks until it is abandoned */
    union uli_ucx_place place;
    int64_t flying;    /* operations that have not ended */
    bool moved;        /* something has arrived or ended since the last check */
    bool silent;       /* something was sent and nothing has arrived since:
                        * UCX may have ended the send when the kernel had taken
                        * it */
    int64_t alive_ns;  /* when the peer or its host last answered; 0: not
                        * checked */
    int64_t probed_ns; /* the first probe since then; 0: none */
    int probe_fd;      /* -1: none */
    bool probe_made;   /* the connection is made */
    int watcher_fd;    /* the peer watches this process by it; -1: none */
};

struct uli_net {
    const struct uli_tr_ops *ops;
    const struct uli_ucx_calls *ucx;
    struct uli_net_hooks hooks;
    int32_t rank, nranks;
    pid_t pid; /* of the opener: a forked child touches nothing */
    uint64_t token;
    char devices[256]; /* the devices that UCX uses */
    int64_t eager_bytes;
    int64_t verb_bytes;          /* longer puts go by the link's verb */
    enum uli_ucx_verb verb;      /* of the settings */
    bool may_put;                /* the context has remote memory access */
    uint64_t next_tag;           /* counts from a secret random start */
    int outcomes[ULI_UCX_VERBS]; /* of probes */
    bool unflushed;              /* set by a test: sends headers without a
                                  * flush */
    struct uli_ucx_window *windows;
    unsigned char *scratch;
    struct uli_ucx_op *ready; /* flushed: their headers are to be sent */
    struct uli_ucx_incoming *free_incoming, *tagged;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    int event_fd; /* of UCX */
    int wake_fd;  /* of this net */
    atomic_flag busy;
    _Atomic bool sleeping; /* a thread is in wait */
    bool happened;         /* something has arrived in this step */
    bool leaving;          /* close has begun: losses are not reported */
    bool closing;          /* arriving data is not delivered any more */
    int64_t flying;        /* operations of UCX that have not ended */
    double keepalive_s;
    struct uli_ucx_gate gate;
    int listener; /* -1: none */
    union uli_ucx_place place;
    struct uli_ucx_caller callers[ULI_UCX_CALLERS];
    struct uli_ucx_sentinel sentinel;
    int64_t next_check_ns;
    /* watched: peers with data on its way to or from them, by check_ns; probed:
     * peers that are being probed; dropped: peers whose endpoint was closed. */
    struct uli_list watched, probed, dropped;
    struct uli_ucx_peer *due;
    struct uli_ucx_op *free_small, *free_large;
    struct uli_ucx_peer peers[]; /* nranks */
};

/* ---- configure.c --------------------------------------------------------- */

/* Makes a context that uses network transports only. *may_put_p: whether it has
 * remote memory access. Errors: UNSUPPORTED, also where a setting forces PUT
 * and PUT is not safe. */
ulyx_status_t uli_ucx_context(const struct uli_ucx_calls *ucx,
    const struct uli_net_params *params, char *devices_p, size_t devices_bytes,
    bool *may_put_p, ucp_context_h *context_p);

/* ---- devices.c ----------------------------------------------------------- */

/* Chooses the devices (devices.c). preference: UCX_NET_DEVICES as UCX has read
 * it. Gives "all" where no device is known.
 */
void uli_ucx_choose_devices(const struct uli_net_params *params,
    const char *preference, char *devices_p, size_t bytes);
/* The best device for TCP in a list of interfaces; device_p is untouched if
 * none can be used. */
struct ifaddrs;
void uli_ucx_tcp_device(
    const struct ifaddrs *list, char *device_p, size_t bytes);
bool uli_ucx_has_infiniband(void);
/* Whether every device of the list is a port whose link is InfiniBand, as read
 * from a folder with the layout of /sys/class/infiniband. */
bool uli_ucx_is_infiniband(const char *folder, const char *devices);

/* ---- net.c --------------------------------------------------------------- */

void uli_ucx_enter(struct uli_net *net);
void uli_ucx_leave(struct uli_net *net);
/* One step, under the lock. True when something happened. */
bool uli_ucx_step(struct uli_net *net);
/* An error with UCX's text. */
ulyx_status_t uli_ucx_error(
    const struct uli_net *net, ucs_status_t status, const char *call);

/* ---- peer.c -------------------------------------------------------------- */

ulyx_status_t uli_ucx_address(
    struct uli_net *net, void *address_p, size_t *bytes_p);
ulyx_status_t uli_ucx_connect(
    struct uli_net *net, int32_t peer, const void *address, size_t bytes);
/* Makes the peer's endpoint if there is none. */
ulyx_status_t uli_ucx_reach(struct uli_net *net, struct uli_ucx_peer *peer);
/* Puts the peer on the list net->due, which the next step works through. */
void uli_ucx_due(struct uli_net *net, struct uli_ucx_peer *peer);
void uli_ucx_do_due(struct uli_net *net);
/* The peer's endpoint has failed: the next step closes it. */
void uli_ucx_break(struct uli_ucx_peer *peer, ucs_status_t cause);
/* The peer is lost, for the reason given. Its endpoint stays. */
void uli_ucx_lose(
    struct uli_net *net, struct uli_ucx_peer *peer, const char *how);
/* As uli_ucx_lose, for a peer that has sent something invalid; the peer
 * receives REFUSAL. */
void uli_ucx_refuse(
    struct uli_net *net, struct uli_ucx_peer *peer, const char *how);
/* Closes the peer's endpoint, whatever is on its way. */
void uli_ucx_drop(struct uli_net *net, struct uli_ucx_peer *peer);

/* ---- send.c -------------------------------------------------------------- */

ulyx_status_t uli_ucx_put(
    struct uli_net *net, int32_t peer, const struct uli_net_put *put);
ulyx_status_t uli_ucx_message(
    struct uli_net *net, int32_t peer, const void *message, size_t bytes);
/* Sends a header without data: BYE, a preference, and so on. Under the lock.
 * After this rank's BYE only answers may follow. */
ulyx_status_t uli_ucx_send_head(struct uli_net *net, struct uli_ucx_peer *peer,
    enum uli_ucx_kind kind, uint32_t window, uint64_t value);
/* Sends a numbered header with at most ULI_NET_INLINE_BYTES of data. Under the
 * lock. */
ulyx_status_t uli_ucx_send_key(struct uli_net *net, struct uli_ucx_peer *peer,
    const struct uli_ucx_head *head, const void *data, size_t bytes);
/* Puts into the peer's scratch by a verb. Under the lock. */
ulyx_status_t uli_ucx_probe(
    struct uli_net *net, struct uli_ucx_peer *peer, enum uli_ucx_verb verb);
/* Sends the headers of puts that have been flushed. A part of a step. */
void uli_ucx_do_ready(struct uli_net *net);
/* Allocates `count` operations, so that calls need not allocate. */
ulyx_status_t uli_ucx_ops_prepare(struct uli_net *net, int count);
/* The peer's endpoint is gone: gives the data back to the callers, whether or
 * not UCX ends the operations later. */
void uli_ucx_abandon_sends(struct uli_ucx_peer *peer);
void uli_ucx_ops_free(struct uli_net *net);

/* ---- receive.c ----------------------------------------------------------- */

ulyx_status_t uli_ucx_listen(struct uli_net *net);
void uli_ucx_forget(struct uli_ucx_peer *peer); /* frees messages before their
                                                 * turn */
/* Delivers messages, and takes the BYE, whose turn has come. */
void uli_ucx_take_turns(struct uli_ucx_peer *peer);

/* ---- recv_buffer.c ------------------------------------------------------- */

ulyx_status_t uli_ucx_recv_open(struct uli_net *net);
void uli_ucx_recv_close(struct uli_net *net);
/* The data of a put has landed: stores the signal. counted: not a
 * rendezvous. */
void uli_ucx_land(struct uli_ucx_peer *peer, _Atomic uint64_t *signal,
    uint64_t value, bool counted);
/* The addresses for data and signal of a put; false: not memory of this rank's
 * windows. */
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
/* As uli_ucx_abandon_sends, for receives: they do not count any more. */
void uli_ucx_abandon_receives(struct uli_ucx_peer *peer);
/* The slot `landed` of transport/net.h. */
bool uli_ucx_landed(struct uli_net *net, int32_t rank, bool dead);
/* Cancels the receives of a peer that sends nothing more; NULL: of all
 * peers. */
void uli_ucx_recv_drop(struct uli_net *net, const struct uli_ucx_peer *peer);

/* ---- keys.c -------------------------------------------------------------- */

ulyx_status_t uli_ucx_window_add(
    struct uli_net *net, uint32_t window, void *address, int64_t bytes);
void uli_ucx_window_remove(struct uli_net *net, uint32_t window);
void uli_ucx_windows_close(struct uli_net *net);
/* The key of the peer's window, and the address of [offset, offset + bytes) at
 * the peer. NULL: not yet (the key is then requested), or never
 * (*refused_p). */
ucp_rkey_h uli_ucx_key(struct uli_ucx_peer *peer, uint32_t window,
    int64_t offset, int64_t bytes, uint64_t *address_p, bool *refused_p);
void uli_ucx_key_refuse(struct uli_ucx_peer *peer, uint32_t window);
void uli_ucx_keys_free(struct uli_ucx_peer *peer);
/* Requests keys and sends them, as is due. */
void uli_ucx_do_keys(struct uli_net *net, struct uli_ucx_peer *peer);
void uli_ucx_key_requested(struct uli_ucx_peer *peer, uint32_t window);
void uli_ucx_key_came(struct uli_ucx_peer *peer,
    const struct uli_ucx_head *head, const void *data, size_t bytes);
void uli_ucx_key_gone(struct uli_ucx_peer *peer, uint32_t window);

/* ---- verb.c -------------------------------------------------------------- */

enum uli_ucx_verb uli_ucx_verb_of(const struct uli_settings *settings);
const char *uli_ucx_verb_name(enum uli_ucx_verb verb);
/* The present verb for a large put to the peer; the first call begins the
 * choice. */
enum uli_ucx_verb uli_ucx_verb(struct uli_net *net, struct uli_ucx_peer *peer);
/* Repeats a probe that had no result, when it is time. */
void uli_ucx_verb_retry(struct uli_ucx_peer *peer, int64_t now_ns);
/* Probes, and sends the messages that are due. */
void uli_ucx_do_verb(struct uli_net *net, struct uli_ucx_peer *peer);
/* The owner of a scratch forces a verb, or none (VERBS). */
void uli_ucx_verb_forced(struct uli_ucx_peer *peer, uint32_t verb);
void uli_ucx_verb_receive(
    struct uli_ucx_peer *peer, const struct uli_ucx_head *head);

/* ---- verb_choice.c ------------------------------------------------------- */

/* Chooses from took_ns[round][verb] of a probe, 0: not measured. Returns VERBS
 * where the rounds differ too much or are too few. */
enum uli_ucx_verb uli_ucx_verb_choose(
    const int64_t (*took_ns)[ULI_UCX_VERBS], int rounds);

/* ---- keepalive.c --------------------------------------------------------- */

/* Listens on one of the ports. After a failure other ranks notice the end of
 * this host late only. */
void uli_ucx_keepalive_open(struct uli_net *net, struct uli_port_range ports);
void uli_ucx_keepalive_close(struct uli_net *net);
/* Something is on its way to or from the peer. */
void uli_ucx_watch(struct uli_net *net, struct uli_ucx_peer *peer);
/* The peer's endpoint has been closed: operations that UCX does not end soon
 * are abandoned. */
void uli_ucx_watch_end(struct uli_net *net, struct uli_ucx_peer *peer);
/* Accepts connections, probes and evaluates probes. A part of a step, at most
 * every 10 ms. */
void uli_ucx_keepalive_step(struct uli_net *net);

socklen_t uli_ucx_place_bytes(const union uli_ucx_place *place);

/* ---- sentinel.c ---------------------------------------------------------- */

/* The slot `watch` of transport/net.h. */
void uli_ucx_sentinel_watch(struct uli_net *net, int32_t rank);
/* A connection to the keepalive socket; takes fd. */
void uli_ucx_sentinel_accept(struct uli_net *net, int fd);
void uli_ucx_sentinel_step(struct uli_net *net, int64_t now);
void uli_ucx_sentinel_close(struct uli_net *net);

/* ---- sockets.c ----------------------------------------------------------- */

/* Non-blocking sockets that no fork and no exec of this process keeps. -1 with
 * errno: none. */
int uli_ucx_socket(sa_family_t family);
int uli_ucx_accept(int listener);
/* Closes the socket, in the process that made it, and sets it to -1. May be
 * called twice. */
void uli_ucx_hang_up(int *fd);

/* ---- gate.c -------------------------------------------------------------- */

/* Find the listening sockets. _before is called before UCX's worker is made,
 * _after when the worker and the keepalive socket have been made. Errors:
 * NO_MEMORY; SYSTEM and UNSUPPORTED where the sockets cannot be closed to other
 * hosts. */
ulyx_status_t uli_ucx_gate_before(struct uli_net *net);
ulyx_status_t uli_ucx_gate_after(struct uli_net *net);
/* The addresses of this host from which connections may come, at most `room`.
 * Returns how many. */
size_t uli_ucx_gate_addresses(
    const struct uli_net *net, struct in6_addr *list_p, size_t room);
/* Admits the addresses of a peer's host; takes effect with the next step. */
ulyx_status_t uli_ucx_gate_admit(
    struct uli_net *net, const struct in6_addr *list, size_t count);
/* Attaches the filters that drop the packets of hosts of no peer (of all but a
 * few: see gate.c), and ends the connections from hosts of no peer. */
void uli_ucx_gate_close(struct uli_net *net);
void uli_ucx_gate_free(struct uli_net *net);

#endif
