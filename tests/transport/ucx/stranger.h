/* SPDX-License-Identifier: Apache-2.0
 *
 * A program without the secret that knows where a rank listens and its memory
 * layout, and uses all that UCX's protocol offers to any sender.
 */
#ifndef TESTS_TRANSPORT_STRANGER_H
#define TESTS_TRANSPORT_STRANGER_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    STRANGER_BYTES = 64,     /* of the memory that it attacks */
    STRANGER_PIECE = 300000, /* of the puts that it tries to replace */
    STRANGER_TAGS = 40,
};

struct stranger_aim {
    struct sockaddr_in port; /* of UCX */
    in_port_t keepalive_connection;
    uint64_t address; /* of the memory */
    char device[32];  /* the device to send through */
    bool open;        /* ended by a raw packet: UCX aborts */
    bool elsewhere;   /* it connects from an address that no peer has */
};

struct stranger_report {
    bool connected; /* its own socket connected */
    bool reached;   /* UCX has sent something */
    char read[STRANGER_BYTES];
};

/* The port, in network order, of the newest TCP listener of this process other
 * than `except`; 0: none. */
in_port_t stranger_port(int except, struct in_addr *address_p);

/* A packet that UCX's TCP accepts before any handshake: STRANGER_BYTES of 'W'
 * to the address. */
void stranger_write_raw(
    const struct stranger_aim *aim, struct stranger_report *report);

/* Garbage and silent connections to the keepalive socket, more than it
 * keeps. */
void stranger_pester(const struct stranger_aim *aim);

/* As a client of UCX: get, put, active messages and tags, until `socket` is
 * readable. */
void stranger_send_ucx(const struct stranger_aim *aim,
    struct stranger_report *report, int report_fd, int socket);

#endif
