/* SPDX-License-Identifier: Apache-2.0
 *
 * How a rank reaches the root: addresses, the handshake, and the star bootstrap
 * over the resulting connection.
 */
#ifndef ULI_BOOTSTRAP_MEET_DIAL_H
#define ULI_BOOTSTRAP_MEET_DIAL_H

#include <stdbool.h>
#include "base/system/clock.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/meet/auth.h"
#include "bootstrap/meet/socket.h"

struct uli_root;

/* Where a meeting is. */
struct uli_endpoint {
    unsigned char secret[ULI_SECRET_BYTES];
    int count;
    struct uli_socket_address addresses[ULI_ADDRESS_MAX];
    bool same_user; /* Unix socket: the root must run as this user */
    char who[320];  /* which process serves the meeting, for texts: "rank 0 at
                     * node7"; "": its root */
};

/* Why an attempt failed: AUTH, VERSION, or SYSTEM for causes that may go
 * away. */
struct uli_dial_report {
    ulyx_status_t status;
    char text[384]; /* "10.0.0.1:2000: connection refused" */
};

/* Tries every address once, in order. returns an authenticated descriptor, or
 * -1 with the most significant failure in *report_p. Logs nothing. */
int uli_dial_once(const struct uli_endpoint *place, uli_deadline_t deadline,
    struct uli_dial_report *report_p);

/* Tries until the deadline, with growing pauses. A refusal for secret or
 * version is final once settle_s have passed (an older meeting at the same
 * address may still be closing).
 * returns SUCCESS, TIMEOUT, AUTH, VERSION; INVALID_ARGUMENT at once where no
 * address can be dialled (link-local ones without their interface). */
ulyx_status_t uli_dial(const struct uli_endpoint *place, double settle_s,
    uli_deadline_t deadline, int *fd_p);

/* Sleeps for *pause_ms (at most until the deadline), then lengthens it. */
void uli_dial_pause(int *pause_ms, uli_deadline_t deadline);

/* Joins over an authenticated descriptor, which the bootstrap owns from the
 * call on, also on error. root (NULL: another process serves the meeting)
 * belongs to the bootstrap on success and to the caller on error. ports: where
 * a tree's ranks listen.
 * returns SUCCESS, NO_MEMORY, RANK_LOST (the root broke the connection). */
ulyx_status_t uli_bootstrap_open_star(int fd, struct uli_root *root,
    int32_t nranks, int32_t rank, struct uli_port_range ports,
    uli_deadline_t deadline, struct uli_bootstrap **bootstrap_p);

#endif
