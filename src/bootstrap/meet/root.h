/* SPDX-License-Identifier: Apache-2.0
 *
 * The root of a meeting: a thread of its own that listens, admits connections
 * that prove the secret, and serves gathers until all ranks have left. The
 * thread blocks all signals, holds no lock while it works, and never waits for
 * a single peer.
 */
#ifndef ULI_BOOTSTRAP_MEET_ROOT_H
#define ULI_BOOTSTRAP_MEET_ROOT_H

#include <stdbool.h>
#include "base/system/clock.h"
#include "bootstrap/meet/auth.h"
#include "bootstrap/meet/socket.h"
#include "ulyx/types.h"

struct uli_root;

struct uli_root_params {
    unsigned char secret[ULI_SECRET_BYTES];
    uli_deadline_t deadline; /* when a meeting without all its ranks fails */
    double handshake_s;      /* for the proof of a connection; 0: 10 */
    double linger_s; /* how long a failed meeting sends its cause to late ranks;
                      * 0 = 30 */
    int listeners[ULI_ADDRESS_MAX];
    int listener_count;
    bool same_user;          /* Unix sockets: other users are refused */
    bool stays;              /* the listeners are for this meeting only: after
                              * all ranks have joined, later connections get an
                              * answer, until the deadline */
    const char *unlink_path; /* removed when all have joined or the meeting
                              * has failed; copied; NULL = none */
};

/* The root owns the listeners from the call on, also on error.
 * returns SUCCESS, ERR_NO_MEMORY or ERR_SYSTEM. */
ulyx_status_t uli_root_start(
    const struct uli_root_params *params, struct uli_root **root_p);
/* Releases the handle; the thread runs until the meeting is over. Waits at most
 * wait_s until pending answers are sent. NULL: does nothing. */
void uli_root_release(struct uli_root *root, double wait_s);
/* Ends the meeting now and releases the handle, like uli_root_release. */
void uli_root_stop(struct uli_root *root, double wait_s);
/* Like uli_root_stop, after sending ERR_ABORTED to the ranks that have
 * joined. */
void uli_root_cancel(struct uli_root *root, double wait_s);

/* The state of the meeting; each state may follow any earlier one. Any
 * thread. */
enum uli_root_state {
    ULI_ROOT_OPEN,  /* waits for ranks, or has failed and sends the cause */
    ULI_ROOT_WHOLE, /* all ranks have joined */
    ULI_ROOT_OVER,  /* and have left in good order */
};
enum uli_root_state uli_root_state(const struct uli_root *root);
/* Is the meeting over or failed, so that the root only answers late ranks? */
bool uli_root_awaits_late(const struct uli_root *root);
/* Has the root's thread ended? All its descriptors are then closed. */
bool uli_root_ended(const struct uli_root *root);
/* For tests: the number of root threads in this process, and an upper limit of
 * linger_s for meetings that fail from now on. */
int uli_root_count(void);
void uli_root_limit_linger(double seconds);

#endif
