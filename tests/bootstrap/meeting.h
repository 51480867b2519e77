/* SPDX-License-Identifier: Apache-2.0
 *
 * Shared by the tests of the bootstrap: a root on a chosen kind of socket,
 * ranks as threads that meet there, and raw sockets for bad peers.
 */
#ifndef TESTS_BOOTSTRAP_MEETING_H
#define TESTS_BOOTSTRAP_MEETING_H

#include <stdint.h>
#include "bootstrap/meet/dial.h"
#include "bootstrap/meet/root.h"

enum meeting_kind { MEETING_V4, MEETING_V6, MEETING_UNIX };

/* Opens a root that lingers for linger_s only. Fails the test on an error. */
struct uli_root *meeting_open(enum meeting_kind kind, double deadline_s,
    double handshake_s, struct uli_endpoint *place_p);
/* Stops the root and waits until its thread has ended. */
void meeting_close(struct uli_root *root);

/* The task of one rank of meeting_run, and its result. */
struct meeting_rank {
    int32_t rank, nranks;
    bool absent;  /* the rank never comes */
    bool silent;  /* joins, but gathers nothing until the others are done */
    bool fails;   /* reports a failure after its gathers */
    size_t bytes; /* bytes of each record */
    int gathers;  /* number of gathers */
    double patience_s;
    double late_s; /* comes this many seconds later */
    ulyx_status_t status;
    char text[1024];
};

/* Runs all ranks as threads and checks every table byte by byte; a wrong table
 * gives ULYX_ERR_INTERNAL. */
void meeting_run(
    const struct uli_endpoint *place, struct meeting_rank *ranks, int count);
/* Returns byte `at` of a rank's record, for tests that gather by themselves. */
unsigned char meeting_byte(int32_t rank, int gather, size_t at);

/* Returns how many descriptors this process has open. */
int meeting_open_files(void);
/* Waits until no root thread is left. Returns false after five seconds. */
bool meeting_all_ended(void);

/* Opens a raw connection to the first address of the place. Returns -1 if it is
 * refused. */
int meeting_raw(const struct uli_endpoint *place);
/* Reads until the other end closes or limit_s is over. Returns the bytes read,
 * or -1 if the other end did not close. */
int meeting_raw_drain(int fd, double limit_s);

#endif
