/* SPDX-License-Identifier: Apache-2.0
 *
 * Ends of a network for the conformance suite of ULI_TR_PUT: each has one
 * window with guard bytes around it, and records the calls of its hooks.
 * ends_join connects ends of one process; ends_swap exchanges addresses between
 * processes.
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
    ENDS_MESSAGES = 4096, /* kept per peer, 8 bytes each; all are counted */
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
    uint64_t received[ENDS_MOST][ENDS_MESSAGES];
    int64_t received_bytes[ENDS_MOST][ENDS_MESSAGES];
    _Atomic int64_t pending;
};

/* Opens an end whose data window has `data` bytes. Fails the test on error. */
struct end *end_open(const struct uli_tr_ops *ops,
    const struct uli_settings *settings, int32_t rank, int32_t nranks,
    int64_t data);
void end_close(struct end *end, double seconds);
unsigned char *end_data(const struct end *end);
/* Checks that the guard bytes are unchanged. */
void end_check_guards(const struct end *end);

/* Connects two ends of this process. */
void ends_join(struct end *a, struct end *b);
/* Connects with an end at the other side of a socket. */
void ends_swap(struct end *end, int32_t peer, int socket);

/* Returns a socket for ends_swap across hosts; with host NULL, waits for the
 * other side. Returns -1 and sets errno on an error. */
int ends_meet(const char *host, int port);

/* Puts data at `offset` of the peer's window; then the word becomes the
 * value. */
ulyx_status_t end_put(struct end *end, int32_t peer, const void *data,
    int64_t bytes, int64_t offset, int word, uint64_t value);

/* Calls progress on the ends until *word is at least value. Returns false after
 * some seconds. */
bool ends_wait(struct end *a, struct end *b, const _Atomic uint64_t *word,
    uint64_t value, double seconds);
bool ends_wait_count(struct end *a, struct end *b, const _Atomic int64_t *count,
    int64_t value, double seconds);

/* Waits until all puts of `a` to the peer have settled, its own probes too. */
bool ends_wait_settled(
    struct end *a, struct end *b, int32_t peer, double seconds);

/* A thread that drives the network as the communicator's thread does: sleeps in
 * wait and calls progress, until stopped. */
struct end_service;
struct end_service *end_serve(struct end *end);
void end_service_stop(struct end_service *service);

#endif
