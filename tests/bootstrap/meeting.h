/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the bootstrap's tests: a root on a chosen kind of socket, ranks as
 * threads that meet there, and bad peers made of raw sockets.
 */
#ifndef TESTS_BOOTSTRAP_MEETING_H
#define TESTS_BOOTSTRAP_MEETING_H

#include <stdint.h>
#include "bootstrap/meet/dial.h"
#include "bootstrap/meet/root.h"

enum meeting_kind { MEETING_V4, MEETING_V6, MEETING_UNIX };

/* A root that lingers for linger_s only; ends the test if it cannot be had. */
struct uli_root *meeting_open(enum meeting_kind kind, double deadline_s,
    double handshake_s, struct uli_endpoint *place_p);
/* Stops it and waits until its thread has gone. */
void meeting_close(struct uli_root *root);

/* The task of one rank of meeting_run, and its result. */
struct meeting_rank {
    int32_t rank, nranks;
    bool absent;  /* never comes */
    bool silent;  /* joins, gathers nothing until the others are done */
    bool fails;   /* reports a failure after its gathers */
    size_t bytes; /* of each record */
    int gathers;  /* how many */
    double patience_s;
    double late_s; /* comes so much later */
    ulyx_status_t status;
    char text[1024];
};

/* Runs all as threads; every table is checked byte by byte (a wrong one gives
 * ULYX_ERR_INTERNAL). */
void meeting_run(
    const struct uli_endpoint *place, struct meeting_rank *ranks, int count);
/* A record for tests that gather by themselves. */
unsigned char meeting_byte(int32_t rank, int gather, size_t at);

/* Open descriptors of this process. */
int meeting_open_files(void);
/* Waits until no root thread is left; false after five seconds. */
bool meeting_all_ended(void);

/* A raw connection to the place's first address; -1 where refused. */
int meeting_raw(const struct uli_endpoint *place);
/* Reads until the other end closes or limit_s; returns bytes read, or -1 when
 * it did not close. */
int meeting_raw_drain(int fd, double limit_s);

#endif
