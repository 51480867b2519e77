/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the files of the service:
 *     service.c         life, registry, fork
 *     service_thread.c  the thread: accepts, waits
 *     service_request.c one request, carried out
 *     service_watch.c   pidfds of peers' processes
 *     service_client.c  requests to other processes
 *
 * Locks: `life` serialises start and stop; `lock` guards the registry, the
 * watches and every descriptor of the service (so that a fork copies them
 * whole). Order: life before lock; the thread takes lock only. comm->lock and
 * failure_lock may be taken under lock, never the other way round.
 */
#ifndef ULI_COMM_SERVICE_SERVICE_INTERNAL_H
#define ULI_COMM_SERVICE_SERVICE_INTERNAL_H

#include "comm/service/service.h"

/* ---- messages: one request and one answer per connection ----------------- */

enum uli_service_kind {
    ULI_SERVICE_PING = 1, /* queries whether the service answers */
    ULI_SERVICE_DELIVER,  /* map a window and publish it; comes with one
                           * descriptor, or with shares of device memory and
                           * their descriptors */
    ULI_SERVICE_WITHDRAW,
    ULI_SERVICE_RETIRE, /* withdraw if no operation is in flight */
};

struct uli_service_request {
    uint32_t protocol; /* ULI_PROTOCOL */
    uint32_t kind;
    unsigned char endpoint[16]; /* of the receiver */
    int32_t rank;               /* the window's owner */
    uint32_t window;
    int64_t bytes;
    /* For device memory: the window's address at its owner, and how many struct
     * uli_share follow. */
    uint64_t address;
    int32_t nshares, pad;
};

/* Sent with a request: shares in the same message, and descriptors. */
struct uli_service_cargo {
    const struct uli_share *shares;
    int32_t nshares, nfds;
    int fds[ULI_SHARE_RUN];
};

enum uli_service_outcome {
    ULI_SERVICE_DONE,
    ULI_SERVICE_NOBODY, /* no such endpoint yet, or no longer */
    ULI_SERVICE_FAILED, /* with status and text */
};

struct uli_service_answer {
    uint32_t protocol;
    int32_t outcome;
    int32_t status;
    char text[244];
};

/* ---- the process's service ----------------------------------------------- */

enum { ULI_SERVICE_CONNECTIONS = 64 };

/* The kind of a descriptor in epoll's data: kind in the high half, descriptor
 * in the low half. The descriptor is looked up again under lock, because it may
 * be closed by then. */
enum uli_service_source {
    ULI_SOURCE_STOP = 1,
    ULI_SOURCE_LISTENER,
    ULI_SOURCE_CONNECTION,
    ULI_SOURCE_WATCH,
    ULI_SOURCE_POKE,
};

struct uli_service_connection {
    int fd; /* -1: free */
    int64_t since_ns;
};

struct uli_service_watch_entry {
    struct uli_list node;
    int fd; /* pidfd */
    unsigned char process[16];
    bool dead;
};

struct uli_service {
    pthread_mutex_t life, lock;
    bool forked;   /* in a child: set once, by the fork handler */
    int32_t holds; /* under life */
    unsigned char process[16];
    int32_t process_pid; /* the process that chose the name */
    char name[32];
    int64_t core;               /* of the thread, -1 = any */
    struct uli_binding binding; /* under lock: of all communicators that it
                                 * serves */
    pthread_t thread;
    /* spare: closed to accept one more connection when descriptors have run
     * out */
    int epoll, stop, listener, spare;
    int poke; /* an eventfd: read the registry again */
    struct uli_service_connection connections[ULI_SERVICE_CONNECTIONS];
    struct uli_list comms;   /* under lock, by their registry node */
    struct uli_list watches; /* under lock */
};

extern struct uli_service uli_service;

/* As uli_service_find, but the caller holds lock. */
ulyx_comm_t *uli_service_find_locked(const unsigned char endpoint[16]);

/* ---- service_thread.c ---------------------------------------------------- */

/* Opens socket, epoll and thread; under life. Errors: SYSTEM, NO_MEMORY. */
ulyx_status_t uli_service_thread_start(void);
/* Joins the thread and closes everything; under life. */
void uli_service_thread_stop(void);
/* Closes every descriptor: after stop, and in a forked child. */
void uli_service_close_descriptors(void);
/* Wakes the thread, if there is one: the registry has changed; under lock. */
void uli_service_poke(void);
/* Adds a descriptor to the epoll set. */
ulyx_status_t uli_service_poll_add(enum uli_service_source source, int fd);

/* ---- service_request.c --------------------------------------------------- */

/* Receives one request from the connection, carries it out and answers; under
 * lock. False: nothing has arrived yet. True: the connection is to be
 * closed. */
bool uli_service_serve(int socket_fd);

/* ---- service_watch.c ----------------------------------------------------- */

/* The pidfd of a watched process may be readable; under lock. */
void uli_service_watch_fired(int fd);
/* Drops watches of processes that no communicator has any more; under lock. */
void uli_service_watch_sweep(void);

/* ---- service_client.c ---------------------------------------------------- */

/* The pause before a request that brought no answer is repeated. */
#define ULI_SERVICE_RETRY_NS INT64_C(1000000)

/* A connection to a peer's service, whose user was checked; -1 with *gone_p =
 * true when no such service exists (its process has ended or let go of it),
 * else -1 with a status: TIMEOUT without a text when the peer's queue stays
 * full. stand, here and below, if not NULL: the call reports that it waits,
 * and a failure of its communicator ends the wait before the deadline. */
int uli_service_connect(const struct uli_identity *peer,
    struct uli_stand *stand, uli_deadline_t deadline, bool *gone_p,
    ulyx_status_t *status_p);
/* Sends the request (cargo NULL: alone) and waits for the answer. IN_PROGRESS:
 * the connection broke before an answer; TIMEOUT without a text. */
ulyx_status_t uli_service_exchange(int socket_fd,
    const struct uli_service_request *request,
    const struct uli_service_cargo *cargo, struct uli_stand *stand,
    uli_deadline_t deadline, struct uli_service_answer *answer_p);

#endif
