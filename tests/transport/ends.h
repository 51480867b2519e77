/* SPDX-License-Identifier: Apache-2.0
 *
 * Ends of a network for the conformance suite of ULI_TR_PUT: each with one
 * window that has guard bytes around it, and books of what its hooks were
 * told. Ends of one process are connected by ends_join; between processes the
 * addresses travel by ends_swap.
 */
#ifndef TESTS_TRANSPORT_ENDS_H
#define TESTS_TRANSPORT_ENDS_H

#include "support/test.h"
#include "transport/transport.h"

enum {
    ENDS_GUARD = 4096,
    ENDS_WORDS = 64, /* signal words, in window ENDS_SIGNALS */
    ENDS_DATA = 1,   /* number of the window with data */
    ENDS_SIGNALS = 2,
    ENDS_MESSAGES = 4096, /* of each peer: 8 bytes kept, more counted */
    ENDS_MOST = 8,
};

struct end {
    const struct uli_net_ops *ops;
    struct uli_net *net;
    int32_t rank, nranks;
    unsigned char *memory; /* guard, window, guard */
    int64_t bytes;         /* of the window */
    unsigned char guard;   /* value of the guard bytes */
    _Atomic uint64_t words[ENDS_WORDS];
    _Atomic int64_t arrived, lost[ENDS_MOST];
    char how[ENDS_MOST][256];
    _Atomic int64_t messages[ENDS_MOST];
    uint64_t heard[ENDS_MOST][ENDS_MESSAGES];
    int64_t heard_bytes[ENDS_MOST][ENDS_MESSAGES];
    _Atomic int64_t pending;
};

/* data: bytes of the data window. Fails the test on error. */
struct end *end_open(const struct uli_tr_ops *ops,
    const struct uli_settings *settings, int32_t rank, int32_t nranks,
    int64_t data);
void end_close(struct end *end, double seconds);
unsigned char *end_data(const struct end *end);
/* Guard bytes are whole. */
void end_check_guards(const struct end *end);

/* Two ends of this process know each other. */
void ends_join(struct end *a, struct end *b);
/* The same with an end at the other side of a socket. */
void ends_swap(struct end *end, int32_t peer, int socket);

/* A socket for it, across hosts: host NULL waits for the other. -1: errno. */
int ends_meet(const char *host, int port);

/* Data at `offset` of the peer's window, then value at its word. */
ulyx_status_t end_put(struct end *end, int32_t peer, const void *data,
    int64_t bytes, int64_t offset, int word, uint64_t value);

/* Progresses the ends until *word is at least value; false after seconds. */
bool ends_wait(struct end *a, struct end *b, const _Atomic uint64_t *word,
    uint64_t value, double seconds);
bool ends_wait_count(struct end *a, struct end *b, const _Atomic int64_t *count,
    int64_t value, double seconds);

/* Until all that `a` has put to the peer has settled, probes of its own too. */
bool ends_wait_settled(
    struct end *a, struct end *b, int32_t peer, double seconds);

/* A thread that does what the service thread does: sleeps on the net and
 * moves it on, until stopped. */
struct end_service;
struct end_service *end_serve(struct end *end);
void end_service_stop(struct end_service *service);

#endif
