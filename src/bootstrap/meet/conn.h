/* SPDX-License-Identifier: Apache-2.0
 *
 * One connection at the root: hello, proof, then frames. Private to the root's
 * thread. A connection that breaks the protocol before it has joined is a
 * stray: it is dropped and counted, and the meeting continues.
 */
#ifndef ULI_BOOTSTRAP_MEET_CONN_H
#define ULI_BOOTSTRAP_MEET_CONN_H

#include <stdatomic.h>
#include "base/list.h"
#include "bootstrap/meet/auth.h"
#include "bootstrap/meet/meeting.h"
#include "bootstrap/meet/root.h"
#include "bootstrap/meet/frame.h"

enum uli_conn_stage {
    ULI_CONN_HELLO,
    ULI_CONN_ANSWER,
    ULI_CONN_JOIN,    /* authenticated, rank not yet known */
    ULI_CONN_JOINED,  /* rank is set */
    ULI_CONN_REFUSED, /* authenticated, but not admitted: gets the failure */
    ULI_CONN_DEAD,    /* closed, to be freed after this batch of events */
};

struct uli_conn {
    struct uli_list node; /* in root->strangers, ->members or ->dead */
    struct uli_root *root;
    int fd;
    enum uli_conn_stage stage;
    int32_t rank; /* -1 before it joined */
    uli_deadline_t deadline;
    char address[80]; /* of the peer, without port */
    struct uli_auth auth;
    unsigned char message[ULI_ANSWER_BYTES]; /* hello or answer, so far */
    size_t have;
    struct uli_frame_reader reader;
    struct uli_blob *out, *next; /* being sent, and to be sent after it */
    size_t sent;
    bool last;     /* close once `out` and `next` are sent */
    bool draining; /* all was sent: waits until the peer closes */
};

struct uli_root {
    struct uli_root_params params;
    char unlink_path[512];
    struct uli_meeting meeting;
    struct uli_list strangers; /* in order of arrival, and so of deadline */
    struct uli_list members;   /* joined or refused */
    struct uli_list dead;
    int stranger_count;
    int epoll_fd, event_fd;
    uli_deadline_t linger; /* end of a failed meeting */
    uli_deadline_t reopen; /* when the pausing listener accepts again */
    int pause_ms; /* length of the listener's last pause; 0: a connection was
                   * accepted after it */
    atomic_int refs;
    atomic_int unsent; /* connections with unsent bytes */
    atomic_bool stop, cancel, finished;
    atomic_bool deaf;         /* event_fd is closed, or about to be */
    atomic_int wakers;        /* threads that may be writing to event_fd */
    atomic_int state;         /* uli_root_state */
    atomic_bool all_notified; /* the meeting has failed and its members have
                               * left */
    bool cancelled;           /* the thread has carried out `cancel` */
};

/* Opens a connection, which owns the descriptor. NULL: there is no memory, and
 * the descriptor is closed. */
struct uli_conn *uli_conn_open(
    struct uli_root *root, int fd, const char *address);
/* Handles the events that epoll has reported. */
void uli_conn_event(struct uli_conn *conn, uint32_t events);
/* Queues the meeting's failure, the last frame of the connection. */
void uli_conn_send_failure(struct uli_conn *conn);
/* Drops a connection that has not joined, and counts it. */
void uli_conn_drop(struct uli_conn *conn, const char *why);
/* Closes the connection; uli_conn_free_dead frees its memory. */
void uli_conn_close(struct uli_conn *conn);
void uli_conn_free_dead(struct uli_root *root);

/* ---- the listener (listener.c) ----------------------------------------- */

/* Accepts waiting connections, a few at a time. */
void uli_listener_accept(struct uli_root *root, int listener);
/* Ends a pause of the listener, which it made for lack of descriptors. */
void uli_listener_reopen(struct uli_root *root);
/* Closes the listeners and removes the rendezvous file. */
void uli_listener_shut(struct uli_root *root);
void uli_listener_remove_file(struct uli_root *root);
/* When all ranks have joined: closes the listeners and removes the file, so
 * that the next meeting of the same name starts afresh, and drops connections
 * without a proof, because the job needs the descriptors. */
void uli_listener_close(struct uli_root *root);

#endif
